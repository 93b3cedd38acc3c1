"""The page of position bias in lists, and the tables of the papers."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path

import pytest

from backpack_rank.reporting.layout import Entry, LayoutTable
from backpack_rank.reporting.list_layout import TABLES, list_table
from backpack_rank.reporting.list_page import ListPage, write_list_page

TABLE = LayoutTable(
    *("remedies", "What <remedies> do", ("system",), (("nDCG@10", ("mean", "range")), ("", ("passes",)))),
    (("Here", ((("plain",), (Entry("0.50", bold=True), Entry("0.20", raised="†"), Entry("1.00"))),)),),
    *(("A note & more.",), ("system", "mean"), (("plain", 0.5),)),
)


class Read(HTMLParser):
    """Cells, headings and images of a page, and what is open at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.images: list[str] = []
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {"h2": [], "p": [], "title": []}

    def handle_starttag(self, tag, attrs) -> None:
        if tag == "img":
            self.images.append(dict(attrs)["src"])
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in ("img", "meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data
        elif self.open and self.open[-1] in self.text:
            self.text[self.open[-1]].append(data)


def test_tables_pictures_and_configuration_are_on_the_page(tmp_path: Path) -> None:
    picture = tmp_path / "curve.svg"
    picture.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    page = ListPage("Bias of <x>", (TABLE,), {"Positions": picture}, configuration="alpha: 1\n")
    read = Read()
    read.feed(write_list_page(tmp_path / "report.html", page).read_text())
    assert read.open == []
    assert read.text["title"] == ["Bias of <x>"]
    assert read.text["h2"] == ["What <remedies> do", "Positions", "Configuration"]
    assert "A note & more." in read.text["p"]
    cells = ["", "nDCG@10", "", "system", "mean", "range", "passes", "Here", "plain", "0.50", "0.20†", "1.00"]
    assert read.cells == cells
    (image,) = read.images
    kind, _, data = image.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == picture.read_bytes()


def test_measured_rows_stand_above_the_published_ones_in_the_papers_units() -> None:
    table = list_table("psc_table4", {("mine", "DL19"): 0.12345}, {("mine", "DL19"): "†"}, "a model", ["A note."])
    (_, columns), (measured, published) = table.groups[0], table.sections
    assert columns == ("DL19", "DL20")
    assert measured[0] == "Measured: a model"
    assert [(labels[0], [entry.text for entry in row]) for labels, row in measured[1]] == [("mine", ["12.35", "-"])]
    assert measured[1][0][1][0].raised == "†"
    rows = {labels: [entry.text for entry in row] for labels, row in published[1]}
    # Paper 003, Table 4, row of RankGPT (GPT-4) over BM25.
    assert rows["BM25", "100", "RankGPT (GPT-4)", "once"] == ["75.00", "70.36"]
    assert rows["BM25", "100", "RankGPT (GPT-4)", "PSC"] == ["75.66", "71.00"]
    assert rows["None", "All", "BM25", ""] == ["50.58", "47.96"]
    assert table.notes[-1] == "A note."


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_laid_out(name: str) -> None:
    table = list_table(name, {("mine", "DL19"): 0.5}, {}, "a model")
    text = [entry.text for _, row in table.sections[0][1] for entry in row]
    assert text[0] == ("50.00" if TABLES[name].hundred else ".5000")
    assert len(table.sections[1][1]) == len(TABLES[name].rows)
