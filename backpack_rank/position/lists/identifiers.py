"""Names of passages in prompts and answers, and their token ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from transformers import PreTrainedTokenizerBase

from backpack_rank.checks import one_of

IdentifierKind = Literal["numeric", "alphabetic"]
KINDS = ("numeric", "alphabetic")
OPENING, CLOSING, BETWEEN = "[", "]", " > ["
"""An answer reads ``[2] > [1] > [3]``; the first bracket belongs to the prompt."""

_CHECKED = 20
"""Identifiers that are tried when an encoder is made; 20 is the window of all three papers."""
_IN_BRACKETS = {
    "numeric": re.compile(r"\[(\s*\d+\s*)\]"),
    "alphabetic": re.compile(r"\[(\s*[A-Za-z]{1,2}\s*)\]"),
}
_LETTER, _LINE_BREAK = "x", "\n"


def identifier_names(kind: str, count: int) -> list[str]:
    """Name the first ``count`` passages: 1, 2, 3 ... or A, B ... Z, AA, AB ...

    >>> identifier_names("alphabetic", 28)[-3:]
    ['Z', 'AA', 'AB']
    """
    numbers = range(1, count + 1)
    if kind == "numeric":
        return [str(number) for number in numbers]
    return [_letters(number) for number in numbers]


def without_identifiers(text: str, kind: str) -> str:
    """On passages of a prompt, so that nothing in them looks like an identifier.

    >>> without_identifiers("as shown in [3] and [a list]", "numeric")
    'as shown in (3) and [a list]'

    This is what rank_llm does.
    """
    return _IN_BRACKETS[kind].sub(r"(\1)", text)


class IdentifierTokens:
    """Writes answers such as ``[2] > [1]`` in the tokens of a tokenizer::

        identifiers = IdentifierTokens(tokenizer, "numeric")
        identifiers.of(3)  # token ids of 1, 2 and 3, such as [[16], [17], [18]]

    An identifier stands behind an opening bracket; ``between`` are the tokens between two of them.

    An answer is always written from these pieces, in training and in ranking. They are the tokens
    that the tokenizer itself gives to ``[1] > [2]``, read off the growing text. Where it would
    merge an identifier with a bracket (some vocabularies have ``[A`` or ``1]``), the pieces are the
    vocabulary's tokens for the identifier and the bracket alone.

    Attributes:
        closing: ids of ``]``.
        between: ids of `` > [``, behind a ``]``.
        merged: identifiers that the tokenizer would merge with a bracket.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, kind: IdentifierKind) -> None:
        """Raises ``ValueError`` when the tokenizer cannot write identifiers in brackets."""
        one_of("identifiers", kind, KINDS)
        self.tokenizer = tokenizer
        self.kind = kind
        self.merged: set[str] = set()
        self._known: list[list[int]] = []
        # Each piece is read behind what stands before it in an answer: a tokenizer may give it
        # other tokens at the beginning of a text.
        self._opening = self._plain(OPENING)
        (name,) = identifier_names(kind, 1)
        first = self._behind(OPENING, name) or self._spelled(name)
        self.closing = self._behind(OPENING + name, CLOSING) or self._spelled(CLOSING)
        written = OPENING + name + CLOSING
        between = self._behind(written, BETWEEN)
        if between is None:
            (between,) = tokenize_continuation(tokenizer, [BETWEEN], special=False)
        self.between = between
        self._check(self._opening + first + self.closing + self.between, written + BETWEEN)
        # Errors of identifiers come when the ranker is made, and not amid its rankings.
        self.of(_CHECKED)

    def of(self, count: int) -> list[list[int]]:
        """Token ids of the first ``count`` identifiers, without brackets.

        Raises:
            ValueError: the tokenizer has no exact tokens for one of them, or the same tokens for
                two.
        """
        if count > len(self._known):
            self._learn(count)
        return [list(ids) for ids in self._known[:count]]

    def _learn(self, count: int) -> None:
        names = identifier_names(self.kind, count)
        for name in names[len(self._known) :]:
            ids = self._behind(OPENING, name)
            if ids is None or self._behind(OPENING + name, CLOSING) != self.closing:
                self.merged.add(name)
            if ids is None:
                ids = self._spelled(name)
            self._check(self._opening + ids + self.closing, OPENING + name + CLOSING)
            if ids in self._known:
                other = names[self._known.index(ids)]
                raise ValueError(
                    f"the tokenizer writes the identifiers {other} and {name} with the same tokens "
                    f"{ids}"
                )
            self._known.append(ids)

    def _plain(self, text: str) -> list[int]:
        """The tokens of a text at the beginning, in which no special token is meant."""
        options = {"add_special_tokens": False, "split_special_tokens": True}
        return list(self.tokenizer(text, **options)["input_ids"])

    def _behind(self, start: str, text: str) -> list[int] | None:
        """The tokens of ``text`` where it follows ``start``.

        None when a token covers parts of both.
        """
        before = self._plain(start)
        joined = self._plain(start + text)
        if joined[: len(before)] != before or len(joined) == len(before):
            return None
        return joined[len(before) :]

    def _spelled(self, text: str) -> list[int]:
        """The vocabulary's token for this very text, or its tokens for the single characters."""
        vocabulary = self.tokenizer.get_vocab()
        for parts in ([text], list(text)):
            ids = [vocabulary[part] for part in parts if part in vocabulary]
            if len(ids) == len(parts):
                return ids
        raise ValueError(
            f"the tokenizer merges {text!r} with its neighbours and has no token for it alone, so "
            f"answers like {OPENING}{text}{CLOSING} cannot be written exactly; choose the other "
            f"kind of prompt.identifiers ({' or '.join(KINDS)}) or another tokenizer"
        )

    def _check(self, ids: Sequence[int], text: str) -> None:
        """Decoded, the pieces must give the text again; some tokenizers drop spaces or capitals."""
        decoded = str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
        unknown = self.tokenizer.unk_token_id
        if unknown == self.tokenizer.eos_token_id:
            # GPT-2 names its end of text as the unknown token, but every byte is known to it.
            unknown = None
        has_unknown = unknown is not None and unknown in ids
        if has_unknown or _squeezed(decoded) != _squeezed(text):
            raise ValueError(
                f"the tokenizer reads {text!r} as {decoded!r}: it cannot write identifiers of kind "
                f"{self.kind}; choose the other kind of prompt.identifiers ({' or '.join(KINDS)}) "
                "or another tokenizer"
            )


