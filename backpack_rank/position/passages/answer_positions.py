"""Where in their passages answers stand, as they are and rotated (Hofstätter et al. 2021, section
4.1, Figure 1).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from backpack_rank.data.answers import Answer, Answers
from backpack_rank.data.rotation import Rotation, word_starts

MATCHES = ("offsets", "all")

# Letters and digits of any script; the answer's must be whole words of the passage.
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class AnswerPositions:
    """Relative start positions of a collection's answers, read once for the paper's Figure 1.

    Attributes:
        starts: number of the word in which each match starts, from 0. int64 [n]
        words: number of words of its passage. int64 [n]
        answers: rows of the source that were looked at.
        unmatched: those of them whose text does not stand in the document.
        cut: matches that the rotation cut in two; they stand nowhere and are in neither array.
    """

    starts: np.ndarray
    words: np.ndarray
    answers: int
    unmatched: int
    cut: int = 0

    @property
    def relative(self) -> np.ndarray:
        """Start word over the words of the passage, in [0, 1). float64 [n]"""
        return self.starts / self.words

    @property
    def uniform_distance(self) -> float:
        """Kolmogorov-Smirnov distance of the relative positions from the uniform distribution on
        [0, 1].

        Half a word is added to each start: the words 0 .. n-1 of a passage, all taken once, have a
        mean position of (n - 1) / 2n and not of 1/2. A distance of about 1 / 2n remains because
        words are no continuum. Nan without a match.
        """
        if not len(self.starts):
            return float("nan")
        return float(stats.kstest((self.starts + 0.5) / self.words, "uniform").statistic)

    def histogram(self, bins: int) -> np.ndarray:
        """Number of matches in each of ``bins`` equal parts of the passage. int64 [bins]"""
        # Whole numbers: 0.3 * 10 is not 3 in binary, and a match must not slip into the bin before.
        return np.bincount(self.starts * bins // self.words, minlength=bins)


@dataclass
class _Counts:
    starts: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    cut: int = 0


def answer_positions(
    answers: Answers,
    rotations: Sequence[Rotation | None] = (None,),
    match: str = "offsets",
    certain_only: bool = False,
) -> list[AnswerPositions]:
    """Find every answer in its document and say where it starts, under each rotation.

    Args:
        answers: of a collection; its documents as they are, not rotated.
        rotations: None is the original. Documents are read once for all of them.
        match: ``offsets`` takes the places that the source gives, and searches answers without one;
            ``all`` searches every answer and counts all its matches, as the paper did. A search
            looks for the answer's words in a row, whole words without regard to case and
            punctuation.
        certain_only: leave out answers whose given place is only the likeliest of several.

    Returns:
        One result for each rotation. A word is a run of characters without white space, as in the
        rotation.

    Raises:
        ValueError: another ``match``, or no answer to look at.
    """
    if match not in MATCHES:
        raise ValueError(f"task.match={match!r}: use one of {', '.join(MATCHES)}")
    found = [_Counts() for _ in rotations]
    looked_at = unmatched = 0
    for row, text in answers.with_texts():
        if certain_only and not row.certain:
            continue
        looked_at += 1
        spans = (
            [row.span]
            if match == "offsets" and row.span is not None
            else occurrences(row.text, text)
        )
        unmatched += not spans
        for counts, rotation in zip(found, rotations, strict=True):
            _count(counts, row, text, spans, rotation)
    if not looked_at:
        raise ValueError(
            f"{answers.name} has no answer whose place is certain: leave out task.certain_only"
        )
    return [
        AnswerPositions(
            np.array(one.starts, np.int64),
            np.array(one.words, np.int64),
            looked_at,
            unmatched,
            one.cut,
        )
        for one in found
    ]


def query_positions(answers: Answers, rotation: Rotation | None = None) -> dict[str, float]:
    """Relative start, in [0, 1), of the first answer of every query that has one with a place.

    Later answers of a query are mostly other wordings of the first. Queries whose answer the
    rotation cut in two are left out, as are those of which only the answer's text is known.
    """
    found: dict[str, float] = {}
    seen: set[str] = set()
    for row, text in answers.with_texts():
        if row.query_id in seen or row.span is None:
            continue
        seen.add(row.query_id)
        turned = None if rotation is None else rotation.rotate(row.doc_id, text)
        place = row.span if turned is None else turned.moved(*row.span)
        if place is not None:
            starts = word_starts(text if turned is None else turned.text)
            found[row.query_id] = start_word(starts, place[0]) / len(starts)
    return found


def occurrences(answer: str, text: str) -> list[tuple[int, int]]:
    """Spans of the text whose words are those of the answer, in order; they do not overlap.

    An answer without a letter or digit ("%") is looked for as it is.
    """
    pattern = re.escape(answer)
    if words := _WORD.findall(answer):
        pattern = r"(?<![^\W_])" + r"[\W_]+".join(map(re.escape, words)) + r"(?![^\W_])"
    return [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


def start_word(starts: Sequence[int], place: int) -> int:
    """Number from 0 of the word that a character belongs to; ``starts`` are the words' first
    characters.
    """
    return max(bisect_right(starts, place) - 1, 0)


def _count(
    counts: _Counts,
    row: Answer,
    text: str,
    spans: Sequence[tuple[int, int]],
    rotation: Rotation | None,
) -> None:
    turned = None if rotation is None else rotation.rotate(row.doc_id, text)
    starts = word_starts(text if turned is None else turned.text) if spans else []
    for span in spans:
        place = span if turned is None else turned.moved(*span)
        if place is None:
            counts.cut += 1
            continue
        counts.starts.append(start_word(starts, place[0]))
        counts.words.append(len(starts))
