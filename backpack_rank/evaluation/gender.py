r"""Gender bias of rankings: RaB and ARaB (Rekabsaz and Schedl 2020; appendix B of the Backpack paper).

How strongly a document d speaks of a group is its magnitude. With #(w, d) the number of times that word w stands in
d and c the sum of #(w, d) over the words of the group:

    bool       1 if c > 0, else 0                                  eq. 7
    tf         log(1 + c)                                          the published code, and its tables
    tf-paper   sum over words with #(w, d) > 0 of log #(w, d)      eq. 6; a word that stands once adds 0
    tc         c                                                   the published code only

Bias of the ranking d_1, d_2, ... of a query, for groups x and y:

    RaB_t  = 1/t sum_{i=1..t} ( mag_x(d_i) - mag_y(d_i) )          eq. 8
    ARaB_t = 1/t sum_{x=1..t} RaB_x                                eq. 9

A list of n < t documents is measured at n. Values closer to 0 are better. Eq. 8 is female minus male; the published
code and the numbers in both papers' tables are male minus female, which is the default here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from backpack_rank.data.collection import DocumentStore, Run
from backpack_rank.data.formats import ranking
from backpack_rank.data.lexicon import Lexicon, load_lexicon
from backpack_rank.data.words import Tokenizer, count_groups, whitespace_tokens, word_tokens
from backpack_rank.evaluation.results import PerQuery, check_finite
from backpack_rank.reporting.rows import About

CUTOFFS = (5, 10, 20, 30, 40)
MAGNITUDES = ("tf", "tf-paper", "bool")
ALL_MAGNITUDES = (*MAGNITUDES, "tc")
TOKENIZERS: Mapping[str, Tokenizer] = {"word": word_tokens, "whitespace": whitespace_tokens}
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class GenderMagnitudes:
    """Magnitudes of documents, computed once and used for every run and every alpha.

    Attributes:
        groups: names of the two groups, in the order of the lexicon.
        rows: ``{document id: row}``.
        values: ``{magnitude: float64 [n_documents, 2]}``; columns in the order of ``groups``.
    """

    groups: tuple[str, str]
    rows: Mapping[str, int]
    values: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls,
        doc_ids: Iterable[str],
        documents: DocumentStore,
        lexicon: Lexicon,
        tokenizer: Tokenizer = word_tokens,
    ) -> GenderMagnitudes:
        """Magnitudes of these documents; texts are fetched in portions and not kept.

        Args:
            doc_ids: documents to look at, repeated ids count once; see :func:`top_documents`.
            documents: where their texts are.
            lexicon: exactly two groups of words.
            tokenizer: ``word_tokens``, or ``whitespace_tokens`` as in the published code.

        Raises:
            ValueError: the lexicon has more than two groups, or a word that the tokenizer never gives.
            KeyError: ids that are not in the collection.
        """
        first, second = _two_groups(lexicon)
        ids = list(dict.fromkeys(doc_ids))
        # Each word as a group of its own, because eq. 6 needs the count of every word.
        by_word = Lexicon(lexicon.name, {word: (word,) for words in lexicon.groups.values() for word in words})
        split = len(lexicon.groups[first])
        parts: dict[str, list[np.ndarray]] = {name: [np.zeros((0, 2))] for name in ALL_MAGNITUDES}
        for chunk in _chunks(ids):
            texts = documents.get_many(chunk)
            counts = count_groups((texts[doc_id] for doc_id in chunk), by_word, tokenizer)
            for name, part in _magnitudes(counts, split).items():
                parts[name].append(part)
        rows = {doc_id: row for row, doc_id in enumerate(ids)}
        return cls((first, second), rows, {name: np.concatenate(part) for name, part in parts.items()})

    def differences(self, magnitude: str, sign: str) -> np.ndarray:
        """mag_x - mag_y of every document, float64 [n_documents], x and y as the sign says.

        Raises:
            ValueError: unknown magnitude or sign.
        """
        if magnitude not in self.values:
            raise ValueError(f"unknown magnitude {magnitude!r}; choose from {', '.join(self.values)}")
        plus, minus = parse_sign(sign, self.groups)
        values = self.values[magnitude]
        return values[:, self.groups.index(plus)] - values[:, self.groups.index(minus)]


def gender_bias(
    run: Run,
    magnitudes: GenderMagnitudes,
    cutoffs: Sequence[int] = CUTOFFS,
    sign: str = "male_minus_female",
    kinds: Sequence[str] = MAGNITUDES,
    query_ids: Iterable[str] | None = None,
) -> PerQuery:
    """RaB and ARaB of every query at every cut-off, named like ``RaB(tf)@10`` and ``ARaB(bool)@40``.

    A query with an empty list has no value (an empty list is not unbiased) and is named in ``left_out``.

    Args:
        run: the rankings.
        magnitudes: of every document in the first ``max(cutoffs)`` places of every list.
        cutoffs: t of the formulas.
        sign: ``male_minus_female`` (positive: towards male) or ``female_minus_male``.
        kinds: of ``tf``, ``tf-paper``, ``bool``, ``tc``.
        query_ids: the bias set; a query of it that the run does not have is left out too. Default: the run's.

    Raises:
        ValueError: unknown kind or sign, a cut-off below 1, a score that is not finite, or no query to measure.
        KeyError: documents without a magnitude; names them.
    """
    _check_cutoffs(cutoffs)
    wanted = list(dict.fromkeys(run if query_ids is None else query_ids))
    lists = {query_id: run[query_id] for query_id in wanted if run.get(query_id)}
    if not lists:
        raise ValueError(f"none of the {len(wanted)} queries of the bias set has a ranked document")
    check_finite(lists)
    rows, lengths = _rows(lists, magnitudes, max(cutoffs))
    values: dict[str, dict[str, float]] = {}
    for kind in kinds:
        differences = magnitudes.differences(kind, sign)
        at_rank = np.where(rows >= 0, differences[rows], 0.0)
        for name, matrix in (("RaB", _running_mean(at_rank)), ("ARaB", _running_mean(_running_mean(at_rank)))):
            for cutoff in cutoffs:
                column = matrix[np.arange(len(lengths)), np.minimum(lengths, cutoff) - 1]
                values[f"{name}({kind})@{cutoff}"] = dict(zip(lists, column.tolist(), strict=True))
    return PerQuery(_by_cutoff(values, cutoffs), left_out=tuple(q for q in wanted if q not in lists))


@dataclass(frozen=True)
class GenderMeasures:
    """RaB and ARaB with every choice that has to stand beside their values.

    Presets: ``default`` is the list of 32 + 32 words on word tokens; ``rekabsaz2020`` is the same list on whitespace
    tokens, as in the published code.

    Attributes:
        preset: name of these choices, as the report states it.
        lexicon: word list, a name in ``lexicons/`` or a path.
        tokenizer: ``word`` or ``whitespace``.
        cutoffs: t of the formulas.
        kinds: magnitudes, of ``tf``, ``tf-paper``, ``bool``, ``tc``.
        sign: ``male_minus_female`` or ``female_minus_male``.
    """

    preset: str = "default"
    lexicon: str = "gender_words"
    tokenizer: str = "word"
    cutoffs: Sequence[int] = CUTOFFS
    kinds: Sequence[str] = MAGNITUDES
    sign: str = "male_minus_female"

    def __post_init__(self) -> None:
        _check_cutoffs(self.cutoffs)
        if self.tokenizer not in TOKENIZERS:
            raise ValueError(f"unknown tokenizer {self.tokenizer!r}; choose from {', '.join(TOKENIZERS)}")
        unknown = [kind for kind in self.kinds if kind not in ALL_MAGNITUDES]
        if unknown or not self.kinds:
            raise ValueError(f"kinds are of {', '.join(ALL_MAGNITUDES)}; got {list(self.kinds)}")
        parse_sign(self.sign, _two_groups(load_lexicon(self.lexicon)))

    def magnitudes(self, doc_ids: Iterable[str], documents: DocumentStore) -> GenderMagnitudes:
        """Magnitudes of these documents, see :meth:`GenderMagnitudes.of`."""
        return GenderMagnitudes.of(doc_ids, documents, load_lexicon(self.lexicon), TOKENIZERS[self.tokenizer])

    def measure(self, run: Run, magnitudes: GenderMagnitudes, query_ids: Iterable[str] | None = None) -> PerQuery:
        """Values of a run, see :func:`gender_bias`."""
        return gender_bias(run, magnitudes, self.cutoffs, self.sign, self.kinds, query_ids)

    def describe(self, about: About) -> About:
        """The same description of a report, with these choices in it."""
        lexicon = load_lexicon(self.lexicon)
        words = " + ".join(f"{len(words)} {group}" for group, words in lexicon.groups.items())
        return replace(
            about,
            preset=self.preset,
            lexicon=f"{lexicon.name} ({words} words)",
            tokenizer=self.tokenizer,
            sign=self.sign,
            sign_in_words=sign_in_words(self.sign, _two_groups(lexicon)),
        )


def top_documents(runs: Iterable[Run], depth: int) -> list[str]:
    """Distinct ids of the documents in the first ``depth`` places of any list of any of the runs."""
    found = (doc_id for run in runs for scores in run.values() for doc_id in ranking(scores)[:depth])
    return list(dict.fromkeys(found))


def parse_sign(sign: str, groups: tuple[str, str]) -> tuple[str, str]:
    """The groups x and y of ``x_minus_y``.

    Raises:
        ValueError: not one of the two orders of these groups.
    """
    first, second = groups
    choices = {f"{second}_minus_{first}": (second, first), f"{first}_minus_{second}": (first, second)}
    if sign not in choices:
        raise ValueError(f"unknown sign {sign!r}; with this lexicon it is {' or '.join(choices)}")
    return choices[sign]


def sign_in_words(sign: str, groups: tuple[str, str]) -> str:
    """The sign as a sentence for a reader of the tables."""
    plus, minus = parse_sign(sign, groups)
    return f"{plus} minus {minus}: positive values lean towards {plus} words, negative ones towards {minus} words"


def _two_groups(lexicon: Lexicon) -> tuple[str, str]:
    if len(lexicon.groups) != 2:
        raise ValueError(
            f"RaB and ARaB compare two groups; lexicon {lexicon.name!r} has {len(lexicon.groups)}: "
            + ", ".join(lexicon.groups)
        )
    first, second = lexicon.groups
    return first, second


def _chunks(ids: list[str]) -> Iterator[list[str]]:
    iterator = iter(ids)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def _magnitudes(counts: np.ndarray, split: int) -> dict[str, np.ndarray]:
    """Magnitudes [N, 2] from counts of words [N, n_words], of which the first ``split`` are the first group's."""
    groups = (counts[:, :split], counts[:, split:])
    total = np.stack([group.sum(axis=1) for group in groups], axis=1).astype(np.float64)
    logs = [np.log(np.maximum(group, 1)).sum(axis=1) for group in groups]
    return {
        "tf": np.log1p(total),
        "tf-paper": np.stack(logs, axis=1),
        "bool": (total > 0).astype(np.float64),
        "tc": total,
    }


