"""Measure a ranker or a run: ``python evaluate.py alpha=0.5``, ``python evaluate.py -m alpha=1,0.5,0``."""

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from backpack_rank.pipelines.errors import plain_errors, succeeds
from backpack_rank.pipelines.evaluate import evaluate


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(config: DictConfig) -> bool:
    """Evaluate, and say whether it went well; every option is in conf/evaluate.yaml."""
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    if hydra_config.mode == RunMode.MULTIRUN:
        return succeeds(lambda: evaluate(config, folder, quiet=True))
    with plain_errors():
        evaluate(config, folder)
    return True


if __name__ == "__main__":
    main()
