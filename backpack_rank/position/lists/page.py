"""The report page of position bias in lists.

Tables and pictures are in one file that asks for nothing from anywhere.
"""

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
    """What the page shows.

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
    """Write the page, whole or not at all; returns its path."""
    pictures = {heading: _data_uri(file) for heading, file in page.pictures.items()}
    text = (
        environment()
        .get_template("lists.html")
        .render(page=page, pictures=pictures, style=page_style())
    )
    write_text(path, text)
    return Path(path)


def _data_uri(file: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(file.read_bytes()).decode()}"
