"""``evaluate.py experiment=stages``: a pipeline of two stages, with a dial at each of them.

What a swap of words does in the end depends on both stages: a document may leave the candidates
before the reranker sees it. So *one* document is swapped at a time, in a corpus that else stays,
and it is seen where it ends. Swapping all at once would hide what cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backpack_rank.data.collection import Collection, Run, select_queries, without_own
from backpack_rank.data.trec import ranking, sorted_run
from backpack_rank.data.wordings import wordings_of
from backpack_rank.evaluation.bootstrap import bootstrap_intervals
from backpack_rank.evaluation.result_table import BIAS, EFFECTIVENESS
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.experiments.grid import paths_in_words, show
from backpack_rank.pipelines.evaluate import evaluation_loader, notes_on
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.metrics import SystemRuns
from backpack_rank.pipelines.option_types import Alphas
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.charts import Line, lines
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table
from backpack_rank.reporting.vega import Spec, beside, save_chart
from backpack_rank.reporting.writers import write_table
from backpack_rank.reranking.dense import Dense
from backpack_rank.reranking.planned_scores import scores_of_texts
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.reading_plan import ReadingPlan
from backpack_rank.senses.renditions import MeanOfRenditions

MOVED, LOST, CHANGE = "places moved", "lost", "swap change/std"
_ROUNDING = 1e-5
"""Differences of scores up to this share of their spread are rounding."""
TextPair = tuple[str, str]


class Place(NamedTuple):
    """Where a document is a candidate: ids of query and document."""

    query: str
    document: str


class SwapEffect(NamedTuple):
    """What happens to a candidate whose words alone are swapped.

    Attributes:
        moved: places that it moves in the end.
        is_lost: whether it leaves the first k of the first stage.
        change: of its score by the reranker, in standard deviations, without its sign.
    """

    moved: int
    is_lost: bool
    change: float


@dataclass(frozen=True)
class Stages(Experiment):
    """``task`` of ``evaluate.py experiment=stages``.

    Attributes:
        first: positions of the dial of the first stage.
        second: positions of the dial of the reranker.
    """

    first: Alphas = (1.0, 0.0)
    second: Alphas = (1.0, 0.0)

    ignores: ClassVar[tuple[str, ...]] = ("variants", "contrast", "budget")

    @property
    def positions(self) -> list[tuple[float, float]]:
        """Every pair of positions of the two dials, as rows of the table stand."""
        return list(product(self.first, self.second))

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Retrieve and re-rank at every pair of positions; write ``stages`` as a table."""
        dataset = settings.needed_dataset()
        stage = dataset.first_stage("test")
        if not isinstance(stage, Dense):
            raise ValueError(
                f"experiment=stages: the first stage {stage.name} has no dial; add "
                "first_stage=dense first_stage.checkpoint=FOLDER"
            )
        checkpoint = settings.find_ranker()
        unchanged = settings.reranker(checkpoint)
        metrics = settings.metrics(dataset)
        data = evaluation_loader(replace(settings, swap=False), dataset, metrics)("test")
        pipeline = Pipeline(stage, unchanged, settings, data.test)
        retrieved = pipeline.retrieved(self.first)
        pipeline.score(retrieved, self.first, self.second)

        systems = []
        swaps: list[PerQuery] = []
        for first, second in self.positions:
            final = pipeline.final(retrieved[first], second)
            name = f"first stage {first:g}, reranker {second:g}"
            systems.append(SystemRuns(name, second, final, select_queries(final, data.bias)))
            swaps.append(pipeline.swapped_one_by_one(retrieved[first], first, second))
        cut = sorted_run(retrieved[self.first[0]], depth=stage.depth)
        data = replace(data, candidates=cut, bias_candidates=select_queries(cut, data.bias))
        measured = metrics.measure(systems, data)
        rows = []
        for system, of_swaps in zip(measured.systems, swaps, strict=True):
            values = {**system.values.get(EFFECTIVENESS, PerQuery({})).values}
            values |= of_swaps.values
            values |= system.values[BIAS].values
            rows.append(values)
        table = self._table(rows, pipeline, data, notes_on(unchanged, checkpoint or ""))
        settings.save(folder)
        written = [*write_table(folder, table), *save_chart(folder / "stages", self._chart(rows))]
        show([table], paths_in_words(written), quiet)

    def _chart(self, rows: Sequence[Mapping[str, Mapping[str, float]]]) -> Spec:
        """Effectiveness and places moved over the first dial, a line for each place of the second.

        Args:
            rows: values of each measure by query, for every pair of positions.
        """
        effectiveness = next(iter(rows[0]))
        panels = {}
        for measure in (effectiveness, MOVED):
            means: dict[tuple[float, float], float] = {}
            for positions, values in zip(self.positions, rows, strict=True):
                means[positions] = float(np.mean(list(values[measure].values())))
            drawn = []
            for second in self.second:
                y = [means[first, second] for first in self.first]
                drawn.append(Line(f"reranker at {second:g}", list(self.first), y))
            # From 0, so that differences in the third digit look as small as they are.
            panels[measure] = lines(drawn, "alpha of the first stage", measure, zero=True)
        return beside(panels, columns=2)

    def _table(
        self,
        rows: Sequence[Mapping[str, Mapping[str, float]]],
        pipeline: Pipeline,
        data: EvaluationData,
        notes: Sequence[str],
    ) -> Table:
        names = list(rows[0])
        columns = (*names, "texts read")
        shown = []
        records: list[tuple[Any, ...]] = []
        for (first, second), values in zip(self.positions, rows, strict=True):
            cells = []
            for name in names:
                of_queries = np.array([list(values[name].values())], dtype=np.float64)
                number, of = of_queries.sum(), pipeline.swapped_documents
                low, high = bootstrap_intervals(of_queries)[0]
                mean = float(of_queries.mean())
                text = f"{mean:.3f}"
                if name == LOST:
                    text = f"{number:.0f} of {of}"
                cells.append(Cell(text, interval=f"{low:.3f} to {high:.3f}"))
                records.append((first, second, name, mean, low, high))
            read = pipeline.texts_read[first, second]
            cells.append(Cell(f"{read:.2f}"))
            records.append((first, second, "texts read", read, read, read))
            shown.append(Row((f"{first:g}", f"{second:g}"), cells))
        stage = pipeline.stage
        return Table(
            name="stages",
            title=f"Two stages with a dial on {data.test.name}",
            labels=("first stage at", "reranker at"),
            groups=[Group("", columns)],
            sections=[Section("", shown)],
            notes=[
                f"First stage: {stage.name}, {stage.policy.name}, its first {stage.depth}",
                *notes,
                f"{MOVED}, {LOST}, {CHANGE}: one document is swapped at a time, of "
                f"{pipeline.swapped_documents} candidates with listed words (at the first position "
                "of the first stage) of queries that ask for no group. One that leaves the "
                f"candidates moves to place {stage.depth + 1}",
                "texts read: by the first stage for each document, and by the reranker for each "
                "candidate, added",
                *pipeline.promise(),
            ],
            columns=("first", "second", "measure", "mean", "low", "high"),
            records=records,
        )


