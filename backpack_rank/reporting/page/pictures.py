"""The page's charts as PNG and SVG files, for papers and slides."""

from __future__ import annotations

from pathlib import Path

from backpack_rank.reporting.page.data import Page, Panel
from backpack_rank.reporting.page.figures import policy_figures, share_figures
from backpack_rank.reporting.vega import Spec, beside, save_chart


def write_pictures(folder: str | Path, page: Page) -> list[Path]:
    """Write every chart of a page as ``<name>.png`` and ``<name>.svg`` into a folder.

    Returns:
        Paths of the files, each complete or absent; equal pages give equal files.
    """
    paths: list[Path] = []
    for name, title, spec in page_charts(page):
        paths += save_chart(Path(folder) / name, spec, title)
    return paths


def page_charts(page: Page) -> list[tuple[str, str, Spec]]:
    """Name, title and description of all charts of a page, in its order; those of a panel are one chart."""
    charts = [
        (panel.name, panel.title, _whole(panel))
        for gallery in (page.tradeoff, page.cutoffs)
        if gallery
        for panel in gallery.panels
    ]
    if page.policies:
        figures = [*policy_figures(page.policies), *share_figures(page.policies, page.groups)]
        charts += [(figure.name, figure.title, figure.spec) for figure in figures]
    return charts


def _whole(panel: Panel) -> Spec:
    if len(panel.figures) == 1:
        return panel.figures[0].spec
    return beside({figure.title: figure.spec for figure in panel.figures}, columns=min(3, len(panel.figures)))
