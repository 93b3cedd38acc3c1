"""Scores of an exported folder, computed as a stranger would from its files, beside those of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from tokenizers import Tokenizer

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.views import View

MODEL, INT8 = "model.onnx", "model_int8.onnx"
TOLERANCE = 1e-4
"""Largest difference from torch's scores that passes, in their standard deviations."""
_QUERIES, _DOCUMENTS = 8, 4
_SHORT = "who?"


class Check:
    """The files of a folder and the ranker that they were made of.

    Attributes:
        pairs: (query, document) texts of several lengths that are scored: sentences of the synthetic collection, an
            empty document, and one of all words that alpha moves, which is too long.
    """

    def __init__(self, scorer: Scorer, folder: Path, shift: TokenShift | None) -> None:
        """
        Args:
            scorer: of the ranker, in fp32 on the CPU.
            folder: with ``tokenizer.json``, and the files of the graph by the time that they are checked.
            shift: tokens that the graph's input ``alpha`` moves; None: it has none.

        Raises:
            ValueError: ``tokenizer.json`` reads a pair as other tokens than the ranker.
        """
        self.scorer, self.folder, self.shift = scorer, folder, shift
        ranker = scorer.ranker
        self.senses: int | None = ranker.config.total_senses if ranker.has_senses else None
        self.own_senses = ranker.backpack.attribute_senses if isinstance(ranker, BackpackForRanking) else None
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.pairs = [*self._sentences(), (_SHORT, ""), (_SHORT, self._moved_words())]
        self._sequences = [self._read(query, document) for query, document in self.pairs]

    @property
    def inputs(self) -> dict[str, list[str | int]]:
        """Names and shapes of the graph's inputs."""
        shapes: dict[str, list[str | int]] = {name: ["batch", "length"] for name in ("input_ids", "attention_mask")}
        if self.shift is not None:
            shapes["alpha"] = ["batch", 1]
        if self.senses is not None:
            shapes["sense_weights"] = ["batch", self.senses]
        return shapes

    def feed(
        self, pairs: Sequence[tuple[str, str]], alpha: float = 1.0, sense_weights: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Values of these inputs for some pairs."""
        encoded = self.tokenizer.encode_batch(list(pairs))
        given = {
            "input_ids": np.array([one.ids for one in encoded]),
            "attention_mask": np.array([one.attention_mask for one in encoded]),
            "alpha": np.full((len(encoded), 1), alpha, dtype=np.float32),
        }
        if self.senses is not None:
            weights = np.ones(self.senses) if sense_weights is None else sense_weights
            given["sense_weights"] = np.tile(weights.astype(np.float32), (len(encoded), 1))
        return {name: given[name] for name in self.inputs}

    def against_torch(self) -> dict[str, float]:
        """How far ``model.onnx`` is from torch.

        Raises:
            ValueError: farther than :data:`TOLERANCE`.
        """
        exact = np.stack([self.scorer.score_tokens(self._sequences, self._view(*dial)) for dial in self._dials()])
        difference, deviation = float(np.abs(self._scores(MODEL) - exact).max()), float(exact.std())
        if not difference <= TOLERANCE * deviation:
            raise ValueError(
                f"scores of the graph differ from torch's by up to {difference:.2g}, which is more than {TOLERANCE:g} "
                f"of their standard deviation, {deviation:.2g}"
            )
        return {"largest_difference_from_torch": difference, "standard_deviation_of_scores": deviation}

    def against_fp32(self) -> dict[str, float]:
        """How far ``model_int8.onnx`` is from ``model.onnx``, in standard deviations of the latter's scores.

        Where alpha has words to turn, also the correlation between what alpha = 0 changes in the scores of both.

        Raises:
            ValueError: a score is not finite.
        """
        exact, rough = self._scores(MODEL), self._scores(INT8)
        if not np.isfinite(rough).all():
            raise ValueError("scores of the int8 file are not finite: export without --int8")
        differences = np.abs(rough - exact) / exact.std(axis=1, keepdims=True)
        found = {
            "mean_difference_in_standard_deviations": float(differences.mean()),
            "largest_difference_in_standard_deviations": float(differences.max()),
        }
        if self.shift is not None or self.own_senses is not None:
            # The last text, of moved words alone, would decide it.
            changes = [(scores[1] - scores[0])[:-1] for scores in (exact, rough)]
            if all(change.std() > 0 for change in changes):
                found["correlation_of_what_alpha_changes"] = float(np.corrcoef(*changes)[0, 1])
        return found

    def _dials(self) -> Iterator[tuple[float, np.ndarray | None]]:
        """D positions of the dial: alpha, and weights per sense."""
        yield 1.0, None
        if self.shift is not None:
            yield from ((0.0, None), (0.5, None))
        if self.own_senses is not None:
            k = self.scorer.ranker.config.num_senses
            yield from ((1.0, np.where(np.arange(self.senses or 0) < k, 1.0, alpha)) for alpha in (0.0, 0.5))
        if self.senses is not None:
            yield 1.0 if self.shift is None else 0.25, np.linspace(0, 1, self.senses)

    def _view(self, alpha: float, weights: np.ndarray | None) -> View:
        moved = None if self.shift is None or alpha == 1 else replace(self.shift, alpha=alpha)
        return View(None if weights is None else torch.from_numpy(weights).float(), moved)

    def _scores(self, name: str) -> np.ndarray:
        """Scores by a file, in batches of one, of two and of many. [D, N]"""
        session = onnxruntime.InferenceSession(str(self.folder / name), providers=["CPUExecutionProvider"])
        batches = [batch for batch in (self.pairs[:1], self.pairs[1:3], self.pairs[3:]) if batch]
        scores = [[session.run(None, self.feed(batch, *dial))[0] for batch in batches] for dial in self._dials()]
        return np.stack([np.concatenate(parts) for parts in scores])

    def _read(self, query: str, document: str) -> np.ndarray:
        (own,) = self.scorer.pair_tokenizer.pairs(query, [document])
        if own.tolist() != self.tokenizer.encode(query, document).ids:
            raise ValueError(f"tokenizer.json does not read {query!r}, {document[:80]!r} as the ranker does")
        return own

    def _sentences(self) -> list[tuple[str, str]]:
        """Of the synthetic collection, those whose query is not too long for the ranker."""
        collection = load_synthetic("test", test_queries=_QUERIES, documents=40)
        texts, own = dict(collection.documents), self.scorer.pair_tokenizer
        lengths = map(len, own.encode([*collection.queries.values()]))
        short = [
            one for one, length in zip(collection.queries.items(), lengths, strict=True) if length < own.max_length - 3
        ]
        return [(text, texts[one]) for query, text in short for one in list(collection.qrels[query])[:_DOCUMENTS]]

    def _moved_words(self) -> str:
        """Every word that alpha turns, until the text is too long."""
        own = self.scorer.pair_tokenizer
        turned: list[Sequence[int]] = []
        if self.shift is not None:
            turned += [[token] for ids in self.shift.classes.members for token in ids]
        if self.own_senses is not None:
            turned += [row.pieces for row in self.own_senses.rows()]
        words = " ".join(["said", *(str(own.tokenizer.decode(list(pieces))).strip() for pieces in turned)])
        return f"{words} " * (own.max_length // len(words.split()) + 1)
