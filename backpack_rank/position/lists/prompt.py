"""Prompts of listwise rankers, and their token ids for a list of passages.

Their texts stand in ``conf/prompt/*.yaml``.
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
    """Says what a language model reads around a query and its passages.

    >>> prompt = Prompt("short", "Rank {count} passages for {query}:", "[{identifier}] {passage}")
    >>> print(prompt.messages(PassageList("a query", ("first", "second")))[0]["content"])
    Rank 2 passages for a query:
    [1] first
    [2] second

    In its texts ``{count}`` is the number of passages, and ``{example}`` is ``[2] > [1]``.

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
            separate message where this and ``received`` are given, and the passages stand in one
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
        used = {}
        for text in _FIELDS:
            used[text] = _used(self.name, text, getattr(self, text))
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
        """From the keys of a YAML file.

        Raises:
            ValueError: keys are missing or unknown; they are named.
        """
        given = {str(key): value for key, value in mapping.items() if key != "_target_"}
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(
                f"unknown keys of a prompt: {', '.join(unknown)}; known are {', '.join(known)}"
            )
        if missing := [key for key in ("name", "prefix", "passage") if key not in given]:
            raise ValueError(f"a prompt needs {', '.join(missing)}")
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def cleaned(self, text: str) -> str:
        """A query or passage for the prompt, with nothing in it that looks like an identifier.

        Runs of white space become one space. A text of white space alone stays unchanged, since it
        is a placeholder of CapCal.
        """
        if not text.strip():
            return text
        return without_identifiers(" ".join(text.split()), self.identifiers)

    def messages(self, shown: PassageList) -> list[dict[str, str]]:
        """The conversation up to the answer, for chat models.

        Each message has a ``role`` (system, user, assistant) and ``content``.
        """
        passages = [self.cleaned(passage) for passage in shown.passages]
        return self._messages(self.cleaned(shown.query), passages)

    def _messages(self, query: str, passages: Sequence[str]) -> list[dict[str, str]]:
        """The conversation about texts that are taken unchanged."""
        prefix, lines, suffix = self._texts(query, passages)
        turns = []
        if self.system:
            turns.append(("system", self._filled(self.system, len(passages))))
        if self.received:
            turns.append(("user", prefix))
            turns.append(("assistant", self._filled(self.prefix_received, len(passages))))
            names = identifier_names(self.identifiers, len(lines))
            for name, line in zip(names, lines, strict=True):
                turns.append(("user", line))
                turns.append(("assistant", self.received.format(identifier=name)))
            turns.append(("user", suffix))
        else:
            turns.append(("user", _joined_lines([prefix, *lines, suffix])))
        return [{"role": role, "content": content} for role, content in turns]

    def _without_chat(self, query: str, passages: Sequence[str]) -> str:
        """The prompt as one text, up to and with the beginning of the answer."""
        prefix, lines, suffix = self._texts(query, passages)
        system = self._filled(self.system, len(passages))
        return _joined_lines([system, prefix, *lines, suffix, self.answer])

    def _texts(self, query: str, passages: Sequence[str]) -> tuple[str, list[str], str]:
        """The prefix, a text for each passage, and the suffix."""
        if self.most is not None and len(passages) > self.most:
            raise ValueError(
                f"prompt {self.name} shows {self.most} passages at most, not {len(passages)}: "
                "compare them two at a time (pairwise=sliding), or take another prompt"
            )
        lines = []
        names = identifier_names(self.identifiers, len(passages))
        for name, passage in zip(names, passages, strict=True):
            lines.append(self.passage.format(identifier=name, passage=passage))
        prefix = self._filled(self.prefix, len(passages), query)
        suffix = self._filled(self.suffix, len(passages), query)
        return prefix, lines, suffix

    def _filled(self, text: str, count: int, query: str = "") -> str:
        names = identifier_names(self.identifiers, count)[:2]
        example = BETWEEN.join(name + CLOSING for name in reversed(names))
        return text.format(count=count, query=query, example=OPENING + example)


