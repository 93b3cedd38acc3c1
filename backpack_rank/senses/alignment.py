"""Tokens of a joined text for a person: what they spell, which part of the text they are in, which
word they form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backpack_rank.data.tokenisation import PairTokenizer

START, QUERY, SEPARATOR, DOCUMENT, END = SEGMENTS = (
    "start",
    "query",
    "separator",
    "document",
    "end",
)
BLANK = "\N{OPEN BOX}"
"""Shown for a token that is nothing but white space."""


@dataclass(frozen=True)
class Word:
    """Neighbouring tokens that spell one word, number or punctuation mark.

    Attributes:
        text: as it is written in the text, without white space around it.
        segment: of :data:`SEGMENTS`.
        space: whether white space stands before it.
        start: position of its first token.
        end: position after its last token.
    """

    text: str
    segment: str
    space: bool
    start: int
    end: int


@dataclass(frozen=True)
class TokenAlignment:
    """A joined text as tokens and words.

    Attributes:
        ids: token ids: start (of encoders), query, separator, document, end.
        tokens: the characters each token stands for. Tokens that are parts of one character all
            show it.
        segments: part of the text of each token, of :data:`SEGMENTS`.
        words: the words, in order; every token is in one.
        cut: tokens of the document that did not fit.
    """

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    segments: tuple[str, ...]
    words: tuple[Word, ...]
    cut: int

    def whole_words(self, segment: str = DOCUMENT) -> np.ndarray:
        """True at tokens of a segment that are a word of their own, not a part of one. bool [n]"""
        whole = np.zeros(len(self.ids), dtype=bool)
        for word in self.words:
            whole[word.start] = word.segment == segment and word.end == word.start + 1
        if self.cut and self.words[-2].segment == DOCUMENT:
            # The rest of the last word may be what was cut.
            whole[self.words[-2].start] = False
        return whole


def align_tokens(pair_tokenizer: PairTokenizer, query: str, document: str) -> TokenAlignment:
    """The text that a ranker sees, piece by piece; ids are those of ``pair_tokenizer.pairs(query,
    [document])``.

    Raises:
        ValueError: the query is empty or leaves no room for a document.
    """
    (ids,) = pair_tokenizer.pairs(query, [document])
    parts = (_read(pair_tokenizer, query), _read(pair_tokenizer, document))
    room = len(ids) - len(pair_tokenizer.start) - len(parts[0]) - 2
    cut = len(parts[1]) - room
    start, separator, end = (
        [_special(pair_tokenizer, number) for number in numbers]
        for numbers in (
            pair_tokenizer.start.tolist(),
            [pair_tokenizer.separator_id],
            [pair_tokenizer.end_id],
        )
    )
    tokens: list[str] = []
    segments: list[str] = []
    words: list[Word] = []
    for segment, part in (
        (START, start),
        (QUERY, parts[0]),
        (SEPARATOR, separator),
        (DOCUMENT, parts[1][:room]),
        (END, end),
    ):
        words += _words(part, segment, len(tokens))
        tokens += [token.text for token in part]
        segments += [segment] * len(part)
    return TokenAlignment(tuple(ids.tolist()), tuple(tokens), tuple(segments), tuple(words), cut)


def whole_word_ids(pair_tokenizer: PairTokenizer, text: str) -> np.ndarray:
    """Ids of the tokens of one text that are a word of their own. int32 [m]"""
    (ids,) = pair_tokenizer.encode([text])
    words = _words(_read(pair_tokenizer, text), DOCUMENT, 0)
    return ids[[word.start for word in words if word.end == word.start + 1]]


@dataclass(frozen=True)
class _Token:
    """Characters of a token, all characters its word has up to here, and whether it starts a word
    after a space.
    """

    text: str
    so_far: str
    starts: bool
    space: bool


def _special(pair_tokenizer: PairTokenizer, number: int) -> _Token:
    name = str(pair_tokenizer.tokenizer.convert_ids_to_tokens(number))
    return _Token(name, name, True, True)


def _read(pair_tokenizer: PairTokenizer, text: str) -> list[_Token]:
    """Tokens of one text, with the word boundaries of the tokenizer and of white space."""
    if not (stripped := text.strip()):
        return []
    prepared = f" {stripped}"  # as PairTokenizer.encode does
    encoded = pair_tokenizer.tokenizer(
        prepared,
        add_special_tokens=False,
        split_special_tokens=True,
        verbose=False,
        return_offsets_mapping=True,
    )
    tokens: list[_Token] = []
    first = last = 0  # characters of the word so far
    previous = None
    for (start, end), number in zip(encoded["offset_mapping"], encoded.word_ids(), strict=True):
        # Tokenizers that do not split at white space first give one number to a whole sentence.
        after_space = (
            start >= last and _space_at(prepared, start) and not prepared[first:last].isspace()
        )
        starts = not tokens or number != previous or after_space
        first, last = (start, end) if starts else (first, max(last, end))
        shown, so_far = (
            prepared[begin:stop].strip() or BLANK for begin, stop in ((start, end), (first, last))
        )
        tokens.append(_Token(shown, so_far, starts, _space_at(prepared, first)))
        previous = number
    return tokens


def _space_at(text: str, position: int) -> bool:
    """Whether white space stands at a position or before it."""
    return any(character.isspace() for character in text[max(position - 1, 0) : position + 1])


def _words(tokens: list[_Token], segment: str, offset: int) -> list[Word]:
    starts = [index for index, token in enumerate(tokens) if token.starts]
    ends = [*starts[1:], len(tokens)] if starts else []
    return [
        Word(tokens[end - 1].so_far, segment, tokens[start].space, offset + start, offset + end)
        for start, end in zip(starts, ends, strict=True)
    ]
