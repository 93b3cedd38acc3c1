"""What training and evaluation share: splits by name, run folders, resolved configurations."""

from __future__ import annotations

import logging
import os
from datetime import datetime
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.first_stage import FirstStage
from backpack_rank.files import write_text

CONFIG = "config.yaml"
RANKER = "ranker"
LAST = "checkpoints/last.ckpt"


def register_resolvers() -> None:
    """Make ``${run_folder:output,resume}`` known to Hydra; call it before ``@hydra.main`` composes."""
    OmegaConf.register_new_resolver("run_folder", run_folder, use_cache=True, replace=True)


def run_folder(output: str, resume: bool | str) -> str:
    """The folder of a training run: a new one, or that of the run to continue.

    Raises:
        FileNotFoundError: there is no interrupted run to continue.
    """
    if not resume:
        return str(Path(output) / "train" / datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))
    if isinstance(resume, str) and resume.lower() != "true":
        if not (Path(resume) / LAST).is_file():
            raise FileNotFoundError(f"resume={resume}: {Path(resume) / LAST} is missing, so nothing can be continued")
        return resume
    interrupted = [
        path.parent.parent
        for path in Path(output, "train").glob(f"**/{LAST}")
        if not (path.parent.parent / RANKER).is_dir()
    ]
    if not interrupted:
        raise FileNotFoundError(
            f"resume=true: no interrupted run with a {LAST} lies below {Path(output, 'train')}; "
            "finished runs are not continued, and a run writes its first checkpoint after its first epoch"
        )
    return str(max(interrupted, key=lambda folder: (folder / LAST).stat().st_mtime))


def find_ranker(checkpoint: str | None, output: str) -> Path:
    """The folder of a saved ranker: the one given (a run or its ranker folder), or the last trained one.

    Raises:
        FileNotFoundError: there is none.
    """
    if checkpoint is not None:
        folder = Path(checkpoint).expanduser()
        for candidate in (folder / RANKER, folder):
            if (candidate / "config.json").is_file():
                return candidate
        raise FileNotFoundError(f"checkpoint={checkpoint}: neither a run's folder nor a saved ranker (no config.json)")
    found = list(Path(output, "train").glob(f"**/{RANKER}/config.json"))
    if not found:
        raise FileNotFoundError(
            f"no trained ranker below {Path(output, 'train')}: run `python train.py` first, "
            "or give checkpoint=FOLDER, or measure a run with run=FILE"
        )
    return max(found, key=lambda path: path.stat().st_mtime).parent


def save_config(folder: str | Path, config: DictConfig) -> None:
    """Write the configuration with every value resolved."""
    write_text(Path(folder) / CONFIG, OmegaConf.to_yaml(config, resolve=True))


def load_split(data: DictConfig, split: str) -> Collection:
    """One split of the data. Raises ``ValueError`` when the data has none of that name."""
    node = data.get(split)
    if node is None:
        raise ValueError(f"data={data.name} has no {split} split; set data.{split} in conf/data or on the command line")
    return instantiate(node, _convert_="all")


def first_stage(data: DictConfig, split: str) -> FirstStage:
    """The first stage of a split: ``<split>_first_stage`` where the data has one, else ``first_stage``."""
    return instantiate(data.get(f"{split}_first_stage") or data.first_stage, _convert_="all")


def candidates_of(data: DictConfig, split: str, collection: Collection) -> tuple[str, Run]:
    """Name of the first stage and its candidates for a collection of that split."""
    stage = first_stage(data, split)
    return stage.name, stage.candidates(collection)


def quiet_libraries() -> None:
    """Keep progress bars of loading, and advice that does not concern a user, out of the terminal."""
    os.environ.setdefault("WANDB_SILENT", "true")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
