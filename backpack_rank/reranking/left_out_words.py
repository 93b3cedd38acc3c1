r"""What each word does to a score, for any ranker: the score less the score without the word.

    c_j = s(q, d) - s(q, d without word j)

This is the erasure of Li, Monroe and Jurafsky (2016). It needs scores alone, so it serves every
ranker and every policy, and each number is exact for what it says. Numbers of several words need
not add up to what these words do together: that is a number of its own, given for the listed words
of each group. What all listed words do by their group alone is the score less the mean over the
renditions of the pair (:mod:`backpack_rank.senses.renditions`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.attributes.renditions import Renditions
from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.senses.attribution import (
    ExplainedGroup,
    ExplainedWord,
    Explanation,
    group_of_first,
    groups_by_word,
)
from backpack_rank.senses.renditions import MeanOfRenditions

AT_MOST = 128
"""Words that are left out one at a time; of longer texts, neighbours are left out together."""
SEGMENTS = ("query", "document")
# Scripts without spaces between words: each sign of them is a word.
_SIGNS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Brackets, quotes, dashes and slashes end a word inside a run of letters too: "his/her" is two.
# Apostrophes, hyphens, full stops and commas do not: "she's", "part-time", "3.5".
_BREAKS = r"/\\()\[\]{}\"\u201c\u201d\u00ab\u00bb\u2013\u2014\u2026\u3001\u3002\uff01\uff0c\uff1f"
_WORD = re.compile(rf"[{_BREAKS}]*(?:[{_SIGNS}]|[^\s{_BREAKS}{_SIGNS}]+)[{_BREAKS}]*|[{_BREAKS}]+")


class Words:
    """Writes a text without some of its words; punctuation belongs to its word.

    >>> text = Words("She (or he) cooks, well.")
    >>> text.words
    ['She', '(or', 'he)', 'cooks,', 'well.']
    >>> text.without([1, 2])
    'She cooks, well.'

    Attributes:
        words: with their punctuation.
        spaces: what stands before each word.
    """

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        self.spaces: list[str] = []
        end = 0
        for match in _WORD.finditer(text):
            self.spaces.append(text[end : match.start()])
            self.words.append(match.group())
            end = match.end()
        self._tail = text[end:]

    def without(self, left_out: Collection[int]) -> str:
        """The text without these words, and without the white space before each."""
        left_out = frozenset(left_out)
        pieces: list[str] = []
        space = ""
        for number, (gap, word) in enumerate(zip(self.spaces, self.words, strict=True)):
            # The first word that is left has the beginning of the text before it. Behind a word
            # that is left out, the next one keeps apart from what comes before, by its own space
            # or by that of the word left out.
            if not pieces:
                space = self.spaces[0]
            elif gap:
                space = gap
            if number not in left_out:
                pieces.append(space + word)
                space = ""
        return "".join(pieces) + self._tail

    def first(self, count: int) -> Words:
        """The first words, as a text of their own."""
        return Words(self.without(range(count, len(self.words))))

    def together(self, words: Sequence[int]) -> str:
        """Neighbouring words as they are written."""
        written = "".join(self.spaces[number] + self.words[number] for number in words)
        return written.strip()


class LeftOutWords:
    """Explains a score by words: score its :attr:`pairs`, and give back the scores.

    >>> words = LeftOutWords("soup", "She cooks.", Attribute.named("gender"))
    >>> words.pairs
    [('soup', 'She cooks.'), ('soup', 'cooks.'), ('soup', 'She'), ('soup', 'cooks.'), \
('soup', 'She cooks.'), ('soup', 'He cooks.')]
    >>> found = words.explanation([3.0, 2.5, 0.5, 2.5, 3.0, 2.0])
    >>> [(word.text, word.contribution) for word in found.words]
    [('soup', None), ('She', 0.5), ('cooks.', 2.5)]
    >>> found.renditions.contribution
    0.5

    Attributes:
        pairs: (query, document) texts: the pair itself; without each word, or each group of
            neighbours; without all listed words of each group; and the renditions.
        cut: tokens of the document that no ranker of this tokenizer reads.
    """

    def __init__(
        self,
        query: str,
        document: str,
        attribute: Attribute,
        *,
        lexicon: Lexicon | None = None,
        pair_tokenizer: PairTokenizer | None = None,
        long_documents: LongDocuments = CUT,
        at_most: int = AT_MOST,
    ) -> None:
        """
        Args:
            query, document: the texts.
            attribute: whose renditions are scored.
            lexicon: its words are marked, and left out together; None: those of the attribute.
            pair_tokenizer: of the ranker: words that it does not read are not left out; None: all
                words are.
            long_documents: how the ranker reads a document that does not fit behind the query.
            at_most: texts with words left out. Where there are more words, neighbours are left out
                together, and listed words still alone.

        Raises:
            ValueError: the query is empty or too long, or ``at_most`` is below 1.
        """
        if at_most < 1:
            raise ValueError(f"at_most={at_most} must be at least 1")
        self._attribute = attribute.name
        self._group_of = groups_by_word(lexicon or attribute.lexicon())
        self._query = Words(query)
        self._document = Words(document)
        self.cut = 0
        if pair_tokenizer is not None:
            document = pair_tokenizer.cut(document, long_documents)
            self._document, self.cut = words_that_are_read(
                pair_tokenizer, query, document, long_documents
            )

        self.pairs: list[tuple[str, str]] = [(query, document)]
        self._blocks = self._blocks_of(at_most)
        # The row of the pair without each block; None where nothing of the query would be left.
        self._rows: list[int | None] = []
        for segment, block in self._blocks:
            self._rows.append(self._add(segment, block))
        self._group_rows: dict[str, tuple[int, int]] = {}
        for group, listed in self._listed().items():
            row = self._add("document", listed)
            assert row is not None
            self._group_rows[group] = row, len(listed)
        # No row where the query has words of the attribute: renditions leave such a pair as it is.
        self._rendition_rows: list[int] = []
        policy = MeanOfRenditions.of(attribute)
        if policy.covers(query):
            for rewriting in policy.rewritings:
                self._rendition_rows.append(len(self.pairs))
                self.pairs.append(rewriting(query, document))
            assert isinstance(policy.renditions, Renditions)  # of word lists
            self._words_replaced = policy.renditions.canonical(document).moved

    def explanation(
        self, scores: Sequence[float], before: Sequence[float] | None = None, title: str = ""
    ) -> Explanation:
        """The explanation from the scores of the pairs.

        Args:
            scores: of :attr:`pairs`. [n]
            before: the same without the control; None: there is nothing to compare with. [n]
            title: see :class:`~backpack_rank.senses.attribution.Explanation`.
        """
        effects = _effects(scores)
        changes = None if before is None else effects - _effects(before)

        # Of several rows the mean: s less the mean of s(r) is the mean of s - s(r).
        def effect(rows: Sequence[int]) -> float:
            return float(effects[rows].mean())

        def change(rows: Sequence[int]) -> float | None:
            return None if changes is None else float(changes[rows].mean())

        words = []
        for (segment, block), row in zip(self._blocks, self._rows, strict=True):
            text = self._of(segment)
            written = text.together(block)
            words.append(
                ExplainedWord(
                    text=written,
                    segment=segment,
                    contribution=None if row is None else effect([row]),
                    space=bool(text.spaces[block[0]]),
                    group=self._group(written),
                    change=None if row is None else change([row]),
                )
            )
        groups = []
        for group, (row, number) in self._group_rows.items():
            groups.append(ExplainedGroup(group, number, effect([row]), change([row])))
        renditions = None
        if self._rendition_rows:
            rows = self._rendition_rows
            renditions = ExplainedGroup(
                self._attribute, self._words_replaced, effect(rows), change(rows)
            )
        return Explanation(
            title=title,
            words=tuple(words),
            senses=(),
            score=float(scores[0]),
            empty_score=None,
            score_before=None if before is None else float(before[0]),
            cut=self.cut,
            groups=tuple(groups),
            renditions=renditions,
        )

    def _of(self, segment: str) -> Words:
        return self._query if segment == "query" else self._document

    def _group(self, text: str) -> str:
        return group_of_first(text, self._group_of)

    def _listed(self) -> Mapping[str, list[int]]:
        """Numbers of the document's words of each group that has any."""
        by_group: dict[str, list[int]] = {}
        for number, word in enumerate(self._document.words):
            group = self._group(word)
            if group:
                by_group.setdefault(group, []).append(number)
        return by_group

    def _blocks_of(self, at_most: int) -> list[tuple[str, list[int]]]:
        """Words that are left out together, with their segment: as few in a block as can be.

        Listed words stand alone, unless they alone are more than half of ``at_most``.
        """
        alone: dict[str, list[bool]] = {}
        for segment in SEGMENTS:
            alone[segment] = [bool(self._group(word)) for word in self._of(segment).words]
        if sum(map(sum, alone.values())) > at_most // 2:
            alone = {segment: [False] * len(flags) for segment, flags in alone.items()}

        def blocks_of(size: int) -> list[tuple[str, list[int]]]:
            blocks = []
            for segment in SEGMENTS:
                blocks += [(segment, block) for block in _neighbours(alone[segment], size)]
            return blocks

        # Larger blocks are fewer, so the smallest size that will do is found by halving. A size
        # that holds the longer text is the last one.
        longest = max(1, *map(len, alone.values()))
        sizes = range(1, longest + 1)
        place = bisect_left(sizes, True, key=lambda size: len(blocks_of(size)) <= at_most)
        return blocks_of(sizes[min(place, longest - 1)])

    def _add(self, segment: str, left_out: Sequence[int]) -> int | None:
        """The row of the pair without these words."""
        query, document = self.pairs[0]
        text = self._of(segment).without(left_out)
        if segment == "document":
            document = text
        elif text.strip():
            query = text
        else:
            return None
        self.pairs.append((query, document))
        return len(self.pairs) - 1


