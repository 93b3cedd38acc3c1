"""evaluate.py listwise=trained with a small ranker, in this process, and what it leaves."""

from __future__ import annotations

from pathlib import Path

from listwise_example import composed, options

from backpack_rank.data.trec import read_run
from backpack_rank.evaluation.results import Report
from backpack_rank.pipelines.evaluate import evaluate


def evaluated(ranker: Path, folder: Path, *more: str, quiet: bool = True) -> Report:
    """Rank the first candidates of a few queries into a folder."""
    return evaluate(composed(*options(ranker, *more)), folder, quiet)


def run_of(folder: Path) -> dict:
    """The run that is not the first stage's."""
    (file,) = [path for path in (folder / "runs").glob("*.run") if not path.name.startswith("BM25")]
    return read_run(file)


def notes_of(report: Report) -> str:
    """All notes below a report's table."""
    return " ".join(report.about.notes)
