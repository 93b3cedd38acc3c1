"""What the report page is made of: plain data, one dataclass for each section.

A section is on the page when its data are there. Nothing here knows how it will look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from backpack_rank.evaluation.results import Estimate
from backpack_rank.reporting.vega import Spec


@dataclass(frozen=True)
class Figure:
    """A chart as it stands on the page.

    Attributes:
        name: stem of the files that hold it, unique on the page.
        title: heading of the figure.
        description: what a reader who cannot see it is told.
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
    """Charts beside each other that are shown when the selectors of their gallery stand at ``choice``.

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
        selectors: what a reader selects, such as ``("measure", "cut-off")``; a panel's choice has as many parts.
        panels: all charts, in the order of the selectors.
        caption: how to read the charts.
        first: number of the panel that is shown when the page opens.
    """

    name: str
    selectors: tuple[str, ...]
    panels: tuple[Panel, ...]
    caption: str = ""
    first: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.first < len(self.panels):
            raise ValueError(f"gallery {self.name!r} has {len(self.panels)} panels, first={self.first} is none of them")
        for panel in self.panels:
            if len(panel.choice) != len(self.selectors):
                raise ValueError(f"gallery {self.name!r}: {panel.choice} does not fit the selectors {self.selectors}")


@dataclass(frozen=True)
class Answer:
    """What the dial does to this ranker, in words.

    Attributes:
        main: the sentence of the setting that a person would choose.
        others: a sentence for each other policy.
        note: how the setting was chosen, and what significant means.
    """

    main: str
    others: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Shares:
    """Of queries whose document exists in the wording of both groups: which wording is ranked higher.

    The three sum to 1; ``neither`` has equal scores.
    """

    first: float
    second: float
    neither: float


@dataclass(frozen=True)
class PolicyResult:
    """A policy at one alpha.

    Attributes:
        policy: name of the policy.
        alpha: position of the dial.
        figures: by measure name, such as ``|gap|/std``, ``nDCG@10``, ``RaB(tf)@10``.
        shares: preferences, or None where the collection has no wordings by group.
    """

    policy: str
    alpha: float
    figures: Mapping[str, Estimate]
    shares: Shares | None = None


@dataclass(frozen=True)
class Policies:
    """Policies over alpha.

    Attributes:
        results: in the order of the table; the charts sort by alpha themselves.
        drawn: measures that get a chart over alpha.
        caption: what the numbers were measured on.
    """

    results: tuple[PolicyResult, ...]
    drawn: tuple[str, ...] = ("|gap|/std", "nDCG@10")
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A table as it is printed.

    Attributes:
        header: names of the columns.
        rows: cells; a ``Markup`` cell is taken as HTML, every other text is escaped.
        caption: what it shows.
        left: number of columns at the left that hold words; the others hold numbers.
        notes: sentences below it, such as what the letters mean.
        marked: numbers of the rows that the report is about.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    left: int = 1
    notes: tuple[str, ...] = ()
    marked: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.header):
                raise ValueError(
                    f"table {self.caption!r}: row {number} has {len(row)} cells, its header has {len(self.header)}"
                )


@dataclass(frozen=True)
class Span:
    """A piece of text; ``group`` names the group whose word it is, empty for none."""

    text: str
    group: str = ""


@dataclass(frozen=True)
class RankedDocument:
    """A document in a ranking.

    Attributes:
        doc_id: its id.
        text: its text in pieces, see :func:`backpack_rank.reporting.page.text.mark_words`; None without a text store.
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
class Sense:
    """One sense of the model.

    Attributes:
        name: its index, from 0, or what an attribute sense sets apart, such as ``gender: female``.
        sensitivity: s_l, low is sensitive; None when it was not computed.
        weight: M_s(l) of this report's policy and alpha; None when no policy acts on senses.
        words: the words nearest to it.
        contributions: its mean contribution to scores on the documents of each group, in the order of
            :attr:`SensePanel.groups`; empty when it was not computed.
    """

    name: str
    sensitivity: float | None
    weight: float | None = None
    words: tuple[str, ...] = ()
    contributions: tuple[float, ...] = ()


@dataclass(frozen=True)
class SensePanel:
    """All senses of the model.

    Attributes:
        senses: in their order.
        groups: kinds of documents that contributions were averaged over, such as ``("male", "female", "neutral")``.
        caption: what the numbers were measured on.
    """

    senses: tuple[Sense, ...]
    groups: tuple[str, ...] = ("male", "female", "neutral")
    caption: str = ""

    def __post_init__(self) -> None:
        for sense in self.senses:
            if len(sense.contributions) not in (0, len(self.groups)):
                raise ValueError(
                    f"sense {sense.name} has {len(sense.contributions)} contributions for {len(self.groups)} groups"
                )


@dataclass(frozen=True)
class Attribution:
    """What each sense and token contributes to the score of a pair, as HTML that was made elsewhere."""

    title: str
    html: Markup

    def __post_init__(self) -> None:
        if not isinstance(self.html, Markup):
            raise TypeError(f"attribution {self.title!r}: its HTML must be a markupsafe.Markup, so that it is meant")


@dataclass(frozen=True)
class Missing:
    """A section that cannot be shown, and why, as a sentence."""

    why: str


@dataclass(frozen=True)
class Page:
    """The whole report; a section that is None (or empty) is left out.

    Attributes:
        title: of the page.
        subtitle: one sentence below it.
        groups: names of the groups of the lexicon, in its order; they get the colours of the marked words.
        sign: the sign of the bias measures, as a sentence.
        answer: what the dial does, in words.
        headline: the main numbers, with their intervals.
        tradeoff: effectiveness against bias over alpha.
        cutoffs: bias at every cut-off.
        policies: policies over alpha.
        comparison: tables with significance letters.
        changes: queries that change most, one entry for each setting that can be chosen; the first is shown.
        senses: sense panel.
        attribution: chosen pairs.
        configuration: YAML of the run.
        provenance: (name, value) of versions, date, command line and data.
        notes: further sentences for a reader.
    """

    title: str
    subtitle: str = ""
    groups: tuple[str, ...] = ("male", "female")
    sign: str = ""
    answer: Answer | None = None
    headline: Table | None = None
    tradeoff: Gallery | None = None
    cutoffs: Gallery | None = None
    policies: Policies | None = None
    comparison: tuple[Table, ...] = ()
    changes: tuple[Changes, ...] | Missing = ()
    senses: SensePanel | Missing | None = None
    attribution: tuple[Attribution, ...] | Missing = ()
    configuration: str = ""
    provenance: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
