"""Requests as work for the model.

A request becomes a :class:`Job`. Its reading plan says which texts the model reads, and in which
passes; each pass is cut into slices, and a slice fills a batch or a part of one. A ranker answers
requests as a :class:`Served`::

    job = served_ranker.job(query, documents, alphas=[1.0, 0.5], policy=None, max_tokens=None)
    served_ranker.score(list(job.slices))  # the queue does this, with slices of several requests
"""

from __future__ import annotations

import copy
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import ROWS, group_by_length, join_pairs
from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.pooled_map import mapped_vectors
from backpack_rank.models.prompted_ranker import PromptTokenizer
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.sense_network import TokenStateCache
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.parts import imported, served_classes
from backpack_rank.reranking.left_out_words import LeftOutWords, fits_one_chunk
from backpack_rank.reranking.pointwise import CALIBRATED, LOGITS, PointwiseReranker
from backpack_rank.reranking.reading_plan import Pass, ReadingPlan, TextPair
from backpack_rank.reranking.rerankers import TextReranker
from backpack_rank.senses.attribution import Explanation
from backpack_rank.senses.policies import Policy
from backpack_rank.senses.policy_names import POLICIES, default_name
from backpack_rank.senses.views import IDENTITY, View
from backpack_rank.serving.bodies import ReadBody, RequestError

_TEXTS_PER_LOOK = 32
"""Texts that are tokenised between two looks at the clock."""
_STATES_BYTES = 64 * 2**20
"""States of tokens that requests share; with more, the next request begins anew."""
_LEFT_OUT = 64
"""Words that are left out by themselves where a score is explained by words."""


class NotFiniteError(ValueError):
    """A score is not a number."""


class Slice:
    """Texts of one pass that are scored in the same batch.

    Attributes:
        job: the request.
        text_pass: the pass; None for a ranker that reads the request in its own way.
        texts: numbers of the texts in the job's plan. [b]
        sequences: their token ids. [b]
        tokens: of the texts together.
        key: slices with the same key may share a batch; None: it shares none.
    """

    def __init__(
        self,
        job: Job,
        text_pass: Pass | None,
        texts: np.ndarray,
        sequences: list[np.ndarray],
        tokens: int,
        key: tuple[str, str | None] | None,
    ) -> None:
        self.job = job
        self.text_pass = text_pass
        self.texts = texts
        self.sequences = sequences
        self.tokens = tokens
        self.key = key

    def fill(self, column: int, scores: np.ndarray) -> None:
        """Give the job the scores of these texts: the best chunk of a text counts.

        Args:
            column: of the job's scores.
            scores: of the texts or chunks. [b]
        """
        with np.errstate(invalid="ignore"):  # a score that is no number is refused at the end
            np.maximum.at(self.job.scores[column], self.texts, scores)


class Budget:
    """What a request may cost before it waits in the queue.

    Attributes:
        deadline: in ``time.monotonic()``.
        most_tokens: that are made of its texts.
    """

    def __init__(self, deadline: float = float("inf"), most_tokens: float = float("inf")) -> None:
        self.deadline = deadline
        self.most_tokens = most_tokens

    def check_time(self) -> None:
        """Raise :class:`RequestError` 504 once the deadline has passed."""
        if time.monotonic() > self.deadline:
            raise RequestError(504, "the deadline passed before the request was read")

    def check_tokens(self, tokens: int) -> None:
        """Raise :class:`RequestError` 413 for more tokens than a queue would take."""
        if tokens > self.most_tokens:
            raise RequestError(
                413,
                f"more tokens than this server takes in a request ({self.most_tokens:,}); send "
                "fewer documents",
            )


