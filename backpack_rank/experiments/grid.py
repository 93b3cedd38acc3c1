"""What experiments share: which options they refuse, and how their tables are written and printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import print_table


def row_of(settings: EvaluationSettings, option: str, name: str) -> str:
    """Where a row stands, with the options that it looks up: ``task.rows.PSC with task.options.psc``."""
    return settings.saved.place_of(option, name)


def refuse_alpha(settings: EvaluationSettings) -> None:
    """Raise ``ValueError`` for an alpha beside an experiment that has its own, or none."""
    if settings.alpha != 1:
        raise ValueError(
            f"alpha={settings.alpha}: an experiment has alphas of its own or none; give task.alphas=[1,0.5] where it "
            "has some"
        )


def show(tables: Sequence[Table], sentence: str, quiet: bool) -> None:
    """Print the tables and a sentence below them, unless quiet."""
    if not quiet:
        for table in tables:
            print_table(table)
        print(sentence)


def paths_in_words(paths: Iterable[Path]) -> str:
    """Which files were written."""
    return f"Written: {', '.join(map(str, paths))}"
