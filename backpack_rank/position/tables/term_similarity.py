"""Do token vectors know where in a passage they stand?

ATS and MATS (Hofstätter et al. 2021) on a collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from backpack_rank.constructors import (
    MOST,
    AllDocuments,
    Called,
    Count,
    Length,
    Note,
    OneOf,
    Range,
    Seed,
)
from backpack_rank.data.batching import pack_by_length
from backpack_rank.data.collection import Collection
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.pipelines.chosen_data import SPLITS
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.settings import EvaluationSettings, check_positive_ints
from backpack_rank.position.passages.representations import (
    KINDS,
    DocumentRow,
    Representation,
    document_rows,
    representations,
)
from backpack_rank.position.passages.term_similarity import (
    TermSample,
    choose_terms,
    term_similarity,
)
from backpack_rank.position.passages.term_similarity_report import (
    TermSimilarityReport,
    print_term_similarity,
    write_term_similarity,
)
from backpack_rank.progress import Progress
from backpack_rank.reranking.scorer import Scorer

_ROWS = 512
"""Documents that are read and packed together."""


Several = Annotated[int, Range(least=2, most=MOST), Called("a whole number of at least 2")]


@dataclass(frozen=True)
class TermSimilarity(Experiment):
    """``task`` of ``evaluate.py experiment=term_similarity``.

    Attributes:
        split: whose collection the documents are from.
        documents: read, drawn from the collection by ``seed``; None reads all.
        terms: compared, drawn by ``seed`` from those that stand in two of the documents or more;
            None compares all.
        max_distance: of two positions, in tokens.
        per_position: occurrences of a term that are kept at each position, at most; at least 2.
        seed: of all draws.
        query: that every document stands behind; None reads documents alone, as the paper does.
        representations: kinds of token vectors
            (:data:`~backpack_rank.position.passages.representations.KINDS`); None takes all that
            the ranker has.
    """

    split: Annotated[str, OneOf(SPLITS)] = "test"
    documents: Several | AllDocuments = 2000
    terms: Count | Annotated[None, Note("for all terms")] = 1000
    max_distance: Count = 100
    per_position: Several = 4
    seed: Seed = 0
    query: str | None = None
    representations: Annotated[Sequence[Annotated[str, OneOf(tuple(KINDS))]], Length(1)] | None = (
        None
    )

    def __post_init__(self) -> None:
        if isinstance(self.representations, str):
            object.__setattr__(self, "representations", (self.representations,))
        check_positive_ints(self, ("documents", "per_position"), least=2, null=("documents",))
        check_positive_ints(self, ("terms", "max_distance"), null=("terms",))

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Write ``term_similarity.json``, ``.csv``, ``.png`` and ``.svg``, and print a table."""
        checkpoint = settings.find_ranker()
        collection = settings.dataset(checkpoint).split(self.split)
        scorer = settings.reranker(checkpoint).local_scorer
        report = self.measure(scorer, collection, str(checkpoint))
        settings.save(folder, checkpoint)
        write_term_similarity(folder, report)
        if not quiet:
            print_term_similarity(report)
            print(f"Written to {folder}")

    def measure(
        self, scorer: Scorer, collection: Collection, name: str = ""
    ) -> TermSimilarityReport:
        """ATS and MATS of a ranker on the documents of a collection.

        Raises:
            ValueError: the ranker has no such representation, the query cannot be read, or the
                documents hold no pair of equal terms.
        """
        kinds = self._kinds(scorer)
        pair_tokenizer = scorer.pair_tokenizer
        query = None if self.query is None else pair_tokenizer.encode_query(self.query)
        documents = self._documents(collection, pair_tokenizer)
        rows = [row for row in document_rows(pair_tokenizer, documents, query) if row.length]
        eligible = eligible_terms(pair_tokenizer, rows)
        if not len(eligible):
            raise ValueError(
                f"no term stands in two of the {len(rows)} documents: raise task.documents"
            )
        terms = choose_terms(eligible, self.terms, self.seed)
        longest = max(row.length for row in rows)
        samples = {kind: TermSample(terms, longest, self.per_position, self.seed) for kind in kinds}
        fill(samples, kinds, scorer, rows)
        return TermSimilarityReport(
            ranker=name,
            collection=collection.name,
            documents=len(rows),
            terms=len(terms),
            eligible_terms=len(eligible),
            query=self.query or "",
            per_position=self.per_position,
            seed=self.seed,
            curves=tuple(
                term_similarity(sample, self.max_distance, kind) for kind, sample in samples.items()
            ),
            meaning={kind: KINDS[kind] for kind in kinds},
        )

    def _kinds(self, scorer: Scorer) -> dict[str, Representation]:
        available = representations(scorer.ranker)
        wanted = list(available) if self.representations is None else list(self.representations)
        known = ", ".join(available)
        for kind in wanted:
            if kind not in available:
                name = type(scorer.ranker).__name__
                raise ValueError(f"task.representations: {name} has no {kind!r}; it has {known}")
        if not wanted:
            raise ValueError(f"task.representations is empty; this ranker has {known}")
        return {kind: available[kind] for kind in wanted}

    def _documents(self, collection: Collection, pair_tokenizer: PairTokenizer) -> list[np.ndarray]:
        """Token ids of the documents drawn, in the order of the collection."""
        total = len(collection.documents)
        drawn = None
        if self.documents is not None and self.documents < total:
            rng = np.random.default_rng(self.seed)
            drawn = set(rng.choice(total, self.documents, replace=False).tolist())
        sequences: list[np.ndarray] = []
        texts: list[str] = []
        for number, (_, text) in enumerate(collection.documents):
            if drawn is None or number in drawn:
                texts.append(text)
            last = drawn is not None and len(sequences) + len(texts) == len(drawn)
            if len(texts) == _ROWS or last:
                sequences += pair_tokenizer.encode(texts)
                texts = []
                if last:  # the documents behind the last one drawn are not read
                    break
        return sequences + pair_tokenizer.encode(texts)


