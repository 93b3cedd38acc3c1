"""Figures printed in papers 003, 002 and 000 about bias in lists, in their order of rows and columns.

Figures are as printed: Kendall's tau and nDCG@10 times 100, but shares in Tables 1 and 5 of paper 002.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PERMUTATION = "Tang et al., Found in the Middle: Permutation Self-Consistency Improves Listwise Ranking"
CAPCAL = (
    "Lv et al., Learning from Emptiness: De-biasing Listwise Rerankers with Content-Agnostic Probability Calibration"
)
DEBIAS_FIRST = "DebiasFirst: positional calibration and position-aware augmentation for listwise reranking"
"""Papers 003, 002 and 000."""


@dataclass(frozen=True)
class Row:
    """A row of a table: figures by column, and marks of significance that stand behind some of them."""

    values: Mapping[str, float]
    marks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reranked:
    """A row of paper 003's Table 4 or 7 for one test set.

    Attributes:
        original: as the model ranks the list as it is; mean of three runs for GPT models.
        best: the best of these runs, where printed.
        psc: with permutation self-consistency, where it was tried.
    """

    original: float
    psc: float | None = None
    best: float | None = None


def _rows(columns: Sequence[str], text: str) -> dict[tuple[str, ...], Row]:
    """Lines ``key | key | figure figure:marks ...``; - is no figure."""
    found = {}
    for line in text.strip().splitlines():
        *keys, figures = (part.strip() for part in line.split("|"))
        cells = [cell.partition(":") for cell in figures.split()]
        values = {name: float(cell[0]) for name, cell in zip(columns, cells, strict=True) if cell[0] != "-"}
        marks = {name: cell[2] for name, cell in zip(columns, cells, strict=True) if cell[2]}
        found[tuple(keys)] = Row(values, marks)
    return found


def _reranked(text: str) -> dict[tuple[str, str, str], dict[str, Reranked]]:
    """Lines ``first stage | depth | method | original best psc original best psc``; - is no figure."""
    found = {}
    for (stage, depth, method), row in _rows("012345", text).items():
        values = [row.values.get(place) for place in "012345"]
        both = {"DL19": values[:3], "DL20": values[3:]}
        found[stage, depth, method] = {
            test: Reranked(original, psc, best) for test, (original, best, psc) in both.items() if original is not None
        }
    return found


SORTING = ("MathSort", "WordSort", "GSM8KSort")
SORTING_COLUMNS = tuple(f"{task} {kind}" for task in SORTING for kind in ("Orig.", "PSC"))

PSC_TABLE3 = _rows(
    SORTING_COLUMNS,
    """
    Mistral-7B   | 34.7 52.9 55.3 74.2 46.7 65.3
    Zephyrβ-7B   | 13.2 32.2 30.7 60.8 34.5 61.6
    LLaMA2-7B    |  8.7 24.2 41.3 59.9  6.1 21.3
    LLaMA2-13B   | 16.7 26.0 65.4 78.8 42.7 46.8
    LLaMA2-70B   | 27.9 31.3 74.6 81.0 61.1 71.2
    GPT-3.5      | 64.0 75.2 85.9 88.1 82.1 88.4
    GPT-4        | 83.5 89.6 89.9 92.0 88.4 90.5
    """,
)
"""Paper 003, Table 3: Kendall's tau on sorting tasks, ``{(model,): row}``."""

