r"""Rotation of passages (Hofstätter et al. 2021, eq. 7): the second part before the first.

For the words p_1..p_n of a passage and r drawn uniformly from {1..n}

    p~ = [p_r .. p_n ; p_1 .. p_{r-1}]

so that an answer may stand anywhere, and judgements, which are of complete passages, stay valid.
r = 1 leaves the passage unchanged. r depends on the seed and the document's id alone, so every
process and every later run sees the same text.

A word is a run of characters that are not white space. The white space before p_r comes to stand
between p_n and p_1, and what stands before p_1 and behind p_n stays there. A rotated text therefore
has the same characters as its original, and each character has exactly one new place. (A language
that is written without spaces has one word per passage and is not rotated.)

The paper also tried to cut between sentences only; there the units are sentences in place of words.
No library for finding them is among the dependencies, so a small rule for English does it
(:func:`sentence_starts`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from backpack_rank.checks import one_of
from backpack_rank.data.collection import Collection, DocumentStore
from backpack_rank.digests import digest

LEVELS = ("word", "sentence")

_WORD = re.compile(r"\S+")
_OPENING, _CLOSING = "\"'\u201c\u2018([", "\"'\u201d\u2019)\\]"
_ENDS = re.compile(rf"[.!?\u2026]+[{_CLOSING}]*$")
_BEGINS = re.compile(rf"[{re.escape(_OPENING)}]*[A-Z0-9\u00c0-\u00d6\u00d8-\u00de]")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+")
# A full stop behind these seldom ends a sentence.
_ABBREVIATIONS = frozenset(
    _WORD.findall(
        "mr mrs ms dr prof st jr sr gen col lt sgt capt gov sen rep hon rev pres vs etc al cf eg "
        "ie approx ca est fig nos vol vols pp ed eds inc ltd co corp dept univ jan feb mar apr jun "
        "jul aug sep sept oct nov dec"
    )
)


@dataclass(frozen=True)
class RotatedText:
    """A text after its rotation; :meth:`moved` maps places of the original to it.

    >>> text = "one two three four"
    >>> rotated = rotate_at(text, word_starts(text), first=3)
    >>> rotated.text, rotated.moved(0, 3)
    ('three four one two', (11, 14))

    Attributes:
        text: the rotated text, as long as the original.
        first: r, the number (from 1) of the unit that stands first now; 1 where nothing moved.
        units: n, the number of units (words or sentences).
        start: where p_1 starts, in the original and in the rotated text.
        head_end: where p_{r-1} ends in the original.
        cut: where p_r starts in the original; ``start`` when r = 1.
        end: where p_n ends in the original.
    """

    text: str
    first: int
    units: int
    start: int
    head_end: int
    cut: int
    end: int

    def moved(self, start: int, end: int) -> tuple[int, int] | None:
        """Where the characters ``start`` to ``end`` (exclusive) of the original stand now.

        Returns:
            The new span, whose text is the same; None when the rotation cut the span in two, or
            when it reaches into the white space around the place of the cut or the ends of the
            text, which is elsewhere now.

        Raises:
            ValueError: no span of the original (empty, or beyond its ends).
        """
        if not 0 <= start < end <= len(self.text):
            raise ValueError(
                f"({start}, {end}) is no span of a text of {len(self.text)} characters"
            )
        if self.first == 1:
            return start, end
        if self.start <= start and end <= self.head_end:
            shift = self.end - self.head_end
        elif self.cut <= start and end <= self.end:
            shift = self.start - self.cut
        else:
            return None
        return start + shift, end + shift


def rotate_at(text: str, starts: Iterable[int], first: int) -> RotatedText:
    """Rotate a text so that its ``first``-th unit (from 1) stands first.

    >>> rotate_at("a b c d", word_starts("a b c d"), first=3).text
    'c d a b'

    Args:
        text: the passage.
        starts: where each unit starts, in order, the first one at the first word; empty for a text
            without words.
        first: r.

    Raises:
        ValueError: there is no such unit.
    """
    places = list(starts)
    begin = places[0] if places else 0
    end = len(text.rstrip())
    if first == 1:
        return RotatedText(
            text,
            first=1,
            units=len(places),
            start=begin,
            head_end=begin,
            cut=begin,
            end=end,
        )
    if not 1 <= first <= len(places):
        raise ValueError(f"a text of {len(places)} units has no unit {first}")
    cut = places[first - 1]
    head_end = len(text[:cut].rstrip())
    tail = text[cut:end]
    space_before_tail = text[head_end:cut]
    head = text[begin:head_end]
    return RotatedText(
        text[:begin] + tail + space_before_tail + head + text[end:],
        first=first,
        units=len(places),
        start=begin,
        head_end=head_end,
        cut=cut,
        end=end,
    )


def word_starts(text: str) -> list[int]:
    """Cut a text between words: where each run of characters without white space starts.

    >>> word_starts("She rewires houses.")
    [0, 4, 12]
    """
    return [match.start() for match in _WORD.finditer(text)]


def sentence_starts(text: str) -> list[int]:
    """Cut a text between sentences: where each starts, by a small rule for English.

    >>> sentence_starts("Dr. Lee left. Nobody saw it.")
    [0, 14]

    A sentence ends with a word that ends in ``.``, ``!``, ``?`` or an ellipsis (closing quotes and
    brackets may follow), when the next word begins with a capital letter or a digit (opening quotes
    and brackets may precede). Initials ("J.", "U.S.") and a few abbreviations ("Dr.") end none. A
    line break alone ends none either: many web passages have neither full stops nor sentences, and
    they are then one unit, as the paper says of MS MARCO.
    """
    starts: list[int] = []
    ended = True
    for match in _WORD.finditer(text):
        word = match.group()
        if ended and (not starts or _BEGINS.match(word)):
            starts.append(match.start())
        ended = _ends_sentence(word)
    return starts


@dataclass(frozen=True)
class Rotation:
    """Rotates the texts of a collection, each by a draw that depends on its id.

        rotated = rotated_collection(collection, Rotation(level="word", seed=0))

    Attributes:
        level: ``word`` (eq. 7) or ``sentence``.
        seed: of the draws.

    Raises:
        ValueError: another level, or a seed that is no whole number.
    """

    level: str = "word"
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("data.rotation_level", self.level, LEVELS)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ValueError(f"data.rotation_seed={self.seed!r} must be a whole number")

    @property
    def label(self) -> str:
        """For the names of collections: ``rotated (seed 0)``, ``rotated by sentences (seed 0)``."""
        rotated = "rotated" if self.level == "word" else "rotated by sentences"
        return f"{rotated} (seed {self.seed})"

    def first(self, doc_id: str, units: int) -> int:
        """r, uniform in {1..units}: a hash of seed and id, so it is the same in every process."""
        drawn = int(digest(f"{self.seed} {doc_id}", size=8), 16)
        # drawn / 2^64 is uniform in [0, 1).
        return 1 + (drawn * units >> 64)

    def rotate(self, doc_id: str, text: str) -> RotatedText:
        """The text of that document, rotated."""
        starts = word_starts(text) if self.level == "word" else sentence_starts(text)
        first = self.first(doc_id, len(starts)) if starts else 1
        return rotate_at(text, starts, first)


class RotatedStore:
    """Documents whose texts are rotated on demand, so that none is stored twice.

        documents = RotatedStore(collection.documents, Rotation(seed=1))

    A :class:`~backpack_rank.data.collection.DocumentStore`.

    Attributes:
        original: the documents before rotation.
        rotation: of their texts.
    """

    def __init__(self, original: DocumentStore, rotation: Rotation) -> None:
        self.original = original
        self.rotation = rotation

    @property
    def fingerprint(self) -> str:
        return f"{self.original.fingerprint}-rotated-{self.rotation.level}-{self.rotation.seed}"

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        originals = self.original.get_many(doc_ids)
        rotated: dict[str, str] = {}
        for doc_id, text in originals.items():
            rotated[doc_id] = self.rotation.rotate(doc_id, text).text
        return rotated

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self.original

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for doc_id, text in self.original:
            yield doc_id, self.rotation.rotate(doc_id, text).text

    def __len__(self) -> int:
        return len(self.original)


def rotated_collection(collection: Collection, rotation: Rotation) -> Collection:
    """A collection with rotated documents; queries, judgements, candidates stay.

    The name of the collection says how it was rotated.
    """
    store = RotatedStore(collection.documents, rotation)
    return replace(collection, name=f"{collection.name}, {rotation.label}", documents=store)


def original_collection(collection: Collection) -> Collection:
    """Where the order of words must not count: the collection before any rotation."""
    store = collection.documents
    if isinstance(store, RotatedStore):
        return replace(collection, documents=store.original)
    return collection


def _ends_sentence(word: str) -> bool:
    if not _ENDS.search(word):
        return False
    bare = word.lstrip(_OPENING)
    return not _INITIALS.fullmatch(bare) and bare.rstrip(".").lower() not in _ABBREVIATIONS
