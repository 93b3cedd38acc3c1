"""What the report page is made of: plain data for each section, without how it will look.

A section is on the page when its data are there. One that cannot be shown is a sentence that says
why, in place of its data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from backpack_rank.reporting.answer import Answer
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.vega import Spec

if TYPE_CHECKING:
    from backpack_rank.senses.profiles import SenseProfile


@dataclass(frozen=True)
class Figure:
    """A chart as it stands on the page.

    Attributes:
        name: stem of the files that hold it, unique on the page.
        title: heading of the figure.
        description: what it shows, for a reader who cannot see it.
        spec: the chart, as :mod:`backpack_rank.reporting.charts` makes it.
        values: what it shows, as a table; None where another table of the page has it.
    """

    name: str
    title: str
    description: str
    spec: Spec
    values: Table | None = None


@dataclass(frozen=True)
class Panel:
    """Charts beside each other that are shown when the selectors of their gallery have ``choice``.

    Attributes:
        choice: one name for each selector.
        name: stem of the files that hold all of them.
        title: heading of those files.
        figures: the charts.
    """

    choice: tuple[str, ...]
    name: str
    title: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Gallery:
    """Charts of one kind, one panel visible at a time.

    Attributes:
        name: unique on the page.
        selectors: what a reader selects, such as ``("measure", "cut-off")``; a panel's choice has
            as many parts.
        panels: all charts, in the order of the selectors.
        caption: how to read the charts.
        first: number of the panel that is shown when the page opens.

    Raises:
        ValueError: ``first`` is no panel, or a panel's choice does not fit the selectors.
    """

    name: str
    selectors: tuple[str, ...]
    panels: tuple[Panel, ...]
    caption: str = ""
    first: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.first < len(self.panels):
            raise ValueError(
                f"gallery {self.name!r} has {len(self.panels)} panels, "
                f"first={self.first} is none of them"
            )
        for panel in self.panels:
            if len(panel.choice) != len(self.selectors):
                raise ValueError(
                    f"gallery {self.name!r}: {panel.choice} does not fit "
                    f"the selectors {self.selectors}"
                )


class Span(NamedTuple):
    """A piece of text; ``group`` names the group whose word it is, empty for none."""

    text: str
    group: str = ""


@dataclass(frozen=True)
class RankedDocument:
    """A document in a ranking.

    Attributes:
        doc_id: its id.
        text: its text in pieces, see :func:`backpack_rank.reporting.page.text.mark_words`; None
            without a text store.
        score: given by the ranker, or None.
    """

    doc_id: str
    text: tuple[Span, ...] | None = None
    score: float | None = None


@dataclass(frozen=True)
class ChangedQuery:
    """A query with its top documents before and after, both in the order of the ranking."""

    query_id: str
    text: str
    before: tuple[RankedDocument, ...]
    after: tuple[RankedDocument, ...]


@dataclass(frozen=True)
class Changes:
    """The queries that change most, the one that changes most first.

    Attributes:
        before: name of the ranking before, such as ``alpha=1``.
        after: name of the ranking after.
        queries: as they are shown.
        order: a sentence that says how they were chosen.
    """

    before: str
    after: str
    queries: tuple[ChangedQuery, ...]
    order: str = ""


@dataclass(frozen=True)
class SensePanel:
    """All senses of the model.

    Attributes:
        profiles: of the senses, in their order.
        weights: M_s(l) of this report's policy and alpha for each sense; None when no policy acts
            on senses.
        caption: what the numbers were measured on.
        words: how many typical words are shown for each sense.

    Raises:
        ValueError: weights and profiles differ in number.
    """

    profiles: Sequence[SenseProfile]
    weights: Sequence[float] | None = None
    caption: str = ""
    words: int = 6

    def __post_init__(self) -> None:
        if self.weights is not None and len(self.weights) != len(self.profiles):
            raise ValueError(
                f"{len(self.weights)} weights for {len(self.profiles)} profiles of senses"
            )

    @property
    def groups(self) -> tuple[str, ...]:
        """Kinds of documents that contributions were averaged over, such as ``male``."""
        names: dict[str, None] = {}
        for profile in self.profiles:
            names |= dict.fromkeys(profile.mean_contribution)
        return tuple(names)

    def contributions(self, profile: SenseProfile) -> tuple[float, ...]:
        """Mean contribution of a sense for each of the groups; empty when not computed."""
        by_group = profile.mean_contribution
        if not by_group:
            return ()
        return tuple(by_group.get(group, float("nan")) for group in self.groups)


@dataclass(frozen=True)
class Page:
    """The whole report; a section that is None (or empty) is left out.

    Attributes:
        title: of the page.
        subtitle: one sentence below it.
        is_audit: of finished runs: every finding is shown, and what follows the main numbers is
            folded.
        groups: names of the groups of the lexicon, in its order; they get the colours of the marked
            words.
        sign: the sign of the bias measures, as a sentence.
        answers: what the dial does to this ranker: the setting that a person would choose, then one
            of each other policy.
        answer_note: how the settings were chosen, and what significant means.
        deciding: the figures that chose them, where others than those of the headline did.
        headline: the main numbers, with their intervals.
        tradeoff: effectiveness against bias over alpha.
        cutoffs: bias at every cut-off.
        policies: measures over alpha, one line for each policy.
        preferences: which wording is preferred, one chart for each policy.
        policies_caption: what the numbers of both were measured on.
        comparison: tables with significance letters.
        changes: queries that change most, one entry for each setting that can be chosen; the first
            is shown.
        senses: sense panel.
        attribution: title and HTML of chosen pairs: what each sense and token contributes.
        configuration: YAML of the run.
        provenance: (name, value) of versions, date, command line and data.
        notes: further sentences for a reader.
    """

    title: str
    subtitle: str = ""
    is_audit: bool = False
    groups: tuple[str, ...] = ("male", "female")
    sign: str = ""
    answers: tuple[Answer, ...] = ()
    answer_note: str = ""
    deciding: Table | None = None
    headline: Table | None = None
    tradeoff: Gallery | None = None
    cutoffs: Gallery | None = None
    policies: tuple[Figure, ...] = ()
    preferences: tuple[Figure, ...] = ()
    policies_caption: str = ""
    comparison: tuple[Table, ...] = ()
    changes: tuple[Changes, ...] | str = ()
    senses: SensePanel | str | None = None
    attribution: tuple[tuple[str, Markup], ...] | str = ()
    configuration: str = ""
    provenance: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
