"""A page as HTML: one file with its style and script inside, which needs no network."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple, TypeGuard

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from backpack_rank.files import write_text
from backpack_rank.reporting import vega
from backpack_rank.reporting.explanation import EXPLANATION_CSS
from backpack_rank.reporting.page.data import ChangedQuery, Page, RankedDocument, SensePanel, Span
from backpack_rank.reporting.page.text import cut
from backpack_rank.reporting.table import number

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
_UNFOLDED = ("tradeoff", "headline")
_BRIEF = 60
"""Characters of a document whose text stands in the other list."""


@dataclass(frozen=True)
class Limits:
    """How much of the texts is put on the page, so that it stays readable and small.

    The page says what is left out.

    Attributes:
        queries: queries shown with their documents; further ones are listed with their measures
            alone.
        documents: documents shown of each ranking.
        snippet: characters of a document that are seen at once.
        text: characters of a document that can be unfolded.
    """

    queries: int = 20
    documents: int = 10
    snippet: int = 220
    text: int = 1500


_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class _ShownDocument(NamedTuple):
    """A document in one of the two lists of a query, as the template shows it."""

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
    """Write a page as one HTML file, complete or not at all.

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
    has_charts = page.tradeoff or page.cutoffs or page.policies
    sections = {name: title for name, title in SECTIONS.items() if getattr(page, name)}
    text = (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            limits=limits,
            sections=sections,
            folded=[title for name, title in sections.items() if name not in _UNFOLDED],
            style=page_style(),
            script=Markup((templates / "script.js").read_text("utf-8")),
            chart_script=Markup(vega.chart_script()) if has_charts else "",
            group_class=partial(_group_class, page.groups),
        )
    )
    # As JSON and JavaScript read them too: a page is also looked at on a terminal.
    return _CONTROL.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


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
        sense_bars=_sense_bars,
        documents=_documents,
        finite=_finite,
    )
    return environment


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _sense_bars(panel: SensePanel) -> dict[str, tuple[float, float]]:
    """Ends of the bars of sensitivity, weight and contribution, each common to all senses."""
    sensitivities = [profile.sensitivity for profile in panel.profiles]
    contributions = [0.0]
    for profile in panel.profiles:
        for contribution in panel.contributions(profile):
            if math.isfinite(contribution):
                contributions.append(abs(contribution))
    widest = max(contributions) or 1.0
    return {
        "sensitivity": _ends_from_0_to_1(sensitivities),
        "weight": _ends_from_0_to_1(panel.weights or ()),
        "contribution": (-widest, widest),
    }


def _ends_from_0_to_1(values: Sequence[float | None]) -> tuple[float, float]:
    """0 and 1, or further out where a value is."""
    finite = [value for value in values if _finite(value)]
    return min([0.0, *finite]), max([1.0, *finite])


def _documents(
    query: ChangedQuery, side: str, groups: tuple[str, ...], limits: Limits
) -> list[_ShownDocument]:
    """The list of one side, ``before`` or ``after``.

    A text is put on the page once: in the list after, when the document is in both.
    """
    shown_after: set[str] = set()
    if side == "before":
        ranking, other = query.before, query.after
        shown_after = {document.doc_id for document in query.after[: limits.documents]}
    else:
        ranking, other = query.after, query.before
    other_ranks = {document.doc_id: rank for rank, document in enumerate(other, start=1)}
    documents = []
    for rank, document in enumerate(ranking[: limits.documents], start=1):
        elsewhere = document.doc_id in shown_after
        move, direction = _move(rank, other_ranks.get(document.doc_id), side)
        score = number(document.score, 3) if _finite(document.score) else ""
        head, rest, left_out = _shown_text(document, elsewhere, limits)
        shown = _ShownDocument(
            doc_id=document.doc_id,
            rank=rank,
            move=move,
            direction=direction,
            score=score,
            head=head,
            rest=rest,
            left_out=left_out,
            counts=_counts(document, groups),
            elsewhere=elsewhere,
        )
        documents.append(shown)
    return documents


def _shown_text(
    document: RankedDocument, elsewhere: bool, limits: Limits
) -> tuple[tuple[Span, ...] | None, tuple[Span, ...], int]:
    """What is seen at once, what can be unfolded, and how many characters are left out."""
    if document.text is None:
        return None, (), 0
    kept, dropped = cut(document.text, _BRIEF if elsewhere else limits.text)
    head, rest = cut(kept, limits.snippet)
    if rest or (elsewhere and dropped):
        head = (*head, Span(" \N{HORIZONTAL ELLIPSIS}"))
    # A text that stands in the other list is left out nowhere.
    left_out = 0 if elsewhere else sum(len(span.text) for span in dropped)
    return head, rest, left_out


def _counts(document: RankedDocument, groups: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """How many words of each group the text has."""
    words_by_group = dict.fromkeys(groups, 0)
    for span in document.text or ():
        if span.group in words_by_group:
            words_by_group[span.group] += 1
    return tuple(words_by_group.items())


def _move(rank: int, other_rank: int | None, side: str) -> tuple[str, str]:
    """In words where a document goes, or came from; and the direction, the name of a style."""
    if side == "before":
        if other_rank is None:
            return "leaves", "down"
        before, after, words = rank, other_rank, f"to {other_rank}"
    else:
        if other_rank is None:
            return "new", "up"
        before, after, words = other_rank, rank, f"from {other_rank}"
    if before == after:
        return "stays", "same"
    return words, "up" if after < before else "down"


def _group_class(groups: tuple[str, ...], group: str) -> str:
    """Class of a group's colour; ``rest`` for what is no group of the lexicon (neutral)."""
    if group not in groups:
        return "rest"
    return f"g{groups.index(group) % GROUPS}"
