"""Making rankers: new ones of a given size, and ones that start from published weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

from transformers import AutoModel, GPT2Config, PreTrainedTokenizerBase

from backpack_rank.data.tokenisation import PairEncoder, load_tokenizer
from backpack_rank.files import atomic_path
from backpack_rank.models.backbone import EncoderBackpackConfig, EncoderBackpackForRanking, check_packing
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.ranker import BackpackForRanking, GPT2ForRanking

Ranker: TypeAlias = BackpackForRanking | GPT2ForRanking | EncoderBackpackForRanking
RANKERS = (BackpackForRanking, GPT2ForRanking, EncoderBackpackForRanking)


def new_backpack(
    tokenizer: PreTrainedTokenizerBase,
    *,
    layers: int = 12,
    hidden_size: int = 768,
    heads: int = 12,
    senses: int = 16,
    positions: int = 512,
    dropout: float = 0.1,
    initializer_range: float = 0.02,
    sense_intermediate_scale: int = 4,
) -> BackpackForRanking:
    """A Backpack ranker with random weights for the tokenizer's vocabulary."""
    shape = _gpt2_options(tokenizer, layers, hidden_size, heads, positions, dropout, initializer_range)
    return BackpackForRanking(
        BackpackConfig(num_senses=senses, sense_intermediate_scale=sense_intermediate_scale, **shape)
    )


def new_gpt2(
    tokenizer: PreTrainedTokenizerBase,
    *,
    layers: int = 12,
    hidden_size: int = 768,
    heads: int = 12,
    positions: int = 512,
    dropout: float = 0.1,
    initializer_range: float = 0.02,
) -> GPT2ForRanking:
    """A GPT-2 ranker with random weights for the tokenizer's vocabulary."""
    shape = _gpt2_options(tokenizer, layers, hidden_size, heads, positions, dropout, initializer_range)
    return GPT2ForRanking(GPT2Config(**shape))


def pretrained_backpack(tokenizer: PreTrainedTokenizerBase, *, name: str) -> BackpackForRanking:
    """A Backpack ranker from a hub id or folder (``stanfordnlp/backpack-gpt2``), with a new head if it has none.

    In training mode, as new rankers are: ``from_pretrained`` switches dropout off, and a trainer keeps what it finds.
    """
    ranker = BackpackForRanking.from_pretrained(name)
    _check_vocabulary(tokenizer, ranker.config.vocab_size, name)
    return ranker.train()


def pretrained_gpt2(tokenizer: PreTrainedTokenizerBase, *, name: str) -> GPT2ForRanking:
    """A GPT-2 ranker from a hub id or folder, with a new head if it has none; in training mode."""
    ranker = GPT2ForRanking.from_pretrained(name)
    _check_vocabulary(tokenizer, ranker.config.vocab_size, name)
    return ranker.train()


def backpack_on_encoder(
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: str,
    senses: int = 16,
    sense_intermediate_scale: int = 4,
    dropout: float = 0.1,
) -> EncoderBackpackForRanking:
    """A Backpack ranker over a pretrained encoder (a hub id or folder): new senses, weights and head; training mode.

    Raises:
        ValueError: the tokenizer has more tokens than the encoder, or no separator token, or the encoder cannot read
            texts without padding (see :func:`~backpack_rank.models.backbone.check_packing`).
    """
    # Dropout of attention weights would rule out torch's fast kernels.
    encoder = AutoModel.from_pretrained(name, attention_probs_dropout_prob=0.0)
    _check_vocabulary(tokenizer, encoder.config.vocab_size, name)
    if tokenizer.sep_token_id is None or tokenizer.cls_token_id is None:
        raise ValueError(f"the tokenizer of {name} has no first or no separator token; this model needs an encoder")
    config = EncoderBackpackConfig(
        backbone_config=encoder.config,
        num_senses=senses,
        sense_intermediate_scale=sense_intermediate_scale,
        sense_dropout=dropout,
        separator_id=tokenizer.sep_token_id,
    )
    ranker = EncoderBackpackForRanking(config)
    own = ranker.backpack.backbone
    weights = {key: value for key, value in encoder.state_dict().items() if not key.startswith("pooler.")}
    own.load_state_dict(weights)
    check_packing(ranker.backpack)
    return ranker.train()


def pair_encoder(tokenizer: PreTrainedTokenizerBase, ranker: Ranker, max_length: int) -> PairEncoder:
    """The encoder of a ranker's input. Raises ``ValueError`` when ``max_length`` exceeds the ranker's positions."""
    if max_length > ranker.config.n_positions:
        raise ValueError(
            f"max_length={max_length} exceeds the ranker's {ranker.config.n_positions} positions; "
            "lower max_length or give the model more positions"
        )
    start = tokenizer.cls_token_id if isinstance(ranker, EncoderBackpackForRanking) else None
    return PairEncoder(tokenizer, max_length, start)


def save_ranker(folder: str | Path, ranker: Ranker, encoder: PairEncoder) -> None:
    """Write a folder that :func:`load_ranker` and ``from_pretrained`` read: weights, configuration, tokenizer.

    The folder is complete or absent; a previous one stays until the new one is whole.
    """
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        ranker.config.max_pair_length = encoder.max_length
        ranker.save_pretrained(temporary)
        encoder.tokenizer.save_pretrained(temporary)


def load_ranker(folder: str | Path) -> tuple[Ranker, PairEncoder]:
    """Ranker and encoder from a folder that :func:`save_ranker` wrote.

    Raises:
        FileNotFoundError: no ``config.json`` in the folder.
        ValueError: the checkpoint is of another architecture.
    """
    config_file = Path(folder) / "config.json"
    if not config_file.is_file():
        raise FileNotFoundError(f"{config_file} is missing: {folder} is not the folder of a saved ranker")
    config = json.loads(config_file.read_text(encoding="utf-8"))
    names = config.get("architectures") or ["(none named)"]
    classes = {ranker.__name__: ranker for ranker in RANKERS}
    if names[0] not in classes:
        raise ValueError(
            f"{config_file}: architecture {names[0]} is not a ranker; known are {', '.join(classes)}. "
            "To start from such weights, give the folder to train.py as model.ranker.name"
        )
    ranker = classes[names[0]].from_pretrained(str(folder))
    tokenizer = load_tokenizer(folder)
    return ranker, pair_encoder(tokenizer, ranker, config.get("max_pair_length", ranker.config.n_positions))


def _gpt2_options(
    tokenizer: PreTrainedTokenizerBase,
    layers: int,
    hidden_size: int,
    heads: int,
    positions: int,
    dropout: float,
    initializer_range: float,
) -> dict:
    if heads < 1 or hidden_size % heads:
        raise ValueError(f"heads={heads} must divide hidden_size={hidden_size}")
    return {
        "vocab_size": len(tokenizer),
        "n_positions": positions,
        "n_embd": hidden_size,
        "n_layer": layers,
        "n_head": heads,
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        # Dropout of attention weights would rule out torch's fast kernels.
        "attn_pdrop": 0.0,
        "initializer_range": initializer_range,
        "scale_attn_by_inverse_layer_idx": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _check_vocabulary(tokenizer: PreTrainedTokenizerBase, size: int, name: str) -> None:
    if len(tokenizer) > size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, but {name} has embeddings for {size}")
