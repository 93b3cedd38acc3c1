"""Figures printed in the Backpack paper (Afzali et al., Towards Fair Retrieval).

Tables 1 and 2 as data, in the paper's order of rows and columns. Of Figure 2 the paper prints the curve but no numbers.
Values of bias are as printed. They are positive, as those of Rekabsaz and Schedl (SIGIR 2020), from whom the baselines
are: male minus female, although the paper's eq. 8 is female minus male.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PAPER = "Afzali et al., Towards Fair Retrieval: Controlling Bias through a Backpack-Inspired Architecture"


@dataclass(frozen=True)
class PublishedRow:
    """One system of a table.

    Attributes:
        label: name of the row.
        known_as: names that the system has in our own results; the label itself is always one.
        values: ``{measure: printed value}``.
    """

    label: str
    known_as: tuple[str, ...]
    values: Mapping[str, float]


@dataclass(frozen=True)
class PublishedTable:
    """A table of the paper.

    Attributes:
        name: ``table1`` ...
        source: where it stands.
        data: what its figures were measured on, as a sentence.
        rows: in the paper's order, each with its values.
    """

    name: str
    source: str
    data: str
    rows: tuple[PublishedRow, ...] = field(repr=False)


TABLE1_MEASURES = ("MRR@10", "nDCG@5", "nDCG@10")
TABLE2_CUTOFFS = (10, 20, 30, 40)
TABLE2_MEASURES = ("RaB(tf)", "ARaB(tf)", "RaB(bool)", "ARaB(bool)")

TABLE1 = PublishedTable(
    "table1",
    f"{PAPER}, Table 1",
    "Published figures: models of about 170M parameters trained on MS MARCO, its official development queries, "
    "BM25 top 100",
    tuple(
        PublishedRow(label, known_as, dict(zip(TABLE1_MEASURES, values, strict=True)))
        for label, known_as, values in (
            ("GPT-2", ("GPT2ForRanking",), (0.3156, 0.3448, 0.3843)),
            ("Backpack (alpha = 0.5)", ("alpha=0.5",), (0.3252, 0.3563, 0.3947)),
            ("Backpack (alpha = 0.7)", ("alpha=0.7",), (0.3298, 0.3601, 0.3985)),
            ("Backpack (alpha = 1.0)", ("alpha=1", "alpha=1.0"), (0.3343, 0.3640, 0.4025)),
        )
    ),
)

_TABLE2_SYSTEMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("BM25", ()),
    ("PACRR", ()),
    ("MP", ("MatchPyramid",)),
    ("KNRM", ()),
    ("ConvKNRM", ()),
    ("Ours (alpha = 1)", ("alpha=1", "alpha=1.0")),
    ("Ours (alpha = 0.5)", ("alpha=0.5",)),
)
# {cut-off: one line per system}; columns as TABLE2_MEASURES.
_TABLE2_VALUES = {
    10: (
        (0.062, 0.063, 0.048, 0.044),
        (0.080, 0.084, 0.062, 0.063),
        (0.065, 0.072, 0.052, 0.056),
        (0.067, 0.064, 0.051, 0.051),
        (0.080, 0.077, 0.064, 0.060),
        (0.064, 0.064, 0.047, 0.047),
        (0.053, 0.056, 0.039, 0.042),
    ),
    20: (
        (0.060, 0.062, 0.048, 0.046),
        (0.073, 0.081, 0.058, 0.061),
        (0.063, 0.068, 0.052, 0.054),
        (0.068, 0.066, 0.054, 0.052),
        (0.071, 0.075, 0.058, 0.059),
        (0.058, 0.062, 0.045, 0.046),
        (0.051, 0.053, 0.040, 0.041),
    ),
    30: (
        (0.058, 0.060, 0.048, 0.047),
        (0.070, 0.078, 0.057, 0.060),
        (0.059, 0.066, 0.049, 0.053),
        (0.068, 0.067, 0.055, 0.053),
        (0.069, 0.074, 0.057, 0.059),
        (0.061, 0.061, 0.048, 0.046),
        (0.052, 0.053, 0.041, 0.041),
    ),
    40: (
        (0.057, 0.060, 0.048, 0.047),
        (0.066, 0.076, 0.055, 0.059),
        (0.055, 0.064, 0.045, 0.051),
        (0.067, 0.067, 0.056, 0.054),
        (0.068, 0.073, 0.056, 0.059),
        (0.059, 0.061, 0.048, 0.047),
        (0.053, 0.053, 0.043, 0.041),
    ),
}

TABLE2 = PublishedTable(
    "table2",
    f"{PAPER}, Table 2",
    "Published figures: passages of MS MARCO, the 1,765 gender-neutral queries of Rekabsaz and Schedl (SIGIR 2020)",
    tuple(
        PublishedRow(
            label,
            known_as,
            {
                f"{measure}@{cutoff}": value
                for cutoff in TABLE2_CUTOFFS
                for measure, value in zip(TABLE2_MEASURES, _TABLE2_VALUES[cutoff][index], strict=True)
            },
        )
        for index, (label, known_as) in enumerate(_TABLE2_SYSTEMS)
    ),
)

FIGURE2_SOURCE = f"{PAPER}, Figure 2"
FIGURE2_DATA = "The paper draws this curve for MS MARCO without printing its values, so only our own figures are shown"
