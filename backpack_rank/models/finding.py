"""Where a ranker lies: that of a run, of a folder, or the one that was trained last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backpack_rank.commands import called
from backpack_rank.data.model_files import MODULES
from backpack_rank.files import LATEST, RANKER
from backpack_rank.models.foreign_folder import (
    what_is_there,
)
from backpack_rank.models.lora_folder import (
    is_lora,
)
from backpack_rank.parts import folder_kind


def ranker_folder(folder: str | Path, option: str) -> Path:
    """The folder of a saved ranker: the one given, or ``ranker`` in the folder of a run.

    Args:
        folder: of a run or of a ranker.
        option: where it was given, for the error.

    Raises:
        FileNotFoundError: it is neither.
    """
    if not str(folder).strip():
        # Path("") would be the current folder.
        raise FileNotFoundError(
            f"{option}='' names no ranker: give the folder of a run or of a ranker, or a hub id"
        )
    given = Path(folder).expanduser()
    for candidate in (given / RANKER, given):
        if (candidate / "config.json").is_file() or is_lora(candidate):
            return candidate
        if (candidate / MODULES).is_file():
            return candidate
    if given.is_file():
        raise FileNotFoundError(f"{option}={folder} is a file: give the folder that it is in")
    there = "there is no such folder"
    runs = sorted(given.glob(f"*/{RANKER}/config.json"))
    if runs:
        there = f"it holds runs: give one of them, such as {option}={runs[-1].parents[1]}"
    elif given.is_dir():
        there = f"it has {what_is_there(given)}: save the model with save_pretrained of its library"
    raise FileNotFoundError(
        f"{option}={folder}: neither a run's folder nor a saved ranker (no config.json); {there}"
    )


def find_ranker(checkpoint: str | None, output: str) -> Path:
    """The folder of a saved ranker: the given one, or that of the last trained pointwise ranker.

    The given one may be the folder of a run or of a ranker.

    Raises:
        FileNotFoundError: there is none.
    """
    if checkpoint is not None:
        return ranker_folder(checkpoint, "checkpoint")
    trained = Path(output, "train")
    saved = [path.parent for path in trained.glob(f"**/{RANKER}/config.json")]
    pointwise = [folder for folder in saved if folder_kind(folder) is None]
    if pointwise:
        return last_trained(pointwise, output)
    if saved and (kind := folder_kind(saved[0])) is not None:
        raise FileNotFoundError(
            f"all rankers below {trained} are {kind.name}: add {kind.advice}, or train another one"
        )
    raise FileNotFoundError(
        f"no trained ranker below {trained}: run `{called('train')}` first, "
        "or give checkpoint=FOLDER, or measure a run with run=FILE"
    )


def last_trained(rankers: Sequence[Path], output: str | Path) -> Path:
    """The ranker that was finished last: the one that ``latest/train`` leads to, or the newest."""
    newest_first = sorted(rankers, key=lambda folder: folder.stat().st_mtime, reverse=True)
    # The link comes first: times do not say what was last where the clock was moved, or the folders
    # were copied.
    latest = Path(output, LATEST, "train").resolve()
    for folder in newest_first:
        if latest in folder.resolve().parents:
            return folder
    return newest_first[0]
