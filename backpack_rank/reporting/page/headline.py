"""The page's table of main numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, SystemResult
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.wording import (
    AS_IT_IS,
    figure_of,
    interval,
    measures_explained,
)


def headline_table(
    settings: Mapping[str, Sequence[SystemResult]],
    measures: Sequence[str],
    title: str,
    alpha: float | None = None,
    policy: str = "",
    significant: Callable[[str, SystemResult, str], bool] = lambda setting, row, measure: False,
) -> Table:
    """Use this for systems by the main measures.

    References come first, then the unchanged ranker once, then each policy, alpha downwards.

    Args:
        settings: systems by the name of their setting.
        measures: columns.
        title: of the table.
        alpha: of the rows that are marked.
        policy: what all systems with an alpha share, where settings name none.
        significant: whether a measure of a system of a setting differs from the unchanged ranker.
    """
    # Equal rows stand once: settings repeat references and the unchanged ranker.
    rows_once: list[Row] = []
    marked: list[int] = []
    starred = False
    for name, rows in settings.items():
        setting = Setting.of(name)
        for row in sorted(rows, key=_references_first):
            cells = []
            for measure in measures:
                star = significant(name, row, measure)
                starred = starred or star
                cells.append(_cell(figure_of(row, measure), star))
            shown = Row(_labels(row, setting, policy), tuple(cells))
            if shown in rows_once:
                continue
            if alpha is not None and row.alpha == alpha:
                marked.append(len(rows_once))
            rows_once.append(shown)
    notes = []
    if starred:
        notes.append(
            "* differs significantly from the ranker as it is "
            "(Holm-corrected over the alphas of a policy)."
        )
    explained = measures_explained(measures)
    if explained:
        notes.append(explained)
    headings = tuple(measure_of(measure).shown for measure in measures)
    return Table(
        name="headline",
        title=title,
        labels=("system", "alpha"),
        groups=[Group("", headings)],
        sections=[Section("", rows_once)],
        notes=notes,
        marked=marked,
    )


def _references_first(row: SystemResult) -> tuple[bool, float]:
    return row.alpha is not None, -(row.alpha or 0)


def _labels(row: SystemResult, setting: Setting, policy: str) -> tuple[str, str]:
    """The system, and its alpha."""
    if row.alpha is None:
        return row.label, ""
    name = AS_IT_IS if row.alpha == 1 else setting.policy or policy
    parts = [name or row.label, setting.rest]
    return ", ".join(part for part in parts if part), f"{row.alpha:g}"


def _cell(figure: Estimate | None, star: bool) -> Cell:
    if figure is None:
        return Cell()
    text = number(figure.mean)
    if star:
        text += "*"
    ends = interval(figure)
    if ends is None:
        return Cell(text)
    return Cell(text, interval=f"[{number(ends[0], 3)}, {number(ends[1], 3)}]")
