"""What a measure is: one object that knows its name, its formula, what is better, and its words.

Tests between systems, tables, charts and pages hold no list of measures: they ask
:func:`backpack_rank.evaluation.measure_names.measure_of` for the object of a name. A new measure is
a subclass, in the file of its kind:

    RaB, NFaiRR, ...            :mod:`backpack_rank.evaluation.word_measures`
    AWRF_JS, EE-L, ...          :mod:`backpack_rank.evaluation.group_measures`
    swap change, ...            :mod:`backpack_rank.evaluation.swap_stability`
    gap, ...                    :mod:`backpack_rank.evaluation.score_gaps`
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeAlias

from ir_measures import Measure
from ir_measures.measures import MeanAgg, ParamInfo, register

if TYPE_CHECKING:
    from typing_extensions import Self

Average: TypeAlias = Literal["mean", "absolute_mean", "mean_absolute"]
"""An average over queries, named as in :class:`~backpack_rank.evaluation.results.Estimate`."""

SWAPPED = " (swapped)"
"""Ends names of what is measured on documents that a swap changes."""
CUTOFF = ParamInfo(dtype=int, required=True, desc="number of places t")


class Direction(str, Enum):
    """What is better: a higher mean, a lower one, one closer to 0, or none (systems only differ).

    >>> Direction("zero").loss(-0.25), Direction.HIGHER.short
    (0.25, 'higher')
    """

    HIGHER = "higher"
    LOWER = "lower"
    ZERO = "zero"
    NONE = "none"

    @property
    def short(self) -> str:
        """For a column."""
        return {"zero": "near 0", "none": ""}.get(self.value, self.value)

    @property
    def goal(self) -> str:
        """As a sentence without its end."""
        if self is Direction.ZERO:
            return "Closer to 0 is better (absolute value of the mean)"
        if self is Direction.NONE:
            return "Neither high nor low is better"
        return f"{self.value.capitalize()} is better"

    @property
    def average(self) -> Average:
        """The average that says which of two systems is better."""
        return "absolute_mean" if self is Direction.ZERO else "mean"

    def loss(self, mean: float) -> float:
        """A number that is smaller for the better mean."""
        signs = {Direction.HIGHER: -mean, Direction.LOWER: mean, Direction.ZERO: abs(mean)}
        return signs.get(self, 0.0)


@dataclass(eq=False)
class Described:
    """What everything but its computation asks of a measure.

    Attributes:
        name: as in options, tables and files.
        direction: what is better.
        best: the value of a ranking that could not be better, or None.
        words: the measure in words, for axes and charts.
        explained: what its values say and where they are best, for below a table.
        said: a sentence of the page up to the figure; ``{name}`` stands for the name.
        unit: of its values, behind the figure of such a sentence.
        main: whether summaries show it at cut-off 10, or without a cut-off.
        place: in summaries; equal ones stand in the order in which they were measured.
    """

    name: str = ""
    direction: Direction = Direction.NONE
    best: float | None = None
    words: str = ""
    explained: str = ""
    said: str = ""
    unit: str = ""
    main: bool = True
    place: int = 99

    def is_called(self, name: str) -> bool:
        """Whether a name in results is of this measure, whatever it was measured on."""
        return name.removesuffix(SWAPPED).partition("@")[0] == self.family

    def called(self, name: str) -> Self:
        """This measure under a name with a cut-off, or with what it was measured on."""
        return replace(self, name=name)

    @property
    def family(self) -> str:
        """The name without parameters and cut-off, which stands before what is explained."""
        return self.shown.partition("(")[0].partition("@")[0]

    @property
    def cutoff(self) -> str:
        """Empty for a measure without one."""
        return self.name.rpartition("@")[2] if "@" in self.name else ""

    @property
    def at_any_cutoff(self) -> str:
        """The name without the cut-off."""
        return self.name.rpartition("@")[0] or self.name

    @property
    def variants_of(self) -> str:
        """What measures have in common that differ in how they count alone."""
        return self.at_any_cutoff

    @property
    def shown(self) -> str:
        """The name without what it was measured on, which a table says itself."""
        return self.name.removesuffix(SWAPPED)

    @property
    def heading(self) -> str:
        """Of a column of figures at one cut-off."""
        return self.at_any_cutoff

    @property
    def title(self) -> str:
        """Of a column of figures at several cut-offs."""
        return self.shown

    @property
    def signed(self) -> bool:
        """Whether its values lean to one side or the other, so that tables show their sign."""
        return self.direction is Direction.ZERO

    @property
    def is_main(self) -> bool:
        """Whether summaries show it."""
        return self.main and self.cutoff in ("", "10")

    @property
    def axis(self) -> str:
        """Title of an axis: the name, with its words and where it is unbiased."""
        return f"{self.name}, {self.words}" if self.words else self.name

    @property
    def in_words(self) -> str:
        """The words, or the name where there are none."""
        return self.words or self.shown

    def change(self, before: float, after: float) -> float:
        """How much a mean rose; of a measure that leans to sides, how much further from 0 it is.

        >>> round(Described(direction=Direction.ZERO).change(-0.5, 0.2), 2)
        -0.3
        >>> round(Described(direction=Direction.HIGHER).change(-0.5, -0.2), 2)
        0.3
        """
        if self.signed:
            return abs(after) - abs(before)
        return after - before

    def percent(self, before: float, after: float) -> float | None:
        """The change in % of how far the mean before is from 0; None where it is 0 or NaN."""
        if before == 0 or math.isnan(before):
            return None
        return 100 * self.change(before, after) / abs(before)

    def goal(self) -> str:
        """What is better, for a sentence below a table."""
        if self.best is not None:
            return f"best is {self.best:g}"
        return "" if self.direction is Direction.NONE else f"{self.direction.value} is better"


class Effectiveness(Described):
    """A measure of ir_measures; all but counts are better the higher."""

    direction = Direction.HIGHER
    WORDS: ClassVar = {
        "nDCG": (
            "quality of the ranking, 1 is perfect",
            "The quality of the rankings ({name}, 1 is perfect) is",
        ),
        "MRR": ("1 / rank of the first relevant document, 1 is perfect", ""),
    }

    PLACES: ClassVar = {"nDCG": 0, "MRR": 4, "RR": 4}

    def __init__(self, name: str) -> None:
        self.name = name
        self.explained, self.said = self.WORDS.get(self.family, ("", ""))
        self.place = self.PLACES.get(self.family, 99)
        if self.family.startswith("Num"):
            self.direction = Direction.NONE


class Undescribed(Described):
    """A name that is no measure's here: systems differ in it, and nobody says which is better."""


