"""Requests as work for the model: a request is read in passes, and a pass is cut into slices that fill a batch."""

from __future__ import annotations

import copy
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import ROWS, group_by_length, join_pairs
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.sense_network import TokenStateCache
from backpack_rank.parts import imported, served_classes
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.reading_plan import Pass, ReadingPlan, TextPair
from backpack_rank.reranking.rerankers import TextReranker
from backpack_rank.senses.attribution import Explanation
from backpack_rank.senses.policy_names import POLICIES, default_name
from backpack_rank.senses.views import IDENTITY, View
from backpack_rank.serving.bodies import RequestError

_AT_A_TIME = 32
"""Texts that are tokenised between two looks at the clock."""


class NotFiniteError(ValueError):
    """A score is not a number."""


@dataclass(eq=False)
class Slice:
    """Texts of a pass that go into one batch.

    Attributes:
        job: the request.
        part: the pass; None for a ranker that reads the request as a whole.
        texts: numbers of the texts in the plan. [b]
        sequences: their token ids. [b]
        tokens: of the texts together.
        key: slices of the same key may share a batch; None: with none.
    """

    job: Job
    part: Pass | None
    texts: np.ndarray
    sequences: list[np.ndarray]
    tokens: int
    key: tuple[str, str | None] | None


@dataclass(eq=False)
class Job:
    """A request on its way through the model.

    Attributes:
        served: the ranker.
        query, documents: texts.
        plan: what is read for the scores at A alphas.
        truncated: documents that were cut.
        deadline: in ``time.monotonic()``.
        slices: that are still to do.
        future: the scores [A, m], or why there are none; cancelling it takes the request out of the queue.
        scores: of the texts that are read, filled slice by slice. [C, T]
    """

    served: Served
    query: str
    documents: list[str]
    plan: ReadingPlan
    truncated: int = 0
    deadline: float = float("inf")
    slices: deque[Slice] = field(default_factory=deque)
    future: Future[np.ndarray] = field(default_factory=Future)
    tokens: int = 0
    pending: int = 0
    queued: float = 0.0
    started: float | None = None
    turns: int = 0
    states: TokenStateCache | None = None
    scores: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.scores = self.plan.empty_scores()

    def seal(self) -> None:
        """Count the work, once all slices are there."""
        self.pending = len(self.slices)
        self.tokens = sum(part.tokens for part in self.slices)

    @property
    def expired(self) -> bool:
        return time.monotonic() > self.deadline

    def finish(self) -> None:
        """Add up the views, once all slices are done."""
        scores = self.plan.sums(self.scores)
        bad = np.flatnonzero(~np.isfinite(scores).all(axis=0))
        if bad.size:
            self.fail(NotFiniteError(f"the score of document {int(bad[0])} is not finite"))
            return
        self._settle(lambda: self.future.set_result(scores))

    def fail(self, error: Exception) -> None:
        self._settle(lambda: self.future.set_exception(error))

    def _settle(self, act: Callable[[], None]) -> None:
        try:
            act()
        except InvalidStateError:  # the client went away meanwhile
            return


class Served(ABC):
    """A ranker under its name on the server.

    Attributes:
        name: which requests ask for.
        policies: that alpha may act by.
        max_length: tokens of query and document that are read together; None where that is not known.
        tokens_per_batch: what a batch holds.
    """

    name: str
    policies: tuple[str, ...] = ()
    max_length: int | None = None
    tokens_per_batch: int = 0

    @abstractmethod
    def job(
        self,
        query: str,
        documents: list[str],
        alphas: Sequence[float],
        policy: str | None,
        max_tokens: int | None,
        deadline: float = float("inf"),
    ) -> Job:
        """A request as work; called in several threads.

        Args:
            query, documents: texts.
            alphas: positions of the dial.
            policy: what they act by; None: the paper's rule.
            max_tokens: that a document is cut to.
            deadline: in ``time.monotonic()``, looked at between documents.

        Raises:
            RequestError: 400, what cannot be done with this ranker, or 504.
        """

    @abstractmethod
    def score(self, slices: Sequence[Slice]) -> None:
        """Write the scores of slices of one key; called in the thread of the model."""

    def warm_up(self) -> None:  # noqa: B027
        """Run the model once at every size, so that the first client does not wait for it."""


