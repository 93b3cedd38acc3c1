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

``RaB@10`` is ``RaB(tf)@10``. What the measures are: :mod:`backpack_rank.evaluation.word_measures`
and :mod:`backpack_rank.evaluation.group_measures`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import ir_measures
from ir_measures import Measure

from backpack_rank.evaluation.contrast import CONTRAST_MEASURES
from backpack_rank.evaluation.group_measures import (
    AWRF_JS,
    EE_D,
    EE_L,
    EE_R,
    NDKL,
    GroupMeasure,
)
from backpack_rank.evaluation.measure import Described, Effectiveness, FairnessMeasure, Undescribed
from backpack_rank.evaluation.score_gaps import GAP_MEASURES
from backpack_rank.evaluation.swap_stability import SWAP_MEASURES
from backpack_rank.evaluation.word_measures import ARaB, Exposure, FaiRR, NFaiRR, RaB

EFFECTIVENESS_EXAMPLES = "nDCG@10, MRR@10, RR(rel=2)@10, R@100, AP, P@5, Success@5"
FAIRNESS_EXAMPLES = (
    "RaB(tf)@10, RaB(tf,male)@10, ARaB(bool)@20, FaiRR@10, NFaiRR@10, Exposure(male)@10, "
    "AWRF_JS@20, EE-L@20, NDKL@20"
)
_SHORT = re.compile(r"\s*(?P<name>\w+)\s*\((?P<arguments>[^()]*)\)\s*(?:@\s*(?P<cutoff>\S+))?\s*")
_HYPHEN = re.compile(r"\s*EE-(?=[LDR]\b)")
__all__ = ["AWRF_JS", "EE_D", "EE_L", "EE_R", "NDKL", "ARaB", "Exposure", "FaiRR", "GroupMeasure"]
__all__ += ["FairnessMeasure", "NFaiRR", "RaB", "measure_of", "parse_measures", "split_measures"]
# Those of words first, whichever module was imported first.
FAIRNESS: tuple[FairnessMeasure, ...] = tuple(
    sorted(FairnessMeasure.known.values(), key=lambda measure: isinstance(measure, GroupMeasure))
)


@cache
def measure_of(name: str) -> Described:
    """The object of a measure as results name it: what is better, and its words.

    >>> measure_of("RaB(tf)@10").direction.value, measure_of("swap tau (swapped)").direction.value
    ('zero', 'higher')

    A name that is nobody's is described by nothing: systems only differ in it.
    """
    for described in (*SWAP_MEASURES, *GAP_MEASURES, *CONTRAST_MEASURES):
        if described.is_called(name):
            return described.called(name)
    try:
        measure = ir_measures.parse_measure(_with_named_arguments(name))
    except (ValueError, NameError, KeyError, TypeError, AttributeError, AssertionError):
        return Undescribed(name)
    return measure if isinstance(measure, FairnessMeasure) else Effectiveness(name)


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
    if match["name"] not in FairnessMeasure.known or "=" in match["arguments"]:
        return name
    positional = FairnessMeasure.known[match["name"]].POSITIONAL
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
