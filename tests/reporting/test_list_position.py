"""Heat maps, position curves and tables of position bias in lists: what is written, and that pictures show it."""

from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

from backpack_rank.reporting import published_lists as published
from backpack_rank.reporting.dots import DotRow, dots_figure, dots_plot
from backpack_rank.reporting.layout import LayoutTable, print_layout_table, to_latex, to_markdown
from backpack_rank.reporting.list_bias_tables import (
    REMEDY_COLUMNS,
    StageFigures,
    SystemEvenness,
    SystemOrders,
    evenness_table,
    first_stage_table,
    order_table,
    remedies_table,
)
from backpack_rank.reporting.list_position import heat_map, write_matrix
from backpack_rank.reporting.position_curves import (
    PositionCurve,
    PositionReport,
    SystemPositions,
    position_figure,
    write_position_curves,
)
from backpack_rank.reporting.rows import Figure
from backpack_rank.reporting.sorting_tables import Sorted, SortingFigures, sorting_methods_table, sorting_table


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.open()))


def texts(path: Path) -> set[str]:
    """Words of an SVG file, which matplotlib writes as comments beside the drawn letters."""
    ElementTree.fromstring(path.read_text())
    return {line.strip()[4:-3].strip() for line in path.read_text().splitlines() if line.strip().startswith("<!--")}


def printed(table: LayoutTable, width: int = 100) -> str:
    text = io.StringIO()
    print_layout_table(table, Console(file=text, width=width))
    return text.getvalue()


# Matrices


def test_a_matrix_is_written_with_all_digits_and_positions_from_one(tmp_path: Path):
    matrix = np.array([[0.1, 0.2, math.nan], [1 / 3, 0.4, 0.5]])
    paths = write_matrix(tmp_path, "m", matrix, title="T", rows="in", columns="out", value="share", centre=0.25)
    assert [path.name for path in paths] == ["m.json", "m.csv", "m.png", "m.svg"]
    found = json.loads(paths[0].read_text())
    assert found["panels"] == {"": [[0.1, 0.2, None], [1 / 3, 0.4, 0.5]]}
    assert (found["rows"], found["columns"], found["value"], found["centre"]) == ("in", "out", "share", 0.25)
    lines = rows(paths[1])
    assert lines[0] == ["panel", "row", "column", "value"]
    assert ["", "2", "1", repr(1 / 3)] in lines
    assert len(lines) == 6  # the cell without a value has no line
    assert {"T", "in", "out", "share", "0.10", "0.33"} <= texts(paths[3])


def test_several_matrices_are_panels_of_one_picture_with_one_scale(tmp_path: Path):
    paths = write_matrix(tmp_path, "m", {"before": np.eye(3), "after": np.full((3, 3), 1 / 3)}, centre=1 / 3)
    assert {"before", "after"} <= texts(paths[3])
    assert {line[0] for line in rows(paths[1])[1:]} == {"before", "after"}
    figure = heat_map(
        {"before": np.eye(3), "after": np.full((3, 3), 1 / 3)}, title="", rows="", columns="", value="", centre=1 / 3
    )
    first, second = (axes.images[0] for axes in figure.axes[:2])
    assert first.norm is second.norm
    # What no bias would give is white, more of it is warm, less is cold.
    white, warm, cold = (first.cmap(first.norm(value)) for value in (1 / 3, 1.0, 0.0))
    assert white[:3] == pytest.approx((1, 1, 1), abs=0.02)
    assert warm[0] > warm[2]
    assert cold[2] > cold[0]


