"""The tokenizer of pairs that fits a ranker."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.wordings import ApartPairTokenizer
from backpack_rank.models.apart import ApartRanker
from backpack_rank.models.configuration import (
    check_readout,
)
from backpack_rank.models.rankers import (
    BackpackForRanking,
    GPT2ForRanking,
    Ranker,
)


def make_pair_tokenizer(
    tokenizer: PreTrainedTokenizerBase, ranker: Ranker, max_length: int
) -> PairTokenizer:
    """What turns pairs of texts into a ranker's input.

    Raises:
        ValueError: ``max_length`` exceeds the ranker's positions.
    """
    positions = ranker.config.n_positions
    if max_length > positions:
        raise ValueError(
            f"max_length={max_length} exceeds the ranker's {positions} positions; "
            "lower max_length or give the model more positions"
        )
    start_id = _start_id(tokenizer, ranker)
    pair_tokenizer = ranker.pair_tokenizer_class(tokenizer, max_length, start_id)
    if isinstance(ranker, ApartRanker) and isinstance(pair_tokenizer, ApartPairTokenizer):
        ranker.mark = pair_tokenizer.mark
    return pair_tokenizer


def with_readout(ranker: Ranker, pair_tokenizer: PairTokenizer, readout: str) -> PairTokenizer:
    """Read a Backpack's score at other positions; it gives the tokenizer that fits.

    Args:
        ranker: it is changed.
        pair_tokenizer: of the ranker as it was.
        readout: ``pooled`` or ``mean_sigmoid``, see
            :class:`~backpack_rank.models.configuration.BackpackConfig`.

    Raises:
        ValueError: the ranker is no Backpack, or its head is not linear.
    """
    if not isinstance(ranker, BackpackForRanking):
        raise ValueError(f"readout={readout} is for Backpacks, and this ranker is a {ranker.label}")
    check_readout(ranker.config, readout)
    ranker.config.readout = readout
    return make_pair_tokenizer(pair_tokenizer.tokenizer, ranker, pair_tokenizer.max_length)


def pair_token_ids(pair_tokenizer: PairTokenizer) -> list[int | None]:
    """Tokens before, between and behind two texts."""
    return [pair_tokenizer.start_id, pair_tokenizer.separator_id, pair_tokenizer.end_id]


def _start_id(tokenizer: PreTrainedTokenizerBase, ranker: Ranker) -> int | None:
    """The token before the query: [CLS] of encoders; of decoders their tokenizer's, if any."""
    if getattr(ranker.config, "pooling", "last") == "first":
        return tokenizer.cls_token_id
    start = tokenizer.bos_token_id
    if isinstance(ranker, GPT2ForRanking) or start is None:
        return None
    return start if list(tokenizer("a")["input_ids"][:1]) == [start] else None
