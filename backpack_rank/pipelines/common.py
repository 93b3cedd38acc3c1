"""What training and evaluation share: splits by name, run folders, resolved configurations."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.first_stage import FirstStage
from backpack_rank.files import write_text
from backpack_rank.models.build import RANKER, ranker_folder
from backpack_rank.models.listwise.saved import is_listwise
from backpack_rank.position.rotation import Rotation, original_collection, rotated_collection

CONFIG = "config.yaml"
LAST = "checkpoints/last.ckpt"
ROTATION = ("rotation", "rotation_level", "rotation_seed")
"""Options of every data: which splits have their passages rotated, and how."""
_ROTATED = {"none": (), "train": ("train", "dev"), "test": ("test", "bias"), "both": ("train", "dev", "test", "bias")}


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
    """The folder of a saved ranker: the one given (a run or its ranker folder), or the last trained pointwise one.

    Raises:
        FileNotFoundError: there is none.
    """
    if checkpoint is not None:
        return ranker_folder(checkpoint, "checkpoint")
    saved = list(Path(output, "train").glob(f"**/{RANKER}/config.json"))
    found = [path for path in saved if not is_listwise(path.parent)]
    if saved and not found:
        raise FileNotFoundError(
            f"all rankers below {Path(output, 'train')} are listwise: add listwise=trained, or train another one"
        )
    if not found:
        raise FileNotFoundError(
            f"no trained ranker below {Path(output, 'train')}: run `python train.py` first, "
            "or give checkpoint=FOLDER, or measure a run with run=FILE"
        )
    return max(found, key=lambda path: path.stat().st_mtime).parent


def save_config(folder: str | Path, config: DictConfig) -> None:
    """Write the configuration with every value resolved."""
    write_text(Path(folder) / CONFIG, OmegaConf.to_yaml(config, resolve=True))


def resolved_config(config: DictConfig, data: DictConfig) -> DictConfig:
    """The configuration with the data that it is about, every value of the data resolved."""
    options = OmegaConf.to_container(config)
    assert isinstance(options, dict)
    return OmegaConf.create({**options, "data": OmegaConf.to_container(data, resolve=True)})


def load_split(data: DictConfig, split: str) -> Collection:
    """One split of the data, with its passages rotated where ``data.rotation`` says so.

    ``train`` rotates the train and the dev split, ``test`` the test split and a bias set of its own, ``both`` all.
    Documents in several wordings (``wordings``) are never rotated: each would be cut at another place, and what is
    measured of them is what the words alone change.

    Raises:
        ValueError: the data has no split of that name, or a wrong option of the rotation.
    """
    node = data.get(split)
    if node is None:
        raise ValueError(f"data={data.name} has no {split} split; set data.{split} in conf/data or on the command line")
    rotation = rotation_of(data, split)
    collection: Collection = instantiate(node, _convert_="all")
    return collection if rotation is None else rotated_collection(collection, rotation)


def refuse_options(changed: Sequence[str], known: Container[str], why: str) -> None:
    """Refuse options of the command line that would be ignored.

    Args:
        changed: options as they were given, such as ``training.epochs=3``.
        known: first parts of the names of options that count.
        why: what the others are, and what to do.

    Raises:
        ValueError: with the options that would be ignored, and ``why``.
    """
    # "+data.test.depth=3" and "prompt@model.prompt=plain" are of data and of prompt.
    names = {option: re.split(r"[=.@]", option.lstrip("+~"), maxsplit=1)[0] for option in changed}
    if ignored := [option for option, name in names.items() if name not in known]:
        raise ValueError(f"{', '.join(ignored)}: {why}")


def check_whole(task: object, names: Sequence[str], least: int = 1, null: Container[str] = ()) -> None:
    """Refuse settings of a task that are not whole numbers.

    Args:
        task: with the settings as attributes.
        names: of the settings.
        least: smallest number allowed.
        null: those of ``names`` that may also be None.

    Raises:
        ValueError: with the option's name, its value and what is allowed.
    """
    for name in names:
        value = getattr(task, name)
        if value is None and name in null:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            or_null = ", or null" if name in null else ""
            raise ValueError(f"task.{name}={value} must be a whole number of at least {least}{or_null}")


def rotation_of(data: DictConfig, split: str) -> Rotation | None:
    """How the passages of a split are rotated; None when they are not. Raises ``ValueError`` for a wrong option."""
    which = data.get(ROTATION[0]) or "none"
    if which not in _ROTATED:
        raise ValueError(f"data.rotation={which}: use one of {', '.join(_ROTATED)}")
    rotation = _rotation(data)  # a wrong option is an error even where nothing is rotated
    return rotation if split in _ROTATED[which] else None


def asked_rotation(config: DictConfig) -> Rotation:
    """``data.rotation_level`` and ``data.rotation_seed``, whatever ``data.rotation`` says."""
    return _rotation(config.get("data") or {})


def _rotation(data: Mapping[Any, Any]) -> Rotation:
    level, seed = (data.get(option) for option in ROTATION[1:])
    return Rotation("word" if level is None else level, 0 if seed is None else seed)


def chosen_data(config: DictConfig) -> DictConfig | None:
    """The data asked for by ``data=``; None when there is nothing but options for the data of a checkpoint."""
    data = config.get("data")
    return data if data is not None and "name" in data else None


def needed_data(config: DictConfig) -> DictConfig:
    """The data of ``data=``. Raises ``ValueError`` without one."""
    if (data := chosen_data(config)) is None:
        raise ValueError("this needs the collection to rank: add data=..., one of conf/data")
    return data


def file_part(name: str) -> str:
    """A collection's name as part of a file's name, without what Hydra would read in run=FILE."""
    return re.sub(r"[\s/=,()]+", "-", name).strip("-")


def first_stage(data: DictConfig, split: str) -> FirstStage:
    """The first stage of a split: ``<split>_first_stage`` where the data has one, else ``first_stage``."""
    return instantiate(data.get(f"{split}_first_stage") or data.first_stage, _convert_="all")


def candidates_of(data: DictConfig, split: str, collection: Collection) -> tuple[str, Run]:
    """Name of the first stage and its candidates for a collection of that split.

    A first stage reads the passages as they are, also of a rotated split: both are ranked from the same lists, and
    one index serves both. BM25 would find the same on rotated passages, since it does not look at order.
    """
    stage = first_stage(data, split)
    return stage.name, stage.candidates(original_collection(collection))


def quiet_libraries() -> None:
    """Keep progress bars of loading, and advice that does not concern a user, out of the terminal."""
    os.environ.setdefault("WANDB_SILENT", "true")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