def test_the_first_position_is_at_the_top_left_of_the_picture(tmp_path: Path):
    matrix = np.zeros((12, 12))
    matrix[0, 0] = matrix[0, 1] = 1.0
    png = write_matrix(tmp_path, "m", matrix)[2]
    pixels = matplotlib.image.imread(png)[:, :, :3]
    dark = np.argwhere(pixels[:, : pixels.shape[1] * 3 // 4].sum(axis=2) < 1.0)  # deep brown, left of the colour bar
    brown = [(y, x) for y, x in dark.tolist() if pixels[y, x, 0] > pixels[y, x, 2] + 0.2]
    assert brown
    assert np.mean([y for y, _ in brown]) < pixels.shape[0] / 3
    assert np.mean([x for _, x in brown]) < pixels.shape[1] / 3


def test_equal_matrices_give_equal_files(tmp_path: Path):
    for name in ("a", "b"):
        write_matrix(tmp_path / name, "m", np.eye(4), centre=0.25)
    for ending in ("json", "csv", "png", "svg"):
        assert (tmp_path / "a" / f"m.{ending}").read_bytes() == (tmp_path / "b" / f"m.{ending}").read_bytes()


@pytest.mark.parametrize(
    ("matrix", "centre"),
    [(np.zeros((3, 3)), None), (np.full((2, 2), 0.5), 0.5), (np.array([[-1.0, 2.0]]), 0.0), (np.zeros((1, 1)), 0.0)],
)
def test_matrices_of_one_value_and_negative_ones_are_drawn(tmp_path: Path, matrix: np.ndarray, centre: float | None):
    assert write_matrix(tmp_path, "m", matrix, centre=centre)[2].stat().st_size > 5000


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ({}, "no matrix"),
        ({"x": np.zeros(3)}, "'x' must be of rows and columns"),
        (np.full((2, 2), math.nan), "no finite cell"),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path: Path, matrix, message: str):
    with pytest.raises(ValueError, match=message):
        write_matrix(tmp_path, "m", matrix)
    assert list(tmp_path.iterdir()) == []


# Position curves


def report(*systems: tuple[str, tuple[float, ...]], seconds: float | None = 3.0) -> PositionReport:
    made = []
    for number, (label, values) in enumerate(systems):
        errors = tuple(0.01 for _ in values)
        curves = (PositionCurve("nDCG@10", values, errors), PositionCurve("MRR", values[::-1], errors))
        made.append(SystemPositions(label, curves, 60, 60 * (number + 1), seconds))
    return PositionReport("wikiqa/test", 20, tuple(made), ("A note.",))


TWO = (("plain", (0.9, 0.7, 0.5)), ("remedy", (0.8, 0.8, 0.75)))


def test_a_curve_has_mean_range_and_variance_over_positions():
    curve = PositionCurve("MRR", (0.9, 0.7, 0.5), (0.0,) * 3)
    assert curve.mean == pytest.approx(0.7)
    assert curve.range == pytest.approx(0.4)
    assert curve.variance == pytest.approx((0.04 + 0 + 0.04) / 3)


def test_curves_are_written_and_drawn_with_mean_and_range(tmp_path: Path):
    paths = write_position_curves(tmp_path, report(*TWO))
    assert [path.name for path in paths] == [f"controlled_positions.{e}" for e in ("json", "csv", "png", "svg")]
    found = json.loads(paths[0].read_text())
    assert found["systems"][1]["curves"][0]["range"] == pytest.approx(0.05)
    assert found["systems"][0]["curves"][1]["values"] == [0.5, 0.7, 0.9]
    assert found["systems"][1]["passes"] == 120
    lines = rows(paths[1])
    assert lines[0] == ["system", "measure", "position", "value", "standard_error"]
    assert ["plain", "nDCG@10", "3", "0.5", "0.01"] in lines
    assert len(lines) == 1 + 2 * 2 * 3
    assert {"mean 0.700, range 0.400", "mean 0.783, range 0.050", "wikiqa/test, 20 lists"} <= texts(paths[3])


def test_a_line_stands_at_its_values():
    figure = position_figure(report(*TWO))
    panel = figure.axes[0]
    assert [list(line.get_ydata()) for line in panel.lines] == [[0.9, 0.7, 0.5], [0.8, 0.8, 0.75]]
    assert list(panel.lines[0].get_xdata()) == [1, 2, 3]
    assert panel.get_ylabel() == "nDCG@10"
    assert len({(line.get_color(), line.get_marker()) for line in panel.lines}) == 2


def test_more_systems_than_colours_are_told_apart(tmp_path: Path):
    many = report(*[(f"system {number}", (0.1 * number, 0.5)) for number in range(12)])
    panel = position_figure(many).axes[0]
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in panel.lines}) == 12


def test_one_list_has_no_standard_error(tmp_path: Path):
    curve = PositionCurve("MRR", (1.0, 0.5), (math.nan, math.nan))
    paths = write_position_curves(tmp_path, PositionReport("c", 1, (SystemPositions("plain", (curve,), 2),)), "one")
    assert json.loads(paths[0].read_text())["systems"][0]["curves"][0]["errors"] == [None, None]
    assert rows(paths[1])[1] == ["plain", "MRR", "1", "1.0", ""]


