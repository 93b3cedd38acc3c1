"""Train a ranker: ``python train.py [data=...] [model=...] [trainer=gpu]``; every option is in conf/train.yaml."""

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from backpack_rank.pipelines.common import register_resolvers
from backpack_rank.pipelines.errors import plain_errors
from backpack_rank.pipelines.train import train

register_resolvers()


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(config: DictConfig) -> float:
    """Train, and give the best nDCG@10 on the dev split to a Hydra sweeper."""
    hydra_config = HydraConfig.get()
    with plain_errors():
        return train(config, Path(hydra_config.runtime.output_dir), list(hydra_config.overrides.task))


if __name__ == "__main__":
    main()
