"""Requests as work for the model: a request is read in passes, and a pass is cut into slices that fill a batch."""

from __future__ import annotations

import copy
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
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
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.parts import imported, served_classes
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import TextReranker
from backpack_rank.reranking.scorer import weighted_sum
from backpack_rank.senses.attribution import Explanation
from backpack_rank.senses.policy_names import POLICIES, default_name
from backpack_rank.senses.views import IDENTITY, View
from backpack_rank.serving.bodies import RequestError

_AT_A_TIME = 32
"""Texts that are tokenised between two looks at the clock."""


class NotFiniteError(ValueError):
    """A score is not a number."""


@dataclass(eq=False)
class Pass:
    """One way of reading texts of a request.

    Attributes:
        shift: tokens that are moved.
        sequences: token ids of the texts. [n]
        rows: numbers of the texts in the request. [n]
        weights: weights per sense under which each text is scored, or None. [W, k]
        columns: for each of the W, where its scores belong. [W]
    """

    shift: TokenShift | None
    sequences: list[np.ndarray]
    rows: np.ndarray
    weights: Tensor | None
    columns: list[list[int]]


@dataclass(eq=False)
class Slice:
    """Texts of a pass that go into one batch.

    Attributes:
        job: the request.
        part: the pass; None for a ranker that reads the request as a whole.
        places: of the texts in the pass.
        tokens: of the texts together.
        key: slices of the same key may share a batch; None: with none.
    """

    job: Job
    part: Pass | None
    places: np.ndarray
    tokens: int
    key: tuple[str, str | None] | None


@dataclass(frozen=True, eq=False)
class Term:
    """A summand of scores: a coefficient times the scores of one column.

    Attributes:
        coefficient: of all documents.
        column: of the job.
        places: for each document the text whose score it takes. [m]
    """

    coefficient: float
    column: int
    places: np.ndarray


@dataclass(eq=False)
class Job:
    """A request on its way through the model.

    Attributes:
        served: the ranker.
        query, documents: texts.
        terms: for each alpha what its scores are the sum of. [A]
        columns: scores of the T different texts that are read, filled slice by slice. [C, T]
        truncated: documents that were cut.
        deadline: in ``time.monotonic()``.
        slices: that are still to do.
        future: the scores [A, m], or why there are none; cancelling it takes the request out of the queue.
    """

    served: Served
    query: str
    documents: list[str]
    terms: list[list[Term]]
    columns: np.ndarray
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

    def seal(self) -> None:
        """Count the work, once all slices are there."""
        self.pending = len(self.slices)
        self.tokens = sum(part.tokens for part in self.slices)

    @property
    def expired(self) -> bool:
        return time.monotonic() > self.deadline

    def finish(self) -> None:
        """Add up the views, once all slices are done."""
        scores = np.stack([self._sum(terms) for terms in self.terms])
        bad = np.flatnonzero(~np.isfinite(scores).all(axis=0))
        if bad.size:
            self.fail(NotFiniteError(f"the score of document {int(bad[0])} is not finite"))
            return
        self._settle(lambda: self.future.set_result(scores))

    def _sum(self, terms: list[Term]) -> np.ndarray:
        """Scores of the documents at one alpha. float32 [m]"""
        total = weighted_sum([(term.coefficient, self.columns[term.column][term.places]) for term in terms])
        first = terms[0]
        # Coefficients of one score are added before they meet it: .3 s + .35 s + .35 s is not s in float32.
        if len(terms) > 1 and all(term.column == first.column for term in terms):
            alike = np.all([term.places == first.places for term in terms], axis=0)
            factor = sum(term.coefficient for term in terms)
            total[alike] = weighted_sum([(factor, self.columns[first.column][first.places[alike]])])
        return total

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
        try:
            with self._lock:  # policies ask the ranker's own tokenizer, which is not for several threads
                views = [self._cached_views(policy, alpha) for alpha in alphas]
            return _Reading(self, self._tokenizer(), query, documents, views, max_tokens, deadline).job()
        except ValueError as error:
            raise RequestError(400, str(error)) from None

    def score(self, slices: Sequence[Slice]) -> None:
        """One pass over the texts of slices that read them in the same way."""
        with self._scorer.inference():
            self._score(slices)

    def _score(self, slices: Sequence[Slice]) -> None:
        parts = [(one, one.part) for one in slices if one.part is not None]
        sequences = [part.sequences[place] for one, part in parts for place in one.places]
        batch = PackedBatch.from_sequences(sequences).to(self._scorer.device)
        options: dict[str, Any] = {"token_shift": parts[0][1].shift}
        ranker, job = self._scorer.ranker, slices[0].job
        if isinstance(ranker, BackpackForRanking) and self._scorer.device.type == "cpu":
            # Of this request alone, as a reranker has it: what others have left would show in the last bits.
            job.states = job.states or TokenStateCache(len(ranker.backpack.get_input_embeddings().weight))
            options["token_states"] = job.states
        if any(part.weights is not None and len(part.weights) > 1 for _, part in parts):
            self._score_curves(parts, batch, options)
            return
        found = ranker(batch, sense_weights=_weights_of(parts), **options).scores.float().cpu().numpy()
        start = 0
        for one, part in parts:
            _put(one, part, found[None, start : start + len(one.places)])
            start += len(one.places)

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

    def _score_curves(self, parts: Sequence[tuple[Slice, Pass]], batch: PackedBatch, options: dict[str, Any]) -> None:
        """One pass for all alphas: weights per sense come after the sense vectors."""
        ranker = self._scorer.ranker
        assert isinstance(ranker, BackpackForRanking)
        senses = ranker(batch, return_senses=True, **options).senses
        start = 0
        for one, part in parts:
            own = senses[start : start + len(one.places)]
            weights = [None] if part.weights is None else list(part.weights)
            _put(one, part, np.stack([ranker.score_senses(own, row).float().cpu().numpy() for row in weights]))
            start += len(one.places)

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


