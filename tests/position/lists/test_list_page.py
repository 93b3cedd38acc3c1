"""The page of position bias in lists."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path

from backpack_rank.position.lists.page import ListPage, write_list_page
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table

TABLE = Table(
    "remedies",
    "What <remedies> do",
    ("system",),
    (Group("nDCG@10", ("mean", "range")), Group("", ("passes",))),
    (
        Section(
            "Here",
            (Row(("plain",), (Cell("0.50", bold=True), Cell("0.20", raised="†"), Cell("1.00"))),),
        ),
    ),
    ("A note & more.",),
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
    cells = [
        "",
        "nDCG@10",
        "",
        "system",
        "mean",
        "range",
        "passes",
        "Here",
        "plain",
        "0.50",
        "0.20†",
        "1.00",
    ]
    assert read.cells == cells
    (image,) = read.images
    kind, _, data = image.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == picture.read_bytes()
