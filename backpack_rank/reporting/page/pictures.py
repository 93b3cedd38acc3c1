"""The page's charts as PNG and SVG files, for papers and slides."""

from __future__ import annotations

from pathlib import Path

from backpack_rank.reporting.page.data import Page, Panel
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
    """Name, title and chart of all figures of a page, in its order; a panel is one chart."""
    charts = []
    for gallery in (page.tradeoff, page.cutoffs):
        if gallery is not None:
            for panel in gallery.panels:
                charts.append((panel.name, panel.title, _chart_of_panel(panel)))
    for figure in (*page.policies, *page.preferences):
        charts.append((figure.name, figure.title, figure.spec))
    return charts


def _chart_of_panel(panel: Panel) -> Spec:
    if len(panel.figures) == 1:
        return panel.figures[0].spec
    specs = {figure.title: figure.spec for figure in panel.figures}
    return beside(specs, columns=min(3, len(panel.figures)))
