"""Results as tables in the terminal and as files: ``measures.json``, ``measures.csv``, ``per_query.csv``."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backpack_rank.files import open_text, write_text
from backpack_rank.reporting.rows import About, Figure, Report, Summary, SystemRow, Values

FORMAT = "backpack_rank measures 1"
MEASURE_COLUMNS = (
    "system",
    "alpha",
    "kind",
    "measure",
    "mean",
    "absolute_mean",
    "mean_absolute",
    "low",
    "high",
    "queries",
    "left_out",
    "missing",
)
_MAGNITUDE_TITLES = {"tf": "TF", "tf-paper": "TF eq. 6", "bool": "Boolean", "tc": "count"}
_NO_VALUE = "-"


def effectiveness_table(report: Report) -> Table | None:
    """Systems by measures of effectiveness, 4 decimals; None when no system has any."""
    summaries = [(row.label, row.effectiveness) for row in report.rows if row.effectiveness]
    if not summaries:
        return None
    measures = _measures(summary for _, summary in summaries)
    counts = [summary.queries for _, summary in summaries]
    table = Table(title=_title("Effectiveness", report.about.effectiveness_set, counts))
    table.add_column("system", overflow="fold")
    for measure in measures:
        table.add_column(measure, justify="right")
    for label, summary in summaries:
        table.add_row(Text(label), *_means(summary, measures))
    return table


def bias_table(report: Report) -> Table | None:
    """Systems by measures of bias, one block of rows per cut-off; signed means with 4 decimals.

    Measures are named ``<name>@<cut-off>``; a measure without a cut-off stands in a last block. None when no system
    has any.
    """
    summaries = [(row.label, row.bias) for row in report.rows if row.bias]
    if not summaries:
        return None
    measures = _measures(summary for _, summary in summaries)
    split = {measure: _split(measure) for measure in measures}
    names = list(dict.fromkeys(name for name, _ in split.values()))
    counts = [summary.queries for _, summary in summaries]
    title = _title("Bias", report.about.bias_set, counts)
    table = Table(title=title, caption=_sign_caption(report.about), caption_justify="left")
    table.add_column("cut-off", justify="right")
    table.add_column("system", overflow="fold")
    for name in names:
        table.add_column(_heading(name), justify="right", no_wrap=True)
    for cutoff in dict.fromkeys(cutoff for _, cutoff in split.values()):
        at_cutoff = [f"{name}@{cutoff}" if cutoff else name for name in names]
        for index, (label, summary) in enumerate(summaries):
            first = cutoff if index == 0 else ""
            table.add_row(first, Text(label), *_means(summary, at_cutoff))
        table.add_section()
    return table


def print_report(report: Report, console: Console | None = None) -> None:
    """Print both tables and the sentences that say how the figures came about."""
    console = console or Console()
    for table in (effectiveness_table(report), bias_table(report)):
        if table is not None:
            console.print(table)
    for line in describe(report):
        console.print(Text(line))


def describe(report: Report) -> list[str]:
    """Sentences below the tables: settings, sign, queries that are left out or count 0, notes."""
    about = report.about
    lines = []
    if about.alpha is not None or about.policy:
        lines.append(_joined(("alpha", about.alpha), ("policy", about.policy)))
    if about.preset or about.lexicon:
        lines.append(
            "Bias measures: "
            + _joined(("preset", about.preset), ("word list", about.lexicon), ("tokenizer", about.tokenizer))
        )
    effectiveness = {row.label: row.effectiveness for row in report.rows if row.effectiveness}
    bias = {row.label: row.bias for row in report.rows if row.bias}
    lines += _counted(
        {label: block.left_out for label, block in effectiveness.items()}, "left out: no relevant document"
    )
    lines += _counted(
        {label: block.missing for label, block in effectiveness.items()}, "missing from the run, counted as 0"
    )
    lines += _counted({label: block.left_out for label, block in bias.items()}, "of the bias set left out: no ranking")
    return [*lines, *about.notes]


def write_report(folder: str | Path, report: Report) -> tuple[Path, Path]:
    """Write ``measures.json`` and ``measures.csv`` into a folder; returns their paths."""
    json_path, csv_path = Path(folder) / "measures.json", Path(folder) / "measures.csv"
    write_json(json_path, report)
    write_csv(csv_path, report)
    return json_path, csv_path


def write_json(path: str | Path, report: Report) -> None:
    """Write a report as JSON with all digits, whole file or no file.

    Layout; a block is null where nothing was computed, a number is null where it is not finite::

        {"format": "backpack_rank measures 1",
         "about": {"effectiveness_set": "wikiqa/test", "bias_set": ..., "alpha": 0.5, "policy": ..., "preset": ...,
                   "lexicon": ..., "tokenizer": ..., "sign": "male_minus_female", "sign_in_words": ..., "notes": []},
         "systems": [{"label": "alpha=0.5", "alpha": 0.5,
                      "effectiveness": {"queries": 243, "left_out": 390, "missing": 0,
                                        "figures": {"nDCG@10": {"mean": 0.4, "absolute_mean": 0.4,
                                                                "mean_absolute": 0.4, "low": 0.38, "high": 0.42}}},
                      "bias": {..., "figures": {"RaB(tf)@10": {...}}}}]}
    """
    payload = {
        "format": FORMAT,
        "about": asdict(report.about),
        "systems": [system_payload(row) for row in report.rows],
    }
    write_text(path, dump_json(payload))


def read_json(path: str | Path) -> Report:
    """Read what :func:`write_json` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or of another layout; names it.
    """
    with open_text(path) as handle:
        try:
            payload = json.load(handle)
            if payload["format"] != FORMAT:
                raise ValueError(f"its format is {payload['format']!r}")
            about = About(**{**payload["about"], "notes": tuple(payload["about"]["notes"])})
            return Report(tuple(_read_row(system) for system in payload["systems"]), about)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no file of measures in the layout {FORMAT!r}: {error}") from error


def write_csv(path: str | Path, report: Report) -> None:
    """Write one line per system and measure, all digits, columns :data:`MEASURE_COLUMNS`.

    ``kind`` is ``effectiveness`` or ``bias``; a cell is empty where there is no number.
    """
    write_text(path, csv_text(MEASURE_COLUMNS, (line for row in report.rows for line in measure_lines(row))))


def write_per_query(path: str | Path, systems: Iterable[tuple[str, Values]]) -> None:
    """Write one line ``system,measure,query_id,value`` per system, measure and query, all digits.

    Args:
        path: a name that ends in ``.gz`` is compressed.
        systems: (label, ``{measure: {query id: value}}``); a label may come more than once.
    """
    lines = (
        (label, measure, query_id, value)
        for label, values in systems
        for measure, by_query in values.items()
        for query_id, value in by_query.items()
    )
    write_text(path, csv_text(("system", "measure", "query_id", "value"), lines))


def measure_lines(row: SystemRow) -> list[tuple[Any, ...]]:
    """Cells of :data:`MEASURE_COLUMNS` for every measure of a system."""
    lines: list[tuple[Any, ...]] = []
    for kind, summary in (("effectiveness", row.effectiveness), ("bias", row.bias)):
        if summary is None:
            continue
        counts = (summary.queries, summary.left_out, summary.missing)
        for measure, figure in summary.figures.items():
            numbers = (figure.mean, figure.absolute_mean, figure.mean_absolute, figure.low, figure.high)
            lines.append((row.label, row.alpha, kind, measure, *numbers, *counts))
    return lines


def system_payload(row: SystemRow) -> dict[str, Any]:
    """A system in the layout of :func:`write_json`."""
    return {
        "label": row.label,
        "alpha": row.alpha,
        "effectiveness": _summary_payload(row.effectiveness),
        "bias": _summary_payload(row.bias),
    }


def dump_json(payload: dict[str, Any]) -> str:
    """JSON text with indentation; numbers that are not finite are refused."""
    return json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """CSV text; None and numbers that are not finite become empty cells, numbers keep all digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    for line in lines:
        writer.writerow([finite(cell) if isinstance(cell, float) else cell for cell in line])
    return buffer.getvalue()