@dataclass(eq=False)
class _Column:
    """Scores of texts under one shift and one weighting of senses.

    Attributes:
        number: of the column.
        view: one that asks for it.
        needed: numbers of texts whose scores some alpha needs.
    """

    number: int
    view: View
    needed: set[int] = field(default_factory=set)


class _Reading:
    """The passes of one request: those of all alphas and views, each text once per way of reading it.

    Texts are known by numbers; equal ones, in the request or written by a policy, have one number and one score.
    """

    def __init__(
        self,
        ranker: ServedPointwise,
        tokenizer: PairTokenizer,
        query: str,
        documents: list[str],
        views: Sequence[tuple[View, ...]],
        max_tokens: int | None,
        deadline: float,
    ) -> None:
        self._ranker, self._tokenizer, self._max_tokens = ranker, tokenizer, max_tokens
        self._query, self._documents, self._views, self._deadline = query, documents, views, deadline
        self._sequences: list[np.ndarray] = []
        self._numbers: dict[bytes, int] = {}
        self._cut = 0
        self._own = np.array(self._numbers_of([(query, document) for document in documents], count=True))

    def job(self) -> Job:
        """The request as slices, ready for the queue."""
        columns: dict[Any, _Column] = {}
        rewritten: dict[Any, np.ndarray] = {}
        terms: list[list[Term]] = []
        for views in self._views:
            terms.append([])
            for view in views:
                if not view.coefficient:  # the pair itself, at alpha = 0 of renditions
                    continue
                if view.rewrite is None:
                    places = self._own
                else:
                    if view.rewrite not in rewritten:
                        rewritten[view.rewrite] = self._rewritten(view)
                    places = rewritten[view.rewrite]
                key = (None if view.token_shift is None else view.token_shift.key, id(view.sense_weights))
                column = columns.setdefault(key, _Column(len(columns), view))
                column.needed.update(places.tolist())
                terms[-1].append(Term(view.coefficient, column.number, places))
        scores = np.full((len(columns), len(self._sequences)), np.nan, dtype=np.float32)
        job = Job(self._ranker, self._query, self._documents, terms, scores, self._cut)
        for part in self._passes(list(columns.values())):
            job.slices += self._slices(job, part)
        job.seal()
        return job

    def _numbers_of(self, pairs: list[tuple[str, str]], count: bool = False) -> list[int]:
        """Numbers of texts; new ones are tokenised a few at a time, with a look at the clock between them."""
        numbers: list[int] = []
        for start in range(0, len(pairs), _AT_A_TIME):
            self._check_time()
            joined = join_pairs(self._tokenizer, pairs[start : start + _AT_A_TIME], max_document=self._max_tokens)
            self._cut += joined.cut if count else 0
            for sequence in joined.sequences:
                numbers.append(self._numbers.setdefault(sequence.tobytes(), len(self._sequences)))
                if numbers[-1] == len(self._sequences):
                    self._sequences.append(sequence)
        return numbers

    def _rewritten(self, view: View) -> np.ndarray:
        """For each document the number of what a view reads in its place. [m]"""
        assert view.rewrite is not None
        query = self._tokenizer.cut(self._query)
        places = self._own.copy()
        changed: list[int] = []
        pairs: list[tuple[str, str]] = []
        for row, document in enumerate(self._documents):
            self._check_time()
            pair = (query, self._tokenizer.cut(document))
            written = view.rewrite(*pair)
            if written != pair:
                changed.append(row)
                pairs.append(written)
        places[changed] = self._numbers_of(pairs)
        return places

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise RequestError(504, "the deadline passed before the request was read")

    def _passes(self, columns: list[_Column]) -> list[Pass]:
        """A pass for each shift; a text without a word that a policy moves is read once for all of its alphas."""
        by_shift: dict[str | None, list[_Column]] = {}
        for column in columns:
            shift = column.view.token_shift
            by_shift.setdefault(None if shift is None else shift.key, []).append(column)
        moved = self._moved([own[0].view for own in by_shift.values()])
        passes: list[Pass] = []
        still: set[int] = set()
        share = len(by_shift) > 1 and all(column.view.sense_weights is None for column in columns)
        for own in by_shift.values():
            needed = sorted(set[int]().union(*(column.needed for column in own)))
            if share:
                still.update(number for number in needed if not moved[number])
                needed = [number for number in needed if moved[number]]
            if needed:
                passes.append(self._pass(own, needed))
        if still:
            unmoved = [_Column(column.number, View()) for column in columns]
            passes.append(self._pass(unmoved, sorted(still)))
        return passes

    def _moved(self, views: Sequence[View]) -> list[bool]:
        """Whether a text has a token that some of the shifts move; they differ in how far, not in which."""
        shift = next((view.token_shift for view in views if view.token_shift is not None), None)
        return [shift is not None and bool(shift.moves(sequence)) for sequence in self._sequences]

    def _pass(self, columns: list[_Column], numbers: list[int]) -> Pass:
        sequences = [self._sequences[number] for number in numbers]
        given = [column.view.sense_weights for column in columns]
        sizes = [len(weights) for weights in given if weights is not None]
        shift, rows = columns[0].view.token_shift, np.array(numbers)
        if not sizes:
            return Pass(shift, sequences, rows, None, [[column.number for column in columns]])
        each = [torch.ones(sizes[0]) if weights is None else weights for weights in given]
        return Pass(shift, sequences, rows, torch.stack(each).cpu(), [[column.number] for column in columns])

    def _slices(self, job: Job, part: Pass) -> list[Slice]:
        """The batches that a reranker would make of these texts, so that a request alone gets its very scores."""
        key = (self._ranker.name, None if part.shift is None else part.shift.key)
        lengths = np.array([len(sequence) for sequence in part.sequences])
        return [
            Slice(job, part, start + places, int(lengths[start + places].sum()), key)
            for start in range(0, len(lengths), ROWS)
            for places in group_by_length(lengths[start : start + ROWS], self._ranker.tokens_per_batch)
        ]


def _put(one: Slice, part: Pass, found: np.ndarray) -> None:
    """Scores [W, b] of a slice to their columns."""
    rows = part.rows[one.places]
    for values, columns in zip(found, part.columns, strict=True):
        for column in columns:
            one.job.columns[column, rows] = values


def _weights_of(parts: Sequence[tuple[Slice, Pass]]) -> Tensor | None:
    """Weights per text [B, k]; those that have none get ones, which leave a score bit for bit as it is."""
    given = [part.weights for _, part in parts if part.weights is not None]
    if not given:
        return None
    ones = torch.ones_like(given[0])
    each = [(ones if part.weights is None else part.weights).expand(len(one.places), -1) for one, part in parts]
    return torch.cat(each)
