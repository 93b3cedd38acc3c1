"""What a reranker gives back: a ranking of documents, and scores at several alphas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from backpack_rank.notebook import PlottedInNotebooks, ShownInNotebooks


class Ranking(list[dict[str, Any]], ShownInNotebooks):
    """Use it as the list of rows that it is; a notebook shows it as a table with the texts.

    >>> ranking = Ranking([{"corpus_id": 1, "score": 2.0}], "who cooks?", ["A guest.", "A cook."])
    >>> ranking
    [{'corpus_id': 1, 'score': 2.0}]

    Attributes:
        query: its text.
        documents: all texts that were ranked; ``corpus_id`` is a place in them.
    """

    def __init__(
        self, rows: Iterable[dict[str, Any]], query: str = "", documents: Sequence[str] = ()
    ) -> None:
        super().__init__(rows)
        self.query = query
        self.documents = documents


class AlphaSweep(np.ndarray, PlottedInNotebooks):
    """Use it as the array [A, m] of scores that it is; a notebook shows and draws it.

    >>> sweep = AlphaSweep.of(np.zeros((2, 1)), "who cooks?", ["A cook."], [1.0, 0.0])
    >>> sweep.shape, sweep.alphas
    ((2, 1), (1.0, 0.0))

    What is made of it, such as a row or a sum, is an ordinary array without texts.

    Attributes:
        query: its text.
        documents: the texts of the m columns.
        alphas: those of the A rows; empty for a part of a sweep.
    """

    query: str
    documents: tuple[str, ...]
    alphas: tuple[float, ...]

    @classmethod
    def of(
        cls, scores: np.ndarray, query: str, documents: Sequence[str], alphas: Sequence[float]
    ) -> AlphaSweep:
        """The scores [A, m] with what they are scores of."""
        sweep = scores.view(cls)
        sweep.query = query
        sweep.documents = tuple(documents)
        sweep.alphas = tuple(float(alpha) for alpha in alphas)
        return sweep

    def __array_wrap__(
        self,
        array: np.ndarray,
        context: object = None,
        return_scalar: bool = False,
    ) -> Any:
        # numpy calls this for what an operation gives: differences and means are plain numbers.
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __array_finalize__(self, array: np.ndarray | None) -> None:
        # numpy calls this for every new view, also of a part, whose rows may be others.
        self.query = ""
        self.documents = ()
        self.alphas = ()
