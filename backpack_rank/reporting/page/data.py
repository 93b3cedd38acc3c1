"""What the report page is made of: plain data, one dataclass for each section.

A section is on the page when its data are there. Nothing here knows how it will look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from backpack_rank.reporting.page.charts import Gallery
from backpack_rank.reporting.rows import Figure


@dataclass(frozen=True)
class System:
    """One line of the headline table.

    Attributes:
        label: name of the system, such as ``BM25`` or ``alpha=0.5``.
        figures: by measure name; a measure that was not computed is absent.
        alpha: position of the dial, None for a reference.
        marked: whether this is the system that the report is about.
    """

    label: str
    figures: Mapping[str, Figure]
    alpha: float | None = None
    marked: bool = False


@dataclass(frozen=True)
class Headline:
    """The main numbers: systems by measures, each with its confidence interval.

    Attributes:
        measures: names, in the order in which they are shown.
        systems: first stage, the model at alpha = 1, the model at this alpha.
        caption: what the numbers were measured on.
    """

    measures: tuple[str, ...]
    systems: tuple[System, ...]
    caption: str = ""


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
    figures: Mapping[str, Figure]
    shares: Shares | None = None


@dataclass(frozen=True)
class Policies:
    """Policies over alpha.

    Attributes:
        results: in the order of the table; the charts sort by alpha themselves.
        drawn: measures that get a chart over alpha; the table has every measure.
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
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    left: int = 1
    notes: tuple[str, ...] = ()

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
class Change:
    """A measure of one query before and after."""

    measure: str
    before: float
    after: float


@dataclass(frozen=True)
class ChangedQuery:
    """A query with its top documents before and after, both in the order of the ranking."""

    query_id: str
    text: str
    before: tuple[RankedDocument, ...]
    after: tuple[RankedDocument, ...]
    changes: tuple[Change, ...] = ()


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
        number: its index, from 0.
        sensitivity: s_l, low is sensitive; None when it was not computed.
        weight: M_s(l) of this report's policy and alpha; None when no policy acts on senses.
        words: the words nearest to it.
        contributions: its mean contribution to scores on the documents of each group, in the order of
            :attr:`SensePanel.groups`; empty when it was not computed.
    """

    number: int
    sensitivity: float | None
    weight: float | None = None
    words: tuple[str, ...] = ()
    contributions: tuple[float, ...] = ()


@dataclass(frozen=True)
class SensePanel:
    """All senses of the model.

    Attributes:
        senses: in the order of their number.
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
                    f"sense {sense.number} has {len(sense.contributions)} contributions for {len(self.groups)} groups"
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
class Provenance:
    """Where the numbers come from: (name, value) in the order in which they are shown."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Page:
    """The whole report; a section that is None (or empty) is left out.

    Attributes:
        title: of the page.
        subtitle: one sentence below it.
        groups: names of the groups of the lexicon, in its order; they get the colours of the marked words.
        sign: the sign of the bias measures, as a sentence.
        headline: the main numbers.
        tradeoff: effectiveness against bias over alpha.
        cutoffs: bias at every cut-off.
        policies: policies over alpha.
        comparison: tables with significance letters.
        changes: queries that change most.
        senses: sense panel.
        attribution: chosen pairs.
        configuration: YAML of the run.
        provenance: versions, date, command line, data.
        notes: further sentences for a reader.
    """

    title: str
    subtitle: str = ""
    groups: tuple[str, ...] = ("male", "female")
    sign: str = ""
    headline: Headline | None = None
    tradeoff: Gallery | None = None
    cutoffs: Gallery | None = None
    policies: Policies | None = None
    comparison: tuple[Table, ...] = ()
    changes: Changes | Missing | None = None
    senses: SensePanel | Missing | None = None
    attribution: tuple[Attribution, ...] | Missing = ()
    configuration: str = ""
    provenance: Provenance | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
