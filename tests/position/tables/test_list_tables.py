"""Tables about lists: remedies, input orders, evenness, first stages, sorting, and those of the
papers by name.
"""

from __future__ import annotations

import pytest
from position_reports import position_report
from shown import printed

from backpack_rank.evaluation.results import Estimate
from backpack_rank.position.lists.position_curves import PositionReport
from backpack_rank.position.tables.first_stages import stage_figures
from backpack_rank.position.tables.list_bias import evenness_table, order_row, remedies_table
from backpack_rank.position.tables.reranking_grid import grid_table
from backpack_rank.position.tables.sorting import sorting_table
from backpack_rank.reporting.paper_layout import Figure, PaperRow, lay_out
from backpack_rank.reporting.published import published

LISTED = [
    *(f"psc_table{number}" for number in (4, 7, 9)),
    *(f"capcal_table{number}" for number in range(1, 7)),
    *(f"debias_first_table{number}" for number in (1, 2, 3)),
]


def texts(cells) -> list[str]:
    """What a row of cells reads."""
    return [cell.text for cell in cells]


def report(seconds: float | None = 3.0) -> PositionReport:
    return position_report(
        ("plain", (0.9, 0.7, 0.5)), ("remedy", (0.8, 0.8, 0.75)), seconds=seconds
    )


def test_remedies_have_mean_range_change_and_cost_per_list():
    table = remedies_table(report())
    plain, remedy = table.rows
    assert (plain.labels, remedy.labels) == (("plain",), ("remedy",))
    assert texts(plain.cells) == ["0.7000", "0.4000", "-", "0.02667", "1.00", "50.0"]
    assert texts(remedy.cells) == ["0.7833", "0.0500", "-0.3500", "0.00056", "2.00", "50.0"]
    assert [cell.bold for cell in remedy.cells] == [True, True, False, False, False, False]
    assert table.records[0][:2] == ("plain", "nDCG@10")
    assert table.records[0][5] == 3  # the worst position
    text = " ".join(printed(table).split())
    assert "20 lists, the relevant passage of each at every one of 3 positions" in text
    assert "A note." in text
    by_mrr = remedies_table(report(), "MRR")
    assert by_mrr.records[0][5] == 1


def test_costs_that_nobody_measured_are_a_dash():
    table = remedies_table(report(seconds=None))
    assert table.rows[0].cells[-1].text == "-"


def test_input_orders_and_taus_stand_side_by_side():
    figures = {"original": Estimate(0.5, 0.5, 0.4, 0.6), "reversed": Estimate(0.25, 0.25)}
    taus = {("original", "reversed"): 0.125}
    dl19 = {"collection": "dl19"}
    table = lay_out("input_orders", [order_row("plain", figures, taus)], facts=dl19)
    (row,) = table.rows
    assert row.labels == ("plain",)
    assert texts(row.cells) == ["0.5000", "0.2500", "0.125"]
    assert list(table.groups) == [("nDCG@10", ("original", "reversed")), ("tau of", ("o-r",))]
    assert ("plain", "original", None, "nDCG@10", 0.5, 0.4, 0.6) in table.records
    assert ("plain", "original", "reversed", "kendall tau", 0.125, None, None) in table.records
    without = order_row("plain", {}, {("original", "shuffled 12"): 1.0})
    table = lay_out("input_orders", [without], facts=dl19)
    assert list(table.groups) == [("tau of", ("o-s12",))]


def test_evenness_has_a_column_of_wrong_pairs_only_where_the_right_order_is_known():
    plain = {("", "rankings"): 1000, ("transitions", "TV"): 0.25, ("transitions", "chance"): 0.0125}
    plain |= {("pairs", "reversed"): 0.4, ("pairs", "range"): 0.3}
    table = evenness_table([PaperRow(("plain",), plain)], "dl19")
    assert texts(table.rows[0].cells) == ["1,000", "0.250", "0.013", "0.400", "0.300"]
    assert "wrong" not in printed(table)
    with_right_order = PaperRow(("sorted",), plain | {("pairs", "wrong"): 0.1})
    table = evenness_table([PaperRow(("plain",), plain), with_right_order], "math")
    assert [row.cells[-1].text for row in table.rows] == ["-", "0.100"]
    assert table.records[0][-1] is None
    assert "share in the wrong order" in printed(table)


def test_sorting_stands_above_the_published_table():
    orig = Figure(0.5, record={"exact": 0.125})
    figures = {("MathSort", "Orig."): orig, ("MathSort", "PSC"): Figure(0.625)}
    table = sorting_table("psc_table3", {"tiny": figures})
    measured, paper = table.sections
    assert (measured.heading, paper.heading) == ("Measured here", "Published")
    assert texts(measured.rows[0].cells) == ["50.0", "62.5", "-", "-", "-", "-"]
    assert paper.rows[0].labels == ("Mistral-7B",)
    assert texts(paper.rows[0].cells) == ["34.7", "52.9", "55.3", "74.2", "46.7", "65.3"]
    assert ("here", "tiny", "MathSort", "Orig.", 0.5, 0.125) in table.records
    assert [heading for heading, _ in sorting_table("psc_table3", {}).sections] == ["Published"]
    message = "capcal_table1: rows of a table of sorting tasks must have one label"
    with pytest.raises(ValueError, match=message):
        sorting_table("capcal_table1", {})