def test_systems_that_do_not_compare_are_refused():
    one, other = report(TWO[0]).systems[0], report(("short", (0.1, 0.2))).systems[0]
    with pytest.raises(ValueError, match="short has other positions than plain"):
        PositionReport("c", 1, (one, other))
    fewer = SystemPositions("fewer", one.curves[:1], 1)
    with pytest.raises(ValueError, match="fewer has other measures than plain"):
        PositionReport("c", 1, (one, fewer))
    with pytest.raises(ValueError, match="needs a system"):
        PositionReport("c", 1, ())
    with pytest.raises(KeyError, match="there are: nDCG@10, MRR"):
        one.curve("P@5")


# Tables


def test_remedies_have_mean_range_change_and_cost_per_list():
    table = remedies_table(report(*TWO))
    (_, lines), *_ = table.sections
    assert [labels for labels, _ in lines] == [("plain",), ("remedy",)]
    assert [entry.text for entry in lines[0][1]] == ["0.7000", "0.4000", "-", "0.02667", "1.00", "50.0"]
    assert [entry.text for entry in lines[1][1]] == ["0.7833", "0.0500", "-0.3500", "0.00056", "2.00", "50.0"]
    assert [entry.bold for entry in lines[1][1]] == [True, True, False, False, False, False]
    assert table.columns == REMEDY_COLUMNS
    assert table.records[0][:2] == ("plain", "nDCG@10")
    assert table.records[0][5] == 3  # the worst position
    text = " ".join(printed(table).split())
    assert "20 lists, the relevant passage of each at every one of 3 positions" in text
    assert "A note." in text
    by_mrr = remedies_table(report(*TWO), "MRR")
    assert by_mrr.records[0][5] == 1


def test_costs_that_nobody_measured_are_a_dash():
    (_, lines), *_ = remedies_table(report(*TWO, seconds=None)).sections
    assert lines[0][1][-1].text == "-"


def test_input_orders_and_taus_stand_side_by_side():
    figures = {"original": Figure(0.5, 0.5, 0.4, 0.6), "reversed": Figure(0.25, 0.25)}
    taus = {("original", "reversed"): 0.125}
    table = order_table([SystemOrders("plain", figures, taus)], "dl19")
    (_, ((labels, entries),)), *_ = table.sections
    assert labels == ("plain",)
    assert [entry.text for entry in entries] == ["0.5000", "0.2500", "0.125"]
    assert table.groups == (("nDCG@10", ("original", "reversed")), ("tau of", ("o-r",)))
    assert ("plain", "original", "", "nDCG@10", 0.5, 0.4, 0.6) in table.records
    assert ("plain", "original", "reversed", "kendall tau", 0.125, None, None) in table.records
    without = order_table([SystemOrders("plain", {}, {("original", "shuffled 12"): 1.0})], "dl19")
    assert without.groups == (("tau of", ("o-s12",)),)
    with pytest.raises(ValueError, match="other has other input orders than plain"):
        order_table([SystemOrders("plain", figures, taus), SystemOrders("other", {}, taus)], "dl19")


def test_evenness_has_a_column_of_wrong_pairs_only_where_the_right_order_is_known():
    plain = SystemEvenness("plain", 1000, 0.25, 0.0125, 0.4, 0.3)
    table = evenness_table([plain], "dl19")
    assert [entry.text for entry in table.sections[0][1][0][1]] == ["1,000", "0.250", "0.013", "0.400", "0.300"]
    assert "wrong" not in printed(table)
    both = evenness_table([plain, SystemEvenness("sorted", 10, 0, 0, 0.5, 0, 0.1)], "math")
    assert [line[1][-1].text for line in both.sections[0][1]] == ["-", "0.100"]
    assert both.records[0][-1] is None


def test_sorting_stands_above_the_published_table():
    figures = {("MathSort", "Orig."): Sorted(0.5, 0.125), ("MathSort", "PSC"): Sorted(0.625, None)}
    table = sorting_table([SortingFigures("tiny", figures)])
    (first, here), (second, there) = table.sections
    assert (first, second) == ("Measured here", "Published")
    assert [entry.text for entry in here[0][1]] == ["50.0", "62.5", "-", "-", "-", "-"]
    assert there[0][0] == ("Mistral-7B",)
    assert [entry.text for entry in there[0][1]] == ["34.7", "52.9", "55.3", "74.2", "46.7", "65.3"]
    assert ("here", "tiny", "MathSort", "Orig.", 0.5, 0.125) in table.records
    assert "34.7" in to_markdown(table)
    assert "34.7" in to_latex(table)
    assert [heading for heading, _ in sorting_table([]).sections] == ["Published"]


