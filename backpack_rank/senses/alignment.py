"""The tokens of a joined text as a person reads them: spelling, part of the text, and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backpack_rank.data.tokenisation import PairTokenizer

START = "start"
QUERY = "query"
SEPARATOR = "separator"
DOCUMENT = "document"
END = "end"
SEGMENTS = (START, QUERY, SEPARATOR, DOCUMENT, END)
"""Parts of a joined text, in their order."""
BLANK = "\N{OPEN BOX}"
"""Shown for a token that is nothing but white space."""


@dataclass(frozen=True)
class Word:
    """Neighbouring tokens that spell one word, number or punctuation mark.

    Attributes:
        text: as it is written in the text, without white space around it.
        segment: the part of the joined text that it is in, of :data:`SEGMENTS`.
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
    """A joined text as tokens and words; :func:`align_tokens` makes it.

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
        """True at tokens of a segment that are a whole word, not a part of one. bool [n]"""
        is_whole_word = np.zeros(len(self.ids), dtype=bool)
        for word in self.words:
            is_whole_word[word.start] = word.segment == segment and word.end == word.start + 1
        # The last of all words is the end token, so [-2] is the last word of the document. The rest
        # of it may be what was cut.
        if self.cut and self.words[-2].segment == DOCUMENT:
            is_whole_word[self.words[-2].start] = False
        return is_whole_word


def align_tokens(pair_tokenizer: PairTokenizer, query: str, document: str) -> TokenAlignment:
    """Show a person the text that a ranker sees, piece by piece.

    >>> align_tokens(pair_tokenizer, "soup", "She cooks.").tokens  # doctest: +SKIP
    ('soup', '<|separator|>', 'She', 'cooks', '.', '<|endoftext|>')

    The ids are those of ``pair_tokenizer.pairs(query, [document])``.

    Raises:
        ValueError: the query is empty or leaves no room for a document.
    """
    (ids,) = pair_tokenizer.pairs(query, [document])
    query_tokens = _tokens_of(pair_tokenizer, query)
    document_tokens = _tokens_of(pair_tokenizer, document)
    between = [_special(pair_tokenizer, token_id) for token_id in pair_tokenizer.between]
    # The end is one token.
    added = len(pair_tokenizer.start) + len(between) + 1
    room = len(ids) - len(query_tokens) - added
    start_tokens = [
        _special(pair_tokenizer, token_id) for token_id in pair_tokenizer.start.tolist()
    ]
    tokens_of_segments = (
        (START, start_tokens),
        (QUERY, query_tokens),
        (SEPARATOR, between),
        (DOCUMENT, document_tokens[:room]),
        (END, [_special(pair_tokenizer, pair_tokenizer.end_id)]),
    )
    tokens: list[str] = []
    segments: list[str] = []
    words: list[Word] = []
    for segment, tokens_of_segment in tokens_of_segments:
        words += _words(tokens_of_segment, segment, len(tokens))
        tokens += [token.text for token in tokens_of_segment]
        segments += [segment] * len(tokens_of_segment)
    return TokenAlignment(
        ids=tuple(ids.tolist()),
        tokens=tuple(tokens),
        segments=tuple(segments),
        words=tuple(words),
        cut=len(document_tokens) - room,
    )


def whole_word_ids(pair_tokenizer: PairTokenizer, text: str) -> np.ndarray:
    """Ids of the tokens of one text that are a whole word, not a part of one. int32 [m]"""
    (ids,) = pair_tokenizer.encode([text])
    words = _words(_tokens_of(pair_tokenizer, text), DOCUMENT, 0)
    return ids[[word.start for word in words if word.end == word.start + 1]]


_LOOK = 64
"""Characters of a word that tell whether it is nothing but white space."""


class _Token(NamedTuple):
    """A token, and where its word begins and ends.

    Attributes:
        text: characters of the token.
        of_text: the text that the word is of; a word may have a hundred thousand tokens, so none
            of them holds its characters.
        first, last: where the word begins in it, and ends up to this token.
        starts: whether a word starts with it.
        space: whether white space stands before its word.
    """

    text: str
    of_text: str
    first: int
    last: int
    starts: bool
    space: bool

    @property
    def so_far(self) -> str:
        """Characters of the word up to the end of this token."""
        return self.of_text[self.first : self.last].strip() or BLANK


def _special(pair_tokenizer: PairTokenizer, token_id: int) -> _Token:
    """An added token, such as the separator: a word by itself."""
    name = str(pair_tokenizer.tokenizer.convert_ids_to_tokens(token_id))
    return _Token(name, of_text=name, first=0, last=len(name), starts=True, space=True)


def _tokens_of(pair_tokenizer: PairTokenizer, text: str) -> list[_Token]:
    """Tokens of one text, with the word boundaries of the tokenizer and of white space."""
    stripped = text.strip()
    if not stripped:
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
    first = last = 0  # where the word so far begins and ends in the text
    previous_word = None
    for (start, end), word in zip(encoded["offset_mapping"], encoded.word_ids(), strict=True):
        # The tokenizer's word numbers are not enough: tokenizers that do not split at white space
        # first give one number to all words of a sentence. So a word starts behind a space too.
        # Not behind a piece that is nothing but the space: it belongs to the word that follows.
        # A longer word is looked at in its beginning: every token would read all of it again.
        only_space = prepared[first : min(last, first + _LOOK)].isspace()
        after_space = start >= last and _space_at(prepared, start) and not only_space
        starts = not tokens or word != previous_word or after_space
        if starts:
            first, last = start, end
        else:
            # Tokens that are parts of one character all span that character.
            last = max(last, end)
        tokens.append(
            _Token(
                text=prepared[start:end].strip() or BLANK,
                of_text=prepared,
                first=first,
                last=last,
                starts=starts,
                space=_space_at(prepared, first),
            )
        )
        previous_word = word
    return tokens


def _space_at(text: str, position: int) -> bool:
    """Whether white space stands at a position or before it."""
    return any(character.isspace() for character in text[max(position - 1, 0) : position + 1])


def _words(tokens: list[_Token], segment: str, offset: int) -> list[Word]:
    """The words of a segment whose first token stands at ``offset``."""
    starts = [index for index, token in enumerate(tokens) if token.starts]
    # A word ends where the next one starts.
    ends = [*starts[1:], len(tokens)]
    words = []
    # Not strict: where there is no token, there is no start, but still one end.
    for start, end in zip(starts, ends, strict=False):
        words.append(
            Word(
                text=tokens[end - 1].so_far,
                segment=segment,
                space=tokens[start].space,
                start=offset + start,
                end=offset + end,
            )
        )
    return words
