"""Names of measures: those of ir_measures, and the measures of fairness registered beside them.

Importing this module registers ``RaB``, ``ARaB``, ``FaiRR``, ``NFaiRR``, ``Exposure``, ``AWRF_JS``,
``EE_L``, ``EE_D``, ``EE_R``, ``NDKL``, ``ExposureRatio`` and ``ExposurePerRelevance`` with
ir_measures, whose own parser then reads ``RaB(magnitude='tf')@10``. It takes no arguments without a
name and no hyphen, so :func:`parse_measures` reads the short form of the papers as well:

    RaB(tf)@10, ARaB(bool)@20         sign of the context, such as male minus female
    RaB(tf,male)@10                   the part of one group
    RaB(tf,old_minus_young)@10        another sign
    FaiRR@10, NFaiRR@10
    Exposure(male)@10                 a group of the lexicon, or neutral
    AWRF_JS@20, EE-L@20, NDKL@20      of the only attribute of groups
    AWRF_JS(gender x region)@20       of the groups of several attributes, crossed

``RaB@10`` is ``RaB(tf)@10``. What the measures are: :mod:`backpack_rank.evaluation.fairness` and
:mod:`backpack_rank.evaluation.group_exposure`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import ir_measures
from ir_measures import Measure
from ir_measures.measures import MeanAgg, ParamInfo, register

from backpack_rank.evaluation.magnitudes import MAGNITUDES

EFFECTIVENESS_EXAMPLES = "nDCG@10, MRR@10, RR(rel=2)@10, R@100, AP, P@5, Success@5"
FAIRNESS_EXAMPLES = (
    "RaB(tf)@10, RaB(tf,male)@10, ARaB(bool)@20, FaiRR@10, NFaiRR@10, Exposure(male)@10, "
    "AWRF_JS@20, EE-L@20, NDKL@20"
)
_SHORT = re.compile(r"\s*(?P<name>\w+)\s*\((?P<arguments>[^()]*)\)\s*(?:@\s*(?P<cutoff>\S+))?\s*")
_HYPHEN = re.compile(r"\s*EE-(?=[LDR]\b)")
_CUTOFF = ParamInfo(dtype=int, required=True, desc="number of places t")
_MAGNITUDE = ParamInfo(dtype=str, choices=MAGNITUDES, default="tf", desc="how words are counted")
_OF = ParamInfo(dtype=str, desc="a group, or x_minus_y; without it the sign of the context")
_ATTRIBUTE = ParamInfo(
    dtype=str, desc="whose groups: an attribute, or several such as gender x region"
)


class MeanOfMeasured(MeanAgg):
    """Mean over the queries that have a value.

    ir_measures alone would count a query without a list as 0.
    """

    def add(self, value: float) -> None:
        """Count a value; NaN stands for none."""
        if not math.isnan(value):
            super().add(value)


class FairnessMeasure(Measure):
    """A measure of fairness: it needs more than judgements, such as magnitudes of documents.

    Attributes:
        POSITIONAL: parameters of the short form, in order.
        DEFAULT: what ir_measures gives a query without a list: no value.
    """

    POSITIONAL: tuple[str, ...] = ()
    DEFAULT = math.nan

    def aggregator(self) -> MeanAgg:
        """See :class:`MeanOfMeasured`."""
        return MeanOfMeasured()


class _RaB(FairnessMeasure):
    """Rank bias: the mean magnitude of the first t places, or that of one group less another's."""

    __name__ = NAME = "RaB"
    PRETTY_NAME = "Rank Bias"
    SHORT_DESC = "The mean difference of two groups' magnitudes in the first places."
    SUPPORTED_PARAMS = {"cutoff": _CUTOFF, "magnitude": _MAGNITUDE, "of": _OF}
    POSITIONAL = ("magnitude", "of")


class _ARaB(FairnessMeasure):
    """Average rank bias: the mean of RaB at 1 ... t."""

    __name__ = NAME = "ARaB"
    PRETTY_NAME = "Average Rank Bias"
    SHORT_DESC = "The mean of RaB at all cut-offs up to this one."
    SUPPORTED_PARAMS = {"cutoff": _CUTOFF, "magnitude": _MAGNITUDE, "of": _OF}
    POSITIONAL = ("magnitude", "of")


class _FaiRR(FairnessMeasure):
    """Fairness of retrieval results: log-discounted neutrality of the first t documents."""

    __name__ = NAME = "FaiRR"
    PRETTY_NAME = "Fairness of Retrieval Results"
    SHORT_DESC = "The sum of log-discounted neutrality."
    SUPPORTED_PARAMS = {"cutoff": _CUTOFF}