class Job:
    """A request on its way through the model.

    Attributes:
        served: the ranker.
        query, documents: texts.
        plan: what is read for the scores at A alphas.
        truncated: documents that are read in part, or beside a part of the query.
        deadline: in ``time.monotonic()``.
        slices: those that wait for a batch.
        pending: slices without scores, those that are in a batch now among them.
        tokens: of all slices.
        future: the scores [A, m], or why there are none; cancelling it takes the request out of the
            queue.
        scores: of the texts that are read, filled slice by slice. [C, T]
        queued, started: when the job came into the queue and when its first slice left it, in
            ``time.monotonic()``.
        turns: batches that this job was the first of; after some, a long job goes to the queue's
            end.
    """

    def __init__(
        self,
        served: Served,
        query: str,
        documents: list[str],
        plan: ReadingPlan,
        truncated: int = 0,
    ) -> None:
        self.served = served
        self.query = query
        self.documents = documents
        self.plan = plan
        self.truncated = truncated
        self.deadline = float("inf")
        self.slices: deque[Slice] = deque()
        self.pending = 0
        self.tokens = 0
        self.future: Future[np.ndarray] = Future()
        self.scores = plan.empty_scores()
        self.scores[plan.needed()] = -np.inf  # below that of every chunk
        self.queued = 0.0
        self.started: float | None = None
        self.turns = 0

    def seal(self) -> None:
        """Count the work, once all slices are there."""
        self.pending = len(self.slices)
        self.tokens = sum(part.tokens for part in self.slices)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self.deadline

    def finish(self) -> None:
        """Add up the views, once all slices are scored."""
        scores = self.plan.sums(self.scores)
        bad = np.flatnonzero(~np.isfinite(scores).all(axis=0))
        if bad.size:
            self.fail(NotFiniteError(f"the score of document {int(bad[0])} is not finite"))
            return
        self._settle(lambda: self.future.set_result(scores))

    def fail(self, error: Exception) -> None:
        """Give the error in place of scores."""
        self._settle(lambda: self.future.set_exception(error))

    def _settle(self, set_future: Callable[[], None]) -> None:
        try:
            set_future()
        except InvalidStateError:  # the client has gone meanwhile, which cancelled the future
            return


class Served(ABC):
    """A ranker under its name on the server.

    Attributes:
        name: which requests ask for.
        policies: that alpha may act by.
        max_length: tokens of query and document that are read together; None where that is not
            known.
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
        budget: Budget | None = None,
        long_documents: LongDocuments | None = None,
        instruct: str | None = None,
    ) -> Job:
        """The request as a job for the queue; called in several threads.

        Args:
            query, documents: texts.
            alphas: positions of the dial.
            policy: name of the policy that alpha controls; None: the paper's rule.
            max_tokens: that a document is cut to.
            budget: looked at between documents; None: no limits.
            long_documents: how they are read; None: as the ranker is served.
            instruct: the instruction of a prompted ranker; None: that of its template.

        Raises:
            RequestError: 400, what cannot be done with this ranker, 413 or 504.
        """

    def job_of_pairs(
        self,
        pairs: Sequence[TextPair],
        alphas: Sequence[float],
        policy: str | None,
        max_tokens: int | None,
        budget: Budget | None = None,
        long_documents: LongDocuments | None = None,
        instruct: str | None = None,
    ) -> Job:
        """The same for pairs whose queries may differ.

        Raises:
            RequestError: they do, and this ranker compares the documents of a query.
        """
        queries = {query for query, _ in pairs}
        if len(queries) > 1:
            raise RequestError(
                400, f"{self.name} compares documents: give one query for all of them"
            )
        documents = [document for _, document in pairs]
        options = (alphas, policy, max_tokens, budget, long_documents, instruct)
        return self.job(queries.pop(), documents, *options)

    def cut_query(self, query: str, tokens: int) -> str:
        """A query of so many tokens at most.

        Raises:
            RequestError: 400, its tokens are not known here.
        """
        raise RequestError(400, f"{self.name} does not say what its tokens are")

    def long_documents_of(self, body: ReadBody) -> LongDocuments:
        """How a request wants long documents to be read, or how the ranker reads them.

        Raises:
            RequestError: 400, this ranker does not read them so.
        """
        if body.strategy in (None, "cut"):
            return CUT
        raise RequestError(400, f"{self.name} reads no chunks of long documents")

    @abstractmethod
    def score(self, slices: Sequence[Slice]) -> None:
        """Write the scores of slices of one key; called in the thread of the model."""

    def forget(self) -> None:  # noqa: B027
        """Drop what requests share that wait together; called when none is left."""

    def policy_that_acts(
        self, queries: Iterable[str], policy: str | None, alphas: Sequence[float]
    ) -> str | None:
        """Name of the policy that a request's scores come from; None where none acts."""
        return None

    def check_activation(self, activation: str | None) -> None:
        """Refuse an activation that this ranker cannot show scores as.

        Raises :class:`RequestError` for it.
        """
        if activation == CALIBRATED:
            raise RequestError(400, f"model {self.name} has no calibration")

    def shown(
        self, logits: np.ndarray, alpha: float, policy: str | None, activation: str | None
    ) -> np.ndarray | None:
        """What is shown in place of raw logits; None: their sigmoid, or the logits. [m]

        Args:
            logits: at alpha. [m]
            alpha, policy: as of the request.
            activation: what the request asks for; None: that of the server.
        """
        return None

    def warm_up(self) -> None:  # noqa: B027
        """Run the model once at every size, so that the first client does not wait for it."""


