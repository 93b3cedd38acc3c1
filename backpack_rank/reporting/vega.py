"""What all charts share: colours and look, PNG and SVG files, the script of the page.

Charts are dictionaries in Vega-Lite. vl-convert is imported where it is needed, since most runs
draw nothing.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from backpack_rank.files import atomic_path, cache_dir, intact, write_text
from backpack_rank.reporting.writers import csv_text, dump_json

log = logging.getLogger(__name__)
Spec: TypeAlias = dict[str, Any]
"""A chart in Vega-Lite."""

# After Okabe and Ito, darkened until each has a contrast of 3:1 on white.
COLOURS = ("#0072b2", "#b94e00", "#00795a", "#a3477f", "#8a6500", "#4b4fb5")
GREY, PALE, INK, GRID = "#5b6270", "#a9b0bb", "#1b1f24", "#e4e7ec"
_DARK_COLOURS = ("#56b4e9", "#f08a4b", "#3cc6a0", "#e39bc8", "#e0b23c", "#a3a8f5")
DARK = {
    **dict(zip(COLOURS, _DARK_COLOURS, strict=True)),
    GREY: "#a3abb8",
    PALE: "#6d7684",
    INK: "#e8eaee",
    GRID: "#2a303a",
}
"""Colours of a page with a dark background, by those of one with a light background."""
CONFIG: Spec = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": GRID,
        "labelColor": GREY,
        "titleColor": GREY,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelPadding": 6,
        "titlePadding": 10,
    },
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelColor": INK,
        "labelFontSize": 12,
        "symbolSize": 80,
        "symbolOpacity": 1,
        "labelLimit": 260,
        "columns": 4,
    },
    "title": {"anchor": "start", "fontSize": 14, "color": INK, "subtitleColor": GREY, "offset": 10},
    "header": {"labelColor": INK, "labelFontSize": 12, "labelFontWeight": "bold", "title": None},
    "concat": {"spacing": 36},
}


_TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}


def cycle(values: Sequence[str], count: int) -> list[str]:
    """So many values, from the first again where they are too few."""
    return [values[number % len(values)] for number in range(count)]


def beside(charts: Mapping[str, Spec], columns: int, width: int = 360) -> Spec:
    """Charts beside each other under their headings, ``columns`` in a row."""
    return {**_joined(list(charts.items()), width), "columns": columns}


def below(charts: Sequence[Spec], width: int = 520) -> Spec:
    """Charts below each other."""
    return {**_joined([("", chart) for chart in charts], width), "columns": 1}


def _joined(charts: Sequence[tuple[str, Spec]], width: int) -> Spec:
    """Charts under headings, which may be empty; names of their data are made distinct."""
    datasets: Spec = {}
    parts = []
    for number, (heading, spec) in enumerate(charts):
        names = {}
        for name, rows in spec["datasets"].items():
            names[name] = f"c{number}{name}"
            datasets[names[name]] = rows
        chart = {name: part for name, part in spec.items() if name != "datasets"}
        part = {**_with_names(chart, names), "width": width}
        if heading:
            part["title"] = heading
        parts.append(part)
    scales = dict.fromkeys(("color", "shape", "strokeDash"), "independent")
    return {"concat": parts, "datasets": datasets, "resolve": {"scale": scales}}


def _with_names(part: Any, names: Mapping[str, str]) -> Any:
    """The part of a chart, with other names of its data."""
    if isinstance(part, dict):
        if part.keys() == {"name"} and part["name"] in names:
            return {"name": names[part["name"]]}
        return {key: _with_names(value, names) for key, value in part.items()}
    if isinstance(part, list):
        return [_with_names(value, names) for value in part]
    return part


def save_chart(stem: Path, spec: Spec, title: str = "", width: int = 560) -> tuple[Path, Path]:
    """Write a chart as ``<stem>.png`` and ``<stem>.svg``.

    Equal charts give equal files.

    Args:
        stem: of the files; what stands after a point in it is kept.
        spec: as the functions here return it.
        title: above the chart.
        width: in pixels, of a chart that has none.

    Returns:
        Both paths; each file is complete or absent.
    """
    import vl_convert

    svg = svg_of(with_look(spec, title, width))
    png_path = stem.with_name(f"{stem.name}.png")
    svg_path = stem.with_name(f"{stem.name}.svg")
    with atomic_path(png_path) as temporary:
        temporary.write_bytes(vl_convert.svg_to_png(svg, scale=2))
    write_text(svg_path, svg)
    return png_path, svg_path


def with_look(spec: Spec, title: str = "", width: int = 560) -> Spec:
    """A chart that can be drawn by itself, on white; arguments as of save_chart."""
    chart = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **spec,
        "config": CONFIG,
    }
    if not {"width", "concat", "facet", "vconcat", "hconcat"} & chart.keys():
        chart["width"] = width
    chart["background"] = "white"
    chart["padding"] = 12
    if title:
        chart["title"] = title
    return chart


def svg_of(chart: Spec) -> str:
    """The drawing of a chart; equal charts give equal texts."""
    import vl_convert

    return _with_counted_ids(vl_convert.vegalite_to_svg(chart))


def save_figure(
    folder: str | Path,
    stem: str,
    payload: dict[str, Any],
    table: tuple[Sequence[str], Iterable[Sequence[Any]]],
    spec: Spec,
    title: str = "",
) -> list[Path]:
    """Write a chart with its numbers.

    Args:
        folder: of the files.
        stem: of their names.
        payload: of ``<stem>.json``.
        table: columns and lines of ``<stem>.csv``.
        spec: of ``<stem>.png`` and ``<stem>.svg``.
        title: above the chart.

    Returns:
        Paths of the files.
    """
    json_path = Path(folder) / f"{stem}.json"
    csv_path = Path(folder) / f"{stem}.csv"
    write_text(json_path, dump_json(payload))
    write_text(csv_path, csv_text(*table))
    return [json_path, csv_path, *save_chart(Path(folder) / stem, spec, title)]


@cache
def chart_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no network.

    It is kept in the cache, because making it takes 3 s.
    """
    import vl_convert

    kept = cache_dir() / f"vega-embed-{version('vl-convert-python')}.js"
    if intact(kept):
        return kept.read_text("utf-8")
    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    # Whatever is wrong with the cache, also another process that writes the same file, the page has
    # its script.
    try:
        with atomic_path(kept, sealed=True) as temporary:
            temporary.write_text(script, encoding="utf-8", newline="")
    except OSError as error:
        log.warning("the charts' script is made anew each time: %s", error)
    return script