PSC_TABLE4 = _reranked("""
    None         | All | BM25                       | 50.58 - - 47.96 - -
    None         | All | SPLADE++ ED                | 73.08 - - 71.97 - -
    BM25         | 100 | MonoT5 (T5-3B)             | 71.83 - - 68.89 - -
    BM25         | 100 | RankT5 (T5-3B)             | 71.22 - - 69.49 - -
    BM25         | 100 | RankLLaMA (13B)            | 73.22 - - 70.38 - -
    BM25         | 100 | PRP-Best (FLAN-T5-XXL)     | 69.87 - - 69.85 - -
    BM25         | 100 | PRP-Best (FLAN-UL2)        | 72.65 - - 70.68 - -
    BM25         | 100 | RankVicuna                 | 66.83 - 68.70 65.49 - 65.68
    BM25         | 20  | Single (GPT-3.5)           | 60.95 60.96 61.49 57.64 57.68 59.62
    BM25         | 20  | Single (GPT-4)             | 60.88 60.92 64.88 57.78 57.89 62.49
    BM25         | 100 | RankGPT (GPT-3.5)          | 68.00 68.13 70.77 62.08 63.20 62.70
    BM25         | 100 | RankGPT (GPT-4)            | 75.00 75.59 75.66 70.36 70.56 71.00
    SPLADE++ ED  | 100 | RankVicuna                 | 74.59 - 74.13 74.73 - 74.06
    SPLADE++ ED  | 20  | Single (GPT-4)             | 73.21 73.36 76.87 71.97 73.63 78.52
    SPLADE++ ED  | 100 | RankGPT (GPT-4)            | 74.64 74.93 76.01 70.76 71.08 75.14
""")
"""Paper 003, Table 4: nDCG@10, ``{(first stage, depth, method): {test set: figures}}``."""

PSC_TABLE7 = _reranked("""
    BM25 | 20  | Single (GPT-3.5, Reversed)  | 55.92 - 62.88 52.66 - 59.59
    BM25 | 20  | Single (GPT-4, Reversed)    | 64.04 - 65.60 60.20 - 62.27
    BM25 | 100 | RankGPT (GPT-3.5, Reversed) | 56.76 - 57.32 51.03 - 55.73
    BM25 | 100 | RankGPT (GPT-4, Reversed)   | 67.83 - 69.63 64.92 - 65.89
""")
"""Paper 003, Table 7: the same with the first stage's order reversed."""

PSC_TABLE8 = _rows(
    SORTING,
    """
    GPT-3.5 (PRP) | 46.7 82.2 64.0
    GPT-4 (PRP)   | 73.3 83.9 79.9
    GPT-3.5 (PSC) | 75.2 88.1 88.4
    GPT-4 (PSC)   | 89.6 92.0 90.5
    """,
)
"""Paper 003, Table 8: Kendall's tau of pairwise prompts (PRP-10) and permutation self-consistency."""

PSC_TABLE9 = _rows(
    (*SORTING, "DL19", "DL20"),
    """
    GPT-3.5 (Orig.)   | 64.0 85.9 82.1 68.00 62.08
    GPT-3.5 (Borda)   | 74.6 87.9 88.1 70.09 62.54
    GPT-3.5 (Our PSC) | 75.2 88.1 88.4 70.77 62.70
    GPT-4 (Orig.)     | 83.5 89.9 88.4 75.00 70.36
    GPT-4 (Borda)     | 89.2 91.5 90.4 75.23 70.62
    GPT-4 (Our PSC)   | 89.6 92.0 90.5 75.66 71.00
    """,
)
"""Paper 003, Table 9: Borda in place of Kemeny."""

TREC = ("DL19", "DL20", "DL21", "DL22", "DL23")
BEIR_CAPCAL = ("COVID", "Clim.", "NF", "Argu.", "FiQA")

CAPCAL_TABLE1 = _rows(
    (*TREC, "InD", *BEIR_CAPCAL, "OOD"),
    """
    Qwen3-0.6b | Base   | .4916 .3415 .6278 .4858 .5457 .4985 .6074 .1622 .4243 .1097 .1807 .2969
    Qwen3-0.6b | CapCal | .5454 .4126 .6666 .5457 .5762 .5493 .6400 .2086 .4504 .2448 .2364 .3560
    Qwen3-8b   | Base   | .6807 .5405 .8091 .6129 .6945 .6675 .7525 .2486 .4981 .2436 .2877 .4061
    Qwen3-8b   | CapCal | .7141 .5613 .8228 .6391 .6979 .6870 .7683 .2714 .5094 .2464 .2932 .4177
    Qwen2.5-7b | Base   | .7114 .5151 .8142 .6293 .6317 .6603 .7542 .2325 .4858 .2181 .2846 .3950
    Qwen2.5-7b | CapCal | .6991 .5020 .8277 .6417 .6411 .6623 .7665 .2405 .5088 .2553 .3075 .4157
    """,
)
"""Paper 002, Table 1: nDCG@10, ``{(model, method): row}``; InD and OOD are means of what stands before them."""

