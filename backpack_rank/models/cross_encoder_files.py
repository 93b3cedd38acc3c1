"""Files beside a ranker's weights with which ``CrossEncoder`` of sentence-transformers reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backpack_rank.data.shared_tokenizer import shared_tokenizer
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.rankers import (
    BackpackForRanking,
    CrossEncoderForRanking,
    JointPairTokenizer,
    Ranker,
)

OWN_MODULE = "backpack_rank.integrations.sentence_transformers.RerankerModule"
_TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
_TEXTS = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
    "processing_kwargs": {"text": {"truncation": "only_second"}},
}
_MODEL = {
    "model_type": "CrossEncoder",
    "activation_fn": "torch.nn.modules.linear.Identity",
    "requirements": {
        "backpack-rank": {"specifier": ">=0.2", "reason": "it has the network of this ranker"}
    },
}


def save_cross_encoder_files(folder: Path, ranker: Ranker, pair_tokenizer: PairTokenizer) -> None:
    """When a ranker is saved, so that sentence-transformers can load the folder.

    The tokenizer is among the files. A Backpack and a plain cross-encoder are read by
    sentence-transformers' own module, through the classes of
    :mod:`backpack_rank.integrations.sequence_classification`. The others are read by a module of
    this package, which sentence-transformers imports with ``trust_remote_code=True``
    alone: a GPT-2 has a type that transformers would take for its own, and the others read their
    two texts apart or by words.
    """
    tokenizer = pair_tokenizer.tokenizer
    known = isinstance(ranker, (BackpackForRanking, CrossEncoderForRanking))
    # sentence-transformers puts a separator between two texts and an end behind them.
    known = known and type(pair_tokenizer) in (PairTokenizer, JointPairTokenizer)
    # Slow tokenizers have no rules that could be written for sentence-transformers.
    foreign = known and hasattr(tokenizer, "backend_tokenizer")
    if foreign:
        tokenizer = shared_tokenizer(
            tokenizer,
            pair_tokenizer.max_length,
            pair_tokenizer.start_id,
            pair_tokenizer.between,
            pair_tokenizer.end_id,
        )
        _write(folder / "sentence_bert_config.json", _TEXTS)
    tokenizer.save_pretrained(folder)
    module = {
        "idx": 0,
        "name": "0",
        "path": "",
        "type": _TRANSFORMER if foreign else OWN_MODULE,
        "kwargs": ["alpha", "policy"],
    }
    _write(folder / "modules.json", [module])
    _write(folder / "config_sentence_transformers.json", _MODEL)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