class _NFaiRR(FairnessMeasure):
    """FaiRR as a share of the best that the background set allows."""

    __name__ = NAME = "NFaiRR"
    PRETTY_NAME = "Normalised Fairness of Retrieval Results"
    SHORT_DESC = "FaiRR divided by that of the background set sorted by neutrality."
    SUPPORTED_PARAMS = {"cutoff": _CUTOFF}


class _Exposure(FairnessMeasure):
    """Share of log-discounted exposure in the first t places that documents of a group hold."""

    __name__ = NAME = "Exposure"
    PRETTY_NAME = "Group Exposure"
    SHORT_DESC = "A group's share of log-discounted exposure."
    SUPPORTED_PARAMS = {
        "cutoff": _CUTOFF,
        "group": ParamInfo(dtype=str, required=True, desc="a group, or neutral"),
    }
    POSITIONAL = ("group",)


class GroupMeasure(FairnessMeasure):
    """A measure of the groups of documents, see :mod:`backpack_rank.evaluation.group_exposure`."""

    SUPPORTED_PARAMS = {"cutoff": _CUTOFF, "attribute": _ATTRIBUTE}
    POSITIONAL = ("attribute",)


class _AwrfJs(GroupMeasure):
    """Attention-weighted rank fairness: 1 less the divergence of exposure from the target."""

    __name__ = NAME = "AWRF_JS"
    PRETTY_NAME = "Attention-Weighted Rank Fairness"
    SHORT_DESC = "1 - Jensen-Shannon divergence of the groups' exposure from the target."


class _ExpectedExposureLoss(GroupMeasure):
    """Expected exposure loss: the squared distance of the groups' exposure from the target."""

    __name__ = NAME = "EE_L"
    PRETTY_NAME = "Expected Exposure Loss"
    SHORT_DESC = "Squared distance of the groups' exposure of relevant documents from the target."


class _ExpectedExposureDisparity(GroupMeasure):
    """Expected exposure disparity: how unequally groups are exposed."""

    __name__ = NAME = "EE_D"
    PRETTY_NAME = "Expected Exposure Disparity"
    SHORT_DESC = "Squared length of the groups' exposure of relevant documents."


class _ExpectedExposureRelevance(GroupMeasure):
    """Expected exposure relevance: how far the groups' exposure points to the target."""

    __name__ = NAME = "EE_R"
    PRETTY_NAME = "Expected Exposure Relevance"
    SHORT_DESC = "Product of the groups' exposure of relevant documents and the target."


class _Ndkl(GroupMeasure):
    """Normalised discounted KL divergence of the shares in the first places from the target."""

    __name__ = NAME = "NDKL"
    PRETTY_NAME = "Normalised Discounted KL Divergence"
    SHORT_DESC = "Discounted mean over ranks of the KL divergence from the target."


class _ExposureRatio(GroupMeasure):
    """Mean exposure of a group's documents: the smallest over the largest."""

    __name__ = NAME = "ExposureRatio"
    PRETTY_NAME = "Exposure Ratio"
    SHORT_DESC = "Smallest over largest mean exposure of a group's documents."


class _ExposurePerRelevance(GroupMeasure):
    """Exposure of a group for each of its relevant documents: the smallest over the largest."""

    __name__ = NAME = "ExposurePerRelevance"
    PRETTY_NAME = "Exposure per Relevance"
    SHORT_DESC = "Smallest over largest exposure of a group for each relevant document."


RaB = _RaB()
ARaB = _ARaB()
FaiRR = _FaiRR()
NFaiRR = _NFaiRR()
Exposure = _Exposure()
AWRF_JS = _AwrfJs()
EE_L = _ExpectedExposureLoss()
EE_D = _ExpectedExposureDisparity()
EE_R = _ExpectedExposureRelevance()
NDKL = _Ndkl()
ExposureRatio = _ExposureRatio()
ExposurePerRelevance = _ExposurePerRelevance()
GROUPS: tuple[GroupMeasure, ...] = (
    AWRF_JS,
    EE_L,
    EE_D,
    EE_R,
    NDKL,
    ExposureRatio,
    ExposurePerRelevance,
)
FAIRNESS: tuple[FairnessMeasure, ...] = (RaB, ARaB, FaiRR, NFaiRR, Exposure, *GROUPS)
for _measure in FAIRNESS:
    register(_measure)


def parse_measures(measures: Sequence[str]) -> dict[str, Measure]:
    """``{name as given: measure}``, each checked as far as it can be before anything is ranked.

    Whether a lexicon has the group of ``RaB(tf,male)@10`` shows when it is computed.

    Raises:
        ValueError: no measure, or one that is unknown or cannot be computed; lists what exists and
            gives examples.
    """
    if isinstance(measures, str):
        raise ValueError(f"measures is the text {measures!r}; give a list such as [{measures}]")
    if not measures:
        raise ValueError(
            f"no measure is named; examples: {EFFECTIVENESS_EXAMPLES}, {FAIRNESS_EXAMPLES}"
        )
    return {name: _parse(name) for name in measures}


