"""What every listwise ranker takes and gives, so that remedies can be put around any of them."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from backpack_rank.digests import digest
from backpack_rank.position.lists.passages import PassageList


def list_rng(passages: PassageList, seed: int, *purpose: str) -> np.random.Generator:
    """The generator of what is drawn for a list, which batches do not change.

    The generator depends on the seed, the query, and the ids and order of the passages (their texts
    where they have no ids). It does not depend on other lists, their number, or earlier draws.
    Different purposes draw independently.

    >>> passages = PassageList("a query", ("first", "second", "third"))
    >>> first, again = list_rng(passages, seed=0), list_rng(passages, seed=0)
    >>> bool(first.random() == again.random())
    True
    """
    shown = passages.ids or passages.passages
    identity = json.dumps([*purpose, seed, passages.query_id, passages.query, *shown])
    # A digest, since hash() of a text differs from process to process.
    return np.random.default_rng(int.from_bytes(bytes.fromhex(digest(identity)), "little"))


class Ranking:
    """What a listwise ranker gives back for a list of m passages: their order.

    >>> ranking = Ranking(np.array([2, 0, 1]))  # the passage at input position 2 is the best
    >>> ranking.ranks()
    array([1, 2, 0])
    >>> Ranking.of_scores(np.array([0.1, 0.9, 0.4])).order
    array([1, 2, 0])

    Attributes:
        order: input positions, best first; a permutation of 0..m-1. int64 [m]
        scores: higher is better, by input position, where the ranker has scores; they sort into
            ``order``. float64 [m], or None.
        num_ranked: length of the part of ``order`` that the ranker itself gave; behind it stand the
            passages that it left out, in input order. None: all of it.
    """

    def __init__(
        self,
        order: np.ndarray,
        scores: np.ndarray | None = None,
        num_ranked: int | None = None,
    ) -> None:
        """Raises ``ValueError`` for what is no permutation, or does not fit its length."""
        order = np.asarray(order)
        if order.ndim != 1 or not np.array_equal(np.sort(order), np.arange(len(order))):
            raise ValueError(f"a ranking must name every input position once, got {order.tolist()}")
        if scores is not None and scores.shape != order.shape:
            raise ValueError(f"{len(order)} passages but scores of shape {scores.shape}")
        if num_ranked is not None and not 0 <= num_ranked <= len(order):
            raise ValueError(f"num_ranked={num_ranked} must lie in [0, {len(order)}]")
        self.order = order.astype(np.int64)
        self.scores = scores
        self.num_ranked = num_ranked

    @classmethod
    def of_scores(cls, scores: np.ndarray) -> Ranking:
        """Sorted by score, equal ones in input order; scores [m]."""
        return cls(np.argsort(-scores, kind="stable"), np.asarray(scores, dtype=np.float64))

    @property
    def ranked(self) -> np.ndarray:
        """The input positions that the ranker itself named, best first. int64 [named]"""
        return self.order if self.num_ranked is None else self.order[: self.num_ranked]

    def ranks(self) -> np.ndarray:
        """Output position of the passage at each input position, from 0. int64 [m]"""
        ranks = np.empty_like(self.order)
        ranks[self.order] = np.arange(len(self.order))
        return ranks


@dataclass
class Usage:
    """What ranking has cost so far, counted by the ranker inside all wrappers, which runs a model.

    >>> before = Usage(lists=2, passes=2)
    >>> Usage(lists=5, passes=6).since(before).passes
    4

    Attributes:
        lists: lists that the model was shown (every window and every permutation is one).
        passes: forward passes, counted for each list of a batch; behind a server every generated
            token is one. Passes that a cache saved are not counted.
        prompt_tokens: tokens read, with repetitions; what a cache saved is not counted.
        generated_tokens: tokens generated.
        shortened: passages that were cut to fit into the model's context.
        missing: passages that a model left out of its answer.
        repeated: identifiers that it named again.
        invented: identifiers that it named without being shown them.
        requests: that went to a server.
        cached: requests that were answered from disk.
        cost: of the requests, in the currency of the prices given.
    """

    lists: int = 0
    passes: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    shortened: int = 0
    missing: int = 0
    repeated: int = 0
    invented: int = 0
    requests: int = 0
    cached: int = 0
    cost: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)

    def since(self, earlier: Usage) -> Usage:
        """What came on top of an earlier state (``copy.copy(usage)``)."""
        difference = copy.copy(self)
        for name, count in earlier.as_dict().items():
            setattr(difference, name, getattr(self, name) - count)
        return difference


class ListwiseRanker(ABC):
    """What to subclass for a ranker that is shown a list at once.

    Wrappers (windows, permutations) are rankers too, so they nest::

        ranker = PermutationSelfConsistency(SlidingWindows(CausalLmRanker(model, pair_tokenizer)))
        rankings = ranker.rank(lists)
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Label in tables; a wrapper adds its label to that of the ranker inside."""

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """What ranking has cost so far; a wrapper gives that of the ranker inside."""

    @abstractmethod
    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """A ranking for each list, in the order of the lists; lists may be of different sizes.

        Give many lists at once: they are batched, and wrappers make one call of all their windows
        or permutations.

        Raises:
            ValueError: a list that the ranker cannot take (too many passages, a prompt that cannot
                fit).
        """


class RankerWrapper(ListwiseRanker):
    """What to subclass for a remedy that asks another ranker, such as windows or permutations.

    >>> class Reversed(RankerWrapper):  # shows every list from its back to its front
    ...     label = "reversed"
    ...
    ...     def rank(self, lists):
    ...         shown = [passages.select(range(len(passages))[::-1]) for passages in lists]
    ...         rankings = self.ranker.rank(shown)
    ...         return [Ranking(len(ranking.order) - 1 - ranking.order) for ranking in rankings]

    Attributes:
        ranker: the ranker inside, which it asks.
        label: what the remedy adds to the ranker's name in tables; empty for nothing.
    """

    label = ""

    def __init__(self, ranker: ListwiseRanker) -> None:
        self.ranker = ranker

    @property
    def name(self) -> str:
        return f"{self.ranker.name} {self.label}".strip()

    @property
    def usage(self) -> Usage:
        return self.ranker.usage
