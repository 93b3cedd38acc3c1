"""What a ranker is asked for under a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from backpack_rank.models.token_shift import TokenShift


@dataclass(frozen=True, eq=False)
class View:
    """One way of reading a pair; the score of a pair is the sum over its views of coefficient times
    score.

    Attributes:
        sense_weights: M_s, one factor >= 0 per sense [k] (eq. 5), or None.
        token_shift: tokens that are read closer to the mean of their class, or None.
        rewrite: (query, document) to the texts that are read in their place, or None.
        coefficient: of this view's score in the sum.
    """

    sense_weights: Tensor | None = None
    token_shift: TokenShift | None = None
    rewrite: Callable[[str, str], tuple[str, str]] | None = None
    coefficient: float = 1.0


IDENTITY = (View(),)
"""The ranker unchanged, bit for bit."""
