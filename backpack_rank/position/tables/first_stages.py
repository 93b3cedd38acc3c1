"""``evaluate.py experiment=lists/first_stages``: a listwise ranker behind several first stages."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.checks import located
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.trec import write_run
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.results import Estimate
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.experiments.grid import show
from backpack_rank.pipelines.chosen_data import dataset_with
from backpack_rank.pipelines.option_types import Rows
from backpack_rank.pipelines.settings import EvaluationSettings, slugify
from backpack_rank.position.aggregation.aggregate import ReciprocalRankFusion
from backpack_rank.position.lists.evaluate import ListTask, needed_listwise
from backpack_rank.position.lists.first_stages import first_stage_study
from backpack_rank.position.lists.page import ListPage, write_list_page
from backpack_rank.position.lists.reranker import usage_in_words
from backpack_rank.position.lists.settings import RankerFactory
from backpack_rank.reporting.charts import DotRow, dots
from backpack_rank.reporting.paper_layout import ColumnKey, Figure, PaperRow, lay_out
from backpack_rank.reporting.vega import save_chart
from backpack_rank.reporting.writers import write_table


@dataclass(frozen=True)
class FirstStages(ListTask):
    """Shows whether a listwise ranker depends on its first stage (DebiasFirst, Table 2).

    It is the ``task`` of ``conf/experiment/lists/first_stages.yaml``.

    Attributes:
        collections: by name, nodes of ``conf/data``.
        stages: by name, what each first stage changes about a collection, such as its candidates.
        fused: whether the reciprocal rank fusion of all stages is a further first stage.
    """

    collections: Rows
    stages: Rows
    fused: bool = True
    measure: ClassVar[str] = "nDCG@10"

    def check(self, settings: EvaluationSettings) -> None:
        """Raise ``ValueError`` for a wrong option of a first stage or of a collection."""
        for heading, node in self.collections.items():
            with located(f"task.collections.{heading}"):
                dataset_with(node, {})
            for name, changes in self.stages.items():
                with located(settings.saved.place_of("task.stages", name)):
                    dataset_with(node, changes)

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Rank everything, write it, and print the table.

        Written are the table, a picture, ``report.html`` and all rankings.

        Raises:
            ValueError: no listwise ranker, or no first stage.
        """
        listwise = needed_listwise(settings, "first stages are reranked by a listwise ranker")
        if not self.stages or not self.collections:
            raise ValueError(
                "task.stages and task.collections must name at least one first stage and one "
                "collection"
            )
        self.check(settings)
        settings.save(folder)
        ranker = RankerFactory().build(listwise)
        start = time.perf_counter()
        rows: list[PaperRow] = []
        dots_by_collection: dict[str, list[DotRow]] = {}
        for name, node in self.collections.items():
            test, runs = self._runs(node)
            fusions = []
            if self.fused and len(runs) > 1:
                fusions.append(ReciprocalRankFusion())
            depth = listwise.depth
            if depth is None:  # all candidates
                depth = 0
                for run in runs.values():
                    depth = max(depth, *map(len, run.values()))
            studied = first_stage_study(
                ranker, test, runs, depth=depth, fusions=fusions, measures=[self.measure]
            )
            for stage in studied:
                label = stage.name if stage.name in runs else "RRF"
                before = stage.before.summary().figures[self.measure]
                after = stage.after.summary().figures[self.measure]
                p = p_wilcoxon(stage.after, stage.before, self.measure)
                row = PaperRow(
                    (label,),
                    stage_figures(before, after, p),
                    section=name,
                    record={"queries": stage.queries, "measure": self.measure},
                )
                rows.append(row)
                dot = DotRow(label, {"before": before, "after": after})
                dots_by_collection.setdefault(name, []).append(dot)
                tag = f"{slugify(label)}__{slugify(name)}"
                write_run(folder / "runs" / f"{tag}.run", stage.run, tag)
        seconds = time.perf_counter() - start
        note = f"{ranker.name}: {usage_in_words(ranker.usage)}, {seconds:.1f} s."
        facts = {"measure": self.measure, "ranker": ranker.name}
        table = lay_out("first_stages", rows, facts=facts, notes=[note])
        write_table(folder, table)
        chart = dots(dots_by_collection, self.measure)
        _, picture = save_chart(folder / "first_stages", chart)
        page = ListPage(
            title="First stages",
            tables=(table,),
            pictures={"Before and after": picture},
            configuration=settings.text,
        )
        write_list_page(folder / "report.html", page)
        show([table], f"Report: {folder / 'report.html'}", quiet)

    def _runs(self, node: Any) -> tuple[Collection, dict[str, Run]]:
        """The collection, and the candidates of each first stage."""
        runs: dict[str, Run] = {}
        for name, changes in self.stages.items():
            _, dataset = dataset_with(node, changes)
            test = dataset.split("test")
            _, runs[name] = dataset.candidates("test", test)
        return test, runs


def stage_figures(
    before: Estimate, after: Estimate, p: float
) -> dict[ColumnKey, Figure | Estimate | float]:
    """A first stage before and after the ranker; a dagger where they differ over the queries."""
    mark = "†" if p < SIGNIFICANCE else ""
    return {
        ("", "before"): before,
        ("", "after"): Figure(after, marks=mark, record={"p_wilcoxon": p}),
        ("", "change"): after.mean - before.mean,
    }
