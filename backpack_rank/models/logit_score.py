"""Language models that sentence-transformers saves as cross-encoders: their logits are scores.

Such a folder has two modules, a Transformer with ``transformer_task=text-generation`` and a
LogitScore, which says whose logit is the score and whose is subtracted. How query and document are
put into a prompt stands in the tokenizer's chat template; without one they are joined as the
tokenizer joins any two texts. The template is rendered once, when the model is loaded, and becomes
a :class:`~backpack_rank.models.prompted_ranker.PromptTemplate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from backpack_rank.data.model_files import MODULES
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.chat_template import chat_pair_tokenizer
from backpack_rank.models.lora_folder import load_network
from backpack_rank.models.modular_cross_encoder import activation_of, longest_text, module_entries
from backpack_rank.models.prompted_ranker import PromptedForRanking
from backpack_rank.models.sentence_transformers_files import (
    ADVICE,
    MODEL_FILE,
    TRANSFORMER_FILE,
    settings_of,
)
from backpack_rank.models.sequence_classifier import TemplatePairTokenizer, longest_pair

_TASK = "text-generation"


def is_logit_score(folder: str | Path) -> bool:
    """Whether a folder's modules end with the logits of a language model."""
    file = Path(folder) / MODULES
    return file.is_file() and module_entries(file)[-1].name == "LogitScore"


def load_logit_score(
    folder: str | Path, tokenizer: PreTrainedTokenizerBase
) -> tuple[PromptedForRanking, PairTokenizer]:
    """Load a language model with LogitScore; its scores are those of ``predict``.

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
    pair_tokenizer = chat_pair_tokenizer(folder, tokenizer, settings, max_length)
    if pair_tokenizer is not None:
        return pair_tokenizer
    # Types of tokens, which need a query's separators to be marked, are not read here.
    return replace(TemplatePairTokenizer.of(tokenizer, max_length), spelled=None)
