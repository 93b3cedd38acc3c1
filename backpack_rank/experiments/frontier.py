"""``evaluate.py experiment=frontier``: all debiasing methods, effectiveness against bias."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from backpack_rank.constructors import Length, Name, PathText, Range, Seed
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.dataset import Dataset
from backpack_rank.evaluation.frontier import MARGIN, Curve, curves_of
from backpack_rank.evaluation.frontier_points import Point, PointFile
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.experiments.grid import paths_in_words, show
from backpack_rank.experiments.trained_rankers import trained_ranker
from backpack_rank.pipelines.evaluate import evaluation_loader
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.fitted_policy import fitted_policy
from backpack_rank.pipelines.metrics import MetricSuite, rank_all
from backpack_rank.pipelines.option_types import Alphas
from backpack_rank.pipelines.settings import EvaluationSettings, slugify
from backpack_rank.progress import Progress
from backpack_rank.reporting.frontier import frontier_chart, frontier_table, is_measured
from backpack_rank.reporting.vega import save_chart
from backpack_rank.reporting.writers import write_table
from backpack_rank.reranking.load import local_folder
from backpack_rank.reranking.planned_scores import scores_of_all_texts
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import Reranker
from backpack_rank.senses.policies import Policy

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Method:
    """Names a method that experiment=frontier compares.

    It is what trains a ranker, or what a policy does to one.

    Attributes:
        ranker: one of ``task.rankers``.
        policy: what alpha turns; None: the ranker as it is.
        alphas: positions of the dial besides 1; None: ``task.alphas``.
        kind: what it is; methods of one kind have one colour.
    """

    ranker: Name
    policy: Policy | None = None
    alphas: Alphas | None = None
    kind: Name = "training"


@dataclass(frozen=True)
class Frontier(Experiment):
    """``task`` of ``evaluate.py experiment=frontier``.

    Attributes:
        points: folder of the measured points, a file for each collection; what stands there is not
            measured again.
        rankers: names, and the options of ``train.py`` that they differ in; or a ranker that needs
            no training: a folder or a hub id.
        methods: what is compared; None leaves one out.
        folder: a ranker that was trained below ``NAME-seedN`` in it is taken, one that is not there
            is trained.
        train: options of ``train.py`` for all rankers.
        seeds: of the trainings; a method that was not measured with each of them is in no table.
        alphas: positions of the dial besides 1, of a method with a policy that names none.
        effectiveness: the measure of it.
        biases: measures of bias; the first one is drawn in the picture that comes first.
        margin: share of the effectiveness that a method may lose and still beat another one.
        measure: train and measure what is missing; false: table and pictures of what is there.
    """

    points: PathText
    folder: PathText
    rankers: Mapping[str, Sequence[str] | str]
    methods: Mapping[str, Method | None]
    train: Sequence[str] = ()
    seeds: Annotated[Sequence[Seed], Length(1)] = (0, 1, 2)
    alphas: Alphas = (0.5, 0.0)
    effectiveness: Name = "nDCG@10"
    biases: Annotated[Sequence[Name], Length(1)] = ("swap change/std (swapped)",)
    margin: Annotated[float, Range(least=0, below=1)] = MARGIN
    measure: bool = True

    finds_ranker: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.compared:
            raise ValueError("task.methods is empty: name at least one method")
        alphas: dict[str, Sequence[float]] = {"task.alphas": self.alphas}
        for name, method in self.compared.items():
            option = f"task.methods.{name}"
            if method.ranker not in self.rankers:
                raise ValueError(
                    f"{option}.ranker={method.ranker} is none of task.rankers: "
                    f"{', '.join(self.rankers)}"
                )
            if method.alphas is not None:
                if method.policy is None:
                    raise ValueError(f"{option}.alphas: nothing turns without {option}.policy")
                alphas[f"{option}.alphas"] = method.alphas
        for option, given in alphas.items():
            if 1 in given:
                raise ValueError(f"{option}: 1 is the ranker as it is, which is there without it")

    @property
    def compared(self) -> dict[str, Method]:
        """The methods that are not left out."""
        return {name: method for name, method in self.methods.items() if method is not None}

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Measure what is missing; write the table and the pictures of all collections."""
        if self.measure:
            dataset = settings.needed_dataset()
            points = PointFile(Path(self.points, f"{slugify(dataset.name)}.jsonl"))
            if missing := self._missing(points):
                self._measure(settings, dataset, points, missing)
        settings.save(folder)
        curves: dict[str, list[Curve]] = {}
        for path in sorted(Path(self.points).glob("*.jsonl")):
            of_collection = PointFile(path).by_place.values()
            measured = curves_of(of_collection, list(self.compared), self.seeds)
            if measured:
                curves[path.stem] = measured
        if not curves:
            raise ValueError(f"task.points={self.points} has no points of these methods and seeds")
        biases = [bias for bias in self.biases if is_measured(curves, bias)]
        table = frontier_table(curves, self.effectiveness, biases, self.margin)
        written = write_table(folder, table)
        kinds = {name: method.kind for name, method in self.compared.items()}
        for number, bias in enumerate(biases, start=1):
            chart = frontier_chart(curves, self.effectiveness, bias, kinds)
            written += save_chart(folder / f"frontier{number}", chart)
        show([table], paths_in_words(written), quiet)

    def _missing(self, points: PointFile) -> dict[tuple[int, str], list[tuple[str, float]]]:
        """Methods and alphas without a point, by seed and ranker: all of one ranker together."""
        missing: dict[tuple[int, str], list[tuple[str, float]]] = {}
        for seed in self.seeds:
            for name, method in self.compared.items():
                alphas = [1.0]
                if method.policy is not None:
                    alphas = [float(alpha) for alpha in method.alphas or self.alphas]
                for alpha in alphas:
                    if (name, alpha, seed) not in points.by_place:
                        missing.setdefault((seed, method.ranker), []).append((name, alpha))
        return missing

    def _measure(
        self,
        settings: EvaluationSettings,
        dataset: Dataset,
        points: PointFile,
        missing: Mapping[tuple[int, str], Sequence[tuple[str, float]]],
    ) -> None:
        metrics = settings.metrics(dataset)
        data = evaluation_loader(settings, dataset, metrics)("test")
        there = metrics.measure_names(data)
        absent = [name for name in (self.effectiveness, *self.biases) if name not in there]
        if self.effectiveness in absent or len(absent) == len(self.biases):
            raise ValueError(
                f"{', '.join(absent)}: not measured on {dataset.name}; these are: "
                f"{', '.join(there)}"
            )
        if absent:
            log.warning("left out, as not measured on %s: %s", dataset.name, ", ".join(absent))
        # A ranker that is not trained has the same values with every seed.
        of_checkpoint: dict[tuple[str, tuple[tuple[str, float], ...]], list[PerQuery]] = {}
        with Progress(total=len(missing), desc="frontier", unit="ranker") as bar:
            for (seed, ranker), places in missing.items():
                checkpoint = self._checkpoint(ranker, seed)
                key = str(checkpoint), tuple(places)
                if key not in of_checkpoint:
                    unchanged = settings.reranker(checkpoint)
                    of_checkpoint[key] = self._values(unchanged, dataset, places, metrics, data)
                values = of_checkpoint[key]
                measured = []
                for (name, alpha), of_place in zip(places, values, strict=True):
                    measured.append(Point(name, ranker, alpha, seed, of_place))
                # Only now: a ranker that was interrupted is measured once more.
                points.add(measured)
                bar.update()

    def _checkpoint(self, ranker: str, seed: int) -> Path:
        """Folder of a ranker: one to be trained is there after it, another one is downloaded."""
        option = f"task.rankers.{ranker}"
        given = self.rankers[ranker]
        if isinstance(given, str):
            return local_folder(given, option)
        folder = Path(self.folder, f"{ranker}-seed{seed}")
        return trained_ranker(folder, [*self.train, *given, f"seed={seed}"], option)

    def _values(
        self,
        unchanged: PointwiseReranker,
        dataset: Dataset,
        places: Sequence[tuple[str, float]],
        metrics: MetricSuite,
        data: EvaluationData,
    ) -> list[PerQuery]:
        """What is kept of each method at its alpha, all of them on one ranker."""
        policies: dict[str, Policy] = {}
        rerankers = []
        for name, alpha in places:
            policy = self.compared[name].policy
            if policy is None:
                rerankers.append(unchanged)
                continue
            if name not in policies:
                policies[name] = fitted_policy(policy, unchanged, dataset)
            rerankers.append(unchanged.with_policy(policies[name], alpha))
        together = ReadTogether(rerankers)
        systems = [rank_all(reranker, data) for reranker in together.members]
        kept = []
        for system in metrics.measure(systems, data).systems:
            values = {}
            for of_set in system.values.values():
                for measure in (self.effectiveness, *self.biases):
                    if measure in of_set.values:
                        values[measure] = of_set.values[measure]
            kept.append(PerQuery(values))
        return kept