def test_another_way_of_sorting_has_columns_of_its_own_without_published_figures():
    table = sorting_table([SortingFigures("tiny", {("MathSort", "Borda"): Sorted(0.25)})])
    assert table.groups[0] == ("MathSort", ("Orig.", "PSC", "Borda"))
    (_, here), (_, there) = table.sections
    assert [entry.text for entry in here[0][1][:3]] == ["-", "-", "25.0"]
    assert [entry.text for entry in there[0][1][:3]] == ["34.7", "52.9", "-"]


def test_ways_of_sorting_stand_below_each_other_above_table_8():
    figures = {("MathSort", "PRP"): Sorted(0.5, 0.125), ("WordSort", "PSC"): Sorted(0.625)}
    table = sorting_methods_table([SortingFigures("tiny", figures)], ["a note"])
    (_, here), (_, there) = table.sections
    assert table.groups == (("", ("MathSort", "WordSort", "GSM8KSort")),)
    assert [(labels, [entry.text for entry in entries]) for labels, entries in here] == [
        (("tiny (PRP)",), ["50.0", "-", "-"]),
        (("tiny (PSC)",), ["-", "62.5", "-"]),
    ]
    assert [labels for labels, _ in there] == [(f"GPT-{n} ({w})",) for w in ("PRP", "PSC") for n in ("3.5", "4")]
    assert [entry.text for entry in there[0][1]] == ["46.7", "82.2", "64.0"]
    assert ("here", "tiny", "MathSort", "PRP", 0.5, 0.125) in table.records
    assert ("paper", "GPT-4", "MathSort", "PSC", 0.896, None) in [
        (*record[:4], round(record[4], 3), record[5]) for record in table.records
    ]
    assert table.notes[-1] == "a note"


# Published figures: what the papers' own sums and texts say about them


def test_averages_of_paper_000_are_those_of_its_ten_collections():
    tables = (published.DEBIAS_TABLE1, published.DEBIAS_TABLE2, published.DEBIAS_TABLE3)
    assert [len(table) for table in tables] == [8, 12, 10]
    for table in tables:
        for key, row in table.items():
            if key[0] == "-":
                continue  # rows of first stages, which the paper averaged in another way
            ten = [row.values[name] for name in published.COLLECTIONS[2:-1]]
            assert len(ten) == 10
            assert row.values["Avg."] == pytest.approx(np.mean(ten), abs=0.061), key


def test_averages_of_paper_002_are_those_of_its_five_collections():
    for key, row in published.CAPCAL_TABLE1.items():
        for average, names in (("InD", published.TREC), ("OOD", published.BEIR_CAPCAL)):
            assert row.values[average] == pytest.approx(np.mean([row.values[name] for name in names]), abs=6e-5), key


def test_tables_of_one_paper_agree_where_they_repeat_figures():
    for key, row in published.CAPCAL_TABLE5.items():
        if key[1] != "PSC":
            other = published.CAPCAL_TABLE1[key].values
            assert all(row.values[name] == other[name] for name in row.values)
    base = published.CAPCAL_TABLE3["Base (No Calibration)",].values
    assert (
        base == published.CAPCAL_TABLE2["BM25", "Base"].values == published.CAPCAL_TABLE6["Qwen3-0.6B", "Base"].values
    )
    small = published.CAPCAL_TABLE1["Qwen3-0.6b", "Base"].values
    assert {name: round(100 * small[name], 2) for name in published.TREC} == base
    one = published.DEBIAS_TABLE1["DebiasFirst", "Original"].values
    assert one == published.DEBIAS_TABLE2["DebiasFirst", "Contriever"].values
    assert one == published.DEBIAS_TABLE3["DebiasFirst", "Original"].values
    for model in ("GPT-3.5", "GPT-4"):
        sorting = published.PSC_TABLE3[model,].values
        for kind, name in (("Orig.", "Orig."), ("PSC", "Our PSC")):
            assert published.PSC_TABLE9[f"{model} ({name})",].values["MathSort"] == sorting[f"MathSort {kind}"]
    reranked = published.PSC_TABLE4["BM25", "100", "RankGPT (GPT-4)"]
    assert reranked["DL19"] == published.Reranked(75.0, 75.66, 75.59)
    assert published.PSC_TABLE9["GPT-4 (Our PSC)",].values["DL19"] == reranked["DL19"].psc


