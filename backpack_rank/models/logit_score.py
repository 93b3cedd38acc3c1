"""Language models that sentence-transformers saves as cross-encoders: their logits are scores.

Such a folder has two modules, a Transformer with ``transformer_task=text-generation`` and a
LogitScore, which says whose logit is the score and whose is subtracted. How query and document are
put into a prompt stands in the tokenizer's chat template; without one they are joined as the
tokenizer joins any two texts. The template is rendered once, when the model is loaded, and becomes
a :class:`~backpack_rank.models.prompted_ranker.PromptTemplate`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.lora_folder import load_network
from backpack_rank.models.modular_cross_encoder import (
    ADVICE,
    MODEL_FILE,
    MODULES,
    TRANSFORMER_FILE,
    activation_of,
    longest_text,
    module_entries,
    settings_of,
)
from backpack_rank.models.prompted_ranker import (
    PromptedForRanking,
    PromptTemplate,
    PromptTokenizer,
)
from backpack_rank.models.sequence_classifier import TemplatePairTokenizer, longest_pair

_TASK = "text-generation"
_QUERY_SIGN, _DOCUMENT_SIGN = "\ue000", "\ue001"
"""Signs of Unicode's private use, which no template holds."""
_SAMPLES = (
    ("which tools", "a saw and a hammer"),
    ("Which tools?", "A saw.\n\nA hammer: 2.5!"),
    (" tools ", ""),
)


def is_logit_score(folder: str | Path) -> bool:
    """Whether a folder's modules end with the logits of a language model."""
    file = Path(folder) / MODULES
    return file.is_file() and module_entries(file)[-1].name == "LogitScore"


def load_logit_score(
    folder: str | Path, tokenizer: PreTrainedTokenizerBase
) -> tuple[PromptedForRanking, PairTokenizer]:
    """Use this to load a language model with LogitScore; its scores are those of ``predict``.

    ::

        ranker, pair_tokenizer = load_logit_score(folder, load_tokenizer(folder))

    A text that spells a special token does not get it here, as it does in sentence-transformers: a
    document cannot end the user's turn.

    Raises:
        ValueError: the folder has other modules, weights are missing, or its chat template cannot
            be read as a prompt with a place for each of the two texts.
    """
    folder = Path(folder)
    entries = module_entries(folder / MODULES)
    names = [entry.name for entry in entries]
    file = entries[0].folder / TRANSFORMER_FILE
    settings = settings_of(file)
    if names != ["Transformer", "LogitScore"] or settings.get("transformer_task") != _TASK:
        raise ValueError(
            f"{folder / MODULES}: a LogitScore is read behind one Transformer with "
            f"transformer_task={_TASK}, and these are {', '.join(names)} with "
            f"transformer_task={settings.get('transformer_task')}; {ADVICE}"
        )
    answers = _answers(entries[1].folder / "config.json", tokenizer)
    model = load_network(AutoModelForCausalLM, entries[0].folder)
    max_length = min(longest_pair(model.config.get_text_config(), tokenizer), longest_text(file))
    pair_tokenizer = _pair_tokenizer(folder, tokenizer, settings, max_length)
    activation = activation_of(settings_of(folder / MODEL_FILE), model.config)
    return PromptedForRanking(model.eval(), answers, activation), pair_tokenizer


def _answers(file: Path, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of the tokens whose logits make the score."""
    settings = settings_of(file)
    if "true_token_id" not in settings:
        raise ValueError(f"{file} has no true_token_id, the token whose logit is the score")
    answers = []
    for name in ("true_token_id", "false_token_id"):
        token_id = settings.get(name)
        if token_id is not None:
            if not isinstance(token_id, int) or not 0 <= token_id < len(tokenizer):
                raise ValueError(f"{file}: the tokenizer has no token of number {name}={token_id}")
            answers.append(token_id)
    return answers


def _pair_tokenizer(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    settings: Mapping[str, Any],
    max_length: int,
) -> PairTokenizer:
    """What joins the two texts: a prompt where the folder reads messages, else the tokenizer."""
    message = settings.get("modality_config", {}).get("message")
    prompt = _default_prompt(folder)
    if message is None:
        if prompt is not None:
            raise ValueError(
                f"{folder / MODEL_FILE}: default_prompt_name puts a prompt before every query, "
                f"which is read with a chat template alone; {ADVICE}"
            )
        # Types of tokens, which need a query's separators to be marked, are not read here.
        return replace(TemplatePairTokenizer.of(tokenizer, max_length), spelled=None)
    conversation = _Conversation(
        tokenizer,
        structured=message.get("format") == "structured",
        prompt=prompt,
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


class _Conversation:
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
                f"for the document, in this order ({message}); {ADVICE}"
            ) from error

    def _pieces(self, text: str) -> Sequence[str]:
        """A tokenizer cuts texts at its special tokens, so pieces can be read apart there."""
        tokens = {*self.tokenizer.all_special_tokens, *self.tokenizer.get_added_vocab()}
        signs = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))
        pieces: list[str] = []
        for piece in re.split(f"({signs})", text) if signs else [text]:
            if not piece:
                continue
            # A document ends its piece; what follows it must begin a token of its own.
            before, document, after = piece.partition("{document}")
            pieces.append(before + document)
            if after:
                pieces.append(after)
        return pieces
