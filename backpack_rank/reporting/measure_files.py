"""Measures as files: ``measures.json``, ``measures.csv``, ``per_query.csv``."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backpack_rank.evaluation.results import (
    Estimate,
    Report,
    RunInfo,
    Summary,
    SystemResult,
    Values,
)
from backpack_rank.files import open_text, write_text
from backpack_rank.reporting.writers import csv_text, dump_json, finite, read_cell

FORMAT = "backpack_rank measures 1"
PER_QUERY_COLUMNS = ("system", "measure", "query_id", "value")
_NUMBERS = (
    "mean",
    "absolute_mean",
    "mean_absolute",
    "low",
    "high",
    "absolute_mean_low",
    "absolute_mean_high",
    "mean_absolute_low",
    "mean_absolute_high",
)
_COUNTS = ("queries", "left_out", "missing")
MEASURE_COLUMNS = ("system", "alpha", "kind", "measure", *_NUMBERS, *_COUNTS)


def write_report(folder: str | Path, report: Report) -> tuple[Path, Path]:
    """Write ``measures.json`` and ``measures.csv``; returns their paths."""
    json_path = Path(folder) / "measures.json"
    csv_path = Path(folder) / "measures.csv"
    write_json(json_path, report)
    write_csv(csv_path, report)
    return json_path, csv_path


def write_json(path: str | Path, report: Report) -> None:
    """Write a report as JSON with all digits; the file is complete or absent.

    Layout; a block is null where nothing was computed, a number is null where it is not finite::

        {"format": "backpack_rank measures 1",
         "about": {"effectiveness_set": "wikiqa/test", "bias_set": ..., "alpha": 0.5,
                   "policy": ..., "preset": ..., "lexicon": ..., "tokenizer": ...,
                   "sign": "male_minus_female", "sign_in_words": ..., "notes": []},
         "systems": [
             {"label": "alpha=0.5", "alpha": 0.5,
              "effectiveness": {
                  "queries": 243, "left_out": 390, "missing": 0,
                  "figures": {"nDCG@10": {"mean": 0.4, "absolute_mean": 0.4, "mean_absolute": 0.4,
                                          "low": 0.38, "high": 0.42,
                                          "absolute_mean_low": 0.38, ...}}},
              "bias": {..., "figures": {"RaB(tf)@10": {...}}},
              "further": {"swap": {...}, "swapped documents": {...}, "wordings": {...}}}]}
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
            about = RunInfo(**{**payload["about"], "notes": tuple(payload["about"]["notes"])})
            return Report(tuple(_read_row(system) for system in payload["systems"]), about)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is no file of measures in the layout {FORMAT!r}: {error}"
            ) from error


def write_csv(path: str | Path, report: Report) -> None:
    """Write one line per system and measure, all digits, columns :data:`MEASURE_COLUMNS`.

    ``kind`` is ``effectiveness``, ``bias`` or one of ``further``; a cell is empty where there is no
    number.
    """
    lines: list[tuple[Any, ...]] = []
    for row in report.rows:
        lines += measure_lines(row)
    write_text(path, csv_text(MEASURE_COLUMNS, lines))


def write_per_query(path: str | Path, systems: Iterable[tuple[str, Values]]) -> None:
    """Write one line ``system,measure,query_id,value`` per system, measure and query, all digits.

    Args:
        path: a name that ends in ``.gz`` is compressed.
        systems: (label, ``{measure: {query id: value}}``); a label may come more than once.
    """
    write_text(path, csv_text(PER_QUERY_COLUMNS, _per_query_lines(systems)))


def _per_query_lines(
    systems: Iterable[tuple[str, Values]],
) -> Iterator[tuple[str, str, str, float]]:
    for label, values in systems:
        for measure, by_query in values.items():
            for query_id, value in by_query.items():
                yield label, measure, query_id, value


