"""A ranker whose weights are here: texts of several requests, alphas and policies share batches."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backpack_rank.data.batching import ROWS, group_by_length, join_pairs
from backpack_rank.data.long_documents import LongDocuments
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.backpack_encoder import SenseRanker
from backpack_rank.models.pooled_map import mapped_vectors
from backpack_rank.models.prompted_ranker import PromptTokenizer
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.reading_plan import Pass, ReadingPlan, TextPair
from backpack_rank.senses.views import View
from backpack_rank.serving.bodies import ReadBody, RequestError
from backpack_rank.serving.dial import ServedWithDial
from backpack_rank.serving.jobs import Budget, Job, RequestOptions, Slice

_TEXTS_PER_LOOK = 32
"""Texts that are tokenised between two looks at the clock."""


class ServedPointwise(ServedWithDial):
    """A pointwise ranker: texts of several requests, alphas and policies share batches."""

    def __init__(self, name: str, reranker: PointwiseReranker) -> None:
        super().__init__(name, reranker)
        self._scorer = reranker.local_scorer
        self.tokens_per_batch = self._scorer.tokens_per_batch
        self.max_length = self._scorer.pair_tokenizer.max_length
        self._tokenizers = threading.local()

    def cut_query(self, query: str, tokens: int) -> str:
        return self._tokenizer_of_thread().first_tokens(query, tokens)

    def long_documents_of(self, body: ReadBody) -> LongDocuments:
        """The ranker's way, or that of the request."""
        try:
            wanted = self._scorer.long_documents.changed(
                body.strategy, body.max_chunks_per_doc, body.chunk_overlap
            )
            return self._scorer.with_long_documents(wanted).long_documents
        except ValueError as error:
            raise RequestError(400, str(error)) from None

    def job_of_pairs(self, pairs: Sequence[TextPair], options: RequestOptions) -> Job:
        """The passes that the views of all alphas need, each text tokenised once."""
        budget = options.budget
        tokenizer = self._tokenizer_of_thread()
        if options.instruct is not None:
            if not isinstance(tokenizer, PromptTokenizer):
                raise RequestError(400, f"model {self.name} takes no instruct: it has no prompt")
            try:
                tokenizer = tokenizer.with_instruction(options.instruct)
            except ValueError as error:
                raise RequestError(400, f"instruct: {error}") from None
        reading = options.long_documents or self._scorer.long_documents
        most = options.max_tokens

        def cut_pairs() -> Iterator[TextPair]:
            for query, document in pairs:
                budget.check_time()
                yield tokenizer.cut(query), tokenizer.cut(document, reading)

        try:
            policies = self.views_of(options)
            chunks, truncated = _tokenised(tokenizer, pairs, most, budget, reading)
            plan = ReadingPlan(policies, len(pairs), cut_pairs)
            chunks_of_new, _ = _tokenised(tokenizer, plan.new_texts, most, budget, reading)
        except ValueError as error:
            raise RequestError(400, str(error)) from None

        chunks += chunks_of_new
        plan.share([np.concatenate(of_text) for of_text in chunks])
        documents = [document for _, document in pairs]
        job = Job(self, pairs[0][0], documents, plan, truncated)
        # First chunks have batches of their own: they are what is read where documents are cut, and
        # a score depends on its batch in the last bits.
        for text_pass in plan.passes():
            first = [chunks[text][0] for text in text_pass.texts]
            job.slices += self._slices(job, text_pass, text_pass.texts, first)
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
        if self._scorer.token_states is not None:
            options["token_states"] = self._scorer.token_states
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

    def _score_under_all_weights(
        self, slices: Sequence[Slice], batch: PackedBatch, options: dict[str, Any]
    ) -> None:
        """One pass for all alphas: weights and maps are applied to the sense vectors."""
        ranker = self._scorer.ranker
        assert isinstance(ranker, SenseRanker)
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

    def _tokenizer_of_thread(self) -> PairTokenizer:
        if not hasattr(self._tokenizers, "tokenizer"):
            with self._lock:
                self._tokenizers.tokenizer = copy.deepcopy(self._scorer.pair_tokenizer)
        tokenizer: PairTokenizer = self._tokenizers.tokenizer
        return tokenizer


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
