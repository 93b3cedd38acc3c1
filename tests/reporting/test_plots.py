"""The trade-off plot: both files, every alpha labelled, labels that hide neither each other nor a mark."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from backpack_rank.reporting import plots
from backpack_rank.reporting.plots import tradeoff_plot
from backpack_rank.reporting.rows import Figure, Summary, SystemRow


def row(label: str, alpha: float | None, effectiveness: float, bias: float) -> SystemRow:
    measures = {f"{name}({kind})@10": Figure(bias, 1.0) for name in ("RaB", "ARaB") for kind in ("tf", "bool")}
    quality = Summary({"nDCG@10": Figure(effectiveness, effectiveness)}, 10)
    return SystemRow(label, alpha, quality, Summary(measures, 10))


def sweep(alphas: list[float]) -> list[SystemRow]:
    dial = [row(f"alpha={alpha}", alpha, 0.4 - 0.03 * (1 - alpha) ** 2, 0.04 + 0.02 * alpha**2) for alpha in alphas]
    return [row("BM25", None, 0.37, 0.055), *dial]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Canvas]:
    """Figures that are saved, so that a test can look at their parts."""
    figures: list[Canvas] = []
    save = plots.save_figure

    def keep(figure: Canvas, path: Path) -> tuple[Path, Path]:
        figures.append(figure)
        return save(figure, path)

    monkeypatch.setattr(plots, "save_figure", keep)
    return figures


def test_png_and_svg_are_written_and_can_be_read(tmp_path: Path):
    written = tradeoff_plot(tmp_path / "plot.png", sweep([1.0, 0.5, 0.0]))
    assert written == (tmp_path / "plot.png", tmp_path / "plot.svg")
    image = matplotlib.image.imread(written[0])
    assert image.shape[0] > 800
    assert np.ptp(image[..., 0]) > 0.5
    assert ElementTree.parse(written[1]).getroot().tag.endswith("svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plot.png", "plot.svg"]


def test_a_name_with_a_point_keeps_it(tmp_path: Path):
    assert tradeoff_plot(tmp_path / "alpha0.5", sweep([1.0]))[0] == tmp_path / "alpha0.5.png"


def test_equal_figures_give_equal_files(tmp_path: Path):
    first = tradeoff_plot(tmp_path / "one", sweep([1.0, 0.5]))
    second = tradeoff_plot(tmp_path / "two", sweep([1.0, 0.5]))
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_every_panel_labels_every_alpha_and_the_reference(tmp_path: Path, drawn: list[Canvas]):
    tradeoff_plot(tmp_path / "plot", sweep([1.0, 0.9, 0.7, 0.5, 0.3, 0.0]))
    assert len(drawn[0].axes) == 4
    for axes in drawn[0].axes:
        assert sorted(text.get_text() for text in axes.texts) == ["0", "0.3", "0.5", "0.7", "0.9", "1", "BM25"]


def test_points_lie_at_effectiveness_and_absolute_bias(tmp_path: Path, drawn: list[Canvas]):
    tradeoff_plot(tmp_path / "plot", [row("alpha=1", 1.0, 0.4, 0.03), row("alpha=0", 0.0, 0.35, -0.01)])
    for axes in drawn[0].axes:
        marks = [line for line in axes.lines if line.get_gid() == "point"]
        assert [line.get_xydata()[0].tolist() for line in marks] == [[0.03, 0.4], [0.01, 0.35]]
        # The sign has turned: the second mark is hollow.
        assert [line.get_markerfacecolor() == "white" for line in marks] == [False, True]


@pytest.mark.parametrize("number", [6, 21])
def test_labels_hide_neither_each_other_nor_a_mark_and_stay_inside(tmp_path: Path, drawn: list[Canvas], number: int):
    tradeoff_plot(tmp_path / "plot", sweep([round(1 - i / (number - 1), 3) for i in range(number)]))
    figure = drawn[0]
    figure.canvas.draw()
    for axes in figure.axes:
        boxes = [Text.get_window_extent(label) for label in axes.texts]
        for first, second in itertools.combinations(boxes, 2):
            assert not first.overlaps(second)
        for box in boxes:
            assert axes.bbox.x0 <= box.x0 < box.x1 <= axes.bbox.x1
            assert axes.bbox.y0 <= box.y0 < box.y1 <= axes.bbox.y1
        for line in axes.lines:
            if line.get_gid() == "point":
                centre = axes.transData.transform(line.get_xydata()[0])
                assert not any(box.contains(*centre) for box in boxes)


def test_axes_are_named_in_words(tmp_path: Path, drawn: list[Canvas]):
    tradeoff_plot(tmp_path / "plot", sweep([1.0]))
    assert drawn[0].axes[0].get_xlabel() == "rank bias |RaB@10|, 0 is unbiased"
    assert drawn[0].axes[3].get_xlabel() == "average rank bias |ARaB@10|, 0 is unbiased"
    assert drawn[0].axes[0].get_ylabel() == "effectiveness, nDCG@10"
    assert [axes.get_title("left") for axes in drawn[0].axes] == [
        "RaB (TF)",
        "ARaB (TF)",
        "RaB (Boolean)",
        "ARaB (Boolean)",
    ]


def test_references_alone_can_be_drawn(tmp_path: Path):
    assert tradeoff_plot(tmp_path / "plot", [row("BM25", None, 0.3, 0.1), row("run", None, 0.4, 0.2)])[0].is_file()


def test_a_missing_measure_is_an_error_that_names_it_and_writes_nothing(tmp_path: Path):
    rows = [SystemRow("BM25", None, Summary({"nDCG@10": Figure(0.4, 0.4)}, 3))]
    with pytest.raises(ValueError, match=r"needs RaB\(tf\)@10; BM25 has no value"):
        tradeoff_plot(tmp_path / "plot", rows)
    with pytest.raises(ValueError, match=r"needs MRR@10; BM25"):
        tradeoff_plot(tmp_path / "plot", sweep([1.0]), measure="MRR@10")
    with pytest.raises(ValueError, match="no system to draw"):
        tradeoff_plot(tmp_path / "plot", [])
    assert list(tmp_path.iterdir()) == []