def test_gains_of_paper_003_are_those_that_its_text_names():
    # "LLaMA2-7B, 13B, and 70B attain average score increases of 157%, 28%, and 12%", "Mistral and Zephyr improve by
    # 42% and 106%".
    told = {"LLaMA2-7B": 157, "LLaMA2-13B": 28, "LLaMA2-70B": 12, "Mistral-7B": 42, "Zephyrβ-7B": 106}
    for model, percent in told.items():
        row = published.PSC_TABLE3[model,].values
        gains = [row[f"{task} PSC"] / row[f"{task} Orig."] - 1 for task in published.SORTING]
        assert 100 * np.mean(gains) == pytest.approx(percent, abs=1), model
    # "yielding gains on 13 out of 16 model-dataset combinations"; "beats the maximum individual score".
    tried = [cell for row in published.PSC_TABLE4.values() for cell in row.values() if cell.psc is not None]
    assert len(tried) == 16
    assert sum(cell.psc > (cell.best or cell.original) for cell in tried) == 13


# Rows of dots


def test_dots_stand_at_their_means_and_the_line_spans_them(tmp_path: Path):
    interval = Figure(0.5, 0.5, 0.4, 0.6)
    panels = {
        "dl19": [DotRow("BM25", {"before": interval, "after": Figure(0.7, 0.7)}), DotRow("TAS-B", {"after": interval})],
        "dl20": [DotRow("BM25", {"before": Figure(0.45, 0.45)})],
    }
    png, svg = dots_plot(tmp_path / "stages", panels, measure="nDCG@10", title="First stages")
    assert png.stat().st_size > 5000
    assert {"dl19", "dl20", "BM25", "TAS-B", "before", "after", "nDCG@10", "First stages"} <= texts(svg)
    figure = dots_figure(panels, measure="nDCG@10", title="")
    first, second = figure.axes
    dots = {(line.get_label(), float(line.get_xdata()[0])) for line in first.lines if line.get_linestyle() == "None"}
    assert dots == {("before", 0.5), ("after", 0.7), ("after", 0.5)}
    assert list(first.lines[0].get_xdata()) == [0.5, 0.7]
    assert first.get_ylim()[0] > first.get_ylim()[1]  # the first row on top
    assert len(figure.legends[0].get_texts()) == 2
    assert [label.get_text() for label in second.get_yticklabels()] == ["BM25"]
    with pytest.raises(ValueError, match="no row"):
        dots_plot(tmp_path / "none", {}, measure="x")
    with pytest.raises(ValueError, match="row 'BM25' has no dot"):
        dots_plot(tmp_path / "none", {"": [DotRow("BM25", {})]}, measure="x")


def test_first_stages_have_a_section_for_each_collection_and_a_mark_where_they_differ():
    stages = [
        StageFigures("dl19", "BM25", 43, Figure(0.5058, 0.5058, 0.4, 0.6), Figure(0.7, 0.7), 0.001),
        StageFigures("dl20", "BM25", 54, Figure(0.48, 0.48), Figure(0.47, 0.47), 0.6),
    ]
    table = first_stage_table(stages, "small LM")
    assert [heading for heading, _ in table.sections] == ["dl19", "dl20"]
    (_, entries), *_ = table.sections[0][1]
    assert [(entry.text, entry.raised) for entry in entries] == [("0.5058", ""), ("0.7000", "†"), ("+0.1942", "")]
    (_, entries), *_ = table.sections[1][1]
    assert [(entry.text, entry.raised) for entry in entries] == [("0.4800", ""), ("0.4700", ""), ("-0.0100", "")]
    assert ("dl19", "BM25", 43, "nDCG@10", "before", 0.5058, 0.4, 0.6, None) in table.records
    assert any("Wilcoxon" in note for note in table.notes)
    untested = first_stage_table([StageFigures("c", "BM25", 1, Figure(1, 1), Figure(1, 1))], "small LM")
    assert not any("Wilcoxon" in note for note in untested.notes)
    assert untested.sections[0][1][0][1][2].text == "+0.0000"