class ServedPointwise(Served):
    """A pointwise ranker: texts of several requests, alphas and policies share batches."""

    def __init__(self, name: str, reranker: PointwiseReranker) -> None:
        self.name = name
        self._reranker, self._scorer = reranker, reranker.local_scorer
        self.tokens_per_batch = self._scorer.tokens_per_batch
        self.max_length = self._scorer.pair_tokenizer.max_length
        self._threads = threading.local()
        self._lock = threading.Lock()
        self._cached_views = lru_cache(maxsize=1024)(self._views)
        self.policies = reranker.policies
        self.default_policy = default_name(self._scorer.ranker)

    def job(
        self,
        query: str,
        documents: list[str],
        alphas: Sequence[float],
        policy: str | None,
        max_tokens: int | None,
        deadline: float = float("inf"),
    ) -> Job:
        """The passes that the views of all alphas need, each text tokenised once."""
        tokenizer = self._tokenizer()

        def cut_pairs() -> Iterator[TextPair]:
            query_to_read = tokenizer.cut(query)
            for document in documents:
                _check_time(deadline)
                yield query_to_read, tokenizer.cut(document)

        try:
            with self._lock:  # policies ask the ranker's own tokenizer, which is not for several threads
                policies = [self._cached_views(policy, alpha) for alpha in alphas]
            pairs = [(query, document) for document in documents]
            sequences, truncated = _tokenised(tokenizer, pairs, max_tokens, deadline)
            plan = ReadingPlan(policies, len(documents), cut_pairs)
            sequences += _tokenised(tokenizer, plan.new_texts, max_tokens, deadline)[0]
        except ValueError as error:
            raise RequestError(400, str(error)) from None
        plan.share(sequences)
        job = Job(self, query, documents, plan, truncated)
        for part in plan.passes():
            job.slices += self._slices(job, part, [sequences[text] for text in part.texts])
        job.seal()
        return job

    def _slices(self, job: Job, part: Pass, sequences: list[np.ndarray]) -> Iterator[Slice]:
        """The batches that a reranker would make of these texts, so that a request alone gets its very scores."""
        key = (self.name, None if part.shift is None else part.shift.key)
        lengths = np.array([len(ids) for ids in sequences])
        for start in range(0, len(lengths), ROWS):
            for group in group_by_length(lengths[start : start + ROWS], self.tokens_per_batch):
                places = start + group
                own = [sequences[place] for place in places]
                yield Slice(job, part, part.texts[places], own, int(lengths[places].sum()), key)

    def score(self, slices: Sequence[Slice]) -> None:
        """One pass over the texts of slices that read them in the same way."""
        with self._scorer.inference():
            self._score(slices)

    def _score(self, slices: Sequence[Slice]) -> None:
        parts = [one.part for one in slices if one.part is not None]
        batch = PackedBatch.from_sequences([ids for one in slices for ids in one.sequences]).to(self._scorer.device)
        options: dict[str, Any] = {"token_shift": parts[0].shift}
        ranker, job = self._scorer.ranker, slices[0].job
        if isinstance(ranker, BackpackForRanking) and self._scorer.device.type == "cpu":
            # Of this request alone, as a reranker has it: what others have left would show in the last bits.
            job.states = job.states or TokenStateCache(len(ranker.backpack.get_input_embeddings().weight))
            options["token_states"] = job.states
        if any(len(part.weights) > 1 for part in parts):
            self._score_curves(slices, batch, options)
            return
        found = ranker(batch, sense_weights=_weights_of(slices), **options).scores.float().cpu().numpy()
        start = 0
        for one, part in zip(slices, parts, strict=True):
            (column,) = part.columns
            one.job.scores[column, one.texts] = found[start : start + len(one.texts)]
            start += len(one.texts)

    def warm_up(self) -> None:
        self._scorer.score("a", ["a"])
        full = max(1, self.tokens_per_batch // self.max_length) if self.max_length else 1
        self._scorer.score("a", ["a " * (self.max_length or 1)] * full)

    @property
    def attribute(self) -> Attribute:
        """Whose words policies are about."""
        return self._reranker.attribute

    @property
    def explains(self) -> bool:
        """Whether scores split into contributions of words."""
        return self._reranker.sensitivity is not None

    def reads_once(self, policy: str) -> bool:
        """Whether all alphas take the same passes over the texts, so that a fine grid costs no more than one alpha."""
        with self._lock:
            ways = [
                {(None if view.token_shift is None else view.token_shift.key, view.rewrite) for view in views}
                for views in (self._cached_views(policy, alpha) for alpha in (0.25, 0.5))
            ]
        return ways[0] == ways[1]

    def explain(self, query: str, document: str, policy: str | None, alpha: float) -> Explanation:
        """Contributions of words to a score; called in the thread of the model.

        Raises:
            ValueError: the ranker has no senses, the policy does not fit or reads several texts, or the query does not.
        """
        with self._lock:  # the ranker's own tokenizer is not for several threads
            turned = self._reranker if alpha == 1 else self._reranker.at(alpha, policy)
            return turned.explain(query, document)

    def _score_curves(self, slices: Sequence[Slice], batch: PackedBatch, options: dict[str, Any]) -> None:
        """One pass for all alphas: weights per sense come after the sense vectors."""
        ranker = self._scorer.ranker
        assert isinstance(ranker, BackpackForRanking)
        senses = ranker(batch, return_senses=True, **options).senses
        start = 0
        for one in slices:
            assert one.part is not None
            own = senses[start : start + len(one.texts)]
            for column, weights in zip(one.part.columns, one.part.weights, strict=True):
                one.job.scores[column, one.texts] = ranker.score_senses(own, weights).float().cpu().numpy()
            start += len(one.texts)

    def _tokenizer(self) -> PairTokenizer:
        """A tokenizer of this thread's own, read from the same rules: one is not for several threads."""
        if not hasattr(self._threads, "tokenizer"):
            with self._lock:
                self._threads.tokenizer = copy.deepcopy(self._scorer.pair_tokenizer)
        found: PairTokenizer = self._threads.tokenizer
        return found

    def _views(self, policy: str | None, alpha: float) -> tuple[View, ...]:
        if policy is not None and policy not in POLICIES:
            raise ValueError(f"policy={policy[:80]}: use one of {', '.join(self.policies)}")
        if alpha == 1:
            return IDENTITY
        return self._reranker.at(alpha, policy).hook.views


def served(name: str, reranker: TextReranker) -> Served:
    """What answers requests for what ``backpack_rank.load`` gives, under a name."""
    if isinstance(reranker, PointwiseReranker):
        return ServedPointwise(name, reranker)
    place = served_classes()[type(reranker).__name__]
    answers: Served = imported(place)(name, reranker)
    return answers


def _tokenised(
    tokenizer: PairTokenizer, pairs: Sequence[TextPair], max_document: int | None, deadline: float
) -> tuple[list[np.ndarray], int]:
    """Token ids of pairs of texts, and how many documents are cut; a few at a time, with looks at the clock."""
    sequences: list[np.ndarray] = []
    cut = 0
    for start in range(0, len(pairs), _AT_A_TIME):
        _check_time(deadline)
        joined = join_pairs(tokenizer, pairs[start : start + _AT_A_TIME], max_document=max_document)
        sequences += joined.sequences
        cut += joined.cut
    return sequences, cut


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RequestError(504, "the deadline passed before the request was read")


def _weights_of(slices: Sequence[Slice]) -> Tensor | None:
    """Weights per text [B, k]; those that have none get ones, which leave a score bit for bit as it is."""
    weights = [one.part.weights[0] for one in slices if one.part is not None]
    given = [own for own in weights if own is not None]
    if not given:
        return None
    ones = torch.ones_like(given[0])
    each = [ones if own is None else own for own in weights]
    return torch.cat([own.expand(len(one.texts), -1) for own, one in zip(each, slices, strict=True)])
