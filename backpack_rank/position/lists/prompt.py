"""Prompts of listwise rankers: the texts of ``conf/prompt/*.yaml`` and their token ids for a list
of passages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from string import Formatter
from typing import Any, Literal, NamedTuple

import jinja2
import numpy as np
from transformers import PreTrainedTokenizerBase

from backpack_rank.checks import one_of
from backpack_rank.constructors import Count, Name
from backpack_rank.position.lists.bounded import rendered
from backpack_rank.position.lists.identifiers import (
    BETWEEN,
    CLOSING,
    KINDS,
    OPENING,
    IdentifierKind,
    IdentifierTokens,
    identifier_names,
    leading_tokens,
    tokenize_continuation,
    tokenize_prefix,
    without_identifiers,
)
from backpack_rank.position.lists.passages import PassageList

_FIELDS = {
    "system": {"count"},
    "prefix": {"count", "query", "example"},
    "prefix_received": {"count"},
    "passage": {"identifier", "passage"},
    "received": {"identifier"},
    "suffix": {"count", "query", "example"},
    "answer": set(),
}
"""What each text of a prompt may be filled with."""

_SLOT = re.compile("( ?)\ue000(\\d+)\ue001")
_QUERY = 0
"""Slot of the query; the passages have 1, 2, ..."""


@dataclass(frozen=True)
class Prompt:
    """The texts around a query and its passages. ``{count}``: number of passages; ``{example}``:
    ``[2] > [1]``.

    Attributes:
        name: label in tables and files.
        system: the system message; may be empty.
        prefix: before the passages; ``{query}``, ``{count}`` and ``{example}`` are filled in, here
            and in ``suffix``.
        passage: one passage, with ``{identifier}`` and ``{passage}``.
        suffix: behind the passages; may be empty.
        answer: how the answer begins, up to the bracket of its first identifier; a part of what the
            model reads.
        identifiers: ``numeric`` or ``alphabetic``.
        chat: whether the tokenizer's chat template is used; ``auto``: where it has one. Without it,
            the texts are joined by line breaks.
        prefix_received: what the assistant says to the prefix; in chats only. Every passage is a
            message of its own where this and ``received`` are given, and the passages stand in one
            message where both are empty.
        received: what the assistant says to a passage, with ``{identifier}``.
        most: passages that it can show, for texts that speak of two; None: any number.
    """

    name: Name
    prefix: str
    passage: str
    suffix: str = ""
    system: str = ""
    answer: str = OPENING
    identifiers: IdentifierKind = "numeric"
    chat: bool | Literal["auto"] = "auto"
    prefix_received: str = ""
    received: str = ""
    most: Count | None = None

    def __post_init__(self) -> None:
        one_of(f"prompt {self.name}: identifiers", self.identifiers, KINDS)
        one_of(f"prompt {self.name}: chat", self.chat, ("auto", True, False))
        if bool(self.prefix_received) != bool(self.received):
            raise ValueError(
                f"prompt {self.name}: give both prefix_received and received, or neither"
            )
        if not self.answer.endswith(OPENING):
            raise ValueError(
                f"prompt {self.name}: answer={self.answer!r} must end with {OPENING!r}"
            )
        used = {text: _used(self.name, text, getattr(self, text)) for text in _FIELDS}
        if sorted(used["passage"]) != ["identifier", "passage"]:
            raise ValueError(
                f"prompt {self.name}: passage must hold {{identifier}} and {{passage}} once each"
            )
        if "query" not in used["prefix"] + used["suffix"]:
            raise ValueError(
                f"prompt {self.name}: neither prefix nor suffix has {{query}}, so no model would "
                "see it"
            )

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Prompt:
        """From the keys of a YAML file. Raises ``ValueError`` that names keys that are missing or
        unknown.
        """
        given = {str(key): value for key, value in mapping.items() if key != "_target_"}
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(given) - set(known)):
            raise ValueError(
                f"unknown keys of a prompt: {', '.join(unknown)}; known are {', '.join(known)}"
            )
        if missing := [key for key in ("name", "prefix", "passage") if key not in given]:
            raise ValueError(f"a prompt needs {', '.join(missing)}")
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def cleaned(self, text: str) -> str:
        """A query or passage as it is shown: white space single, and nothing in it that looks like
        an identifier.

        A text of white space alone stays as it is (placeholders of CapCal).
        """
        return (
            without_identifiers(" ".join(text.split()), self.identifiers) if text.strip() else text
        )

    def messages(self, shown: PassageList) -> list[dict[str, str]]:
        """The conversation up to the answer, for chat models: ``role`` (system, user, assistant)
        and ``content``.
        """
        return self._messages(
            self.cleaned(shown.query), [self.cleaned(passage) for passage in shown.passages]
        )

    def _messages(self, query: str, passages: Sequence[str]) -> list[dict[str, str]]:
        prefix, lines, suffix = self._texts(query, passages)
        talk = [("system", self._filled(self.system, len(passages)))] if self.system else []
        if self.received:
            talk += [
                ("user", prefix),
                ("assistant", self._filled(self.prefix_received, len(passages))),
            ]
            for name, line in zip(
                identifier_names(self.identifiers, len(lines)), lines, strict=True
            ):
                talk += [("user", line), ("assistant", self.received.format(identifier=name))]
            talk.append(("user", suffix))
        else:
            talk.append(("user", "\n".join(text for text in (prefix, *lines, suffix) if text)))
        return [{"role": role, "content": content} for role, content in talk]

    def _joined(self, query: str, passages: Sequence[str]) -> str:
        prefix, lines, suffix = self._texts(query, passages)
        system = self._filled(self.system, len(passages))
        return "\n".join(text for text in (system, prefix, *lines, suffix, self.answer) if text)

    def _texts(self, query: str, passages: Sequence[str]) -> tuple[str, list[str], str]:
        if self.most is not None and len(passages) > self.most:
            raise ValueError(
                f"prompt {self.name} shows {self.most} passages at most, not {len(passages)}: "
                "compare them two at a time (pairwise=sliding), or take another prompt"
            )
        names = identifier_names(self.identifiers, len(passages))
        lines = [
            self.passage.format(identifier=n, passage=p)
            for n, p in zip(names, passages, strict=True)
        ]
        return (
            self._filled(self.prefix, len(passages), query),
            lines,
            self._filled(self.suffix, len(passages), query),
        )

    def _filled(self, text: str, count: int, query: str = "") -> str:
        names = identifier_names(self.identifiers, count)[:2]
        example = BETWEEN.join(name + CLOSING for name in reversed(names))
        return text.format(count=count, query=query, example=OPENING + example)


class Slot(NamedTuple):
    """A place for the query (number 0) or a passage (1, 2, ...), with or without a space in front."""

    number: int
    space: bool


@dataclass(frozen=True, eq=False)
class EncodedPrompt:
    """A prompt up to and with the opening bracket of the answer.

    Attributes:
        ids: token ids. int64 [n]
        count: passages, m.
        shortened: passages that were cut.
    """

    ids: np.ndarray
    count: int
    shortened: int = 0

    def __len__(self) -> int:
        return len(self.ids)


class PromptTokenizer:
    """Token ids of prompts and answers, for one tokenizer and one prompt.

    The template, the query and the passages are encoded apart and joined, so that passages can be
    cut to length and no text of a collection can spell a special token of the template.

    Attributes:
        max_length: tokens of a prompt and its whole answer together.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: Prompt, max_length: int) -> None:
        """Raises ``ValueError`` when the tokenizer cannot write the identifiers or has no chat
        template to use.
        """
        self.tokenizer, self.prompt, self.max_length = tokenizer, prompt, max_length
        has_template = getattr(tokenizer, "chat_template", None) is not None
        if prompt.chat is True and not has_template:
            raise ValueError(
                f"prompt {prompt.name}: chat=true, but the tokenizer has no chat template; use "
                "chat=auto"
            )
        self.chat = has_template and prompt.chat is not False
        self.tokens = IdentifierTokens(tokenizer, prompt.identifiers)
        self._templates: dict[int, list[Slot | list[int]]] = {}

    def encode(self, shown: PassageList) -> EncodedPrompt:
        """The prompt for a list; errors as of :meth:`encode_all`."""
        return self.encode_all([shown])[0]

    def encode_all(self, lists: Sequence[PassageList]) -> list[EncodedPrompt]:
        """The prompt for each list. Passages that do not fit are cut to one common length, the
        longest first.

        Raises:
            ValueError: a list whose prompt does not fit with one token of each passage; it names
                the query.
        """
        # The same passages come again and again in permutations and windows.
        fillings = dict.fromkeys(filling for shown in lists for _, filling in self._fillings(shown))
        texts = [_spaced(self.prompt.cleaned(text), space) for text, space in fillings]
        ids = dict(
            zip(fillings, tokenize_continuation(self.tokenizer, texts, special=False), strict=True)
        )
        return [self._encode(shown, ids) for shown in lists]

    def identifiers(self, count: int) -> list[list[int]]:
        """Token ids of the first ``count`` identifiers, as they are read behind the bracket that
        ends the prompt.
        """
        return self.tokens.of(count)

    @property
    def closing(self) -> list[int]:
        """Token ids of the bracket behind an identifier."""
        return self.tokens.closing

    @property
    def between(self) -> list[int]:
        """Token ids from behind a closing bracket up to the next identifier."""
        return self.tokens.between

    @cached_property
    def end_id(self) -> int:
        """The token that ends an answer."""
        for token_id in (self.tokenizer.eos_token_id, self.tokenizer.sep_token_id):
            if token_id is not None:
                return int(token_id)
        raise ValueError(
            "the tokenizer has neither an end nor a separator token; add one with "
            "add_special_tokens"
        )

    def answer(self, order: Sequence[int] | np.ndarray) -> list[int]:
        """Token ids of a ranking (input positions, best first), from its first identifier to the
        end token.
        """
        identifiers = self.identifiers(int(max(order)) + 1)
        ids = list(identifiers[order[0]])
        for position in order[1:]:
            ids += [*self.closing, *self.between, *identifiers[position]]
        return [*ids, *self.closing, self.end_id]

    def _fillings(self, shown: PassageList) -> list[tuple[Slot, tuple[str, bool]]]:
        """What stands in each slot of the prompt for a list: the text, and whether a space goes
        before it.
        """
        texts = (shown.query, *shown.passages)
        slots = (part for part in self._template(len(shown)) if isinstance(part, Slot))
        return [(slot, (texts[slot.number], slot.space)) for slot in slots]

    def _encode(
        self, shown: PassageList, ids_of: Mapping[tuple[str, bool], list[int]]
    ) -> EncodedPrompt:
        count, template = len(shown), self._template(len(shown))
        texts = {slot: ids_of[filling] for slot, filling in self._fillings(shown)}
        lengths = np.array([len(ids) for slot, ids in texts.items() if slot.number != _QUERY])
        fixed = [
            texts[part] if isinstance(part, Slot) else part
            for part in template
            if not _is_passage(part)
        ]
        room = self.max_length - sum(map(len, fixed)) - len(self.answer(range(count)))
        longest = _common_length(lengths, room)
        if longest < min(1, lengths.max()):
            raise ValueError(
                f"query {shown.query_id or shown.query[:80]!r}: prompt {self.prompt.name} for "
                f"{count} passages takes {self.max_length - room} of max_length={self.max_length} "
                "tokens without the passages, which leaves less than a token for each; show fewer "
                "passages (windows), or raise max_length"
            )
        ids: list[int] = []
        for part in template:
            found = texts[part] if isinstance(part, Slot) else part
            ids += found[:longest] if _is_passage(part) else found
        return EncodedPrompt(np.array(ids, dtype=np.int64), count, int((lengths > longest).sum()))

    def _template(self, count: int) -> list[Slot | list[int]]:
        """The prompt for that many passages: token ids, and numbers of the texts that stand between
        them.
        """
        if count not in self._templates:
            self._templates[count] = self._split(self._rendered(count))
        return self._templates[count]

    def _rendered(self, count: int) -> str:
        slots = [f"\ue000{number}\ue001" for number in range(count + 1)]
        if not self.chat:
            return self.prompt._joined(slots[_QUERY], slots[1:])
        messages = self.prompt._messages(slots[_QUERY], slots[1:])
        try:
            text = self._apply(messages)
        except jinja2.TemplateError as error:
            if not self.prompt.system:
                raise ValueError(
                    f"prompt {self.prompt.name}: the tokenizer's chat template refuses it: {error}"
                ) from error
            # Templates without a system message (Gemma, early Mistral) raise; it then opens the
            # first message.
            system, first, *others = messages
            opened = {"role": "user", "content": f"{system['content']}\n{first['content']}"}
            text = self._apply([opened, *others])
        return text + self.prompt.answer

    def _apply(self, messages: list[dict[str, str]]) -> str:
        # Models with a thinking mode (Qwen3) would begin the answer with their thoughts; others
        # ignore the option.
        options: dict[str, Any] = {
            "tokenize": False,
            "add_generation_prompt": True,
            "enable_thinking": False,
        }
        return rendered(
            lambda: str(self.tokenizer.apply_chat_template(messages, **options)),
            f"the chat template of {self.tokenizer.name_or_path or 'the tokenizer'}",
        )

    def _split(self, rendered: str) -> list[Slot | list[int]]:
        pieces = _SLOT.split(rendered)  # text, space, slot, text, space, slot, ..., text
        fixed = pieces[::3]
        encoded = tokenize_continuation(self.tokenizer, fixed[1:], special=True)
        encoded.insert(0, tokenize_prefix(self.tokenizer, fixed[0]))
        parts: list[Slot | list[int]] = [] if self.chat else [leading_tokens(self.tokenizer)]
        for number, ids in enumerate(encoded):
            parts.append(ids)
            if 3 * number + 2 < len(pieces):
                parts.append(Slot(int(pieces[3 * number + 2]), bool(pieces[3 * number + 1])))
        return parts


