"""What a reranker gives back: a ranking of documents, and scores at several alphas."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from backpack_rank.checks import finite
from backpack_rank.notebook import PlottedInNotebooks, ShownInNotebooks

log = logging.getLogger(__name__)


class Ranking(list[dict[str, Any]], ShownInNotebooks):
    """A list of rows; a notebook shows it as a table with the texts.

    >>> ranking = Ranking([{"corpus_id": 1, "score": 2.0}], "who cooks?", ["A guest.", "A cook."])
    >>> ranking
    [{'corpus_id': 1, 'score': 2.0}]

    Attributes:
        query: its text.
        documents: all texts that were ranked; ``corpus_id`` is a place in them.
        below_threshold: documents that are left out because of a ``score_threshold``.
        policy: name of the policy that acted; None at alpha = 1, and for a query that asks for a
            group, which is ranked as if there were no dial.
    """

    def __init__(
        self,
        rows: Iterable[dict[str, Any]],
        query: str = "",
        documents: Sequence[str] = (),
        below_threshold: int = 0,
        policy: str | None = None,
    ) -> None:
        super().__init__(rows)
        self.query = query
        self.documents = documents
        self.below_threshold = below_threshold
        self.policy = policy


def check_threshold(score_threshold: float | None) -> None:
    """Before anything is scored: raises ``ValueError`` for what is no finite number."""
    if score_threshold is not None:
        finite("score_threshold", score_threshold)


def reaches(scores: np.ndarray, score_threshold: float | None) -> np.ndarray:
    """Which scores are at least as high as a threshold. bool, of the shape of the scores

    >>> reaches(np.array([0.5, 2.0]), 0.5)
    array([ True,  True])

    Raises:
        ValueError: the threshold is no finite number.
    """
    check_threshold(score_threshold)
    if score_threshold is None:
        return np.ones(np.shape(scores), dtype=bool)
    # As a row shows them: float32 would round the threshold.
    return np.asarray(scores, dtype=np.float64) >= score_threshold


def log_below_threshold(below: int, documents: int, score_threshold: float | None) -> None:
    """Say how many documents are left out, where there are any."""
    if below:
        log.info(
            "%d of %d documents are left out: their scores are below score_threshold=%s",
            below,
            documents,
            score_threshold,
        )


class AlphaSweep(np.ndarray, PlottedInNotebooks):
    """An array [A, m] of scores; a notebook shows and draws it.

    >>> sweep = AlphaSweep.of(np.zeros((2, 1)), "who cooks?", ["A cook."], [1.0, 0.0])
    >>> sweep.shape, sweep.alphas
    ((2, 1), (1.0, 0.0))

    A part of it, such as a row, has no texts, and sums and differences are plain arrays.

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
