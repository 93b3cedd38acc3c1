"""A ranker's tokenizer in the form that is saved: other libraries join pairs with it as it does.

A :class:`~backpack_rank.data.tokenisation.PairTokenizer` joins two texts itself. In the saved files
the same is written as a normaliser (the leading space), a template (start, separator, end) and a
maximum length; the original ones stand beside them in ``tokenizer_config.json``, and
:func:`with_original_rules` puts them back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_KEPT = "backpack_rank"
_RULES = ("normalizer", "post_processor")
# What str.strip takes away; \s of the tokenizers leaves the separators of ASCII.
_SPACE_AROUND = r"\A[\s\x1c-\x1f\x85]+|[\s\x1c-\x1f\x85]+\z"


def shared_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    start_id: int | None,
    between: Sequence[int],
    end_id: int,
) -> PreTrainedTokenizerFast:
    """Save a tokenizer for other libraries: the copy joins pairs as the ranker does.

        tokenizer = shared_tokenizer(
            pair_tokenizer.tokenizer, 512, None, pair_tokenizer.between, pair_tokenizer.end_id
        )
        tokenizer(query, document, truncation="only_second")

    Args:
        tokenizer: any fast tokenizer.
        max_length: limit of a joined text in tokens.
        start_id, between, end_id: tokens before, between and behind the texts.
    """
    serialised = tokenizer.backend_tokenizer.to_str()
    backend = Tokenizer.from_str(serialised)
    # The first word of a text is tokenised like any other: with one space in front of it.
    steps = [normalizers.Replace(Regex(_SPACE_AROUND), ""), normalizers.Prepend(" ")]
    if backend.normalizer is not None:
        steps.append(backend.normalizer)
    backend.normalizer = normalizers.Sequence(steps)

    # By id, because one token may have several of the three roles and is listed once.
    token_by_id: dict[int, str] = {}
    for token_id in (start_id, *between, end_id):
        if token_id is not None:
            token = backend.id_to_token(token_id)
            assert token is not None, "special tokens are in the vocabulary"
            token_by_id[token_id] = token
    start = [] if start_id is None else [f"{token_by_id[start_id]}:0"]
    inner = [f"{token_by_id[token_id]}:0" for token_id in between]
    end = f"{token_by_id[end_id]}:1"
    backend.post_processor = TemplateProcessing(
        single=[*start, "$A:0"],
        pair=[*start, "$A:0", *inner, "$B:1", end],
        special_tokens=[(token, token_id) for token_id, token in token_by_id.items()],
    )

    original_rules = json.loads(serialised)
    kept = {name: original_rules[name] for name in _RULES}
    kept["model_max_length"] = tokenizer.model_max_length
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        split_special_tokens=True,  # a text that spells a special token does not get one
        **{_KEPT: kept},
        **tokenizer.special_tokens_map,
    )


def with_original_rules(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """On a tokenizer that was loaded: undoes :func:`shared_tokenizer`, if that wrote it.

    tokenizer = with_original_rules(AutoTokenizer.from_pretrained("folder"))
    """
    kept: dict[str, Any] | None = tokenizer.init_kwargs.pop(_KEPT, None)
    if kept is None:
        return tokenizer
    # Rules are read only as parts of a tokenizer, so an empty one is made around them.
    empty_tokenizer = json.loads(Tokenizer(models.BPE()).to_str())
    for name in _RULES:
        empty_tokenizer[name] = kept[name]
    original = Tokenizer.from_str(json.dumps(empty_tokenizer))
    backend = tokenizer.backend_tokenizer
    backend.normalizer = original.normalizer
    backend.post_processor = original.post_processor
    tokenizer.model_max_length = kept["model_max_length"]
    tokenizer.split_special_tokens = backend.encode_special_tokens = False
    return tokenizer