CAPCAL_TABLE2 = _rows(
    TREC,
    """
    BM25   | Base   | 49.16 34.15 62.78 48.58 54.57
    BM25   | CapCal | 54.54 41.26 66.66 54.57 57.62
    Random | Base   | 47.61 32.27 59.07 47.26 43.60
    Random | CapCal | 56.33 37.57 65.93 53.16 52.63
    BGE-M3 | Base   | 52.32 45.23 72.06 59.07 59.68
    BGE-M3 | CapCal | 62.05 47.21 75.32 65.24 64.23
    """,
)
"""Paper 002, Table 2: nDCG@10 of Qwen3-0.6B, ``{(input order, method): row}``."""

CAPCAL_TABLE3 = _rows(
    TREC,
    """
    Base (No Calibration) | 49.16 34.15 62.78 48.58 54.57
    Fixed String          | 54.54 41.26 66.66 54.57 57.62
    Passage[1] Content    | 56.12 40.78 64.05 50.31 52.98
    Empty (a space)       | 55.82 44.77 63.50 50.06 50.48
    Space x 20            | 57.97 40.43 64.12 52.96 53.28
    Random x 20           | 54.15 38.92 64.58 49.03 51.43
    Space x len[1]        | 58.38 43.30 67.30 52.45 53.65
    Random x len[1]       | 50.24 40.56 65.10 51.97 49.29
    Space x len[i]        | 55.95 42.57 66.29 52.87 55.86
    """,
)
"""Paper 002, Table 3: nDCG@10 of Qwen3-0.6B by what stands in place of the passages."""

CAPCAL_TABLE4 = _rows(
    TREC,
    """
    Base   | 49.87 33.50 54.05 45.60 40.96
    CapCal | 52.16 36.01 67.70 53.35 46.80
    """,
)
"""Paper 002, Table 4: nDCG@10 of Qwen3-0.6B with alphabetic identifiers."""

CAPCAL_TABLE5 = _rows(
    (*TREC, *BEIR_CAPCAL),
    """
    Qwen3-0.6b | Base   | .4916 .3415 .6278 .4858 .5457 .6074 .1622 .4243 .1097 .1807
    Qwen3-0.6b | PSC    | .5382 .4074 .6937 .5246 .5264 .5842 .1892 .4047 .1910 .1637
    Qwen3-0.6b | CapCal | .5454 .4126 .6666 .5457 .5762 .6400 .2086 .4504 .2448 .2364
    Qwen3-8b   | Base   | .6807 .5405 .8091 .6129 .6945 .7525 .2486 .4981 .2436 .2877
    Qwen3-8b   | PSC    | .7404 .5429 .8473 .6244 .6948 .7753 .2627 .4980 .2527 .2856
    Qwen3-8b   | CapCal | .7141 .5613 .8228 .6391 .6979 .7683 .2714 .5094 .2464 .2932
    """,
)
"""Paper 002, Table 5: nDCG@10 beside permutation self-consistency of 10 permutations."""

CAPCAL_TABLE6 = _rows(
    TREC,
    """
    Zephyr                      | Base   | 48.50 36.91 58.20 51.44 46.72
    Zephyr                      | CapCal | 51.85 36.61 62.83 53.81 47.90
    RankZephyr                  | Base   | 76.67 60.73 89.20 75.11 76.78
    RankZephyr                  | CapCal | 76.25 60.96 89.15 74.58 75.55
    Qwen3-0.6B                  | Base   | 49.16 34.15 62.78 48.58 54.57
    Qwen3-0.6B                  | CapCal | 54.54 41.26 66.66 54.57 57.62
    Qwen3-0.6B (rerank trained) | Base   | 61.15 43.26 78.96 65.68 66.80
    Qwen3-0.6B (rerank trained) | CapCal | 65.53 47.58 80.48 68.15 69.21
    """,
)
"""Paper 002, Table 6: nDCG@10 of models trained with and without shuffled lists."""

