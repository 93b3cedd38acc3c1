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
_BEHIND_LETTER, _BEHIND_BREAK = "x", "\n"


def identifier_names(kind: str, count: int) -> list[str]:
    """Names of the first ``count`` passages: 1, 2, 3 ... or A, B ... Z, AA, AB ...

    >>> identifier_names("alphabetic", 28)[-3:]
    ['Z', 'AA', 'AB']
    """
    name = str if kind == "numeric" else _letters
    return [name(number) for number in range(1, count + 1)]


def without_identifiers(text: str, kind: str) -> str:
    """A text in which nothing looks like an identifier: ``[3]`` becomes ``(3)``, as in rank_llm."""
    return _IN_BRACKETS[kind].sub(r"(\1)", text)


class IdentifierTokens:
    """Token ids of identifiers and of the brackets around them.

    An identifier stands behind an opening bracket; ``between`` are the tokens between two of them.

    An answer is always written from these pieces, in training and in ranking. They are the tokens
    that the tokenizer itself gives to ``[1] > [2]``, read off the growing text. Where it would
    merge an identifier with a bracket (some vocabularies have ``[A`` or ``1]``), the pieces are the
    vocabulary's own tokens for the identifier and the bracket.

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
        self._opening = self._plain(OPENING)
        first = identifier_names(kind, 1)[0]
        behind = self._behind(OPENING, first) or self._spelled(first)
        self.closing = self._behind(OPENING + first, CLOSING) or self._spelled(CLOSING)
        written = OPENING + first + CLOSING
        self.between = (
            self._behind(written, BETWEEN)
            or tokenize_continuation(tokenizer, [BETWEEN], special=False)[0]
        )
        self._check(self._opening + behind + self.closing + self.between, written + BETWEEN)
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
        for name in identifier_names(self.kind, count)[len(self._known) :]:
            ids = self._behind(OPENING, name)
            if ids is None or self._behind(OPENING + name, CLOSING) != self.closing:
                self.merged.add(name)
                ids = ids if ids is not None else self._spelled(name)
            self._check(self._opening + ids + self.closing, OPENING + name + CLOSING)
            if ids in self._known:
                other = identifier_names(self.kind, len(self._known))[self._known.index(ids)]
                raise ValueError(
                    f"the tokenizer writes the identifiers {other} and {name} with the same tokens "
                    f"{ids}"
                )
            self._known.append(ids)

    def _plain(self, text: str) -> list[int]:
        return list(
            self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        )

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
            if all(part in vocabulary for part in parts):
                return [vocabulary[part] for part in parts]
        raise ValueError(
            f"the tokenizer merges {text!r} with its neighbours and has no token for it alone, so "
            f"answers like {OPENING}{text}{CLOSING} cannot be written exactly; choose the other "
            f"kind of prompt.identifiers ({' or '.join(KINDS)}) or another tokenizer"
        )

    def _check(self, ids: Sequence[int], text: str) -> None:
        """Decoded, the pieces must give the text again; some tokenizers drop spaces or capitals."""
        decoded = str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
        if self._is_unknown(ids) or _squeezed(decoded) != _squeezed(text):
            raise ValueError(
                f"the tokenizer reads {text!r} as {decoded!r}: it cannot write identifiers of kind "
                f"{self.kind}; choose the other kind of prompt.identifiers ({' or '.join(KINDS)}) "
                "or another tokenizer"
            )

    def _is_unknown(self, ids: Sequence[int]) -> bool:
        unknown = self.tokenizer.unk_token_id
        # GPT-2 names its end of text as the unknown token, but every byte is known to it.
        return unknown is not None and unknown != self.tokenizer.eos_token_id and unknown in ids


def _squeezed(text: str) -> str:
    return "".join(text.split()).casefold()


def _letters(number: int) -> str:
    """1 -> A, 26 -> Z, 27 -> AA: numbers in base 26 without a zero."""
    name = ""
    while number:
        number, digit = divmod(number - 1, 26)
        name = chr(ord("A") + digit) + name
    return name


def leading_tokens(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What the tokenizer puts in front of every text ([CLS], <s>), if anything."""
    bare = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("a")["input_ids"])
    return full[: next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)]


def tokenize_prefix(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of the beginning of a prompt; special tokens that it spells are meant."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def tokenize_continuation(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool
) -> list[list[int]]:
    """Token ids of texts that follow another text, which itself is not looked at.

    Tokenizers treat the beginning of a text in their own ways (a space before the first word), so
    each text is read behind a short other one, whose tokens are then left out. A text that would
    merge with it is read alone.

    Args:
        special: whether a text that spells a special token gets it: yes for templates, no for what
            fills them.
    """
    options = {"add_special_tokens": False, "split_special_tokens": not special, "verbose": False}
    ids: list[list[int]] = [[] for _ in texts]
    alone = [row for row, text in enumerate(texts) if text]
    for anchor in (_BEHIND_LETTER, _BEHIND_BREAK):
        # A letter merges with a word, a line break with white space; "" never gets here.
        rows = [row for row in alone if texts[row][0].isalnum() == (anchor == _BEHIND_BREAK)]
        if not rows:
            continue
        before = list(tokenizer(anchor, **options)["input_ids"])
        for row, whole in zip(
            rows,
            tokenizer([anchor + texts[row] for row in rows], **options)["input_ids"],
            strict=True,
        ):
            if list(whole[: len(before)]) == before:
                ids[row] = list(whole[len(before) :])
                alone.remove(row)
    if alone:
        for row, whole in zip(
            alone, tokenizer([texts[row] for row in alone], **options)["input_ids"], strict=True
        ):
            ids[row] = list(whole)
    return ids
