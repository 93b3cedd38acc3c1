"""ATS and MATS on a collection: do token vectors know where in a passage they stand?

See Hofstätter et al. 2021, section 5.
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
    """Shows how far a ranker's token vectors depend on their positions.

    It is the ``task`` of ``evaluate.py experiment=term_similarity``.

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
        samples = {}
        for kind in kinds:
            # With the same seed, so that all kinds are compared on the same occurrences.
            samples[kind] = TermSample(terms, longest, self.per_position, self.seed)
        fill(samples, kinds, scorer, rows)
        curves = []
        for kind, sample in samples.items():
            curves.append(term_similarity(sample, self.max_distance, kind))
        return TermSimilarityReport(
            ranker=name,
            collection=collection.name,
            documents=len(rows),
            terms=len(terms),
            eligible_terms=len(eligible),
            query=self.query or "",
            per_position=self.per_position,
            seed=self.seed,
            curves=tuple(curves),
            meaning={kind: KINDS[kind] for kind in kinds},
        )

    def _kinds(self, scorer: Scorer) -> dict[str, Representation]:
        """The kinds of vectors that are asked for, of those that the ranker has."""
        available = representations(scorer.ranker)
        if self.representations is None:
            return available
        known = ", ".join(available)
        if not self.representations:
            raise ValueError(f"task.representations is empty; this ranker has {known}")
        chosen = {}
        for kind in self.representations:
            if kind not in available:
                name = type(scorer.ranker).__name__
                raise ValueError(f"task.representations: {name} has no {kind!r}; it has {known}")
            chosen[kind] = available[kind]
        return chosen

    def _documents(self, collection: Collection, pair_tokenizer: PairTokenizer) -> list[np.ndarray]:
        """Token ids of the documents drawn, in the order of the collection."""
        total = len(collection.documents)
        drawn: range | set[int] = range(total)
        if self.documents is not None and self.documents < total:
            rng = np.random.default_rng(self.seed)
            drawn = set(rng.choice(total, self.documents, replace=False).tolist())
        sequences: list[np.ndarray] = []
        texts: list[str] = []
        for number, (_, text) in enumerate(collection.documents):
            if number in drawn:
                texts.append(text)
            is_last = len(sequences) + len(texts) == len(drawn)
            if len(texts) == _ROWS or is_last:
                sequences += pair_tokenizer.encode(texts)
                texts = []
            if is_last:
                break  # the rest of a large collection need not be read
        return sequences


def eligible_terms(pair_tokenizer: PairTokenizer, rows: Sequence[DocumentRow]) -> np.ndarray:
    """The terms that can be compared: token ids in two documents or more.

    Special tokens and buckets of unknown words are left out, since they are no terms.
    """
    size = len(pair_tokenizer.tokenizer)
    document_counts = np.zeros(size, dtype=np.int64)
    for row in rows:
        ids = np.unique(row.ids[row.start : row.start + row.length])
        # Ids from the size of the vocabulary on are buckets, which several words share.
        document_counts[ids[ids < size]] += 1
    special = [number for number in pair_tokenizer.tokenizer.all_special_ids if number < size]
    document_counts[special] = 0
    return np.flatnonzero(document_counts > 1)


def fill(
    samples: dict[str, TermSample],
    kinds: dict[str, Representation],
    scorer: Scorer,
    rows: Sequence[DocumentRow],
) -> None:
    """Run a ranker over documents and add the vectors of the terms to every sample.

    Args:
        samples: by kind of vectors, all of the same terms.
        kinds: how to get the vectors of each of these kinds.
        scorer: the ranker on its device.
        rows: the documents.
    """
    sampled_terms = next(iter(samples.values())).terms
    largest_id = max(int(row.ids.max()) for row in rows)
    # Place of each token id among the terms; -1 for all others.
    place_of = np.full(max(largest_id, int(sampled_terms.max())) + 1, -1, dtype=np.int64)
    place_of[sampled_terms] = np.arange(len(sampled_terms))
    starts = np.array([row.start for row in rows])
    lengths = np.array([row.length for row in rows])
    with (
        torch.inference_mode(),
        Progress(total=len(rows), desc="reading documents", unit="doc") as bar,
    ):
        for numbers, batch in _batches(rows, scorer.tokens_per_batch):
            documents = numbers[batch.text_ids.numpy()]
            # Positions in the document, not in the row: special tokens and the query are before 0.
            positions = batch.position_ids.numpy() - starts[documents]
            terms = place_of[batch.input_ids.numpy()]
            in_document = (positions >= 0) & (positions < lengths[documents])
            chosen = in_document & (terms >= 0)
            if chosen.any():
                # By length, so that samples do not depend on where a batch ends.
                order = np.argsort(lengths[documents[chosen]], kind="stable")
                tokens = np.flatnonzero(chosen)[order]
                batch_on_device = batch.to(scorer.device)
                mask = torch.from_numpy(chosen).to(scorer.device)
                for kind, represent in kinds.items():
                    vectors = represent(batch_on_device, mask).float().cpu().numpy()
                    samples[kind].add(
                        documents[tokens], terms[tokens], positions[tokens], vectors[order]
                    )
            bar.update(len(numbers))


def _batches(rows: Sequence[DocumentRow], tokens: int) -> Iterator[tuple[np.ndarray, PackedBatch]]:
    """Packed batches of at most so many tokens, with the numbers of their rows."""
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        numbers = np.arange(start, start + len(part))
        yield from pack_by_length(numbers, [row.ids for row in part], tokens)
