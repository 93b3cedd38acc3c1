"""Rankers that an experiment compares: taken where they are, trained where they are not."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from backpack_rank.commands import called
from backpack_rank.files import RANKER, UNFINISHED
from backpack_rank.models.finding import last_trained

log = logging.getLogger(__name__)
_TRAIN = "from backpack_rank.cli import main; main()"


def trained_ranker(output: Path, options: Sequence[str], name: str) -> Path:
    """Get a ranker that is trained if it is not there.

    ::

        trained_ranker(Path("outputs/plain-seed0"), ["seed=0"], "task.rankers.plain")

    A training that was interrupted goes on.

    Args:
        output: its folder; a ranker is found below ``train`` in it, or as ``ranker``.
        options: of ``train.py``, but for ``output``.
        name: of the option that asks for it, for the error.

    Returns:
        Folder of the ranker.

    Raises:
        ValueError: the training failed.
    """
    saved = [*output.glob(f"{RANKER}/config.json"), *output.glob(f"train/*/{RANKER}/config.json")]
    if saved:
        folder = last_trained([path.parent for path in saved], output)
        log.info("%s: taken as it is", folder)
        return folder
    given = [*options, f"output={output}"]
    if any(output.glob(f"train/*/{UNFINISHED}")):
        given.append("resume=true")
    print(f"{called('train')} {' '.join(given)}", flush=True)
    # A process of its own: options of training are composed anew, and its memory is given back.
    done = subprocess.run([sys.executable, "-c", _TRAIN, "train", *given], check=False)
    if done.returncode != 0:
        raise ValueError(
            f"the training of {name} ended with code {done.returncode}; its message is above, and "
            f"{output} has its log"
        )
    return trained_ranker(output, options, name)
