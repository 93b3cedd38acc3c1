"""Tables 2 to 5 of Hofstätter et al. 2021: its printed figures, its layout, and ours below them."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest
from shown import cells

from backpack_rank.evaluation.results import Estimate
from backpack_rank.position.tables.checkpoints import TrainingStage
from backpack_rank.position.tables.rotation import (
    effect_figures,
    effect_table,
    relative_change,
    transfer_table,
    with_changes,
)
from backpack_rank.position.tables.rotation_alpha import figures_at_alpha
from backpack_rank.position.tables.rotation_similarity import similarity_table
from backpack_rank.reporting.paper_layout import Figure, PaperRow, lay_out
from backpack_rank.reporting.published import Printed, published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import csv_text

# The relative differences as printed, line by line: nDCG, MRR, Recall.
PRINTED3 = """
-9.4 -10.7 -6.1 | -0.2 -0.6 0.0 | -13.4 -14.5 -11.4 | +0.6 +0.7 -0.2 | -20.8 -22.8 -17.1 | -0.3 -0.7 +0.2
"""
SQUAD = TrainingStage("squad")
CHAINS = [(SQUAD,), (TrainingStage("nq"), SQUAD), (TrainingStage("nq", "word"), SQUAD)]
PRINTED4 = "-0.7 -0.9 -0.1 | -0.6 -1.0 -0.3 | +0.4 +0.5 -0.5 | -0.1 -0.1 0.0 | -0.7 -0.9 -0.3 | -0.5 -0.5 -0.1"


@pytest.mark.parametrize(
    ("table", "printed"), [("rotation_table3", PRINTED3), ("rotation_table4", PRINTED4)]
)
def test_differences_are_those_that_the_paper_prints(table: str, printed: str) -> None:
    lines = [[float(figure) for figure in line.split()] for line in printed.split("|")]
    for row, line in zip(with_changes(published(table)).rows.values(), lines, strict=True):
        changes = [printed for column, printed in row.items() if column.endswith("change")]
        for tested, figure in zip(changes, line, strict=True):
            # Of figures with three decimals.
            assert 100 * tested.value == pytest.approx(figure, abs=0.11)


def test_a_table_without_both_test_sets_is_refused() -> None:
    values = with_changes(published("rotation_table3")).values("BERT_DOT", "Debiased")
    assert (values["MRR@10 original"], values["MRR@10 rotated"]) == (0.305, 0.307)
    message = "published table rotation_table5 must have the columns nDCG@10 original, nDCG"
    with pytest.raises(ValueError, match=message):
        with_changes(published("rotation_table5"))


def figures(*means: float) -> dict[str, Estimate]:
    estimates = [Estimate(mean, mean, mean - 0.01, mean + 0.01) for mean in means]
    return dict(zip(("nDCG@10", "MRR@10", "R@10"), estimates, strict=True))


@pytest.fixture
def effect() -> Table:
    equal = dict.fromkeys(("nDCG@10", "MRR@10", "R@10"), 1.0)
    p_values = {"nDCG@10": 0.01, "MRR@10": 1.0, "R@10": 0.2}
    tk = effect_figures(figures(0.5, 0.4, 0.9), figures(0.4, 0.4, 0.88), p_values)
    debiased = effect_figures(figures(0.45, 0.38, 0.9), figures(0.46, 0.4, 0.9), equal)
    knrm = effect_figures(figures(0.3, 0.2, 0.0), figures(0.3, 0.2, 0.0), equal)
    measured = {
        ("TK", "Original"): PaperRow(("TK", "Original"), tk, record={"rankers": 2}),
        ("TK", "Debiased"): PaperRow(("TK", "Debiased"), debiased),
        ("knrm", "Original"): PaperRow(("knrm", "Original"), knrm),
    }
    paper, bm25 = published("rotation_table4"), ("BM25", figures(0.6, 0.5, 0.8))
    return effect_table(paper, measured, "squad/test", bm25, ["A note."])


def test_table_4_has_the_papers_rows_and_ours_below(effect: Table) -> None:
    assert [name for name, _ in effect.sections] == ["BERT_CAT", "BERT_DOT", "TK", "knrm", "BM25"]
    assert cells(effect, "TK", "Original", "paper") == (
        ["0.846", "0.840", "-0.7%", "0.818", "0.811", "-0.9%", "0.933", "0.930", "-0.3%"]
    )
    # 0.4 - 0.5 over 0.4; the smaller of the two trainings is bold, the significant one is marked
    assert cells(effect, "TK", "Original", "here") == (
        ["0.5000", "0.4000", "-25.0%†", "0.4000", "0.4000", "*0.0%", "0.9000", "0.8800", "-2.3%"]
    )
    assert cells(effect, "TK", "Debiased", "here")[2::3] == ["*+2.2%", "+5.0%", "*0.0%"]
    assert cells(effect, "TK", "Debiased", "paper")[2::3] == ["*-0.5%", "*-0.5%", "*-0.1%"]
    assert cells(effect, "BERT_CAT", "Debiased", "here") == ["-"] * 9
    assert cells(effect, "knrm", "Original", "here") == (
        ["0.3000", "0.3000", "0.0%", "0.2000", "0.2000", "0.0%", "0.0000", "0.0000", "-"]
    )
    assert cells(effect, "BM25", "", "here")[::3] == ["0.6000", "0.5000", "0.8000"]
    assert effect.notes[-1] == "A note."


def test_changes_are_relative_also_of_figures_times_100(effect: Table) -> None:
    paper = published("rotation_table4")
    rows = {}
    for labels, printed in paper.rows.items():
        rows[labels] = {name: Printed(f"{100 * each.value:.1f}") for name, each in printed.items()}
    table = effect_table(replace(paper, rows=rows, scale=100), {}, "squad/test")
    in_hundredths = cells(table, "TK", "Original", "paper")
    assert in_hundredths[:3] == ["84.6", "84.0", "-0.7%"]
    assert in_hundredths[2::3] == cells(effect, "TK", "Original", "paper")[2::3]


def test_lines_have_all_digits_and_say_how_many_rankers(effect: Table) -> None:
    lines = list(csv.DictReader(io.StringIO(csv_text(effect.columns, effect.records))))
    ours = [line for line in lines if line["source"] == "here" and line["model"] == "TK"]
    assert len(ours) == 2 * 3 * 3
    first = next(line for line in ours if (line["test"], line["measure"]) == ("rotated", "R@10"))
    assert (first["value"], first["low"], first["rankers"]) == ("0.88", "0.87", "2")
    change = next(line for line in ours if (line["test"], line["measure"]) == ("change", "nDCG@10"))
    assert float(change["value"]) == pytest.approx(-0.25)
    assert change["p_wilcoxon"] == "0.01"
    paper = [line for line in lines if line["source"] == "paper"]
    assert len(paper) == 6 * 9


def test_table_5_marks_what_is_better() -> None:
    paper = published("rotation_table5")
    measured = {}
    for model, letter, means, better in (
        ("TK", "a", (0.5, 0.4, 0.9), ""),
        ("TK", "c", (0.52, 0.39, 0.9), "a"),
        ("knrm", "a", (0.5, 0.4, 0.9), ""),
    ):
        row = {}
        for measure, figure in figures(*means).items():
            row["", measure] = Figure(figure, marks=better if measure == "nDCG@10" else "")
        measured[model, letter] = PaperRow((model, letter), row)
    table = transfer_table(paper, measured, CHAINS, "squad/test")
    of_paper = cells(table, "TK", "MS(Debiased) -> SQuAD(Original)", "c", "paper")
    assert of_paper == ["*0.857ab", "*0.832ab", "*0.937"]
    of_here = cells(table, "TK", "nq(Debiased) -> squad(Original)", "c", "here")
    assert of_here == ["*0.5200a", "0.3900", "*0.9000"]
    assert cells(table, "TK", "nq(Original) -> squad(Original)", "b", "here") == ["-"] * 3
    assert cells(table, "knrm", "squad(Original)", "a", "here") == ["0.5000", "0.4000", "0.9000"]
    of_bert = cells(table, "BERT_CAT", "MS(Original) -> SQuAD(Original)", "b", "paper")
    assert of_bert == ["*0.913", "*0.898", "0.957"]
    of_tk = ("table5", "TK", "nq(Debiased) -> squad(Original)", "here")
    letters = [line[10] for line in table.records if line[:4] == of_tk]
    assert letters == ["a", "", ""]


def test_table_2_has_a_column_for_every_collection() -> None:
    measured = {
        ("TK", "SQuAD", "Original"): (0.06, 0.01),
        ("TK", "nq", "Debiased"): (0.0123, 0.004),
    }
    table = similarity_table(published("rotation_table2"), measured)
    assert [name for name, _ in table.groups] == ["MS MARCO", "SQuAD", "nq"]
    assert cells(table, "TK", "Original", "paper") == ["0.176", "0.046", "0.056", "0.014", "-", "-"]
    assert cells(table, "TK", "Original", "here") == ["-", "-", "0.060", "0.010", "-", "-"]
    assert cells(table, "TK", "Debiased", "here") == ["-", "-", "-", "-", "0.012", "0.004"]


def test_both_biases_stand_in_one_row() -> None:
    bias = {"RaB(tf)@10": Estimate(-0.02, 0.1), "swap change/std": Estimate(0.3, 0.3)}
    both = {"original": figures(0.5, 0.4, 0.9) | bias, "rotated": figures(0.45, 0.4, 0.9)}
    thirds = {"original": {"first": (Estimate(0.42, 0.42), 5), "last": (Estimate(0.31, 0.31), 4)}}
    figures_of_row, record = figures_at_alpha(both, thirds), {"alpha": 0.5, "rankers": 1}
    row = PaperRow(("Original", "0.5"), figures_of_row, section="backpack", record=record)
    facts = {"collection": "c", "bias_set": "b", "sign": "male minus female"}
    table = lay_out("rotation_alpha", [row], facts=facts)
    assert cells(table, "backpack", "Original", "0.5") == (
        ["0.5000", "0.4500", "-11.1%", "0.4200", "0.3100", "-0.0200", "-", "-", "-", "0.3000", "-"]
    )
    of_last_third = (0.5, "original", "MRR@10 last third", 0.31, None, None, 4, 1)
    assert ("backpack", "Original", *of_last_third) in table.records


def test_there_is_no_change_of_a_figure_that_is_0() -> None:
    assert math.isnan(relative_change(0.1, 0.0))
