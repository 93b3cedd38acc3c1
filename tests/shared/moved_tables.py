"""What moved tokens amount to, the slow obvious way: the embedding table itself is changed."""

from __future__ import annotations

from torch import Tensor

from backpack_rank.models.token_shift import TokenClasses


def edited(table: Tensor, classes: TokenClasses, alpha: float) -> Tensor:
    """The embedding table [vocabulary, e] with every member of a class moved, row by row."""
    moved = table.clone()
    for ids in classes.members:
        mean = sum(table[token] for token in ids) / len(ids)
        for token in ids:
            moved[token] = mean + alpha * (table[token] - mean)
    return moved