class BiasTable(NamedTuple):
    """Which table of the bias set a measure stands in."""

    title: str
    note: str


SIGNED = BiasTable("Bias", "Mean over queries, closer to 0 is better")
SHARES = BiasTable("Fairness", "Mean over queries")
GROUPS = BiasTable("Exposure of groups", "Mean over queries")


class MeanOfMeasured(MeanAgg):
    """Mean over the queries that have a value.

    ir_measures alone would count a query without a list as 0.
    """

    def add(self, value: float) -> None:
        """Count a value; NaN stands for none."""
        if not math.isnan(value):
            super().add(value)


class FairnessMeasure(Measure, Described):
    """A measure of fairness: it needs more than judgements, such as magnitudes of documents.

    A subclass with a ``NAME`` is a measure: it is parsed, listed and described from then on.

    Attributes:
        POSITIONAL: parameters of the short form, in order.
        DEFAULT: what ir_measures gives a query without a list: no value.
        table: where it stands in the tables of the bias set.
        needs_background: whether it is not defined for queries without a background.
        needs_judgements: whether it is of relevant documents.
        looks_at_whole_lists: whether documents behind the cut-off count.
    """

    POSITIONAL: tuple[str, ...] = ()
    SUPPORTED_PARAMS: dict[str, ParamInfo] = {"cutoff": CUTOFF}
    DEFAULT = math.nan
    known: ClassVar[dict[str, FairnessMeasure]] = {}

    table: BiasTable = SHARES
    needs_background = False
    needs_judgements = False
    looks_at_whole_lists = False

    def __init_subclass__(cls) -> None:
        if "NAME" in vars(cls):
            measure = cls()
            FairnessMeasure.known[str(cls.NAME)] = measure
            register(measure)

    @property
    def __name__(self) -> str:
        """What ir_measures writes before the parameters."""
        return str(self.NAME)

    def aggregator(self) -> MeanAgg:
        """See :class:`MeanOfMeasured`."""
        return MeanOfMeasured()

    @property
    def name(self) -> str:  # type: ignore[override]
        """As in options: ``RaB(tf)@10``."""
        brackets = f"({','.join(self.arguments)})" if self.arguments else ""
        cutoff = f"@{self.params['cutoff']}" if "cutoff" in self.params else ""
        return f"{self.family}{brackets}{cutoff}"

    @property
    def family(self) -> str:
        """The name without parameters as in options; to ir_measures a hyphen is a minus."""
        return str(self.NAME).replace("EE_", "EE-")

    @property
    def arguments(self) -> list[str]:
        """Values of the parameters of the short form, as far as there are any."""
        values = [
            self.params.get(key, self.SUPPORTED_PARAMS[key].default) for key in self.POSITIONAL
        ]
        return [value for value in values if isinstance(value, str)]

    @property
    def axis(self) -> str:
        """See :attr:`Described.axis`."""
        return super().axis + (" (0 is unbiased)" if self.best == 0 else "")
