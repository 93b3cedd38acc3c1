"""Where in their passages answers stand, unchanged and rotated.

It is the study of Hofstätter et al. 2021, section 4.1, Figure 1.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

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
        """Kolmogorov-Smirnov distance of relative positions from the uniform distribution.

        Positions are in [0, 1].

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


def answer_positions(
    answers: Answers,
    rotations: Sequence[Rotation | None] = (None,),
    match: str = "offsets",
    certain_only: bool = False,
) -> list[AnswerPositions]:
    """Where in the documents of a collection answers start, under each rotation::

        original, rotated = answer_positions(load_answers("squad"), (None, Rotation()))
        original.relative.mean()

    Args:
        answers: of a collection; its documents are the original ones.
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
    counts_by_rotation = [_Counts(rotation) for rotation in rotations]
    looked_at = unmatched = 0
    # Documents are read once for all rotations.
    for row, text in answers.with_texts():
        if certain_only and not row.certain:
            continue
        looked_at += 1
        if match == "offsets" and row.span is not None:
            spans = [row.span]
        else:
            spans = occurrences(row.text, text)
        if not spans:
            unmatched += 1
            continue
        for counts in counts_by_rotation:
            counts.add(row, text, spans)
    if not looked_at:
        raise ValueError(
            f"{answers.name} has no answer whose place is certain: leave out task.certain_only"
        )
    results = []
    for counts in counts_by_rotation:
        results.append(
            AnswerPositions(
                starts=np.array(counts.starts, np.int64),
                words=np.array(counts.words, np.int64),
                answers=looked_at,
                unmatched=unmatched,
                cut=counts.cut,
            )
        )
    return results


def query_positions(answers: Answers, rotation: Rotation | None = None) -> dict[str, float]:
    """The relative start, in [0, 1), of the first answer of every query.

    Later answers of a query are mostly other wordings of the first. Queries whose answer the
    rotation cut in two are left out, as are those of which only the answer's text is known.
    """
    positions: dict[str, float] = {}
    seen: set[str] = set()
    for row, text in answers.with_texts():
        if row.query_id in seen or row.span is None:
            continue
        seen.add(row.query_id)
        span: tuple[int, int] | None = row.span
        if rotation is not None:
            rotated = rotation.rotate(row.doc_id, text)
            text = rotated.text
            span = rotated.moved(*row.span)
        if span is not None:
            starts = word_starts(text)
            positions[row.query_id] = start_word(starts, span[0]) / len(starts)
    return positions


def occurrences(answer: str, text: str) -> list[tuple[int, int]]:
    """Find an answer in a text: spans of its words in a row, which do not overlap.

    >>> occurrences("New York", "In new-york, not in New Yorkshire.")
    [(3, 11)]

    An answer without a letter or digit ("%") is looked for sign by sign.
    """
    pattern = re.escape(answer)
    words = _WORD.findall(answer)
    if words:
        # No letter or digit before and behind it, and anything else between its words.
        pattern = r"(?<![^\W_])" + r"[\W_]+".join(map(re.escape, words)) + r"(?![^\W_])"
    return [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


def start_word(starts: Sequence[int], place: int) -> int:
    """The number, from 0, of the word that a character belongs to.

    >>> start_word([0, 4, 10], place=5)
    1

    Args:
        starts: the words' first characters, ascending.
        place: of the character; white space before the first word belongs to that word.
    """
    return max(bisect_right(starts, place) - 1, 0)


class _Counts:
    """Start words of matches under one rotation; the attributes are those of AnswerPositions."""

    def __init__(self, rotation: Rotation | None) -> None:
        self.rotation = rotation
        self.starts: list[int] = []
        self.words: list[int] = []
        self.cut = 0

    def add(self, row: Answer, text: str, spans: Sequence[tuple[int, int]]) -> None:
        """Count the matches in a document."""
        rotated = None
        if self.rotation is not None:
            rotated = self.rotation.rotate(row.doc_id, text)
            text = rotated.text
        starts = word_starts(text)
        for span in spans:
            moved = span if rotated is None else rotated.moved(*span)
            if moved is None:
                self.cut += 1
                continue
            self.starts.append(start_word(starts, moved[0]))
            self.words.append(len(starts))