class ServedPointwise(Served):
    """A pointwise ranker: texts of several requests, alphas and policies share batches."""

    def __init__(self, name: str, reranker: PointwiseReranker) -> None:
        self.name = name
        self.policies = reranker.policies
        self._reranker = reranker
        self._scorer = reranker.local_scorer
        self.tokens_per_batch = self._scorer.tokens_per_batch
        self.max_length = self._scorer.pair_tokenizer.max_length
        self.default_policy = default_name(self._scorer.ranker)
        self._tokenizers = threading.local()
        # Around policies and explanations: they use the ranker's tokenizer, which one thread at a
        # time may.
        self._lock = threading.Lock()
        self._cached_views = lru_cache(maxsize=1024)(self._views)
        # A policy reads its word lists once: a request of 201 alphas would read them 201 times.
        self._policies: dict[str | None, Policy] = {}
        # Of the thread of the model alone: the states, and the request that used them last.
        self._states: TokenStateCache | None = None
        self._last_job: Job | None = None

    def job(
        self,
        query: str,
        documents: list[str],
        alphas: Sequence[float],
        policy: str | None,
        max_tokens: int | None,
        budget: Budget | None = None,
        long_documents: LongDocuments | None = None,
        instruct: str | None = None,
    ) -> Job:
        """The passes that the views of all alphas need, each text tokenised once."""
        pairs = [(query, document) for document in documents]
        options = (alphas, policy, max_tokens, budget, long_documents, instruct)
        return self.job_of_pairs(pairs, *options)

    def cut_query(self, query: str, tokens: int) -> str:
        return self._tokenizer_of_thread().first_tokens(query, tokens)

    def policy_that_acts(
        self, queries: Iterable[str], policy: str | None, alphas: Sequence[float]
    ) -> str | None:
        """The policy that was asked for, or that of the ranker.

        None at alpha = 1, and for queries that ask for a group.
        """
        turned = [alpha for alpha in alphas if alpha != 1]
        if not turned:
            return None
        for query in queries:
            if self.alpha_for(query, policy, turned[0]) != 1:
                return policy or self.default_policy
        return None

    def long_documents_of(self, body: ReadBody) -> LongDocuments:
        """The ranker's way, or that of the request."""
        try:
            wanted = self._scorer.long_documents.changed(
                body.strategy, body.max_chunks_per_doc, body.chunk_overlap
            )
            return self._scorer.with_long_documents(wanted).long_documents
        except ValueError as error:
            raise RequestError(400, str(error)) from None

    def job_of_pairs(
        self,
        pairs: Sequence[TextPair],
        alphas: Sequence[float],
        policy: str | None,
        max_tokens: int | None,
        budget: Budget | None = None,
        long_documents: LongDocuments | None = None,
        instruct: str | None = None,
    ) -> Job:
        """The same for pairs whose queries may differ, such as those of an explanation."""
        budget = budget or Budget()
        tokenizer = self._tokenizer_of_thread()
        if instruct is not None:
            if not isinstance(tokenizer, PromptTokenizer):
                raise RequestError(400, f"model {self.name} takes no instruct: it has no prompt")
            try:
                tokenizer = tokenizer.with_instruction(instruct)
            except ValueError as error:
                raise RequestError(400, f"instruct: {error}") from None
        reading = self._scorer.long_documents if long_documents is None else long_documents

        def cut_pairs() -> Iterator[TextPair]:
            for query, document in pairs:
                budget.check_time()
                yield tokenizer.cut(query), tokenizer.cut(document, reading)

        try:
            with self._lock:
                policies = [self._cached_views(policy, alpha) for alpha in alphas]
            chunks, truncated = _tokenised(tokenizer, pairs, max_tokens, budget, reading)
            plan = ReadingPlan(policies, len(pairs), cut_pairs)
            chunks_of_new, _ = _tokenised(tokenizer, plan.new_texts, max_tokens, budget, reading)
        except ValueError as error:
            raise RequestError(400, str(error)) from None

        chunks += chunks_of_new
        plan.share([np.concatenate(of_text) for of_text in chunks])
        documents = [document for _, document in pairs]
        job = Job(self, pairs[0][0], documents, plan, truncated)
        # First chunks before all others: they are what is read where documents are cut, and nothing
        # that is read before them may show in their last bits.
        for text_pass in plan.passes():
            first = [chunks[text][0] for text in text_pass.texts]
            job.slices += self._slices(job, text_pass, text_pass.texts, first)
        for text_pass in plan.passes():
            texts: list[int] = []
            further: list[np.ndarray] = []
            for text in text_pass.texts.tolist():
                texts += [text] * (len(chunks[text]) - 1)
                further += chunks[text][1:]
            job.slices += self._slices(job, text_pass, np.array(texts, dtype=np.int64), further)
        job.seal()
        return job

    def _slices(
        self, job: Job, text_pass: Pass, texts: np.ndarray, sequences: list[np.ndarray]
    ) -> Iterator[Slice]:
        """Sequences in slices, each a chunk of the text with the same place in ``texts``."""
        # The batches that a reranker makes of these texts in Python: a score differs with its batch
        # in the last bits, and a request that is alone on the server gets the very scores of
        # Python.
        shift_key = None if text_pass.shift is None else text_pass.shift.key
        lengths = np.array([len(token_ids) for token_ids in sequences])
        for start in range(0, len(lengths), ROWS):
            for group in group_by_length(lengths[start : start + ROWS], self.tokens_per_batch):
                places = start + group
                yield Slice(
                    job,
                    text_pass,
                    texts=texts[places],
                    sequences=[sequences[place] for place in places],
                    tokens=int(lengths[places].sum()),
                    key=(self.name, shift_key),
                )

    def score(self, slices: Sequence[Slice]) -> None:
        """Read the texts of slices in one pass, with the shift that they share."""
        with self._scorer.inference():
            self._score(slices)

    def _score(self, slices: Sequence[Slice]) -> None:
        sequences = []
        passes = []
        for part in slices:
            assert part.text_pass is not None
            sequences += part.sequences
            passes.append(part.text_pass)
        batch = PackedBatch.from_sequences(sequences).to(self._scorer.device)
        ranker = self._scorer.ranker
        options: dict[str, Any] = {"token_shift": passes[0].shift}
        if isinstance(ranker, BackpackForRanking) and self._scorer.device.type == "cpu":
            options["token_states"] = self._token_states(ranker, slices[0].job)
        is_mapped = False
        has_several_weights = False
        for text_pass in passes:
            is_mapped |= text_pass.maps != [None] * len(text_pass.maps)
            has_several_weights |= len(text_pass.weights) > 1
        if is_mapped and not ranker.scores_stored_vectors:
            self._score_under_each_map(slices, batch, options)
            return
        if is_mapped and not ranker.has_senses:
            self._score_under_all_maps(slices, batch, passes[0].shift)
            return
        if is_mapped or has_several_weights:
            self._score_under_all_weights(slices, batch, options)
            return

        weights = _weights_of(slices, passes)
        scores = ranker(batch, sense_weights=weights, **options).scores
        scores = scores.float().cpu().numpy()
        for part, text_pass, rows in _rows_of_batch(slices):
            (column,) = text_pass.columns
            part.fill(column, scores[rows])

    def _token_states(self, ranker: BackpackForRanking, job: Job) -> TokenStateCache:
        """States of tokens, which requests share that wait together.

        A request that is alone has none of others, as a reranker in Python: what they left would
        change its last bits.
        """
        states = self._states
        is_too_large = states is not None and states.filled_bytes > _STATES_BYTES
        # A request keeps its states to its end, however large they are, as in Python.
        if states is None or (is_too_large and job is not self._last_job):
            states = TokenStateCache(len(ranker.backpack.get_input_embeddings().weight))
        self._states = states
        self._last_job = job
        return states

    def forget(self) -> None:
        """Drop the states of tokens."""
        self._states = None
        self._last_job = None

    def _score_under_all_weights(
        self, slices: Sequence[Slice], batch: PackedBatch, options: dict[str, Any]
    ) -> None:
        """One pass for all alphas: weights and maps are applied to the sense vectors."""
        ranker = self._scorer.ranker
        assert isinstance(ranker, BackpackForRanking)
        senses = ranker(batch, return_senses=True, **options).senses
        for part, text_pass, rows in _rows_of_batch(slices):
            for column, view in zip(text_pass.columns, text_pass.views(), strict=True):
                with mapped_vectors(ranker, view.pooled_map):
                    scores = ranker.score_senses(senses[rows], view.sense_weights)
                part.fill(column, scores.float().cpu().numpy())

    def _score_under_all_maps(
        self, slices: Sequence[Slice], batch: PackedBatch, shift: TokenShift | None
    ) -> None:
        """One pass for all alphas: maps are applied to the pooled vectors."""
        vectors, unmapped_scores = self._scorer.pooled(batch, View(token_shift=shift))
        for part, text_pass, rows in _rows_of_batch(slices):
            for column, pooled_map in zip(text_pass.columns, text_pass.maps, strict=True):
                scores = unmapped_scores[rows]
                if pooled_map is not None:
                    scores = self._scorer.ranker.score_vectors(pooled_map(vectors[rows]))
                part.fill(column, scores.float().cpu().numpy())

    def _score_under_each_map(
        self, slices: Sequence[Slice], batch: PackedBatch, options: dict[str, Any]
    ) -> None:
        """A call for each alpha: a ranker that reads texts apart remembers their vectors."""
        ranker = self._scorer.ranker
        for part, text_pass, rows in _rows_of_batch(slices):
            for column, pooled_map in zip(text_pass.columns, text_pass.maps, strict=True):
                with mapped_vectors(ranker, pooled_map):
                    scores = ranker(batch, **options).scores[rows]
                part.fill(column, scores.float().cpu().numpy())

    def warm_up(self) -> None:
        """Score a short text and one of the greatest length; on a GPU, a full batch of these."""
        self._scorer.score("a", ["a"])
        if not self.max_length:
            return
        # As token ids: of texts, the scorer would read equal ones once, and warn that they are cut.
        (longest,) = self._scorer.pair_tokenizer.pairs("a", ["a " * self.max_length])
        texts = 1
        if self._scorer.device.type != "cpu":
            # Memory that a full batch needs is asked for now, or is missed now.
            texts = max(1, self.tokens_per_batch // len(longest))
        self._scorer.score_tokens([longest] * texts)

    @property
    def attribute(self) -> Attribute:
        """Whose words policies are about."""
        return self._reranker.attribute

    def check_activation(self, activation: str | None) -> None:
        try:
            self._reranker.checked_activation(activation)
        except ValueError:
            raise RequestError(400, f"model {self.name} has no calibration") from None

    def shown(
        self, logits: np.ndarray, alpha: float, policy: str | None, activation: str | None
    ) -> np.ndarray | None:
        # Where neither says anything, a server shows a sigmoid, and Python logits.
        if activation is None and self._reranker.activation != LOGITS:
            activation = self._reranker.activation
        if activation != CALIBRATED:
            return None
        with self._lock:
            return self._reranker_at(policy, alpha).activated(logits, activation)

    def splits_into_senses(
        self,
        query: str,
        document: str,
        policy: str | None,
        alpha: float,
        long_documents: LongDocuments,
    ) -> bool:
        """Whether a score is a sum over senses; else it is explained by leaving out words.

        Raises:
            ValueError: the policy or the query does not fit.
        """
        with self._lock:
            splits = self._reranker_at(policy, alpha).splits_into_senses
        tokenizer = self._tokenizer_of_thread()
        return splits and fits_one_chunk(tokenizer, query, document, long_documents)

    def left_out_words(
        self, query: str, document: str, long_documents: LongDocuments
    ) -> LeftOutWords:
        """Texts with words left out, and the explanation that their scores give.

        Raises:
            ValueError: the query does not fit.
        """
        return LeftOutWords(
            query,
            document,
            self.attribute,
            pair_tokenizer=self._tokenizer_of_thread(),
            long_documents=long_documents,
            at_most=_LEFT_OUT,
        )

    def alpha_for(self, query: str, policy: str | None, alpha: float) -> float:
        """The alpha at which a query is scored: 1 where it asks for a group.

        Raises:
            ValueError: the policy does not fit.
        """
        with self._lock:
            return 1.0 if self._reranker_at(policy, alpha).hook.leaves_out(query) else alpha

    def explanation_title(self, policy: str | None, alpha: float) -> str:
        """What stands over an explanation, as in Python."""
        with self._lock:
            return self._reranker_at(policy, alpha).explanation_title(alpha != 1)

    def reads_once(self, policy: str) -> bool:
        """Whether all alphas take the same passes over the texts.

        A fine grid then costs no more than one alpha.
        """
        # Two alphas strictly between 0 and 1 stand for all: at the ends, views are left out.
        readings = []
        with self._lock:
            for alpha in (0.25, 0.5):
                reading = set()
                for view in self._cached_views(policy, alpha):
                    shift_key = None if view.token_shift is None else view.token_shift.key
                    reading.add((shift_key, view.rewrite))
                readings.append(reading)
        return readings[0] == readings[1]

    def explain(self, query: str, document: str, policy: str | None, alpha: float) -> Explanation:
        """Contributions of senses and words to a score; called in the thread of the model.

        Raises:
            ValueError: the score does not split into senses, or the policy or the query does not
                fit.
        """
        with self._lock:
            return self._reranker_at(policy, alpha).explain(query, document, by="senses")

    def _reranker_at(self, policy: str | None, alpha: float) -> PointwiseReranker:
        """The ranker under a policy.

        Raises:
            ValueError: the policy does not fit; those that do are named.
        """
        if alpha == 1 and (policy is None or policy in POLICIES):
            return self._reranker
        if policy not in self._policies:
            # Under its name, so that the sentence on one that does not fit says which do.
            turned = self._reranker.at(alpha, policy)
            assert turned.hook.policy is not None
            self._policies[policy] = turned.hook.policy
            return turned
        return self._reranker.at(alpha, self._policies[policy])

    def _tokenizer_of_thread(self) -> PairTokenizer:
        if not hasattr(self._tokenizers, "tokenizer"):
            with self._lock:
                self._tokenizers.tokenizer = copy.deepcopy(self._scorer.pair_tokenizer)
        tokenizer: PairTokenizer = self._tokenizers.tokenizer
        return tokenizer

    def _views(self, policy: str | None, alpha: float) -> tuple[View, ...]:
        reranker = self._reranker_at(policy, alpha)
        return IDENTITY if alpha == 1 else reranker.hook.views


def served(name: str, reranker: TextReranker) -> Served:
    """Serve what ``backpack_rank.load`` gives, under the name that requests ask for."""
    if isinstance(reranker, PointwiseReranker):
        return ServedPointwise(name, reranker)
    class_name = served_classes()[type(reranker).__name__]
    ranker: Served = imported(class_name)(name, reranker)
    return ranker


def readable(
    long_documents: LongDocuments, most_tokens: float, max_length: int | None
) -> LongDocuments:
    """How long documents are read, of which no more is tokenised than a request may have.

    What is longer is refused when its tokens are counted; without a bound it would be tokenised to
    its end before that.

    Args:
        long_documents: as the request or the server wants it.
        most_tokens: that the queue takes.
        max_length: tokens that the ranker reads together.
    """
    if not long_documents.in_chunks or not max_length:
        return long_documents
    most_chunks = int(most_tokens // max_length) + 2
    wanted = long_documents.max_chunks_per_doc
    if wanted is not None and wanted <= most_chunks:
        return long_documents
    return long_documents.changed(max_chunks_per_doc=most_chunks)


def _tokenised(
    tokenizer: PairTokenizer,
    pairs: Sequence[TextPair],
    max_document: int | None,
    budget: Budget,
    long_documents: LongDocuments,
) -> tuple[list[list[np.ndarray]], int]:
    """Token ids of the chunks of pairs of texts, and how many documents are cut.

    A few pairs at a time, with looks at the clock and at the tokens so far.
    """
    chunks: list[list[np.ndarray]] = []
    cut = tokens = 0
    for start in range(0, len(pairs), _TEXTS_PER_LOOK):
        budget.check_time()
        joined = join_pairs(
            tokenizer,
            pairs[start : start + _TEXTS_PER_LOOK],
            long_documents=long_documents,
            max_document=max_document,
        )
        for pair in range(len(joined)):
            chunks.append(joined.of_pair(pair))
            tokens += sum(map(len, chunks[-1]))
        budget.check_tokens(tokens)
        cut += joined.cut
    return chunks, cut


def _rows_of_batch(slices: Sequence[Slice]) -> Iterator[tuple[Slice, Pass, slice]]:
    """Each slice with its pass and the rows of the batch that its texts are."""
    start = 0
    for part in slices:
        assert part.text_pass is not None
        end = start + len(part.texts)
        yield part, part.text_pass, slice(start, end)
        start = end


def _weights_of(slices: Sequence[Slice], passes: Sequence[Pass]) -> Tensor | None:
    """Weights per text [B, k]; None where no pass has weights."""
    given = None
    for text_pass in passes:
        if text_pass.weights[0] is not None:
            given = text_pass.weights[0]
            break
    if given is None:
        return None

    rows = []
    for part, text_pass in zip(slices, passes, strict=True):
        weights = text_pass.weights[0]
        if weights is None:
            # A pass without weights shares this batch: ones leave its scores bit for bit as they
            # are.
            weights = torch.ones_like(given)
        rows.append(weights.expand(len(part.texts), -1))
    return torch.cat(rows)