class Pipeline:
    """A first stage with a dial, and a reranker behind it.

    Attributes:
        stage: the first stage.
        swapped_documents: candidates with another text in their swapped wording, of queries that
            ask for no group, at the first position of the first stage.
        texts_read: by the two positions.
    """

    def __init__(
        self,
        stage: Dense,
        unchanged: PointwiseReranker,
        settings: EvaluationSettings,
        collection: Collection,
    ) -> None:
        self.stage = stage
        self.swapped_documents = 0
        self.texts_read: dict[tuple[float, float], float] = {}
        self._unchanged = unchanged
        self._policy = settings.policy
        self._attribute = settings.attribute
        self._collection = collection
        self._place_numbers: dict[Place, int] = {}
        self._swapped_numbers: dict[Place, int] = {}
        self._reranker_scores: dict[float, np.ndarray] = {}
        self._spreads: dict[float, float] = {}
        self._stage_changes: dict[float, dict[Place, float]] = {}
        self._pairs: list[TextPair] = []

    def retrieved(self, alphas: Sequence[float]) -> dict[float, Run]:
        """The first k + 1 documents of each query at each position: one may leave the first k."""
        runs = self.stage.candidates_at(self._collection, alphas, self.stage.depth + 1)
        return {
            alpha: without_own(run, self._collection)
            for alpha, run in zip(alphas, runs, strict=True)
        }

    def score(
        self, retrieved: Mapping[float, Run], first: Sequence[float], second: Sequence[float]
    ) -> None:
        """Score all candidates, and those with listed words swapped, in one plan of the reranker.

        So texts that a policy makes equal have equal scores.
        """
        collection = self._collection
        places: dict[Place, None] = {}
        for run in retrieved.values():
            for query_id, scores in run.items():
                places.update(dict.fromkeys(Place(query_id, doc_id) for doc_id in scores))
        texts = collection.documents.get_many(dict.fromkeys(place.document for place in places))
        pairs = self._pairs
        for place in places:
            self._place_numbers[place] = len(pairs)
            pairs.append((collection.queries[place.query], texts[place.document]))
        self._score_swapped(list(places), pairs, retrieved[first[0]])
        policies = []
        for alpha in second:
            reranker = self._unchanged.with_policy(self._policy, alpha)
            policies.append(reranker.hook.views)
        scores_at = scores_of_texts(policies, self._unchanged.scorer, pairs)
        self._reranker_scores = dict(zip(second, scores_at, strict=True))
        for alpha, of_reranker in self._reranker_scores.items():
            self._spreads[alpha] = float(np.std(of_reranker[: len(places)])) or 1.0
        self._stage_changes = self._changes_of_stage(first)
        originals = pairs[: len(places)]
        of_stage = self._texts_per_document()
        for position in first:
            for alpha, views in zip(second, policies, strict=True):
                plan = ReadingPlan([views], len(originals), lambda: originals)
                read = float(plan.needed().any(axis=0).sum()) / len(originals)
                self.texts_read[position, alpha] = read + (1.0 if position == 1 else of_stage)

    def _changes_of_stage(self, alphas: Sequence[float]) -> dict[float, dict[Place, float]]:
        """What a swap changes about a candidate's score in the first stage, at each position."""
        places = list(self._swapped_numbers)
        compared = [self._pairs[self._place_numbers[place]] for place in places]
        compared += [self._pairs[self._swapped_numbers[place]] for place in places]
        scores_at = self.stage.scores_of_texts(compared, alphas)
        changes = {}
        for alpha, scores in zip(alphas, scores_at, strict=True):
            differences = scores[len(places) :] - scores[: len(places)]
            changes[alpha] = dict(zip(places, differences.tolist(), strict=True))
        return changes

    def _texts_per_document(self) -> float:
        """What the first stage encodes under its policy, at any alpha but 1."""
        policy = self.stage.policy
        if not isinstance(policy, MeanOfRenditions):
            return 1.0
        number = 0
        for _, text in self._collection.documents:
            number += len({text, *wordings_of(policy.wordings(text))})
        return number / len(self._collection.documents)

    def _score_swapped(self, places: Sequence[Place], pairs: list[TextPair], counted: Run) -> None:
        """Add the pairs of swapped documents behind the others."""
        swap = self._attribute.swap()
        asks = self._attribute.group_queries
        cut = self._unchanged.scorer.cut
        first_k = {query: set(ranking(run)[: self.stage.depth]) for query, run in counted.items()}
        for place in places:
            query, text = pairs[self._place_numbers[place]]
            if asks(query):
                continue
            text = cut(text)
            swapped = swap(text).text
            if swapped == text:
                continue
            self._swapped_numbers[place] = len(pairs)
            pairs.append((query, swapped))
            if place.document in first_k[place.query]:
                self.swapped_documents += 1

    def final(self, retrieved: Run, second: float) -> Run:
        """What the reranker makes of the first k."""
        scores = self._reranker_scores[second]
        final: Run = {}
        for query_id, run in retrieved.items():
            final[query_id] = {}
            for doc_id in ranking(run)[: self.stage.depth]:
                number = self._place_numbers[Place(query_id, doc_id)]
                final[query_id][doc_id] = float(scores[number])
        return sorted_run(final)

    def swapped_one_by_one(self, retrieved: Run, first: float, second: float) -> PerQuery:
        """Places that a document moves in the end when it alone is swapped, and whether it is lost.

        Sums over the swapped documents of each query, such that the mean over queries is the mean
        over documents; and how many of them leave the first k.
        """
        final = self.final(retrieved, second)
        moved: dict[str, float] = {}
        lost: dict[str, float] = {}
        change: dict[str, float] = {}
        number = 0
        for query_id, run in retrieved.items():
            swaps = []
            for doc_id in ranking(run)[: self.stage.depth]:
                place = Place(query_id, doc_id)
                if place in self._swapped_numbers:
                    swaps.append(self._one_swapped(place, run, final[query_id], first, second))
            if swaps:
                moved[query_id] = float(sum(swap.moved for swap in swaps))
                lost[query_id] = float(sum(swap.is_lost for swap in swaps))
                change[query_id] = float(sum(swap.change for swap in swaps))
                number += len(swaps)
        for sums in (moved, change):
            for query_id in sums:
                sums[query_id] *= len(sums) / number
        return PerQuery({MOVED: moved, LOST: lost, CHANGE: change})

    def _one_swapped(
        self,
        place: Place,
        run: Mapping[str, float],
        final: Mapping[str, float],
        first: float,
        second: float,
    ) -> SwapEffect:
        """What happens to a candidate whose words alone are swapped.

        Args:
            place: of the candidate.
            run: scores of its query in the first stage.
            final: those of the first k by the reranker.
            first, second: positions of the dial.
        """
        doc_id = place.document
        of_reranker = self._reranker_scores[second]
        spread = self._spreads[second]
        before, after = self._place_numbers[place], self._swapped_numbers[place]
        difference = float(of_reranker[after] - of_reranker[before])
        if abs(difference) <= _ROUNDING * spread:
            difference = 0.0
        place_before = _place(doc_id, final)
        # The change alone is added: a score in the index is another sum of the same numbers, and
        # differs in the last bits.
        swapped_run = {**run, doc_id: run[doc_id] + self._stage_changes[first][place]}
        is_lost = _place(doc_id, swapped_run) > self.stage.depth
        if is_lost:
            moved = self.stage.depth + 1 - place_before
        else:
            moved = abs(
                _place(doc_id, {**final, doc_id: final[doc_id] + difference}) - place_before
            )
        return SwapEffect(moved, is_lost, abs(difference) / spread)

    def promise(self) -> list[str]:
        """What is certain at alpha = 0 of both stages, and of how many candidates."""
        policy = self.stage.policy
        reranker = self._unchanged.with_policy(self._policy, 0.0)
        second = reranker.hook.policy
        if not isinstance(policy, MeanOfRenditions) or not isinstance(second, MeanOfRenditions):
            return ["Nothing is certain at 0 and 0: both stages need policy=renditions for that"]
        covered = 0
        for place, number in self._swapped_numbers.items():
            query, text = self._pairs[self._place_numbers[place]]
            _, swapped = self._pairs[number]
            text = self._unchanged.scorer.cut(text)
            is_kept = self.stage.same_score(query, text, swapped)
            covered += is_kept and second.wordings(text) == second.wordings(swapped)
        return [
            f"At 0 and 0 {covered} of {len(self._swapped_numbers)} candidates with listed words "
            "have the same renditions in both wordings: neither the candidates nor the final order "
            "can change when their words are swapped"
        ]


def _place(doc_id: str, scores: Mapping[str, float]) -> int:
    """The place of a document from 1, equal scores by ascending id."""
    score = scores[doc_id]
    better = 0
    for other, of_other in scores.items():
        if of_other > score or (of_other == score and other < doc_id):
            better += 1
    return better + 1
