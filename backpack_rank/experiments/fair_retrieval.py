"""Tables 1 and 2 and Figure 2 of Afzali et al.: measured here, beside the published figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backpack_rank.checks import located
from backpack_rank.constructors import PathText
from backpack_rank.evaluation.results import Report
from backpack_rank.experiments.grid import paths_in_words, show
from backpack_rank.models.finding import find_ranker
from backpack_rank.pipelines.evaluate import evaluation_loader
from backpack_rank.pipelines.evaluate_runs import read_runs
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.option_types import Alphas
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.fair_retrieval_tables import figure2, is_bias, measured_of, paper_table
from backpack_rank.reporting.measure_files import write_report
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.tradeoff import tradeoff_plot
from backpack_rank.reporting.writers import write_table
from backpack_rank.reranking.rerankers import FirstStageOrder, Reranker, SavedRun


@dataclass(frozen=True)
class FairRetrievalTable(Experiment):
    """``task`` of ``evaluate.py experiment=fair_retrieval/table2``.

    Attributes:
        published: name of the published table (``conf/published``), or path of a file like those.
            Without rows, it is Figure 2: effectiveness against bias for every alpha.
        alphas: positions of the dial.
        gpt2: folder of a trained GPT-2 ranker for the first row of Table 1, or None.
        runs: ``{row of the table: TREC run}`` of further systems, such as KNRM.
    """

    published: PathText
    alphas: Alphas = (1.0, 0.5)
    gpt2: PathText | None = None
    runs: Mapping[str, PathText] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with located("task.published"):
            # Made for its errors: a table that cannot be set is refused before anything is ranked.
            paper_table(published(self.published), {}, "")

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Rank, measure, and write the table as Markdown, CSV and LaTeX."""
        checkpoint = settings.find_ranker()
        dataset = settings.dataset(checkpoint)
        metrics = settings.metrics(dataset)
        work = evaluation_loader(settings, dataset, metrics)("test")
        rerankers: list[Reranker] = [FirstStageOrder(work.stage)]
        for name, path in self.runs.items():
            (saved,) = read_runs([path], work, settings.ties)
            rerankers.append(SavedRun(name, saved.run))
        if self.gpt2 is not None:
            rerankers.append(settings.reranker(find_ranker(self.gpt2, settings.output)))
        unchanged = settings.reranker(checkpoint)
        for alpha in self.alphas:
            rerankers.append(unchanged.with_policy(settings.policy, float(alpha)))
        report = metrics.evaluate(rerankers, work).report()
        settings.save(folder, checkpoint)
        write_report(folder, report)
        table = self._table(report, work)
        written = write_table(folder, table)
        if not published(self.published).rows:
            written += tradeoff_plot(folder / "figure2.png", report.rows)
        show([table], paths_in_words(written), quiet)

    def _table(self, report: Report, work: EvaluationData) -> Table:
        table = published(self.published)
        about = report.about
        measured = measured_of(report.rows)
        sign = about.sign_in_words
        if not table.rows:
            measured_on_both = f"{about.effectiveness_set}; {about.bias_set}"
            return figure2(measured, measured_on_both, sign)
        bias_measures = list(filter(is_bias, table.columns))
        measured_on = []
        if len(bias_measures) < len(table.columns):
            measured_on.append(f"{work.test.name} ({len(work.test.queries)} queries)")
        if bias_measures:
            measured_on.append(about.bias_set)
        # A system of ``runs`` has the name of its row, so the labels are the names.
        names = {name: name for name in self.runs}
        return paper_table(table, measured, "; ".join(measured_on), sign, names)