def _squeezed(text: str) -> str:
    """A text without spaces and capitals, which decoding may change."""
    return "".join(text.split()).casefold()


def _letters(number: int) -> str:
    """1 -> A, 26 -> Z, 27 -> AA: numbers in base 26 without a zero."""
    name = ""
    while number:
        number, digit = divmod(number - 1, 26)
        name = chr(ord("A") + digit) + name
    return name


def leading_tokens(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Get what the tokenizer puts in front of every text ([CLS], <s>), if anything::

    leading_tokens(llama_tokenizer)  # [128000], <|begin_of_text|>
    """
    bare = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("a")["input_ids"])
    starts = range(len(full))
    start = next(start for start in starts if full[start : start + len(bare)] == bare)
    return full[:start]


def tokenize_prefix(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The beginning of a prompt, whose template spells special tokens such as <s>."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def tokenize_continuation(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool
) -> list[list[int]]:
    """Parts of a prompt behind its beginning, each tokenised apart from the others::

    tokenize_continuation(tokenizer, [" first passage", " second one"], special=False)

    Many tokenizers treat the beginning of a text differently (a space before the first word). So
    each text is read behind an anchor, a letter or a line break, whose tokens are then left out. A
    text that would merge with its anchor is read alone.

    Args:
        special: whether a text that spells a special token gets it: yes for templates, no for what
            fills them.
    """
    options = {"add_special_tokens": False, "split_special_tokens": not special, "verbose": False}
    ids: list[list[int]] = [[] for _ in texts]
    # A letter would merge with a word, and a line break with white space.
    rows_by_anchor: dict[str, list[int]] = {_LETTER: [], _LINE_BREAK: []}
    for row, text in enumerate(texts):
        if text:
            anchor = _LINE_BREAK if text[0].isalnum() else _LETTER
            rows_by_anchor[anchor].append(row)

    merged = []
    for anchor, rows in rows_by_anchor.items():
        if not rows:
            continue
        anchor_ids = list(tokenizer(anchor, **options)["input_ids"])
        anchored_texts = [anchor + texts[row] for row in rows]
        encoded = tokenizer(anchored_texts, **options)["input_ids"]
        for row, anchored_ids in zip(rows, encoded, strict=True):
            if list(anchored_ids[: len(anchor_ids)]) == anchor_ids:
                ids[row] = list(anchored_ids[len(anchor_ids) :])
            else:
                merged.append(row)
    if merged:
        encoded = tokenizer([texts[row] for row in merged], **options)["input_ids"]
        for row, text_ids in zip(merged, encoded, strict=True):
            ids[row] = list(text_ids)
    return ids
