"""The texts of a training batch in both wordings: as they are, and with the words of an attribute swapped."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

import torch
from torch import Tensor

from backpack_rank.data.datamodule import ListBatch
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.rankers import BackpackForRanking, RankerOutput
from backpack_rank.models.utils import eval_mode


@dataclass(frozen=True, eq=False)
class CounterfactualScores:
    """Scores of P texts of a batch and of their counterfactuals, in fp32 and without dropout.

    Attributes:
        rows: which texts of the batch they are. [P]
        swapped: the counterfactuals' tokens.
        full: scores with all senses, as they are and swapped. [P, 2]
        without: the same with the senses of S weighted 0. [P, 2]
    """

    rows: Tensor
    swapped: PackedBatch
    full: Tensor
    without: Tensor


class CounterfactualScorer:
    """Computes :class:`CounterfactualScores` once for all terms that look at a batch.

    Without dropout, because two forward passes differ by far more through dropout than through a swapped word: a term
    on the differences would shrink scores until dropout no longer shows.

    Attributes:
        outside: 1 for senses outside S, 0 in S. [k]
        most: counterfactuals of a batch at most, drawn by torch's generator; None is all of them.
    """

    def __init__(self, outside: Tensor, most: int | None = None) -> None:
        self.outside = outside
        self.most = most
        self._known: tuple[ref[RankerOutput], CounterfactualScores | None] | None = None

    def of(self, ranker: BackpackForRanking, batch: ListBatch, output: RankerOutput) -> CounterfactualScores | None:
        """Both wordings of texts of the batch; None where no word of it can be swapped."""
        if self._known is None or self._known[0]() is not output:
            self._known = ref(output), self._compute(ranker, batch)
        return self._known[1]

    def _compute(self, ranker: BackpackForRanking, batch: ListBatch) -> CounterfactualScores | None:
        if batch.swapped is None:
            return None
        texts, rows = batch.swapped.texts, batch.swapped.rows
        if self.most is not None and len(rows) > self.most:
            # The CPU's generator: its state is set at the start of every epoch, also of a resumed run.
            drawn = torch.randperm(len(rows))[: self.most].sort().values.to(rows.device)
            texts, rows = chosen_texts(texts, drawn), rows[drawn]
        outside = self.outside.to(rows.device)[:, None]
        with eval_mode(ranker):
            pair = [ranker(part, return_senses=True).senses for part in (chosen_texts(batch.texts, rows), texts)]
            full = [exact_scores(ranker, senses) for senses in pair]
            without = [exact_scores(ranker, senses * outside) for senses in pair]
        return CounterfactualScores(rows, texts, torch.stack(full, dim=1), torch.stack(without, dim=1))


def exact_scores(ranker: BackpackForRanking, senses: Tensor) -> Tensor:
    """Scores from sense vectors in fp32: in half precision a difference of two scores is mostly rounding. [N]"""
    with torch.autocast(senses.device.type, enabled=False):
        return ranker.score_senses(senses.to(ranker.head.dense.weight.dtype)).float()


def chosen_texts(texts: PackedBatch, rows: Tensor) -> PackedBatch:
    """Some texts of a packed batch, by ascending row; on its own device, without a look at its lengths."""
    lengths = (texts.offsets[1:] - texts.offsets[:-1])[rows]
    number = torch.full((len(texts),), -1, device=rows.device).index_copy(
        0, rows, torch.arange(len(rows), device=rows.device)
    )
    kept = number[texts.text_ids] >= 0
    return PackedBatch(
        texts.input_ids[kept],
        texts.position_ids[kept],
        number[texts.text_ids[kept]],
        torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=lengths.dtype)]),
        texts.max_length,
    )