def stem_of(kind: str, what: str) -> str:
    """Name of a chart's files."""
    words = re.sub(r"\|([^|]*)\|", r"abs-\1", what)
    return f"{kind}-{re.sub(r'[^A-Za-z0-9._=]+', '-', words).strip('-')}"


def channel(shorthand: str, **options: Any) -> Spec:
    """A channel of an encoding.

    >>> channel("x:Q", title="alpha")
    {'field': 'x', 'type': 'quantitative', 'title': 'alpha'}
    """
    name, _, kind = shorthand.partition(":")
    spec: Spec = {"field": name}
    if kind:
        spec["type"] = _TYPES[kind]
    return {**spec, **options}


def layer(
    data: str | Sequence[Mapping[str, Any]],
    mark: str,
    look: Mapping[str, Any],
    **encoding: Any,
) -> Spec:
    """Marks of one kind for some rows, or for the rows of a name."""
    rows = {"name": data} if isinstance(data, str) else {"values": list(data)}
    return {"data": rows, "mark": {"type": mark, **look}, "encoding": encoding}


def vega_lite(chart: Spec, data: Mapping[str, Any] = MappingProxyType({})) -> Spec:
    """A chart with its data by name, equal ones once, and numbers to six digits."""
    names: dict[str, str] = {}  # of rows, by their JSON
    compact = _compact(chart, names)
    datasets = {name: json.loads(rows) for rows, name in names.items()}
    return {**compact, "datasets": {**datasets, **_compact(dict(data), {})}}


def _with_counted_ids(svg: str) -> str:
    """A picture whose ids count from 0; those of Vega count on from one chart to the next."""
    names: dict[str, str] = {}
    for vega_id in re.findall(r'\bid="([^"]+)"', svg):
        names.setdefault(vega_id, f"i{len(names)}")
    svg = re.sub(r'\bid="([^"]+)"', lambda match: f'id="{names[match[1]]}"', svg)
    return re.sub(r"url\(#([^)]+)\)", lambda match: f"url(#{names.get(match[1], match[1])})", svg)


def _compact(part: Any, names: dict[str, str]) -> Any:
    """The part of a chart with numbers to six digits, and its rows by name.

    Args:
        part: of the chart.
        names: of rows, by their JSON; gets those of this part.
    """
    if isinstance(part, dict):
        values = part.get("values")
        # Ticks of an axis are called values, too, but are numbers.
        if isinstance(values, list) and values and isinstance(values[0], dict):
            rows = json.dumps(_compact(values, {}))
            return {"name": names.setdefault(rows, f"d{len(names)}")}
        return {name: _compact(value, names) for name, value in part.items()}
    if isinstance(part, list):
        return [_compact(value, names) for value in part]
    if isinstance(part, float):
        return float(f"{part:.6g}")
    return part


def padded(values: Sequence[float]) -> tuple[float, float]:
    """Ends of an axis that shows these values with a margin."""
    low, high = min(values), max(values)
    # Where all values are equal, a tenth of the value; where they are all 0, 1.
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin
