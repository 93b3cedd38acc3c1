"""Scores of an exported folder, computed from its files as a user does, beside those of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import torch
from tokenizers import Tokenizer

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.models.pooled_map import PooledMap
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.views import View

MODEL = "model.onnx"
TOLERANCE = 1e-4
"""Largest difference from torch's scores that passes, in their standard deviations."""
_QUERIES = 8
_DOCUMENTS = 4
"""Queries of the synthetic collection that are scored, and judged documents of each."""
_SHORT_QUERY = "who?"


class Dial(NamedTuple):
    """Where the dials of a graph are.

    Attributes:
        alpha: of moved tokens.
        sense_weights: one factor per sense, None: 1. [k]
        erase_alpha: of what is erased.
    """

    alpha: float = 1.0
    sense_weights: np.ndarray | None = None
    erase_alpha: float = 1.0


class Check:
    """The files of a folder and the ranker that they were made of.

    Attributes:
        pairs: (query, document) texts of several lengths that are scored: sentences of the
            synthetic collection, an empty document, and one of all words that alpha moves, which is
            too long.
    """

    def __init__(
        self,
        scorer: Scorer,
        folder: Path,
        shift: TokenShift | None,
        pooled_map: PooledMap | None = None,
    ) -> None:
        """
        Args:
            scorer: of the ranker, in fp32 on the CPU.
            folder: with ``tokenizer.json``, and the files of the graph by the time that they are
                checked.
            shift: tokens that the graph's input ``alpha`` moves; None: it has none.
            pooled_map: what its input ``erase_alpha`` takes out; None: it has none.

        Raises:
            ValueError: ``tokenizer.json`` reads a pair as other tokens than the ranker.
        """
        self.scorer = scorer
        self.folder = folder
        self.shift = shift
        self.pooled_map = pooled_map
        ranker = scorer.ranker
        self.senses: int | None = ranker.config.total_senses if ranker.has_senses else None
        self.attribute_senses = None
        if isinstance(ranker, BackpackForRanking):
            self.attribute_senses = ranker.backpack.attribute_senses
        # As a user reads it, and not the ranker's.
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.pairs = [*self._sentences(), (_SHORT_QUERY, ""), (_SHORT_QUERY, self._moved_words())]
        self._sequences = [self._read(query, document) for query, document in self.pairs]

    @property
    def inputs(self) -> dict[str, list[str | int]]:
        """Names and shapes of the graph's inputs."""
        shapes: dict[str, list[str | int]] = {
            "input_ids": ["batch", "length"],
            "attention_mask": ["batch", "length"],
        }
        if self.shift is not None:
            shapes["alpha"] = ["batch", 1]
        if self.senses is not None:
            shapes["sense_weights"] = ["batch", self.senses]
        if self.pooled_map is not None:
            shapes["erase_alpha"] = ["batch", 1]
        return shapes

    def feed(
        self,
        pairs: Sequence[tuple[str, str]],
        alpha: float = 1.0,
        sense_weights: np.ndarray | None = None,
        erase_alpha: float = 1.0,
    ) -> dict[str, np.ndarray]:
        """Values of these inputs for some pairs."""
        encodings = self.tokenizer.encode_batch(list(pairs))
        values = {
            "input_ids": np.array([encoding.ids for encoding in encodings]),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings]),
            "alpha": np.full((len(encodings), 1), alpha, dtype=np.float32),
            "erase_alpha": np.full((len(encodings), 1), erase_alpha, dtype=np.float32),
        }
        if self.senses is not None:
            weights = np.ones(self.senses) if sense_weights is None else sense_weights
            values["sense_weights"] = np.tile(weights.astype(np.float32), (len(encodings), 1))
        return {name: values[name] for name in self.inputs}

    def against_torch(self) -> dict[str, float]:
        """How far ``model.onnx`` is from torch.

        Raises:
            ValueError: farther than :data:`TOLERANCE`.
        """
        scores_of_torch = []
        for dial in self._dials():
            view = self._view(dial)
            scores_of_torch.append(self.scorer.score_tokens(self._sequences, view))
        exact = np.stack(scores_of_torch)
        difference = float(np.abs(self._scores() - exact).max())
        deviation = float(exact.std())
        if not difference <= TOLERANCE * deviation:  # not >, which NaN would pass
            raise ValueError(
                f"scores of the graph differ from torch's by up to {difference:.2g}, which is more "
                f"than {TOLERANCE:g} of their standard deviation, {deviation:.2g}"
            )
        return {
            "largest_difference_from_torch": difference,
            "standard_deviation_of_scores": deviation,
        }

    def _dials(self) -> Iterator[Dial]:
        """D positions of the dials, the first of which leaves the ranker as it is."""
        yield Dial()
        if self.shift is not None:
            yield Dial(alpha=0.0)
            yield Dial(alpha=0.5)
        if self.attribute_senses is not None:
            # Attribute senses are numbered behind the others; alpha weighs them alone.
            is_attribute_sense = np.arange(self.senses or 0) >= self.scorer.ranker.config.num_senses
            yield Dial(sense_weights=np.where(is_attribute_sense, 0.0, 1.0))
            yield Dial(sense_weights=np.where(is_attribute_sense, 0.5, 1.0))
        if self.senses is not None:
            alpha = 1.0 if self.shift is None else 0.25
            yield Dial(alpha, np.linspace(0, 1, self.senses))
        if self.pooled_map is not None:
            yield Dial(erase_alpha=0.0)
            yield Dial(erase_alpha=0.5)

    def _view(self, dial: Dial) -> View:
        shift = None
        if self.shift is not None and dial.alpha != 1:
            shift = replace(self.shift, alpha=dial.alpha)
        sense_weights = None
        if dial.sense_weights is not None:
            sense_weights = torch.from_numpy(dial.sense_weights).float()
        pooled_map = None
        if self.pooled_map is not None and dial.erase_alpha != 1:
            pooled_map = replace(self.pooled_map, alpha=dial.erase_alpha)
        return View(sense_weights=sense_weights, token_shift=shift, pooled_map=pooled_map)

    def _scores(self) -> np.ndarray:
        """Scores by the graph, in batches of one, of two and of many. [D, N]"""
        session = onnxruntime.InferenceSession(
            str(self.folder / MODEL), providers=["CPUExecutionProvider"]
        )
        batches = (self.pairs[:1], self.pairs[1:3], self.pairs[3:])
        scores = []
        for dial in self._dials():
            scores_at_dial = []
            for batch in batches:
                if batch:
                    (scores_of_batch,) = session.run(None, self.feed(batch, *dial))
                    scores_at_dial.append(scores_of_batch)
            scores.append(np.concatenate(scores_at_dial))
        return np.stack(scores)

    def _read(self, query: str, document: str) -> np.ndarray:
        (token_ids,) = self.scorer.pair_tokenizer.pairs(query, [document])
        if token_ids.tolist() != self.tokenizer.encode(query, document).ids:
            raise ValueError(
                f"tokenizer.json does not read {query!r}, {document[:80]!r} as the ranker does"
            )
        return token_ids

    def _sentences(self) -> list[tuple[str, str]]:
        """Of the synthetic collection, those whose query is not too long for the ranker."""
        collection = load_synthetic("test", test_queries=_QUERIES, documents=40)
        texts = dict(collection.documents)
        tokenizer = self.scorer.pair_tokenizer
        tokens_of_queries = tokenizer.encode([*collection.queries.values()])
        queries = zip(collection.queries.items(), tokens_of_queries, strict=True)
        pairs = []
        for (query_id, query), token_ids in queries:
            if len(token_ids) >= tokenizer.max_length - 3:  # three special tokens
                continue
            for doc_id in list(collection.qrels[query_id])[:_DOCUMENTS]:
                pairs.append((query, texts[doc_id]))
        return pairs

    def _moved_words(self) -> str:
        """Every word on which alpha acts, until the text is too long."""
        tokenizer = self.scorer.pair_tokenizer
        pieces_of_words: list[Sequence[int]] = []
        if self.shift is not None:
            for members in self.shift.classes.members:
                pieces_of_words += [[token] for token in members]
        if self.attribute_senses is not None:
            pieces_of_words += [row.pieces for row in self.attribute_senses.rows()]
        words = ["said"]  # not an empty text, where alpha acts on no word
        for pieces in pieces_of_words:
            words.append(str(tokenizer.tokenizer.decode(list(pieces))).strip())
        text = " ".join(words)
        return f"{text} " * (tokenizer.max_length // len(text.split()) + 1)
