r"""How strongly documents speak of the groups of a lexicon.

The magnitudes are those of Rekabsaz and Schedl (2020) and Rekabsaz et al. (2021).

With #(w, d) the number of times that word w stands in document d, and c_a the sum of #(w, d) over
the words of group a:

    bool       1 if c_a > 0, else 0
    tf         log(1 + c_a)
    tf-paper   sum over words of a with #(w, d) > 0 of log #(w, d)
    tc         c_a

``bool`` is eq. 7 of the Backpack paper. ``tf`` is the published code and its tables;
``tf-paper`` is eq. 6, where a word that stands once adds 0. ``tc`` is in the published code only.

Neutrality of a document, with c the sum of c_a over all n groups:

    omega(d) = 1                                                  if c <= threshold
    omega(d) = 1 - sum over a of |c_a / c - 1/n| / (2 (1 - 1/n))  otherwise

The threshold is 1 in the published code. Neutrality is 1 when all groups have the same share and 0
when one group has everything. For n = 2 the divisor is 1 and this is the published formula; the
divisor for other n is this project's own generalisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.attributes.lexicon import Lexicon, count_groups
from backpack_rank.data.collection import DocumentStore
from backpack_rank.data.words import Tokenizer, whitespace_tokens, word_tokens

MAGNITUDES = ("tf", "tf-paper", "bool", "tc")
NEUTRAL = "neutral"
TOKENIZERS: Mapping[str, Tokenizer] = {"word": word_tokens, "whitespace": whitespace_tokens}
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class GroupMagnitudes:
    """All runs and alphas: magnitudes of documents do not depend on their order.

        magnitudes = GroupMagnitudes.of(doc_ids, collection.documents, load_lexicon("gender_words"))
        magnitudes.amounts("tf", "male_minus_female")  # [n_documents]

    Attributes:
        groups: names of the n groups, in the order of the lexicon.
        rows: ``{document id: row}``.
        values: ``{magnitude: float64 [n_documents, n]}``; columns in the order of ``groups``.
    """

    groups: tuple[str, ...]
    rows: Mapping[str, int]
    values: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls,
        doc_ids: Iterable[str],
        documents: DocumentStore,
        lexicon: Lexicon,
        tokenizer: Tokenizer = word_tokens,
    ) -> GroupMagnitudes:
        """Magnitudes of these documents; texts are fetched in portions and not kept.

        Args:
            doc_ids: documents to look at, repeated ids count once.
            documents: where their texts are.
            lexicon: two or more groups of words.
            tokenizer: ``word_tokens``, or ``whitespace_tokens`` as in the published code.

        Raises:
            ValueError: a word of the lexicon that the tokenizer never gives.
            KeyError: ids that are not in the collection.
        """
        rows: dict[str, int] = {}
        for doc_id in doc_ids:
            rows.setdefault(doc_id, len(rows))
        # Each word as a group of its own, because eq. 6 needs the count of every word.
        words: list[str] = []
        sizes: list[int] = []
        for words_of_group in lexicon.groups.values():
            words += words_of_group
            sizes.append(len(words_of_group))
        by_word = Lexicon(lexicon.name, {word: (word,) for word in words})
        # Without any document, too, there is something to join.
        nothing = np.zeros((0, len(sizes)))
        parts: dict[str, list[np.ndarray]] = {name: [nothing] for name in MAGNITUDES}
        for chunk in _chunks(list(rows)):
            texts = documents.get_many(chunk)
            counts = count_groups((texts[doc_id] for doc_id in chunk), by_word, tokenizer)
            for name, part in _magnitudes(counts, sizes).items():
                parts[name].append(part)
        values = {name: np.concatenate(chunks) for name, chunks in parts.items()}
        return cls(lexicon.group_names, rows, values)

    def amounts(self, magnitude: str, of: str) -> np.ndarray:
        """mag_x of a group x, or mag_x - mag_y, of every document: float64 [n_documents].

        Args:
            magnitude: of :data:`MAGNITUDES`.
            of: a group's name, or ``x_minus_y`` for any two groups.

        Raises:
            ValueError: unknown magnitude, group or sign.
        """
        if magnitude not in self.values:
            raise ValueError(
                f"unknown magnitude {magnitude!r}; choose from {', '.join(self.values)}"
            )
        values = self.values[magnitude]
        if of in self.groups:
            return values[:, self.groups.index(of)]
        plus, minus = parse_sign(of, self.groups)
        added = values[:, self.groups.index(plus)]
        subtracted = values[:, self.groups.index(minus)]
        return added - subtracted

    def neutrality(self, threshold: int = 1) -> np.ndarray:
        """omega of every document, float64 [n_documents], see the formula above.

        Args:
            threshold: a document with at most this many words of all groups together is neutral.
        """
        counts = self.values["tc"]
        total = counts.sum(axis=1)
        even = 1 / len(self.groups)
        shares = counts / np.maximum(total, 1)[:, None]
        distance = np.abs(shares - even).sum(axis=1) / (2 * (1 - even))
        # Exactly 0, not 1e-16 either way: the ideal of NFaiRR may consist of such documents only.
        one_group = counts.max(axis=1, initial=0) == total
        of_gendered = np.where(one_group, 0.0, 1 - distance)
        return np.where(total > threshold, of_gendered, 1.0)

    def belongs_to(self, group: str) -> np.ndarray:
        """Whether a document is of a group, bool [n_documents].

        A document is of the group with the most words in it. It is ``neutral`` when it has no word
        of any group, or when two groups share the first place.

        Args:
            group: a group's name, or ``neutral``.

        Raises:
            ValueError: no such group, or the lexicon itself has a group of the name ``neutral``.
        """
        if group not in document_groups(self.groups):
            raise ValueError(
                f"unknown group {group!r}; choose from {', '.join(document_groups(self.groups))}"
            )
        counts = self.values["tc"]
        most = counts.max(axis=1, initial=0)
        without_words = most == 0
        shared_first_place = (counts == most[:, None]).sum(axis=1) > 1
        neutral = without_words | shared_first_place
        if group == NEUTRAL:
            return neutral
        has_most = counts[:, self.groups.index(group)] == most
        return has_most & ~neutral


def document_groups(groups: Sequence[str]) -> tuple[str, ...]:
    """What a document can belong to: one of the groups, or ``neutral``.

    Raises:
        ValueError: the lexicon itself has a group of that name.
    """
    if NEUTRAL in groups:
        raise ValueError(
            f"the lexicon has a group {NEUTRAL!r}, which is the name of documents of no group; "
            "rename it"
        )
    return (*groups, NEUTRAL)


def parse_sign(sign: str, groups: Sequence[str]) -> tuple[str, str]:
    """The groups x and y of ``x_minus_y``.

    >>> parse_sign("male_minus_female", ["female", "male"])
    ('male', 'female')

    Raises:
        ValueError: not two of these groups; lists what is possible.
    """
    choices: dict[str, tuple[str, str]] = {}
    for minus in groups:
        for plus in groups:
            if plus != minus:
                choices[f"{plus}_minus_{minus}"] = (plus, minus)
    if sign not in choices:
        raise ValueError(f"unknown sign {sign!r}; with this lexicon it is {' or '.join(choices)}")
    return choices[sign]


def default_sign(groups: Sequence[str]) -> str:
    """``male_minus_female`` where there are these groups, or else the second minus the first."""
    if {"male", "female"} <= set(groups):
        return "male_minus_female"
    return f"{groups[1]}_minus_{groups[0]}"


def sign_in_words(sign: str, groups: Sequence[str]) -> str:
    """The sign as a sentence for a reader of the tables."""
    plus, minus = parse_sign(sign, groups)
    return (
        f"{plus} minus {minus}: positive values lean towards {plus} words, negative ones towards "
        f"{minus} words"
    )


def _chunks(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def _magnitudes(counts: np.ndarray, sizes: Sequence[int]) -> dict[str, np.ndarray]:
    """Magnitudes [N, n] from counts of words [N, n_words].

    Columns are group after group, ``sizes`` words each.
    """
    totals: list[np.ndarray] = []
    logs: list[np.ndarray] = []
    for of_group in np.split(counts, np.cumsum(sizes)[:-1], axis=1):
        totals.append(of_group.sum(axis=1))
        # eq. 6: a word that is absent adds nothing, and log 1 is 0.
        logs.append(np.log(np.maximum(of_group, 1)).sum(axis=1))
    total = np.stack(totals, axis=1).astype(np.float64)
    return {
        "tf": np.log1p(total),
        "tf-paper": np.stack(logs, axis=1),
        "bool": (total > 0).astype(np.float64),
        "tc": total,
    }
