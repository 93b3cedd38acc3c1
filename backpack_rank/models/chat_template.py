"""Chat templates of tokenizers, by which sentence-transformers asks a model about a pair.

A template is rendered once, when a model is loaded, and becomes a
:class:`~backpack_rank.models.prompted_ranker.PromptTemplate`: query and document are two messages
with the roles ``query`` and ``document``. What is made of it is compared with the template on
texts, and refused where it differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from backpack_rank.models.prompted_ranker import PromptTemplate, PromptTokenizer
from backpack_rank.models.sentence_transformers_files import ADVICE, MODEL_FILE, settings_of

_QUERY_SIGN, _DOCUMENT_SIGN = "\ue000", "\ue001"
"""Signs of Unicode's private use, which no template holds."""
_SAMPLES = (
    ("which tools", "a saw and a hammer"),
    ("Which tools?", "A saw.\n\nA hammer: 2.5!"),
    (" tools ", "2 saws"),
)
_STRUCTURED = ("content[0]", ".type", "'type'", '"type"', "item.type", "message.content[")
"""Signs of a template by which sentence-transformers gives it contents as lists."""


def chat_pair_tokenizer(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    settings: Mapping[str, Any],
    max_length: int,
) -> PromptTokenizer | None:
    """A folder of sentence-transformers or transformers; None: texts are joined.

    As ``CrossEncoder`` does it since sentence-transformers 6: a chat template counts where the
    module's settings name messages, and where there are no settings and the tokenizer has one.

    Args:
        folder: of the model; its default prompt becomes a system message.
        tokenizer: of the model.
        settings: of its Transformer module; empty for a folder without modules.
        max_length: tokens of a prompt.

    Raises:
        ValueError: there is a default prompt without a chat template, or a chat template that
            cannot be read as a prompt with a place for each of the two texts.
    """
    modalities = settings.get("modality_config")
    message = None
    if modalities is not None:
        message = modalities.get("message")
    elif getattr(tokenizer, "chat_template", None):
        message = {"format": _format_of(tokenizer.chat_template)}
    if message is None:
        name = settings_of(folder / MODEL_FILE).get("default_prompt_name")
        if name is not None:
            raise ValueError(
                f"{folder / MODEL_FILE}: default_prompt_name={name} puts a prompt before every "
                f"query, which is read with a chat template alone; {ADVICE}"
            )
        return None
    conversation = Conversation(
        tokenizer,
        structured=message.get("format") == "structured",
        prompt=_default_prompt(folder),
        options=settings.get("processing_kwargs", {}).get("chat_template", {}),
    )
    template = conversation.template(folder, max_length)
    uncut = PromptTokenizer(tokenizer, 10**6, None, template)
    for query, document in _SAMPLES:
        (ids,) = uncut.pairs(query, [document])
        if ids.tolist() != conversation.token_ids(query, document):
            raise ValueError(
                f"{folder}: its chat template joins {query!r} and {document!r} in a way that is "
                f"not known here, so scores would be wrong; {ADVICE}"
            )
    return replace(uncut, max_length=max_length)


def _format_of(template: object) -> str:
    """Whether messages hold lists or texts, as sentence-transformers tells it."""
    if not isinstance(template, str) or any(sign in template for sign in _STRUCTURED):
        return "structured"
    return "flat"


def _default_prompt(folder: Path) -> str | None:
    """The prompt that ``predict`` gives as a system message."""
    settings = settings_of(folder / MODEL_FILE)
    name = settings.get("default_prompt_name")
    if name is None:
        return None
    prompts = settings.get("prompts") or {}
    if name not in prompts:
        raise ValueError(
            f"{folder / MODEL_FILE}: default_prompt_name={name} is none of its prompts"
        )
    return str(prompts[name]) or None


class Conversation:
    """A query and a document as the messages that a chat template renders."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        structured: bool,
        prompt: str | None,
        options: Mapping[str, Any],
    ) -> None:
        self.tokenizer = tokenizer
        self.structured = structured
        self.prompt = prompt
        # One of sentence-transformers' own: whether the end of the prompt stays when texts are cut.
        self.options = {name: value for name, value in options.items() if name != "restore_suffix"}

    def rendered(self, query: str, document: str) -> str:
        """The prompt as text."""
        texts = {"query": query, "document": document}
        if self.prompt is not None:
            texts = {"system": self.prompt, **texts}
        messages = []
        for role, text in texts.items():
            content: Any = [{"type": "text", "text": text}] if self.structured else text
            messages.append({"role": role, "content": content})
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, **self.options))

    def token_ids(self, query: str, document: str) -> list[int]:
        """The prompt as sentence-transformers tokenises it, as a whole."""
        text = self.rendered(query, document)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def template(self, folder: Path, max_length: int) -> PromptTemplate:
        """The prompt with places for the two texts, in pieces between its special tokens."""
        try:
            text = self.rendered(_QUERY_SIGN, _DOCUMENT_SIGN)
            text = text.replace(_QUERY_SIGN, "{query}").replace(_DOCUMENT_SIGN, "{document}")
            # LogitScore has the answers; a template needs one.
            return PromptTemplate(self._pieces(text), relevant="yes", max_length=max_length)
        except Exception as error:  # whatever a template raises
            message = " ".join(str(error).split())[:200]
            raise ValueError(
                f"{folder}: its chat template gives no prompt with one place for the query and one "
                f"for the document ({message}); give a template (template=FILE), or {ADVICE}"
            ) from error

    def _pieces(self, text: str) -> Sequence[str]:
        """A tokenizer cuts texts at its special tokens, so pieces can be read apart there."""
        tokens = {*self.tokenizer.all_special_tokens, *self.tokenizer.get_added_vocab()}
        signs = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))
        pieces = re.split(f"({signs})", text) if signs else [text]
        return [piece for piece in pieces if piece]
