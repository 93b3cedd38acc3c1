"""A page as HTML: one file with its style and script inside, which asks for nothing from anywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypeGuard

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from backpack_rank.files import write_text
from backpack_rank.reporting import vega
from backpack_rank.reporting.explanation import EXPLANATION_CSS
from backpack_rank.reporting.page import figures
from backpack_rank.reporting.page.data import ChangedQuery, Missing, Page, RankedDocument, SensePanel, Span
from backpack_rank.reporting.page.text import cut

GROUPS = 4
"""Groups of a lexicon that have colours of their own."""
SECTIONS = {
    "tradeoff": "Trade-off",
    "headline": "Main numbers",
    "cutoffs": "Bias per cut-off",
    "policies": "Policies",
    "comparison": "Comparison of systems",
    "changes": "Queries that change most",
    "senses": "Senses",
    "attribution": "Attribution",
    "configuration": "Configuration",
    "provenance": "Provenance",
}


@dataclass(frozen=True)
class Limits:
    """How much of the texts is put on the page, so that it stays readable and small; the page says what is left out.

    Attributes:
        queries: queries shown with their documents; further ones are listed with their measures alone.
        documents: documents shown of each ranking.
        snippet: characters of a document that are seen at once.
        text: characters of a document that can be unfolded.
    """

    queries: int = 20
    documents: int = 10
    snippet: int = 220
    text: int = 1500


@dataclass(frozen=True)
class _Document:
    """A document in one of the two lists of a query, ready for the page."""

    doc_id: str
    rank: int
    move: str
    direction: str
    score: str
    head: tuple[Span, ...] | None
    rest: tuple[Span, ...]
    left_out: int
    counts: tuple[tuple[str, int], ...]
    elsewhere: bool


def write_page(path: str | Path, page: Page, limits: Limits = Limits()) -> Path:
    """Write a page as one HTML file, whole or not at all.

    Returns:
        The path.

    Raises:
        ValueError: a number of a figure is not finite.
    """
    write_text(path, render(page, limits))
    return Path(path)


def render(page: Page, limits: Limits = Limits()) -> str:
    """The HTML text of a page. Texts are escaped; only ``Markup`` is taken as HTML."""
    templates = resources.files(__package__) / "templates"
    drawn = page.tradeoff or page.cutoffs or page.policies
    return (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            limits=limits,
            sections={name: title for name, title in SECTIONS.items() if getattr(page, name)},
            style=page_style(),
            script=Markup((templates / "script.js").read_text("utf-8")),
            chart_script=Markup(vega.chart_script()) if drawn else "",
            group_class=lambda group: _group_class(page.groups, group),
        )
    )


def page_style() -> Markup:
    """The style sheet of all pages."""
    style = resources.files(__package__) / "templates" / "style.css"
    return Markup(style.read_text("utf-8") + EXPLANATION_CSS)


@cache
def environment() -> Environment:
    """The templates of all pages."""
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        config=vega.CONFIG,
        dark=vega.DARK,
        policy_figures=figures.policy_figures,
        share_figures=figures.share_figures,
        sense_bars=_sense_bars,
        documents=_documents,
        finite=_finite,
        is_missing=lambda section: isinstance(section, Missing),
    )
    return environment


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _sense_bars(panel: SensePanel) -> dict[str, tuple[float, float]]:
    """Ends of the bars of sensitivity, weight and contribution, each common to all senses."""
    sensitivities = [one.sensitivity for one in panel.senses if _finite(one.sensitivity)]
    weights = [one.weight for one in panel.senses if _finite(one.weight)]
    contributions = [abs(one) for sense in panel.senses for one in sense.contributions if math.isfinite(one)]
    widest = max(contributions, default=0.0) or 1.0
    return {
        "sensitivity": (min([0.0, *sensitivities]), max([1.0, *sensitivities])),
        "weight": (min([0.0, *weights]), max([1.0, *weights])),
        "contribution": (-widest, widest),
    }


def _documents(query: ChangedQuery, side: str, groups: tuple[str, ...], limits: Limits) -> list[_Document]:
    """The list of one side. A text is put on the page once: in the list after, when the document is in both."""
    own, other = (query.before, query.after) if side == "before" else (query.after, query.before)
    places = {document.doc_id: number for number, document in enumerate(other, 1)}
    shown = {document.doc_id for document in query.after[: limits.documents]} if side == "before" else set()
    return [
        _document(document, rank, places.get(document.doc_id), side, groups, limits, document.doc_id in shown)
        for rank, document in enumerate(own[: limits.documents], 1)
    ]


def _document(
    document: RankedDocument,
    rank: int,
    there: int | None,
    side: str,
    groups: tuple[str, ...],
    limits: Limits,
    elsewhere: bool,
) -> _Document:
    spans = document.text
    head: tuple[Span, ...] | None = None
    rest: tuple[Span, ...] = ()
    left_out = 0
    if spans is not None:
        kept, dropped = cut(spans, 60 if elsewhere else limits.text)
        left_out = 0 if elsewhere else sum(len(span.text) for span in dropped)
        head, rest = cut(kept, limits.snippet)
        if rest or (elsewhere and dropped):
            head = (*head, Span(" \N{HORIZONTAL ELLIPSIS}"))
    move, direction = _move(rank, there, side)
    score = f"{document.score:.3f}" if document.score is not None and math.isfinite(document.score) else ""
    counts = tuple((group, sum(span.group == group for span in spans or ())) for group in groups)
    return _Document(document.doc_id, rank, move, direction, score, head, rest, left_out, counts, elsewhere)


def _move(rank: int, there: int | None, side: str) -> tuple[str, str]:
    if there is None:
        return ("leaves", "down") if side == "before" else ("new", "up")
    before, after = (rank, there) if side == "before" else (there, rank)
    if before == after:
        return "stays", "same"
    if side == "before":
        return f"to {after}", "up" if after < before else "down"
    return f"from {before}", "up" if after < before else "down"


def _group_class(groups: tuple[str, ...], group: str) -> str:
    """Class of a group's colour; ``rest`` for what is no group of the lexicon (neutral)."""
    return f"g{groups.index(group) % GROUPS}" if group in groups else "rest"
