"""What all charts share: colours, the look of Vega-Lite, charts side by side, PNG and SVG files, the page's script.

Charts are dictionaries in Vega-Lite. vl-convert is imported where it is needed, since most runs draw nothing.
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
DARK = {
    **dict(zip(COLOURS, ("#56b4e9", "#f08a4b", "#3cc6a0", "#e39bc8", "#e0b23c", "#a3a8f5"), strict=True)),
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
    return [values[number % len(values)] for number in range(count)]


def beside(charts: Mapping[str, Spec], columns: int, width: int = 360) -> Spec:
    """Charts beside each other under their headings, ``columns`` in a row."""
    return {**_joined(charts, width), "columns": columns}


def below(charts: Sequence[Spec], width: int = 520) -> Spec:
    """Charts below each other."""
    joined = _joined({f"{number}": chart for number, chart in enumerate(charts)}, width, headed=False)
    return {**joined, "columns": 1}


def _joined(charts: Mapping[str, Spec], width: int, headed: bool = True) -> Spec:
    datasets: Spec = {}
    parts = []
    for number, (heading, spec) in enumerate(charts.items()):
        own = {name: f"c{number}{name}" for name in spec["datasets"]}
        datasets |= {own[name]: values for name, values in spec["datasets"].items()}
        chart = {name: part for name, part in spec.items() if name != "datasets"}
        parts.append({**_renamed(chart, own), "width": width, **({"title": heading} if headed and heading else {})})
    scales = dict.fromkeys(("color", "shape", "strokeDash"), "independent")
    return {"concat": parts, "datasets": datasets, "resolve": {"scale": scales}}


def _renamed(part: Any, names: Mapping[str, str]) -> Any:
    if isinstance(part, dict):
        if part.keys() == {"name"} and part["name"] in names:
            return {"name": names[part["name"]]}
        return {name: _renamed(value, names) for name, value in part.items()}
    return [_renamed(value, names) for value in part] if isinstance(part, list) else part


def save_chart(stem: Path, spec: Spec, title: str = "", width: int = 560) -> tuple[Path, Path]:
    """Write a chart as ``<stem>.png`` and ``<stem>.svg``; equal charts give equal files.

    Args:
        stem: of the files; what stands after a point in it is kept.
        spec: as the functions here return it.
        title: above the chart.
        width: in pixels, of a chart that has none.

    Returns:
        Both paths; each file is complete or absent.
    """
    import vl_convert

    whole = {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", **spec, "config": CONFIG}
    if not {"width", "concat", "facet", "vconcat", "hconcat"} & whole.keys():
        whole["width"] = width
    whole |= {"background": "white", "padding": 12} | ({"title": title} if title else {})
    svg = _numbered(vl_convert.vegalite_to_svg(whole))
    paths = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    with atomic_path(paths[0]) as temporary:
        temporary.write_bytes(vl_convert.svg_to_png(svg, scale=2))
    write_text(paths[1], svg)
    return paths


def save_figure(
    folder: str | Path,
    stem: str,
    payload: dict[str, Any],
    table: tuple[Sequence[str], Iterable[Sequence[Any]]],
    spec: Spec,
    title: str = "",
) -> list[Path]:
    """Write ``<stem>.json``, ``.csv`` (columns and lines), ``.png`` and ``.svg`` into a folder; returns their paths."""
    paths = [Path(folder) / f"{stem}.{ending}" for ending in ("json", "csv")]
    write_text(paths[0], dump_json(payload))
    write_text(paths[1], csv_text(*table))
    return [*paths, *save_chart(Path(folder) / stem, spec, title)]


@cache
def chart_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no network; kept in the cache, as making it takes 3 s."""
    import vl_convert

    kept = cache_dir() / f"vega-embed-{version('vl-convert-python')}.js"
    if intact(kept):
        return kept.read_text("utf-8")
    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    # Whatever is wrong with the cache, also another process that writes the same file, the page has its script.
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
    """A channel of an encoding: ``channel("x:Q", title="alpha")`` is the number ``x`` under that title."""
    name, _, kind = shorthand.partition(":")
    return {"field": name, **({"type": _TYPES[kind]} if kind else {}), **options}


def layer(data: str | Sequence[Mapping[str, Any]], mark: str, look: Mapping[str, Any], **encoding: Any) -> Spec:
    """Marks of one kind for some rows, or for the rows of a name."""
    rows = {"name": data} if isinstance(data, str) else {"values": list(data)}
    return {"data": rows, "mark": {"type": mark, **look}, "encoding": encoding}


def vega_lite(chart: Spec, data: Mapping[str, Any] = MappingProxyType({})) -> Spec:
    """A chart with its data by name, equal ones once, and numbers to six digits."""
    known: dict[str, str] = {}
    compact = _compact(chart, known)
    values = {name: json.loads(rows) for rows, name in known.items()}
    return {**compact, "datasets": {**values, **_compact(dict(data), {})}}


def _numbered(svg: str) -> str:
    """A picture whose ids count from 0; those of Vega go on counting from one chart to the next."""
    names = {name: f"i{number}" for number, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', svg)))}
    svg = re.sub(r'\bid="([^"]+)"', lambda found: f'id="{names[found[1]]}"', svg)
    return re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{names.get(found[1], found[1])})", svg)


def _compact(part: Any, known: dict[str, str]) -> Any:
    if isinstance(part, dict):
        if isinstance(part.get("values"), list) and part["values"] and isinstance(part["values"][0], dict):
            values = json.dumps(_compact(part["values"], {}))
            return {"name": known.setdefault(values, f"d{len(known)}")}
        return {name: _compact(value, known) for name, value in part.items()}
    if isinstance(part, list):
        return [_compact(value, known) for value in part]
    return float(f"{part:.6g}") if isinstance(part, float) else part


def padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin
