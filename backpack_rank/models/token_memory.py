"""What the sense network says of a token, kept while many texts are scored: it does not depend on the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from backpack_rank.models.backpack import BackpackModel


class TokenMemory:
    """h(x) of the tokens seen so far. The table fills as they come; memory that no token has filled is not touched."""

    def __init__(self, vocabulary: int) -> None:
        self.known = torch.zeros(vocabulary, dtype=torch.bool)
        self.table: Tensor | None = None

    def __call__(self, input_ids: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """h(x) of token ids, computed for those that are new. [...] -> [..., f]"""
        new = input_ids[~self.known[input_ids]].unique()
        if len(new):
            found = compute(new)
            if self.table is None:
                self.table = found.new_empty((len(self.known), found.shape[-1]))
            self.table[new] = found
            self.known[new] = True
        assert self.table is not None
        return self.table[input_ids]


@contextmanager
def remembering(backpack: BackpackModel) -> Iterator[None]:
    """Compute h(x) once per distinct token for the length of a ``with`` block.

    For inference on a CPU: weights must stay as they are, and on a GPU computing is cheaper than looking up. In
    training mode (dropout) and on a GPU nothing is kept.
    """
    table = backpack.get_input_embeddings().weight
    if backpack.training or table.device.type != "cpu" or backpack.token_memory is not None:
        yield
        return
    backpack.token_memory = TokenMemory(len(table))
    try:
        yield
    finally:
        backpack.token_memory = None
