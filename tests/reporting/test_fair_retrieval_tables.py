"""Tables 1 and 2 and Figure 2 of Afzali et al.: its order of rows and columns, and ours beside its
figures.
"""

from __future__ import annotations

import csv
import io
import math

import pytest
from shown import cells

from backpack_rank.evaluation.results import Estimate, Summary, SystemResult
from backpack_rank.reporting.fair_retrieval_tables import figure2, measured_of, paper_table
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import csv_text

SIGN = (
    "male minus female: positive values lean towards male words, negative ones towards female words"
)
BIAS = [
    f"{name}({kind})@{cutoff}"
    for cutoff in (10, 20, 30, 40)
    for kind in ("tf", "bool")
    for name in ("RaB", "ARaB")
]
MODELS = ["BM25", "PACRR", "MP", "KNRM", "ConvKNRM", "Ours (alpha = 1)", "Ours (alpha = 0.5)"]


def bias(shift: float = 0.0) -> dict[str, Estimate]:
    """A figure of its own for every measure."""
    return {
        name: Estimate(shift + index / 100, 0.5, shift - 0.01, shift + 0.5)
        for index, name in enumerate(BIAS)
    }


def measured() -> dict[str, dict[str, Estimate | float]]:
    return {
        "alpha=0": {"nDCG@10": 0.31, **bias(-0.9)},
        "BM25": {"MRR@10": 0.21, "nDCG@10": 0.25, **bias(0.5)},
        "alpha=1": {
            "MRR@10": 0.3141592,
            "nDCG@5": 0.4,
            "nDCG@10": Estimate(0.35, 0.35, 0.33, 0.37),
            **bias(0.1),
        },
        "GPT2ForRanking": {"nDCG@10": 0.29},
    }


def table1(measured, on: str, names=None) -> Table:
    return paper_table(published("fair_retrieval_table1"), measured, on, names=names)


def table2(measured, on: str, names=None) -> Table:
    return paper_table(published("fair_retrieval_table2"), measured, on, SIGN, names)


def labels(table: Table, section: int = 0) -> list[str]:
    return [row.labels[0] for row in table.sections[section].rows]


def lines(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(table.columns, table.records))))


def test_table1_has_our_figures_beside_the_papers_in_its_rows_and_others_below():
    table = table1(measured(), "msmarco_dev600 (600 queries)")
    assert labels(table) == [
        *(row[0] for row in published("fair_retrieval_table1").rows),
        "alpha=0",
        "BM25",
    ]
    assert cells(table, "", "Backpack (alpha = 1.0)") == [
        "0.3343",
        "0.3142",
        "0.3640",
        "0.4000",
        "0.4025",
        "0.3500",
    ]
    assert cells(table, "", "GPT-2") == ["0.3156", "-", "0.3448", "-", "0.3843", "0.2900"]
    assert cells(table, "", "BM25") == ["-", "0.2100", "-", "-", "-", "0.2500"]
    assert table.groups[0] == ("MRR@10", ("(paper)", "(here)"))
    assert table.labels == ("Backbone",)


def test_table2_has_a_block_per_cutoff_with_every_model_of_the_paper():
    table = table2(measured(), "dl19")
    assert [heading for heading, _ in table.sections] == [
        f"Cut-off: {cutoff}" for cutoff in (10, 20, 30, 40)
    ]
    for number in range(4):
        assert labels(table, number) == [*MODELS, "alpha=0"]
    assert cells(table, "Cut-off: 30", "KNRM")[4] == "0.055"
    assert cells(table, "Cut-off: 10", "BM25")[:4] == ["0.062", "0.5000", "0.063", "0.5100"]
    assert cells(table, "Cut-off: 20", "BM25")[3] == f"{0.5 + BIAS.index('ARaB(tf)@20') / 100:.4f}"
    assert [name for name, _ in table.groups] == [
        "TF RaB",
        "TF ARaB",
        "Boolean RaB",
        "Boolean ARaB",
    ]


def test_bias_is_shown_as_absolute_values_and_a_mean_below_zero_is_marked():
    figures = {"RaB(tf)@10": Estimate(-0.02, 0.3, -0.05, 0.01), "ARaB(tf)@10": Estimate(0.03, 0.3)}
    table = table2({"BM25": figures}, "x")
    assert cells(table, "Cut-off: 10", "BM25")[1:4:2] == ["0.0200*", "0.0300"]
    (row,) = [row for row in table.sections[0].rows if row.labels == ("BM25",)]
    assert [cell.interval for cell in row.cells[1:4:2]] == ["[0.0000, 0.0500]", ""]
    assert any("* The mean is below 0" in note for note in table.notes)
    assert not any(
        "mean is below 0" in note for note in table2({"BM25": {"RaB(tf)@10": 0.1}}, "x").notes
    )
    assert cells(table1({"BM25": {"nDCG@10": -0.1}}, "x"), "", "BM25")[-1] == "-0.1000"


def test_the_notes_say_what_was_measured_where_and_the_sign():
    text = " ".join(table2(measured(), "dl19 (30 queries)").notes)
    assert "MS MARCO, the 1,765 gender-neutral queries" in text
    assert (
        "Measured figures: dl19 (30 queries). They are comparable with the published ones only "
        "where" in text
    )
    assert "absolute values of means over queries" in text
    assert SIGN in text
    first = " ".join(table1(measured(), "msmarco_dev600").notes)
    assert "Table 1" in first
    assert "BM25 top 100" in first
    assert "absolute" not in first


