"""The report page of position bias in lists, a file with all of its tables and pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backpack_rank.files import write_text
from backpack_rank.reporting.page.render import environment, page_style
from backpack_rank.reporting.table import Table


@dataclass(frozen=True)
class ListPage:
    """What :func:`write_list_page` shows.

    Attributes:
        title: of the page.
        tables: in order.
        pictures: SVG files by heading.
        notes: sentences below the title.
        configuration: of the run, YAML.
    """

    title: str
    tables: tuple[Table, ...]
    pictures: Mapping[str, Path]
    notes: tuple[str, ...] = ()
    configuration: str = ""


def write_list_page(path: str | Path, page: ListPage) -> Path:
    """Write the report of an experiment; an interruption leaves no half of a page.

    ``write_list_page(folder / "report.html", ListPage("My lists", tables, pictures))``
    """
    # Pictures stand in the page itself, so that it can be sent as a single file.
    pictures = {}
    for heading, file in page.pictures.items():
        encoded = base64.b64encode(file.read_bytes()).decode()
        pictures[heading] = f"data:image/svg+xml;base64,{encoded}"
    template = environment().get_template("lists.html")
    write_text(path, template.render(page=page, pictures=pictures, style=page_style()))
    return Path(path)