class ReadTogether:
    """Ranks by one ranker under many policies: each text is read once for all of them.

    Attributes:
        members: a reranker for each policy; the first that ranks a run ranks it for all.
    """

    def __init__(self, rerankers: Sequence[PointwiseReranker]) -> None:
        self._rerankers = rerankers
        self._ranked: dict[tuple[int, int], tuple[Run, Collection, list[Run]]] = {}
        self.members = [_Member(self, number) for number in range(len(rerankers))]

    def runs(self, run: Run, collection: Collection) -> list[Run]:
        """The rankings of the candidates under every policy."""
        key = id(run), id(collection)
        if key not in self._ranked:
            pairs = Pairs.from_run(run, collection)
            policies = [reranker.hook.views for reranker in self._rerankers]
            scores = scores_of_all_texts(policies, self._rerankers[0].local_scorer, pairs)
            rankings = [pairs.to_run(of_policy) for of_policy in scores]
            # The run and the collection are kept with them: a later one at the same address would
            # be taken for one that is gone.
            self._ranked[key] = run, collection, rankings
        _, _, rankings = self._ranked[key]
        return rankings


class _Member(Reranker):
    compares_texts = True

    def __init__(self, together: ReadTogether, number: int) -> None:
        self._together = together
        self._number = number
        # Distinct, because measures are kept by name.
        self.name = str(number)

    def rerank(self, run: Run, collection: Collection) -> Run:
        return self._together.runs(run, collection)[self._number]