def eligible_terms(pair_tokenizer: PairTokenizer, rows: Sequence[DocumentRow]) -> np.ndarray:
    """Token ids that stand in two documents or more.

    Special tokens and buckets of unknown words are left out.
    """
    size = len(pair_tokenizer.tokenizer)
    documents = np.zeros(size, dtype=np.int64)
    for row in rows:
        ids = np.unique(row.ids[row.start : row.start + row.length])
        documents[ids[ids < size]] += 1
    special = [number for number in pair_tokenizer.tokenizer.all_special_ids if number < size]
    documents[special] = 0
    return np.flatnonzero(documents > 1)


def fill(
    samples: dict[str, TermSample],
    kinds: dict[str, Representation],
    scorer: Scorer,
    rows: Sequence[DocumentRow],
) -> None:
    """Run the ranker over the documents, and add what stands for its terms to every sample."""
    # All samples look at the same terms.
    terms_sampled = next(iter(samples.values())).terms
    size = max(int(max(row.ids.max() for row in rows)), int(terms_sampled.max())) + 1
    place_of = np.full(size, -1, dtype=np.int64)
    place_of[terms_sampled] = np.arange(len(terms_sampled))
    starts = np.array([row.start for row in rows])
    lengths = np.array([row.length for row in rows])
    with (
        torch.inference_mode(),
        Progress(total=len(rows), desc="reading documents", unit="doc") as bar,
    ):
        for numbers, batch in _batches(rows, scorer.tokens_per_batch):
            documents = numbers[batch.text_ids.numpy()]
            positions = batch.position_ids.numpy() - starts[documents]
            terms = place_of[batch.input_ids.numpy()]
            chosen = (positions >= 0) & (positions < lengths[documents]) & (terms >= 0)
            if chosen.any():
                # By length, so that samples do not depend on where a batch ends.
                order = np.argsort(lengths[documents[chosen]], kind="stable")
                read = np.flatnonzero(chosen)[order]
                on_device = batch.to(scorer.device)
                mask = torch.from_numpy(chosen).to(scorer.device)
                for kind, represent in kinds.items():
                    vectors = represent(on_device, mask).float().cpu().numpy()
                    samples[kind].add(documents[read], terms[read], positions[read], vectors[order])
            bar.update(len(numbers))


def _batches(rows: Sequence[DocumentRow], tokens: int) -> Iterator[tuple[np.ndarray, PackedBatch]]:
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        numbers = np.arange(start, start + len(part))
        yield from pack_by_length(numbers, [row.ids for row in part], tokens)