def _neighbours(alone: Sequence[bool], size: int) -> list[list[int]]:
    """Words by number in blocks of ``size`` at most; some stand alone."""
    blocks: list[list[int]] = []
    is_open = False
    for number, stands_alone in enumerate(alone):
        if not is_open or stands_alone or len(blocks[-1]) == size:
            blocks.append([])
        blocks[-1].append(number)
        is_open = not stands_alone
    return blocks


def fits_one_chunk(
    pair_tokenizer: PairTokenizer,
    query: str,
    document: str,
    long_documents: LongDocuments = CUT,
) -> bool:
    """Whether a score is that of one chunk, as where documents are cut: senses explain no other.

    Raises:
        ValueError: the query is empty or too long.
    """
    if not long_documents.in_chunks:
        return True
    room = pair_tokenizer.room(pair_tokenizer.encode_query(query))
    (ids,) = pair_tokenizer.encode([pair_tokenizer.cut(document, long_documents)])
    return len(long_documents.chunks(ids, room)) == 1


def words_that_are_read(
    pair_tokenizer: PairTokenizer,
    query: str,
    document: str,
    long_documents: LongDocuments = CUT,
) -> tuple[Words, int]:
    """The words of a document that a ranker reads behind its query, in one chunk or in several.

    Also how many tokens it does not read. Without this, a word that is left out would let another
    one in at the end. Of a last word that is read in part, the rest may come in.

    Raises:
        ValueError: the query is empty or too long.
    """
    words = Words(document)
    room = long_documents.tokens(pair_tokenizer.room(pair_tokenizer.encode_query(query)))

    def tokens(count: int) -> int:
        (ids,) = pair_tokenizer.encode([words.first(count).without(())])
        return len(ids)

    (all_ids,) = pair_tokenizer.encode([document])
    if room is None or len(all_ids) <= room:
        return words, 0
    # The smallest number of words that fill the room, by bisection.
    low, high = 0, len(words.words)
    while low < high:
        middle = (low + high) // 2
        if tokens(middle) < room:
            low = middle + 1
        else:
            high = middle
    return words.first(low), len(all_ids) - room


def _effects(scores: Sequence[float]) -> np.ndarray:
    """The score of the pair less each of the scores. float64 [n]"""
    values = np.asarray(scores, dtype=np.float64)
    return values[0] - values
