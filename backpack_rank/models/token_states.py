"""What the sense network says of a token, kept while many texts are scored: it does not depend on the text."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class TokenStateCache:
    """h(x) of the tokens seen so far; an argument of a Backpack's forward pass.

    For inference on a CPU with weights that do not change; on a GPU computing is cheaper than looking up. The table
    fills as tokens come; memory that no token has filled is not touched.
    """

    def __init__(self, vocabulary: int) -> None:
        self.known = torch.zeros(vocabulary, dtype=torch.bool)
        self.table: Tensor | None = None

    def __call__(self, input_ids: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """h(x) of token ids, computed for those that are new. [...] -> [..., f]"""
        new = input_ids[~self.known[input_ids]].unique()
        if len(new):
            states = compute(new)
            if self.table is None:
                self.table = states.new_empty((len(self.known), states.shape[-1]))
            self.table[new] = states
            self.known[new] = True
        assert self.table is not None
        return self.table[input_ids]
