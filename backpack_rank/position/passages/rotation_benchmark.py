"""Rankers on a test collection and on its rotated passages (Hofstätter et al. 2021)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from backpack_rank.data.collection import Collection
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.rotation import rotated_collection
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.experiments.grid import fill_grid
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reranking.pointwise import PointwiseReranker

log = logging.getLogger(__name__)
ORIGINAL, ROTATED = "original", "rotated"


class RotationBenchmark:
    """Measures rankers on a test collection and on its rotated passages::

        bench = RotationBenchmark(settings, dataset, ["nDCG@10"])
        values = bench.measure(folders)  # per query, of "original" and of "rotated"

    Both have the same candidates, so only the passages differ.

    Attributes:
        tests: ``original`` and ``rotated``.
        stage: name of the first stage.
        candidates: of both.
        settings: of the evaluation.
        measures: that are taken.
    """

    def __init__(
        self, settings: EvaluationSettings, dataset: Dataset, measures: Sequence[str]
    ) -> None:
        """The test split of the data, whatever ``data.rotation`` says."""
        test = dataset.with_rotation("none").split("test")
        self.settings = settings
        self.measures = measures
        self.stage, self.candidates = dataset.candidates("test", test)
        self.tests = {ORIGINAL: test, ROTATED: rotated_collection(test, settings.rotation)}

    def measure(
        self, rankers: Sequence[Path], which: Sequence[str] = (ORIGINAL, ROTATED)
    ) -> dict[str, PerQuery]:
        """Values per query on each test collection, as means over rankers of several seeds."""

        def prepare(ranker: Path) -> PointwiseReranker:
            log.info("measuring %s", ranker)
            return self.settings.reranker(ranker)

        def measure(_: Path, reranker: PointwiseReranker, name: str, test: Collection) -> PerQuery:
            ranked = reranker.rerank(self.candidates, test)
            return effectiveness(ranked, test.qrels, self.measures)

        tests = {name: self.tests[name] for name in which}
        cells = fill_grid({ranker: ranker for ranker in rankers}, tests, prepare, measure)
        means = {}
        for name in which:
            values_of_rankers = [cells[folder, name] for folder in rankers]
            means[name] = mean_values(values_of_rankers)
        return means

    def first_stage(self) -> PerQuery:
        """Values of the candidates themselves; they are the same for both test collections."""
        return effectiveness(self.candidates, self.tests[ORIGINAL].qrels, self.measures)

    def in_words(self) -> str:
        """Name and size of the test collection, and how it is rotated."""
        test = self.tests[ORIGINAL]
        rotation = self.settings.rotation.label
        return f"{test.name} ({len(test.queries):,} queries, {self.stage}'s candidates; {rotation})"


def mean_values(values: Sequence[PerQuery]) -> PerQuery:
    """Means over rankers (seeds) of every query's values; all rank the same queries."""
    first = values[0]
    means: dict[str, dict[str, float]] = {}
    for measure, by_query in first.values.items():
        total = np.zeros(len(by_query))
        for values_of_ranker in values:
            total += values_of_ranker.array(measure, by_query)
        mean = total / len(values)
        means[measure] = dict(zip(by_query, mean.tolist(), strict=True))
    return PerQuery(means, first.left_out, first.missing)