def test_a_way_of_sorting_that_the_paper_lacks_has_a_column_without_published_figures():
    borda = {("MathSort", "Borda"): Figure(0.25)}
    table = sorting_table("psc_table3", {"tiny": borda})
    assert table.groups[0] == ("MathSort", ("Orig.", "PSC", "Borda"))
    measured, paper = table.sections
    assert texts(measured.rows[0].cells[:3]) == ["-", "-", "25.0"]
    assert texts(paper.rows[0].cells[:3]) == ["34.7", "52.9", "-"]


def test_ways_of_sorting_stand_below_each_other_above_table_8():
    prp = Figure(0.5, record={"exact": 0.125})
    figures = {("MathSort", "PRP"): prp, ("WordSort", "PSC"): Figure(0.625)}
    table = sorting_table("psc_table8", {"tiny": figures}, ["a note"])
    measured, paper = table.sections
    assert list(table.groups) == [("", ("MathSort", "WordSort", "GSM8KSort"))]
    by_prp, by_psc = measured.rows
    assert (by_prp.labels, by_psc.labels) == (("tiny (PRP)",), ("tiny (PSC)",))
    assert texts(by_prp.cells) == ["50.0", "-", "-"]
    assert texts(by_psc.cells) == ["-", "62.5", "-"]
    labels = [row.labels[0] for row in paper.rows]
    assert labels == ["GPT-3.5 (PRP)", "GPT-4 (PRP)", "GPT-3.5 (PSC)", "GPT-4 (PSC)"]
    assert texts(paper.rows[0].cells) == ["46.7", "82.2", "64.0"]
    assert ("here", "tiny", "MathSort", "PRP", 0.5, 0.125) in table.records
    taus = {record[:4]: record[4] for record in table.records}
    assert taus["paper", "GPT-4", "MathSort", "PSC"] == pytest.approx(0.896)
    assert table.notes[-1] == "a note"


def test_first_stages_have_a_section_for_each_collection_and_a_mark_where_they_differ():
    dl19 = stage_figures(Estimate(0.5058, 0.5058, 0.4, 0.6), Estimate(0.7, 0.7), 0.001)
    dl20 = stage_figures(Estimate(0.48, 0.48), Estimate(0.47, 0.47), 0.6)
    about = {"queries": 43, "measure": "nDCG@10"}
    rows = [
        PaperRow(("BM25",), dl19, section="dl19", record=about),
        PaperRow(("BM25",), dl20, section="dl20", record=about),
    ]
    facts = {"measure": "nDCG@10", "ranker": "small LM"}
    table = lay_out("first_stages", rows, facts=facts)
    assert [section.heading for section in table.sections] == ["dl19", "dl20"]
    dl19, dl20 = table.rows
    assert texts(dl19.cells) == ["0.5058", "0.7000", "+0.1942"]
    assert [cell.raised for cell in dl19.cells] == ["", "†", ""]
    assert texts(dl20.cells) == ["0.4800", "0.4700", "-0.0100"]
    assert [cell.raised for cell in dl20.cells] == ["", "", ""]
    assert ("dl19", "BM25", 43, "nDCG@10", "before", 0.5058, 0.4, 0.6, None) in table.records
    assert any("Wilcoxon" in note for note in table.notes)
    equal = stage_figures(Estimate(1, 1), Estimate(1, 1), 1.0)
    table = lay_out("first_stages", [PaperRow(("BM25",), equal)], facts=facts)
    assert table.rows[0].cells[2].text == "+0.0000"


def test_measured_rows_stand_above_the_published_ones_in_the_papers_units() -> None:
    figure = Figure(0.12345, marks="†")
    table = grid_table("psc_table4", {("mine", "DL19"): figure}, "a model", notes=["A note."])
    measured, paper = table.sections
    assert table.groups[0].columns == ("DL19", "DL20")
    assert measured.heading == "Measured: a model"
    (row,) = measured.rows
    assert row.labels[0] == "mine"
    assert texts(row.cells) == ["12.35", "-"]
    assert row.cells[0].raised == "†"
    rows = {row.labels: texts(row.cells) for row in paper.rows}
    # Tang et al., Table 4, row of RankGPT (GPT-4) over BM25.
    assert rows["BM25", "100", "RankGPT (GPT-4)", "once"] == ["75.00", "70.36"]
    assert rows["BM25", "100", "RankGPT (GPT-4)", "PSC"] == ["75.66", "71.00"]
    assert rows["None", "All", "BM25", ""] == ["50.58", "47.96"]
    assert table.notes[-1] == "A note."


@pytest.mark.parametrize("name", LISTED)
def test_every_table_can_be_laid_out(name: str) -> None:
    table = grid_table(name, {("mine", "DL19"): Figure(0.5)}, "a model")
    measured, paper = table.sections
    assert measured.rows[0].cells[0].text == {100: "50.00", 1: ".5000"}[published(name).scale]
    assert len(paper.rows) == len(published(name).rows)
