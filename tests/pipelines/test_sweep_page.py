"""Which setting of a sweep the page shows: what dev queries say counts, where they were measured."""

from __future__ import annotations

from backpack_rank.evaluation.results import Estimate, RunInfo, Summary, SystemResult
from backpack_rank.pipelines.sweep_choice import Choice
from backpack_rank.reporting.sweep import Sweep, SweepEntry

PAIRED, LOWEST = "policy=paired_tokens", "policy=lowest_senses"


def row(alpha: float, quality: float, bias: float) -> SystemResult:
    blocks = (
        Summary({"nDCG@10": Estimate(quality, quality)}, 9),
        Summary({"ARaB(tf)@10": Estimate(bias, abs(bias))}, 9),
    )
    return SystemResult(f"alpha={alpha:g}", alpha, *blocks, {})


def choice(dev: dict[tuple[str, float | None], SystemResult]) -> Choice:
    rows = {
        PAIRED: [row(1, 0.7, 0.2), row(0.5, 0.7, 0.1), row(0, 0.7, 0.0)],
        LOWEST: [row(0, 0.7, 0.15)],
    }
    entries = tuple(
        SweepEntry(sweep_entry, setting, f"{setting}-{sweep_entry.alpha}")
        for setting in rows
        for sweep_entry in rows[setting]
    )
    controlled = tuple(entry for entry in entries if entry.row.alpha != 1)
    return Choice(Sweep(entries, (), RunInfo()), controlled, (), dev, bool(dev))


def test_without_dev_queries_those_of_the_sweep_decide():
    chosen = choice({})
    best = chosen.least(chosen.ranks)
    assert best is not None
    assert (best.setting, best.row.alpha) == (PAIRED, 0)


def test_dev_queries_decide_where_they_were_measured():
    base = {(PAIRED, 1.0): row(1, 0.6, 0.3)}
    lost = base | {
        (PAIRED, 0.5): row(0.5, 0.6, 0.1),
        (PAIRED, 0.0): row(0, 0.5, 0.0),
        (LOWEST, 0.0): row(0, 0.6, 0.2),
    }
    chosen = choice(lost)
    best = chosen.least(chosen.ranks)
    assert best is not None
    assert (best.setting, best.row.alpha) == (PAIRED, 0.5), (
        "alpha 0 loses a sixth of nDCG@10 on dev"
    )
    none = choice(base | {key: row(0, 0.5, 0.0) for key in lost if key[1] != 1})
    assert none.least(none.ranks) is None


def test_the_dev_figures_that_decided_are_a_table():
    assert choice({}).deciding_table() is None
    dev = {(PAIRED, 1.0): row(1, 0.6, 0.3), (PAIRED, 0.5): row(0.5, 0.597, -0.1)}
    table = choice(dev).deciding_table()
    assert table is not None
    assert table.headings == ["ARaB@10 TF", "nDCG@10"]
    shown = [[cell.text for cell in table_row.cells] for table_row in table.rows]
    assert shown == [["+0.3000", "0.6000"], ["-0.1000", "0.5970"]]
