"""Tables 1 and 2 and Figure 2 of the Backpack paper (004): measured here, beside the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.pipelines.common import find_ranker, resolved_config, save_config
from backpack_rank.pipelines.evaluate import data_of
from backpack_rank.pipelines.runs import run_systems
from backpack_rank.pipelines.turned import System, TurnedRanker
from backpack_rank.pipelines.workload import Workload, bias_set_in_words, load_workload
from backpack_rank.pipelines.yardstick import Yardstick
from backpack_rank.reporting.paper_formats import print_paper_table, write_paper_table
from backpack_rank.reporting.paper_tables import PaperTable, figure2, measured_of, table1, table2
from backpack_rank.reporting.plots import tradeoff_plot
from backpack_rank.reporting.rows import About, Report
from backpack_rank.reporting.tables import write_report

TABLES = ("table1", "table2", "figure2")


@dataclass(frozen=True)
class PaperFigures:
    """``task`` of ``evaluate.py experiment=fair_retrieval/table2``.

    Attributes:
        table: ``table1``, ``table2`` or ``figure2``.
        alphas: positions of the dial.
        gpt2: folder of a trained GPT-2 ranker for the first row of Table 1, or None.
        runs: ``{row of the table: TREC run}`` of further systems, such as KNRM.
    """

    table: str
    alphas: Sequence[float] = (1.0, 0.5)
    gpt2: str | None = None
    runs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.table not in TABLES:
            raise ValueError(f"task.table={self.table!r}: use one of {', '.join(TABLES)}")

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Rank, measure, and write the table as Markdown, CSV and LaTeX."""
        checkpoint = find_ranker(config.checkpoint, config.output)
        data = data_of(config, checkpoint)
        yardstick = Yardstick.of(config, data)
        work = load_workload(config, data, yardstick.fairness.lexicon)
        turned = TurnedRanker(config, checkpoint)
        systems = [System(work.stage, None, work.candidates, work.bias_candidates)]
        systems += [replace(run_systems(path, work)[0], label=name) for name, path in self.runs.items()]
        if self.gpt2 is not None:
            systems += TurnedRanker(config, find_ranker(self.gpt2, config.output)).systems(work, [1.0])
        systems += turned.systems(work, [float(alpha) for alpha in self.alphas])
        rows = tuple(result.row() for result in yardstick.measure(systems, work))
        about = About(work.test.name, bias_set_in_words(config, work.bias))
        report = Report(rows, yardstick.fairness.describe(about, work.stage))
        save_config(folder, resolved_config(config, data))
        write_report(folder, report)
        table = self._table(report, work)
        written = write_paper_table(folder, table)
        if self.table == "figure2":
            written += tradeoff_plot(folder / "figure2.png", rows)
        if not quiet:
            print_paper_table(table)
            print("Written: " + ", ".join(str(path) for path in written))

    def _table(self, report: Report, work: Workload) -> PaperTable:
        measured, about = measured_of(report.rows), report.about
        names = {name: name for name in self.runs}
        if self.table == "table1":
            return table1(measured, f"{work.test.name} ({len(work.test.queries)} queries)", names)
        if self.table == "table2":
            return table2(measured, about.bias_set, about.sign_in_words, names)
        return figure2(measured, f"{about.effectiveness_set}; {about.bias_set}", about.sign_in_words)