COLLECTIONS = (
    *("DL19", "DL20", "MSM", "FiQA", "HQA", "NFC", "NQ"),
    *("Scidocs", "Scifact", "DBP", "Tcovid", "CFever", "Avg."),
)
"""Columns of paper 000's tables; the average is over those behind DL20, MS MARCO (MSM) among them."""

DEBIAS_TABLE1 = _rows(
    COLLECTIONS,
    """
    ListT5(r=2) | Original | 69.9 67.3 46.3 41.7 71.5 36.3 53.1 17.2 74.1 46.1 80.3 24.4 49.1
    RankZephyr  | Original | 69.3 71.2 42.7 42.2 71.6 37.7 65.6 20.5 76.7 50.0 78.4 25.6 51.1
    First       | Original | 68.2 70.2 44.3 42.4 74.2 37.4 66.3 20.5 74.6 50.8 79.0 26.9 51.6
    DebiasFirst | Original | 70.0 72.0:† 43.7 44.3:†‡ 75.8:†‡ 37.8 68.2:†‡ 21.3:†‡ 76.6 51.9:†‡ 79.6 24.9 52.4
    ListT5(r=2) | Shuffle  | 69.0 67.9 45.8 42.0 70.0 35.7 57.9 18.0 73.9 44.3 77.0 23.8 48.8
    RankZephyr  | Shuffle  | 69.6 70.7 41.0 39.9 70.1 37.2 65.1 19.4 74.3 49.1 76.9 25.4 49.8
    First       | Shuffle  | 67.3 69.0 42.1 39.2 73.3 35.1 65.6 18.9 73.5 48.6 76.4 25.4 49.8
    DebiasFirst | Shuffle  | 71.1:† 71.4 43.4:‡ 44.3:†‡ 75.5:†‡ 37.6:† 68.1:†‡ 20.7:†‡ 75.5 51.7:†‡ 78.8 24.6 52.0
    """,
)
"""Paper 000, Table 1: nDCG@10 of Contriever's candidates, ``{(method, input order): row}``. † against First, ‡ against
RankZephyr: paired t-test, p < 0.01."""

DEBIAS_TABLE2 = _rows(
    COLLECTIONS,
    """
    -           | BM25       | 50.6 48.0 22.8 23.6 63.3 32.2 30.6 14.9 67.9 31.8 59.5 16.5 37.8
    -           | Contriever | 44.5 42.1 40.7 32.9 63.8 32.8 49.8 16.5 67.7 41.3 59.6 23.7 43.1
    -           | Splade++   | 73.2 72.0 44.9 34.8 68.7 34.7 53.8 15.9 70.4 43.7 72.7 23.0 46.4
    -           | RRF        | 66.8 61.0 39.1 34.5 69.0 35.2 50.0 17.4 72.9 44.4 78.0 26.3 47.5
    First       | BM25       | 72.7 71.1 37.7 39.3 74.7 32.2 57.5 19.5 75.4 46.2 83.1 24.0 49.0
    DebiasFirst | BM25       | 74.5 72.7 38.5 41.4:† 76.3:† 32.2 59.1:† 20.7:† 76.3 46.7 86.1:† 23.7 50.1
    First       | Contriever | 68.2 70.2 44.3 42.4 74.2 37.4 66.3 20.5 74.6 50.8 79.0 26.9 51.6
    DebiasFirst | Contriever | 70.0 72.0:† 43.7 44.3:† 75.8:† 37.8 68.2:† 21.3:† 76.6 51.9:† 79.6 24.9 52.4
    First       | Splade++   | 75.6 79.4 45.1 42.8 76.7 37.5 66.6 20.0 75.7 51.3 85.6 26.3 52.7
    DebiasFirst | Splade++   | 76.9 82.2:† 43.9 44.4:† 78.3:† 37.5 68.5:† 21.3:† 76.0 52.3:† 86.6 24.6 53.3
    First       | RRF        | 77.3 80.0 44.2 42.7 77.1 37.8 67.0 20.2 76.1 52.5 87.1 26.6 53.1
    DebiasFirst | RRF        | 78.4 82.4:† 44.0 44.8:† 78.6 38.7 68.7:† 21.6:† 76.2 53.3:† 88.0:† 24.7 53.9
    """,
)
"""Paper 000, Table 2: nDCG@10 by first stage, ``{(reranker, first stage): row}``; - is the first stage itself, whose
printed averages are not those of the columns (36.3, 42.9, 46.3, 46.7). † against First with the same first stage."""