def finite(value: float | None) -> float | None:
    """The number, or None for NaN and infinity, which JSON and spreadsheets do not know."""
    return value if value is not None and math.isfinite(value) else None


def _summary_payload(summary: Summary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    figures = {
        measure: {
            "mean": finite(figure.mean),
            "absolute_mean": finite(figure.absolute_mean),
            "mean_absolute": finite(figure.mean_absolute),
            "low": finite(figure.low),
            "high": finite(figure.high),
        }
        for measure, figure in summary.figures.items()
    }
    return {
        "queries": summary.queries,
        "left_out": summary.left_out,
        "missing": summary.missing,
        "figures": figures,
    }


def _read_row(system: dict[str, Any]) -> SystemRow:
    blocks = (_read_summary(system["effectiveness"]), _read_summary(system["bias"]))
    return SystemRow(system["label"], system["alpha"], *blocks)


def _read_summary(payload: dict[str, Any] | None) -> Summary | None:
    if payload is None:
        return None
    figures = {
        measure: Figure(
            math.nan if numbers["mean"] is None else float(numbers["mean"]),
            math.nan if numbers["mean_absolute"] is None else float(numbers["mean_absolute"]),
            numbers["low"],
            numbers["high"],
        )
        for measure, numbers in payload["figures"].items()
    }
    return Summary(figures, payload["queries"], payload["left_out"], payload["missing"])


def _measures(summaries: Iterable[Summary]) -> list[str]:
    return list(dict.fromkeys(measure for summary in summaries for measure in summary.figures))


def _means(summary: Summary, measures: Iterable[str]) -> list[str]:
    means = [summary.figures[measure].mean if measure in summary.figures else math.nan for measure in measures]
    return [f"{mean:.4f}" if math.isfinite(mean) else _NO_VALUE for mean in means]


def _split(measure: str) -> tuple[str, str]:
    name, _, cutoff = measure.rpartition("@")
    return (name, cutoff) if name else (measure, "")


def _heading(name: str) -> str:
    """``RaB(tf)`` as two lines, measure and magnitude."""
    match = re.fullmatch(r"(\w+)\(([\w-]+)\)", name)
    return f"{match[1]}\n{_MAGNITUDE_TITLES.get(match[2], match[2])}" if match else name


def _title(what: str, where: str, queries: Sequence[int]) -> Text:
    number = _queries(min(queries)) if len(set(queries)) == 1 else f"{min(queries)} to {_queries(max(queries))}"
    return Text(f"{what} on {where} ({number})" if where else f"{what} ({number})")


def _sign_caption(about: About) -> Text:
    sentence = "Mean over queries, closer to 0 is better"
    return Text(f"{sentence}; {about.sign_in_words}" if about.sign_in_words else sentence)


def _counted(numbers: dict[str, int], what: str) -> list[str]:
    """One sentence for all systems when they agree, else one for each system that is concerned."""
    if len(numbers) > 1 and len(set(numbers.values())) == 1:
        numbers = {"every system": next(iter(numbers.values()))}
    return [f"{label}: {_queries(number)} {what}" for label, number in numbers.items() if number]


def _queries(number: int) -> str:
    return "1 query" if number == 1 else f"{number} queries"


def _joined(*parts: tuple[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts if value not in (None, ""))
