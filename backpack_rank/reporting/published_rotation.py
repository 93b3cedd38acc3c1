"""Figures printed in paper 001 (Hofstätter et al. 2021), Tables 2 to 5, in its order of rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PAPER = "Hofstätter et al., Mitigating the Position Bias of Transformer Models in Passage Re-Ranking"
MEASURES = ("nDCG@10", "MRR@10", "R@10")
HEADINGS: Mapping[str, str] = {"nDCG@10": "nDCG", "MRR@10": "MRR", "R@10": "Recall"}
"""The paper's names of the measures."""

MODELS = ("BERT_CAT", "BERT_DOT", "TK")
KNOWN_AS: Mapping[str, str] = {
    "bert_cat": "BERT_CAT",
    "cross_encoder": "BERT_CAT",
    "CrossEncoderForRanking": "BERT_CAT",
    "bert_dot": "BERT_DOT",
    "DualEncoderForRanking": "BERT_DOT",
    "tk": "TK",
}
"""Our names of the paper's models."""

TRAININGS = ("Original", "Debiased")
"""The paper calls rotated passages debiased."""


@dataclass(frozen=True)
class BothSets:
    """A measure on the original and on the rotated test set."""

    original: float
    rotated: float

    @property
    def change(self) -> float:
        """Relative difference as in the paper, which divides by the figure of the rotated test set; nan for 0."""
        return (self.rotated - self.original) / self.rotated if self.rotated else float("nan")


@dataclass(frozen=True)
class Transferred:
    """A row of Table 5: figures by measure, and the variants that each one is significantly better than."""

    values: Mapping[str, float]
    letters: Mapping[str, str]


def _tested(rows: str) -> dict[tuple[str, str], dict[str, BothSets]]:
    """Lines of six figures, two per measure, for every model and training in the paper's order."""
    keys = [(model, training) for model in MODELS for training in TRAININGS]
    found = {}
    for key, line in zip(keys, rows.strip().splitlines(), strict=True):
        figures = [float(figure) for figure in line.split()]
        pairs = zip(figures[::2], figures[1::2], strict=True)
        found[key] = {measure: BothSets(*pair) for measure, pair in zip(MEASURES, pairs, strict=True)}
    return found


def _transferred(rows: str) -> dict[tuple[str, str], Transferred]:
    """Lines of three figures, with letters behind a colon, for every model and chain in the paper's order."""
    keys = [(model, chain) for model in MODELS for chain in "abc"]
    found = {}
    for key, line in zip(keys, rows.strip().splitlines(), strict=True):
        cells = [cell.partition(":") for cell in line.split()]
        found[key] = Transferred(
            {measure: float(figure) for measure, (figure, _, _) in zip(MEASURES, cells, strict=True)},
            {measure: letters for measure, (_, _, letters) in zip(MEASURES, cells, strict=True)},
        )
    return found


TABLE2: Mapping[tuple[str, str], tuple[float, float]] = {
    ("MS MARCO", "Original"): (0.176, 0.046),
    ("MS MARCO", "Debiased"): (0.021, 0.006),
    ("SQuAD", "Original"): (0.056, 0.014),
    ("SQuAD", "Debiased"): (0.007, 0.002),
}
"""``{(collection, training): (MATS, standard deviation)}`` of TK."""

TABLE3 = _tested("""
.432 .395 .372 .336 .630 .594
.416 .415 .357 .355 .617 .617
.373 .329 .316 .276 .567 .509
.362 .364 .305 .307 .555 .554
.371 .307 .312 .254 .567 .484
.356 .355 .298 .296 .551 .552
""")
"""MS MARCO, ``{(model, training): {measure: original and rotated test set}}``."""

TABLE4 = _tested("""
.908 .902 .892 .884 .957 .956
.910 .905 .894 .885 .959 .956
.780 .783 .734 .738 .924 .919
.784 .783 .740 .739 .919 .919
.846 .840 .818 .811 .933 .930
.848 .844 .820 .816 .932 .931
""")
"""The same of SQuAD."""

TABLE5 = _transferred("""
.908 .892 .957
.913 .898 .957
.911 .896 .958
.780 .734 .924
.788:a .744:a .922
.792:ab .748:ab .927:b
.846 .818 .933
.854:a .827:a .936
.857:ab .832:ab .937
""")
"""Test on SQuAD, ``{(model, chain): figures}``; chain a is SQuAD alone, b and c begin with the original and the rotated
MS MARCO."""

DATA: Mapping[str, str] = {
    "table2": "TK trained on each collection",
    "table3": "8.8 million passages of MS MARCO, 48,598 test queries, BM25's candidates re-ranked to a tuned depth",
    "table4": "20,239 passages of SQuAD 2.0, 5,928 test queries, BM25's candidates re-ranked to a tuned depth",
    "table5": "the test set of Table 4",
}
"""What the published figures were measured on."""
