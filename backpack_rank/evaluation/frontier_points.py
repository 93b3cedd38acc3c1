"""Measured points of a frontier in a file that grows: methods at positions of their dial, by seed.

JSON lines of two kinds. A line of queries holds for the points below it, until another one names
the measure again; a point has its values in that order, in five digits::

    {"queries": {"nDCG@10": ["q1", "q2"]}}
    {"method": "renditions", "ranker": "backpack", "alpha": 0.5, "seed": 0, "values": {"nDCG@10": [0.51, 1.0]}}
"""  # noqa: E501  a line of the file is one line

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backpack_rank.data.json_lines import read_jsonl
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.files import write_text


@dataclass(frozen=True)
class Point:
    """What was measured of one method at one position of its dial, with one seed.

    >>> point = Point("renditions", "backpack", 0.5, 0, PerQuery({"nDCG@10": {"q1": 0.51}}))
    >>> point.place
    ('renditions', 0.5, 0)

    Attributes:
        method: its name.
        ranker: name of the ranker that it acts on.
        alpha: position of the dial; 1 for a ranker as it is.
        seed: of the ranker's training.
        values: of every measure, for each query.
    """

    method: str
    ranker: str
    alpha: float
    seed: int
    values: PerQuery

    @property
    def place(self) -> tuple[str, float, int]:
        """What tells it from other points of a file."""
        return self.method, self.alpha, self.seed


class PointFile:
    """Keeps the points of one collection, and goes on with those that are there.

    ::

        points = PointFile("benchmarks/results/frontier/dl19.jsonl")
        if ("renditions", 0.5, 0) not in points.by_place:
            points.add([Point("renditions", "backpack", 0.5, 0, values)])

    Attributes:
        path: of the file, which is always complete.
        by_place: the points.
    """

    def __init__(self, path: str | Path) -> None:
        """
        Args:
            path: of a file that :meth:`add` has written, or of none yet.

        Raises:
            ValueError: a line is no such line; the file and its number are named.
        """
        self.path = Path(path)
        self.by_place: dict[tuple[str, float, int], Point] = {}
        self._read()

    def add(self, points: Iterable[Point]) -> None:
        """Write further points; a point of the same place is replaced."""
        # Another process may have measured another ranker in the meantime.
        self._read()
        for point in points:
            self.by_place[point.place] = point
        known: dict[str, list[str]] = {}
        lines = []
        for point in self.by_place.values():
            new_queries = {}
            values = {}
            for measure, by_query in point.values.values.items():
                query_ids = sorted(by_query)
                if known.get(measure) != query_ids:
                    new_queries[measure] = query_ids
                values[measure] = [float(f"{by_query[query_id]:.5g}") for query_id in query_ids]
            known |= new_queries
            if new_queries:
                lines.append(json.dumps({"queries": new_queries}))
            about = {"method": point.method, "ranker": point.ranker, "alpha": point.alpha}
            lines.append(json.dumps({**about, "seed": point.seed, "values": values}))
        write_text(self.path, "\n".join(lines) + "\n")

    def _read(self) -> None:
        queries: dict[str, list[str]] = {}

        def point_of(record: dict[str, Any]) -> Point | None:
            if "queries" in record:
                queries.update(record["queries"])
                return None
            return _point_of(record, queries)

        if self.path.is_file():
            for _, point in read_jsonl(self.path, point_of):
                if point is not None:
                    self.by_place[point.place] = point


def _point_of(record: Mapping[str, Any], queries: Mapping[str, list[str]]) -> Point:
    try:
        values = {}
        for measure, numbers in record["values"].items():
            values[measure] = dict(zip(queries[measure], map(float, numbers), strict=True))
        return Point(
            method=str(record["method"]),
            ranker=str(record["ranker"]),
            alpha=float(record["alpha"]),
            seed=int(record["seed"]),
            values=PerQuery(values),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no point of a frontier: {error}") from error