def read_per_query(path: str | Path) -> dict[str, dict[str, dict[str, float]]]:
    """Read what :func:`write_per_query` wrote: ``{system: {measure: {query id: value}}}``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: another header, a line with other than four cells, a value that is no finite
            number, or a second value for a system, measure and query; names file and line.
    """
    values: dict[str, dict[str, dict[str, float]]] = {}
    with open_text(path) as handle:
        lines = csv.reader(handle)
        try:
            if tuple(next(lines, ())) != PER_QUERY_COLUMNS:
                raise ValueError(f"the header must be {','.join(PER_QUERY_COLUMNS)}")
            for cells in lines:
                _read_value(cells, values)
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path}, line {max(1, lines.line_num)}: {error}") from error
    return values


def measure_lines(row: SystemResult) -> list[tuple[Any, ...]]:
    """Cells of :data:`MEASURE_COLUMNS` for every measure of a system."""
    lines: list[tuple[Any, ...]] = []
    for kind, summary in row.blocks.items():
        counts = [getattr(summary, name) for name in _COUNTS]
        for measure, figure in summary.figures.items():
            numbers = _numbers(figure).values()
            lines.append((row.label, row.alpha, kind, measure, *numbers, *counts))
    return lines


def system_payload(row: SystemResult) -> dict[str, Any]:
    """A system in the layout of :func:`write_json`."""
    return {
        "label": row.label,
        "alpha": row.alpha,
        "effectiveness": _summary_payload(row.effectiveness),
        "bias": _summary_payload(row.bias),
        "further": {kind: _summary_payload(block) for kind, block in row.further.items()},
    }


def _summary_payload(summary: Summary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    payload: dict[str, Any] = {name: getattr(summary, name) for name in _COUNTS}
    payload["figures"] = {}
    for measure, figure in summary.figures.items():
        numbers = {name: finite(number) for name, number in _numbers(figure).items()}
        payload["figures"][measure] = numbers
    return payload


def _read_value(cells: Sequence[str], values: dict[str, dict[str, dict[str, float]]]) -> None:
    """Put one line of per-query values where it belongs."""
    if len(cells) != len(PER_QUERY_COLUMNS):
        raise ValueError(
            f"{','.join(PER_QUERY_COLUMNS)} are needed, but there are {len(cells)} cells"
        )
    system, measure, query_id, value = *map(read_cell, cells[:3]), cells[3]
    by_query = values.setdefault(system, {}).setdefault(measure, {})
    if query_id in by_query:
        raise ValueError(f"a second value of {measure} for system {system!r}, query {query_id!r}")
    try:
        by_query[query_id] = float(value)
    except ValueError:
        raise ValueError(f"the value {value!r} is not a number") from None
    if not math.isfinite(by_query[query_id]):
        raise ValueError(f"the value {value!r} is not finite")


def _numbers(figure: Estimate) -> dict[str, float | None]:
    """Every number of a figure, named as in the files and in their order."""
    # The interval of the absolute mean follows from that of the mean.
    ends = figure.absolute_mean_interval or (None, None)
    numbers = {}
    for name in _NUMBERS:
        if name == "absolute_mean_low":
            numbers[name] = ends[0]
        elif name == "absolute_mean_high":
            numbers[name] = ends[1]
        else:
            numbers[name] = getattr(figure, name)
    return numbers


def _read_row(system: dict[str, Any]) -> SystemResult:
    effectiveness = _read_summary(system["effectiveness"])
    bias = _read_summary(system["bias"])
    further = {}
    for kind, payload in system.get("further", {}).items():
        summary = _read_summary(payload)
        if summary is not None:
            further[kind] = summary
    return SystemResult(system["label"], system["alpha"], effectiveness, bias, further)


def _read_summary(payload: dict[str, Any] | None) -> Summary | None:
    if payload is None:
        return None
    figures = {}
    for measure, numbers in payload["figures"].items():
        figures[measure] = Estimate(
            mean=_not_null(numbers["mean"]),
            mean_absolute=_not_null(numbers["mean_absolute"]),
            low=numbers["low"],
            high=numbers["high"],
            # Files of version 0.1 do not have these.
            mean_absolute_low=numbers.get("mean_absolute_low"),
            mean_absolute_high=numbers.get("mean_absolute_high"),
        )
    return Summary(figures, payload["queries"], payload["left_out"], payload["missing"])


def _not_null(number: float | None) -> float:
    return math.nan if number is None else float(number)