DEBIAS_TABLE3 = _rows(
    COLLECTIONS,
    """
    NoAug       | Original | 57.7 54.9 43.5 40.7 74.6 35.9 65.2 19.1 75.9 46.7 72.0 27.9 50.2
    RandAug     | Original | 68.5 70.2 44.5 42.4 74.2 37.4 66.1 20.4 74.6 50.8 79.1 26.7 51.6
    PosAug      | Original | 69.7 70.6 43.9 44.2:† 75.7:† 37.3 68.1:† 21.4:† 74.8 51.4 78.6 23.7 51.9
    Rank-IPS+LM | Original | 70.2 71.2 44.4 44.6:† 75.5:† 37.8 68.7:† 20.7 76.9:† 51.9:† 78.4 25.6 52.5
    DebiasFirst | Original | 70.0 72.0:† 43.7 44.3:† 75.8:† 37.8 68.2:† 21.3:† 76.6 51.9:† 79.6 24.9 52.4
    NoAug       | Shuffle  | 49.0 48.4 27.2 29.4 67.0 27.7 55.1 13.0 66.3 35.4 60.0 22.0 40.3
    RandAug     | Shuffle  | 67.3 69.0 42.1 39.2 73.3 35.1 65.6 18.9 73.5 48.6 76.4 25.4 49.8
    PosAug      | Shuffle  | 69.3 70.3 43.3:† 43.7:† 75.4:† 37.7:† 67.8:† 21.2:† 75.1 51.3:† 78.7 24.5 51.9
    Rank-IPS+LM | Shuffle  | 69.6 71.2 43.4 44.6:† 75.3:† 37.0:† 68.5:† 20.1:† 75.7:† 51.5:† 78.0 25.2 51.9
    DebiasFirst | Shuffle  | 71.1:† 71.4 43.4 44.3:† 75.5:† 37.6:† 68.1:† 20.7:† 75.5 51.7:† 78.8 24.6 52.0
    """,
)
"""Paper 000, Table 3: nDCG@10 of what DebiasFirst is made of, ``{(training, input order): row}``. † against RandAug."""

DEBIAS_FIGURE4 = (
    "Figure 4 prints no figures. Its text: DebiasFirst keeps its nDCG@10 over all 20 positions of MS MARCO dev, the "
    "others fall when the relevant passage stands later; DebiasFirst is below RankZephyr at positions 1 to 3 and below "
    "First and ListT5 at positions 1 to 4."
)
DEBIAS_FIGURE5 = (
    "Figure 5 prints no figures. Its text: over 20 shuffles DebiasFirst's nDCG@10 has a variance of 0.08 on DL19 and "
    "0.120 on DL20. With permutation self-consistency it is best at 4 (DL19) and 6 (DL20) shuffles, First at 6 and 8."
)
PSC_FIGURE3 = "Section 3.1: permutation self-consistency beats all individual runs by 1 to 12%."
PSC_FIGURE5A = "Section 4.1: five aggregated rankings give 67% of what twenty give."
PSC_FIGURE5B = (
    "Section 4.1: sampling temperatures up to 0.75 have little effect but on GSM8KSort, where quality falls sharply."
)
PSC_FIGURE6 = (
    "Section 4.2: Kemeny is ahead of reciprocal rank fusion (k = 60) in 8 of 10 comparisons by 0.23 points on average, "
    "which reaches 93.5% of the boost."
)
"""What the papers' figures say in words."""