def _used(name: str, key: str, text: str) -> list[str]:
    """Names of the fields in a text of a prompt."""
    try:
        used = [field for _, field, _, _ in Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise ValueError(
            f"prompt {name}: {key}: {error}; write a brace of the text itself twice"
        ) from error
    if unknown := sorted(set(used) - _FIELDS[key]):
        allowed = ", ".join(f"{{{field}}}" for field in sorted(_FIELDS[key])) or "none"
        raise ValueError(
            f"prompt {name}: {key} has {{{unknown[0]}}}, which is not filled in there; known: "
            f"{allowed}"
        )
    return used


def _spaced(text: str, space: bool) -> str:
    """With the space that stands between it and the template; nothing stays nothing."""
    return f" {text}" if text and space else text


def _is_passage(part: Slot | list[int]) -> bool:
    return isinstance(part, Slot) and part.number != _QUERY


def _common_length(lengths: np.ndarray, room: int) -> int:
    """The largest c for which sum of min(length, c) <= room; the longest length when all fit, below
    0 if none does.
    """
    if lengths.sum() <= room:
        return int(lengths.max())
    if room < 0:
        return -1
    ordered = np.sort(lengths)
    others = np.arange(len(ordered), 0, -1)
    # Up to the i-th shortest, texts are whole; the rest shares what is left.
    whole = np.concatenate([[0], np.cumsum(ordered)[:-1]])
    shares = (room - whole) // others
    return int(shares[np.argmax(shares < ordered)])
