"""Do a ranker's token vectors know where in a passage they stand? ATS and MATS of paper 001 on a collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from tqdm import tqdm

from backpack_rank.data.collection import Collection
from backpack_rank.data.pairs import pack_by_length
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.build import load_ranker
from backpack_rank.models.packing import PackedBatch
from backpack_rank.pipelines.common import check_whole, find_ranker, load_split, resolved_config, save_config
from backpack_rank.pipelines.evaluate import data_of
from backpack_rank.position.representations import KINDS, DocumentRow, Representation, document_rows, representations
from backpack_rank.position.term_similarity import TermSample, choose_terms, term_similarity
from backpack_rank.reporting.term_similarity import (
    TermSimilarityReport,
    print_term_similarity,
    write_term_similarity,
)
from backpack_rank.scoring import Scorer

_ROWS = 512
"""Documents that are read and packed together."""


@dataclass(frozen=True)
class TermSimilarity:
    """``task`` of ``evaluate.py experiment=term_similarity``.

    Attributes:
        split: whose collection the documents are from.
        documents: read, drawn from the collection by ``seed``; None reads all.
        terms: compared, drawn by ``seed`` from those that stand in two of the documents or more; None compares all.
        max_distance: of two positions, in tokens.
        per_position: occurrences of a term that are kept at each position, at most; at least 2.
        seed: of all draws.
        query: that every document stands behind; None reads documents alone, as the paper does.
        representations: kinds of token vectors (:data:`~backpack_rank.position.representations.KINDS`); None takes
            all that the ranker has.
    """

    split: str = "test"
    documents: int | None = 2000
    terms: int | None = 1000
    max_distance: int = 100
    per_position: int = 4
    seed: int = 0
    query: str | None = None
    representations: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.representations, str):
            object.__setattr__(self, "representations", (self.representations,))
        check_whole(self, ("documents", "per_position"), least=2, null=("documents",))
        check_whole(self, ("terms", "max_distance"), null=("terms",))

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Write ``term_similarity.json``, ``.csv``, ``.png`` and ``.svg``, and print a table."""
        checkpoint = find_ranker(config.checkpoint, config.output)
        data = data_of(config, checkpoint)
        collection = load_split(data, self.split)
        scorer = Scorer(*load_ranker(checkpoint), instantiate(config.scoring))
        report = self.measure(scorer, collection, str(checkpoint))
        save_config(folder, resolved_config(config, data))
        write_term_similarity(folder, report)
        if not quiet:
            print_term_similarity(report)
            print(f"Written to {folder}")

    def measure(self, scorer: Scorer, collection: Collection, name: str = "") -> TermSimilarityReport:
        """ATS and MATS of a ranker on the documents of a collection.

        Raises:
            ValueError: the ranker has no such representation, the query cannot be read, or the documents hold no pair
                of equal terms.
        """
        kinds = self._kinds(scorer)
        encoder = scorer.encoder
        query = None if self.query is None else encoder.encode_query(self.query)
        rows = [row for row in document_rows(encoder, self._documents(collection, encoder), query) if row.length]
        eligible = eligible_terms(encoder, rows)
        if not len(eligible):
            raise ValueError(f"no term stands in two of the {len(rows)} documents: raise task.documents")
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
            curves=tuple(term_similarity(sample, self.max_distance, kind) for kind, sample in samples.items()),
            meaning={kind: KINDS[kind] for kind in kinds},
        )

    def _kinds(self, scorer: Scorer) -> dict[str, Representation]:
        own = representations(scorer.ranker)
        wanted = list(own) if self.representations is None else list(self.representations)
        for kind in wanted:
            if kind not in own:
                raise ValueError(
                    f"task.representations: {type(scorer.ranker).__name__} has no {kind!r}; it has {', '.join(own)}"
                )
        if not wanted:
            raise ValueError(f"task.representations is empty; this ranker has {', '.join(own)}")
        return {kind: own[kind] for kind in wanted}

    def _documents(self, collection: Collection, encoder: PairEncoder) -> list[np.ndarray]:
        """Token ids of the documents drawn, in the order of the collection."""
        total = len(collection.documents)
        drawn = None
        if self.documents is not None and self.documents < total:
            drawn = set(np.random.default_rng(self.seed).choice(total, self.documents, replace=False).tolist())
        found: list[np.ndarray] = []
        texts: list[str] = []
        for number, (_, text) in enumerate(collection.documents):
            if drawn is None or number in drawn:
                texts.append(text)
            if len(texts) == _ROWS or (drawn is not None and len(found) + len(texts) == len(drawn)):
                found += encoder.encode(texts)
                texts = []
                if drawn is not None and len(found) == len(drawn):
                    break
        return found + encoder.encode(texts)


def eligible_terms(encoder: PairEncoder, rows: Sequence[DocumentRow]) -> np.ndarray:
    """Token ids that stand in two documents or more, without special tokens and buckets of unknown words."""
    size = len(encoder.tokenizer)
    documents = np.zeros(size, dtype=np.int64)
    for row in rows:
        ids = np.unique(row.ids[row.start : row.start + row.length])
        documents[ids[ids < size]] += 1
    documents[[number for number in encoder.tokenizer.all_special_ids if number < size]] = 0
    return np.flatnonzero(documents > 1)


def fill(
    samples: dict[str, TermSample], kinds: dict[str, Representation], scorer: Scorer, rows: Sequence[DocumentRow]
) -> None:
    """Run the ranker over the documents and let every sample take notice of its terms."""
    first = next(iter(samples.values()))
    place_of = np.full(max(int(max(row.ids.max() for row in rows)), int(first.terms.max())) + 1, -1, dtype=np.int64)
    place_of[first.terms] = np.arange(len(first.terms))
    starts, lengths = (np.array([getattr(row, name) for row in rows]) for name in ("start", "length"))
    with torch.inference_mode(), tqdm(total=len(rows), desc="reading documents", unit="doc", leave=False) as bar:
        for numbers, batch in _batches(rows, scorer.tokens_per_batch):
            documents = numbers[batch.text_ids.numpy()]
            positions = batch.position_ids.numpy() - starts[documents]
            terms = place_of[batch.input_ids.numpy()]
            chosen = (positions >= 0) & (positions < lengths[documents]) & (terms >= 0)
            if chosen.any():
                there, mask = batch.to(scorer.device), torch.from_numpy(chosen).to(scorer.device)
                for kind, represent in kinds.items():
                    vectors = represent(there, mask).float().cpu().numpy()
                    samples[kind].add(documents[chosen], terms[chosen], positions[chosen], vectors)
            bar.update(len(numbers))


def _batches(rows: Sequence[DocumentRow], tokens: int) -> Iterator[tuple[np.ndarray, PackedBatch]]:
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        numbers = np.arange(start, start + len(part))
        yield from pack_by_length(numbers, [row.ids for row in part], tokens)