def split_measures(measures: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of measures of effectiveness and of fairness, each in the order given.

    >>> split_measures(["nDCG@10", "RaB(tf)@10", "AP"])
    (['nDCG@10', 'AP'], ['RaB(tf)@10'])

    Raises:
        ValueError: as :func:`parse_measures`.
    """
    effectiveness: list[str] = []
    fairness: list[str] = []
    for name, measure in parse_measures(measures).items():
        if isinstance(measure, FairnessMeasure):
            fairness.append(name)
        else:
            effectiveness.append(name)
    return effectiveness, fairness


def shown_name(measure: Measure, attribute: str | None = None) -> str:
    """A measure of groups as it is written in options, of another attribute if one is given.

    >>> shown_name(EE_L @ 20), shown_name(AWRF_JS @ 5, "gender")
    ('EE-L@20', 'AWRF_JS(gender)@5')
    """
    of = attribute or measure.params.get("attribute")
    brackets = f"({of})" if of else ""
    return f"{family_name(measure)}{brackets}@{measure['cutoff']}"


def family_name(measure: Measure) -> str:
    """A measure of groups as it is written in options, without a cut-off: ``EE-L``."""
    return str(measure.NAME).replace("EE_", "EE-")


def _parse(name: str) -> Measure:
    """The measure of a name. Raises ``ValueError`` where it cannot be computed."""
    # ir_measures raises NameError, KeyError or AssertionError for what a user only sees as a wrong
    # word.
    try:
        measure = ir_measures.parse_measure(_with_named_arguments(name))
        missing: list[str] = []
        for key, info in measure.SUPPORTED_PARAMS.items():
            if info.required and key not in measure.params:
                missing.append(key)
        if missing:
            raise ValueError(f"{', '.join(missing)} is missing")
        for parameter in ("cutoff", "rel"):
            value = measure.params.get(parameter, 1)
            # trec_eval's library ends the whole process on a cut-off below 1.
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{parameter} must be a whole number from 1")
        measure.validate_params()
        # Some measures fail only when they are computed.
        if not isinstance(measure, FairnessMeasure):
            ir_measures.evaluator([measure], {"query": {"document": 1}})
    except (ValueError, NameError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise ValueError(
            f"measure {name!r} cannot be computed ({error}); examples: {EFFECTIVENESS_EXAMPLES}, "
            f"{FAIRNESS_EXAMPLES}; " + _what_exists(name)
        ) from error
    return measure


def _with_named_arguments(name: str) -> str:
    """``RaB(tf,male)@10`` as ``RaB(magnitude='tf',of='male')@10``; any other text unchanged."""
    # To ir_measures' parser a hyphen is a minus.
    name = _HYPHEN.sub("EE_", name, count=1)
    match = _SHORT.fullmatch(name)
    if match is None:
        return name
    if match["name"] not in ir_measures.measures.registry:
        raise NameError(f"measure not found: {match['name']}")
    measure_by_name = {measure.NAME: measure for measure in FAIRNESS}
    if match["name"] not in measure_by_name or "=" in match["arguments"]:
        return name
    positional = measure_by_name[match["name"]].POSITIONAL
    arguments = [argument.strip().strip("'\"") for argument in match["arguments"].split(",")]
    if len(arguments) > len(positional) or "" in arguments:
        takes = "no arguments in brackets"
        if positional:
            takes = f"({','.join(positional)}), from the left"
        raise ValueError(f"{match['name']} takes {takes}")
    # Those that are left out take their defaults.
    named: list[str] = []
    for key, value in zip(positional, arguments, strict=False):
        named.append(f"{key}={value!r}")
    cutoff = f"@{match['cutoff']}" if match["cutoff"] else ""
    return f"{match['name']}({','.join(named)}){cutoff}"


def _what_exists(name: str) -> str:
    """The parameters of a measure whose name is right, otherwise all names."""
    match = re.match(r"\w*", name.strip())
    word = match[0] if match else ""
    measure = ir_measures.measures.registry.get(word)
    if measure is None:
        names = sorted(ir_measures.measures.registry, key=str.lower)
        return f"all names: {', '.join(names)}"
    parameters: list[str] = []
    for key, info in measure.SUPPORTED_PARAMS.items():
        if isinstance(info.choices, (list, tuple)):
            parameters.append(f"{key} ({', '.join(map(str, info.choices))})")
        else:
            parameters.append(key)
    return f"parameters of {word}: {', '.join(parameters)}"