class Slot(NamedTuple):
    """A place for the query (number 0) or a passage (1, 2, ...), maybe with a space in front."""

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
    """Encodes lists as prompts, and rankings as answers::

        pair_tokenizer = PromptTokenizer(tokenizer, prompt, max_length=4096)
        encoded = pair_tokenizer.encode_all(lists)
        pair_tokenizer.answer([1, 0])  # token ids of "2] > [1]" and the end token

    The template, the query and the passages are encoded apart and joined, so that passages can be
    cut to length and no text of a collection can spell a special token of the template.

    Attributes:
        max_length: tokens of a prompt and its complete answer together.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: Prompt, max_length: int) -> None:
        """See the class.

        Raises:
            ValueError: the tokenizer cannot write the identifiers, or has no chat template to use.
        """
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.max_length = max_length
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
        """The prompt for each list.

        Passages that do not fit are cut to one common length, the longest first.

        Raises:
            ValueError: a list whose prompt does not fit with one token of each passage; it names
                the query.
        """
        # The same passages come again and again in permutations and windows.
        fillings: dict[tuple[str, bool], None] = {}
        for shown in lists:
            for _, filling in self._fillings(shown):
                fillings[filling] = None
        texts = []
        for text, space in fillings:
            cleaned = self.prompt.cleaned(text)
            # A space goes before a text, and never stands for an empty one.
            texts.append(f" {cleaned}" if cleaned and space else cleaned)
        tokenized = tokenize_continuation(self.tokenizer, texts, special=False)
        ids_by_filling = dict(zip(fillings, tokenized, strict=True))
        return [self._encode(shown, ids_by_filling) for shown in lists]

    def identifiers(self, count: int) -> list[list[int]]:
        """Token ids of the first ``count`` identifiers, behind the bracket that ends the prompt."""
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
        """Token ids of a ranking, from its first identifier to the end token.

        Args:
            order: input positions, best first.
        """
        identifiers = self.identifiers(int(max(order)) + 1)
        ids = list(identifiers[order[0]])
        for position in order[1:]:
            ids += [*self.closing, *self.between, *identifiers[position]]
        return [*ids, *self.closing, self.end_id]

    def _fillings(self, shown: PassageList) -> list[tuple[Slot, tuple[str, bool]]]:
        """What stands in each slot: the text, and whether a space goes before it."""
        texts = (shown.query, *shown.passages)
        fillings = []
        for part in self._template(len(shown)):
            if isinstance(part, Slot):
                fillings.append((part, (texts[part.number], part.space)))
        return fillings

    def _encode(
        self, shown: PassageList, ids_by_filling: Mapping[tuple[str, bool], list[int]]
    ) -> EncodedPrompt:
        count = len(shown)
        ids_by_slot = {slot: ids_by_filling[filling] for slot, filling in self._fillings(shown)}
        # The prompt in order: token ids, and whether they are a passage, which may be cut.
        parts = []
        passage_lengths = []
        num_fixed = 0
        for part in self._template(count):
            is_passage = isinstance(part, Slot) and part.number != _QUERY
            ids = ids_by_slot[part] if isinstance(part, Slot) else part
            parts.append((ids, is_passage))
            if is_passage:
                passage_lengths.append(len(ids))
            else:
                num_fixed += len(ids)
        lengths = np.array(passage_lengths)
        # The answer must fit behind the prompt: generating it reads its tokens too.
        room = self.max_length - num_fixed - len(self.answer(range(count)))
        longest = common_length(lengths, room)
        if longest < min(1, lengths.max()):
            raise ValueError(
                f"query {shown.query_id or shown.query[:80]!r}: prompt {self.prompt.name} for "
                f"{count} passages takes {self.max_length - room} of max_length={self.max_length} "
                "tokens without the passages, which leaves less than a token for each; show fewer "
                "passages (windows), or raise max_length"
            )
        prompt: list[int] = []
        for ids, is_passage in parts:
            prompt += ids[:longest] if is_passage else ids
        shortened = int((lengths > longest).sum())
        return EncodedPrompt(np.array(prompt, dtype=np.int64), count, shortened)

    def _template(self, count: int) -> list[Slot | list[int]]:
        """The prompt for that many passages: token ids, and slots for the texts between them."""
        if count not in self._templates:
            self._templates[count] = self._split(self._rendered(count))
        return self._templates[count]

    def _rendered(self, count: int) -> str:
        """The prompt as text, with marks in place of the query and the passages."""
        # Characters for private use, which no template has.
        slots = [f"\ue000{number}\ue001" for number in range(count + 1)]
        if not self.chat:
            return self.prompt._without_chat(slots[_QUERY], slots[1:])
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
        """Token ids of the template, and the slots between them."""
        pieces = _SLOT.split(rendered)  # text, space, slot, text, space, slot, ..., text
        first, *others = pieces[::3]
        parts: list[Slot | list[int]] = []
        if not self.chat:  # chat templates write them themselves
            parts.append(leading_tokens(self.tokenizer))
        parts.append(tokenize_prefix(self.tokenizer, first))
        encoded = tokenize_continuation(self.tokenizer, others, special=True)
        for space, number, ids in zip(pieces[1::3], pieces[2::3], encoded, strict=True):
            parts.append(Slot(int(number), bool(space)))
            parts.append(ids)
        return parts


def _used(name: str, key: str, text: str) -> list[str]:
    """Names of the fields in a text of a prompt."""
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(
            f"prompt {name}: {key}: {error}; write a brace of the text itself twice"
        ) from error
    for _, field, width, conversion in parsed:
        # "{passage:>3000000000}" would fill the memory.
        if width or conversion:
            raise ValueError(
                f"prompt {name}: {key} has {{{field}...}} with a format of its own: write "
                f"{{{field}}} alone"
            )
    # Behind the last field of a text there may be none.
    used = [field for _, field, _, _ in parsed if field is not None]
    unknown = sorted(set(used) - _FIELDS[key])
    if unknown:
        allowed = ", ".join(f"{{{field}}}" for field in sorted(_FIELDS[key])) or "none"
        raise ValueError(
            f"prompt {name}: {key} has {{{unknown[0]}}}, which is not filled in there; known: "
            f"{allowed}"
        )
    return used


def _joined_lines(texts: Sequence[str]) -> str:
    """Texts below each other; empty ones take no line."""
    return "\n".join(text for text in texts if text)


def common_length(lengths: np.ndarray, room: int) -> int:
    """The largest c for which sum of min(length, c) <= room.

    It is the longest length when all fit, and below 0 if nothing does.
    """
    if lengths.sum() <= room:
        return int(lengths.max())
    if room < 0:
        return -1
    # Shortest first. If the i shortest texts stay uncut, the n - i others share what is left.
    ordered = np.sort(lengths)
    others = np.arange(len(ordered), 0, -1)
    uncut = np.concatenate([[0], np.cumsum(ordered)[:-1]])
    shares = (room - uncut) // others
    # The first text that does not fit into its share: it and all longer ones are cut to it.
    return int(shares[np.argmax(shares < ordered)])