def _rows(lists: Run, magnitudes: GenderMagnitudes, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the documents at each rank [n_queries, depth], -1 past the end; lengths [n_queries] up to depth."""
    rows = np.full((len(lists), depth), -1, dtype=np.int64)
    lengths = np.zeros(len(lists), dtype=np.int64)
    missing: dict[str, None] = {}
    for index, scores in enumerate(lists.values()):
        top = ranking(scores)[:depth]
        lengths[index] = len(top)
        rows[index, : len(top)] = [magnitudes.rows.get(doc_id, -1) for doc_id in top]
        missing.update(dict.fromkeys(doc_id for doc_id in top if doc_id not in magnitudes.rows))
    if missing:
        shown = ", ".join(repr(doc_id) for doc_id in list(missing)[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise KeyError(f"{len(missing)} documents of the run have no gender magnitude: {shown}{more}")
    return rows, lengths


def _running_mean(values: np.ndarray) -> np.ndarray:
    """Column t-1 of the result is the mean of the first t columns."""
    return np.cumsum(values, axis=1) / np.arange(1, values.shape[1] + 1)


def _check_cutoffs(cutoffs: Sequence[int]) -> None:
    wrong = [cutoff for cutoff in cutoffs if isinstance(cutoff, bool) or not isinstance(cutoff, int) or cutoff < 1]
    if wrong or not cutoffs:
        raise ValueError(f"cut-offs are whole numbers from 1, such as {list(CUTOFFS)}; got {list(cutoffs)}")


def _by_cutoff(values: dict[str, dict[str, float]], cutoffs: Sequence[int]) -> dict[str, dict[str, float]]:
    """The same measures, all of one cut-off side by side."""
    return {name: values[name] for cutoff in cutoffs for name in values if name.endswith(f"@{cutoff}")}