def test_csv_has_all_digits_with_and_without_signs():
    records = lines(table2(measured(), "dl19"))
    assert len(records) == 4 * 8 * 4
    chosen = next(
        line for line in records if (line["system"], line["measure"]) == ("alpha=0", "RaB(tf)@20")
    )
    mean = -0.9 + BIAS.index("RaB(tf)@20") / 100
    assert (float(chosen["mean"]), float(chosen["measured"])) == (mean, -mean)
    assert (float(chosen["low"]), float(chosen["high"])) == (-0.91, -0.4)
    assert (chosen["table"], chosen["cutoff"], chosen["published"]) == ("table2", "20", "")
    only = next(line for line in records if line["row"] == "PACRR")
    assert (only["published"], only["measured"], only["mean"], only["system"]) == (
        "0.08",
        "",
        "",
        "",
    )


def test_figure2_goes_from_the_largest_alpha_to_the_smallest_after_the_references():
    systems = {
        f"alpha={alpha}": {"nDCG@10": alpha, "RaB(tf)@10": -alpha} for alpha in (0.5, 1, 0, 0.7)
    }
    table = figure2({**systems, "BM25": {"nDCG@10": 0.2}}, "dl19", SIGN)
    assert labels(table) == ["BM25", "alpha = 1", "alpha = 0.7", "alpha = 0.5", "alpha = 0"]
    assert cells(table, "", "alpha = 0.7") == ["0.7000", "0.7000*", "-", "-", "-"]
    text = " ".join(table.notes)
    assert "without printing its values, so only our own figures are shown" in text
    assert "comparable" not in text


def test_figure2_takes_another_cutoff_and_alphas_by_name():
    systems = {
        "soft": {"nDCG@10": 0.3, "RaB(bool)@20": 0.4},
        "none": {"nDCG@10": 0.35, "RaB(bool)@20": 0.5},
    }
    table = figure2(systems, "dl19", SIGN, cutoff=20, alphas={"soft": 0.25, "none": 1.0})
    assert labels(table) == ["alpha = 1", "alpha = 0.25"]
    assert cells(table, "", "alpha = 0.25")[3] == "0.4000"
    with pytest.raises(ValueError, match="none of the systems"):
        figure2(systems, "dl19", SIGN)
    with pytest.raises(ValueError, match=r"other.*measured are"):
        figure2(systems, "dl19", SIGN, alphas={"other": 1.0})


def test_systems_may_be_named_and_wrong_names_are_said():
    table = table1(measured(), "x", {"Backpack (alpha = 0.7)": "alpha=0"})
    assert cells(table, "", "Backpack (alpha = 0.7)")[-1] == "0.3100"
    assert labels(table)[-1] == "BM25"
    with pytest.raises(
        ValueError, match=r"names has \['Backpack'\], but the rows of the paper are \['GPT-2'"
    ):
        table1(measured(), "x", {"Backpack": "alpha=0"})
    with pytest.raises(ValueError, match=r"systems \['alpha=3'\], but measured are"):
        table1(measured(), "x", {"GPT-2": "alpha=3"})
    with pytest.raises(
        ValueError, match="capcal_table1: rows must be labelled 'system' or 'cut-off"
    ):
        paper_table(published("capcal_table1"), {}, "x")


def test_the_papers_own_row_labels_are_recognised():
    table = table2({"MP": {"RaB(tf)@10": 0.2}, "Ours (alpha = 0.5)": {"RaB(tf)@10": 0.3}}, "x")
    assert cells(table, "Cut-off: 10", "MP")[1] == "0.2000"
    assert cells(table, "Cut-off: 10", "Ours (alpha = 0.5)")[1] == "0.3000"


def test_without_a_measured_system_or_a_finite_figure_there_is_a_dash():
    for model in MODELS:
        assert set(cells(table2({}, "nothing yet"), "Cut-off: 20", model)[1::2]) == {"-"}
    table = table1({"BM25": {"nDCG@10": Estimate(math.nan, math.nan, math.nan, math.nan)}}, "x")
    assert cells(table, "", "BM25") == ["-"] * 6
    assert lines(table)[-1]["mean"] == ""


def test_a_table_of_ones_own_needs_no_more_than_figures(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "paper: P\ntable: Table 7\ncolumns: [nDCG@10, RaB(tf)@5]\nrows: |\n  BM25 | .3 .02\n",
        "utf-8",
    )
    table = paper_table(
        published(str(path)), {"BM25": {"nDCG@10": 0.25, "RaB(tf)@5": -0.01}}, "x", SIGN
    )
    assert (table.name, table.title, table.labels) == ("mine", "P, Table 7", ("System",))
    assert cells(table, "", "BM25") == ["0.3", "0.2500", "0.02", "0.0100*"]


def test_figures_of_a_report_are_taken_by_label():
    row = SystemResult(
        "BM25",
        None,
        Summary({"nDCG@10": Estimate(0.1, 0.1)}, 3),
        Summary({"RaB(tf)@10": Estimate(0.2, 0.3)}, 3),
    )
    assert measured_of([row, SystemResult("empty")]) == {
        "BM25": {"nDCG@10": Estimate(0.1, 0.1), "RaB(tf)@10": Estimate(0.2, 0.3)},
        "empty": {},
    }
