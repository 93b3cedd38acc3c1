"""What a ranker is asked for under a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from backpack_rank.models.pooled_map import PooledMap
from backpack_rank.models.token_shift import TokenShift


@dataclass(frozen=True, eq=False)
class View:
    """Says how a ranker reads a pair; a policy gives one view or several.

    The score of the pair is the sum over its views of coefficient times score under the view.
    ``View()`` leaves the ranker unchanged, bit for bit.

    >>> import torch
    >>> half_of_second_sense = View(sense_weights=torch.tensor([1.0, 0.5, 1.0, 1.0]))
    >>> mean_with_lower_case = (  # a score that is a sum: two readings, half of each score
    ...     View(coefficient=0.5),
    ...     View(rewrite=lambda query, document: (query, document.lower()), coefficient=0.5),
    ... )

    Attributes:
        sense_weights: M_s, one factor >= 0 per sense [k] (Afzali et al., eq. 5), or None.
        token_shift: tokens that are moved towards the mean of their class, or None.
        rewrite: function from (query, document) to the two texts that are read in their place, or
            None.
        coefficient: factor of the score under this view in the sum.
        pooled_map: changes the vector that the ranker's head makes a score of, or None.
        leaves_out: which queries ask for what the view would take away: their pairs are read and
            scored as by an unchanged ranker, with the same coefficient. None: no query.
    """

    sense_weights: Tensor | None = None
    token_shift: TokenShift | None = None
    rewrite: Callable[[str, str], tuple[str, str]] | None = None
    coefficient: float = 1.0
    pooled_map: PooledMap | None = None
    leaves_out: Callable[[str], bool] | None = None


IDENTITY: tuple[View, ...] = (View(),)
"""The views of an unchanged ranker: the text itself, with coefficient 1."""
