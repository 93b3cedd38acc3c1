"""Runs one command of a checkout and says which part of it took how much processor time.

::

    python benchmarks/startup_probe.py CHECKOUT PARTS.json [--first-batch] [--no-network] evaluate [OPTION=VALUE ...]
    python benchmarks/startup_probe.py CHECKOUT PARTS.json rank FOLDER

It imports nothing of the repository that it lies in, so it measures any checkout that has the
methods of :data:`PARTS`.
Every part is the time of its own: what is imported while an index is read is an import.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BORN = (time.process_time(), time.perf_counter())
PARTS = (
    (
        "Hydra composition",
        "hydra._internal.config_loader_impl",
        "ConfigLoaderImpl.load_configuration",
    ),
    ("reading the collection", "backpack_rank.data.dataset", "Dataset.split"),
    ("candidates, BM25", "backpack_rank.data.dataset", "Dataset.candidates"),
    ("loading the ranker", "backpack_rank.pipelines.chosen_ranker", "load_ranker"),
    ("loading the ranker", "backpack_rank.reranking.load", "load_ranker"),
    ("tokens, batches", "backpack_rank.data.batching", "ChunkPortions.__getitem__"),
    ("tokens, batches", "backpack_rank.data.tokenisation", "PairTokenizer.encode"),
    ("network", "backpack_rank.reranking.scorer", "Scorer._forward"),
    ("network", "backpack_rank.reranking.scorer", "Scorer.score_senses"),
    ("network", "backpack_rank.senses.profiles", "attribute_batch"),
    ("keys and files of the cache", "backpack_rank.reranking.cached_scores", "CachedScores._key"),
    ("keys and files of the cache", "backpack_rank.senses.cache", "SenseCache.get"),
    ("swapped texts", "backpack_rank.pipelines.evaluation_data", "swapped_candidates"),
    ("measures", "backpack_rank.pipelines.metrics", "MetricSuite.measure"),
    ("averages, intervals", "backpack_rank.evaluation.result_table", "ResultTable.report"),
    ("paired tests", "backpack_rank.evaluation.result_table", "ResultTable.compare"),
    ("runs, values per query", "backpack_rank.pipelines.evaluation_files", "write_runs"),
    ("runs, values per query", "backpack_rank.pipelines.evaluation_files", "write_per_query"),
    ("runs, values per query", "backpack_rank.pipelines.evaluation_files", "_write_submission"),
    ("report: senses", "backpack_rank.pipelines.page_sections", "sense_profiles"),
    ("report: where changes come from", "backpack_rank.pipelines.report", "attributions"),
    ("report: page", "backpack_rank.pipelines.report", "write_page"),
    ("report: pictures", "backpack_rank.pipelines.report", "write_pictures"),
)
"""Name, module, and the method or function (as the module knows it) whose time it is."""
FIRST = ("backpack_rank.reranking.scorer", "Scorer._forward")


class Stopped(BaseException):
    """The first batch is scored."""


class Clock:
    """Processor and wall seconds by part; the innermost part has the time."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self._open = ["rest"]
        self._last = (0.0, 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time within the block is of this part."""
        self._take()
        self._open.append(name)
        try:
            yield
        finally:
            self._take()
            self._open.pop()

    def _take(self) -> None:
        now = (time.process_time(), time.perf_counter() - BORN[1] + BORN[0])
        spent = self.seconds.setdefault(self._open[-1], [0.0, 0.0])
        for kind in (0, 1):
            spent[kind] += now[kind] - self._last[kind]
        self._last = now

    def result(self) -> dict[str, list[float]]:
        """Part to processor and wall seconds."""
        self._take()
        return {name: [round(value, 3) for value in both] for name, both in self.seconds.items()}


class Probe:
    """Puts a clock around imports and the parts, as their modules come in."""

    def __init__(self, first_batch: bool, network: bool) -> None:
        self.clock = Clock()
        self._first_batch, self._network = first_batch, network
        self._waiting = list(PARTS)
        self._import, self._depth = builtins.__import__, 0

    def start(self) -> None:
        """From here on."""
        builtins.__import__ = self._importing(builtins.__import__)  # type: ignore[assignment]
        importlib.import_module = self._importing(importlib.import_module)  # type: ignore[assignment]

    def _importing(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def imported(*args: Any, **options: Any) -> Any:
            if self._depth:
                return work(*args, **options)
            self._depth += 1
            before = len(sys.modules)
            try:
                with self.clock.part("imports"):
                    found = work(*args, **options)
            finally:
                self._depth -= 1
            if len(sys.modules) != before:
                self._patch()
            return found

        return imported

    def _patch(self) -> None:
        for entry in list(self._waiting):
            name, module, path = entry
            if module in sys.modules:
                owner: Any = sys.modules[module]
                *classes, last = path.split(".")
                for one in classes:
                    owner = getattr(owner, one)
                setattr(owner, last, self._timed(name, getattr(owner, last), (module, path)))
                self._waiting.remove(entry)

    def _timed(
        self, name: str, work: Callable[..., Any], place: tuple[str, str]
    ) -> Callable[..., Any]:
        if place == FIRST and not self._network:
            work = _no_forward

        def timed(*args: Any, **options: Any) -> Any:
            with self.clock.part(name):
                found = work(*args, **options)
            if self._first_batch and place == FIRST:
                raise Stopped
            return found

        return timed


def _no_forward(scorer: Any, batch: Any, *_: Any, **__: Any) -> Any:
    """Values of the right shapes in place of a forward pass: they depend on lengths and first
    tokens alone.
    """
    import types

    import torch

    config = scorer.ranker.config
    ends = torch.tensor(batch.lengths).cumsum(0) - 2
    seeds = (batch.input_ids[ends] % 97).float()[:, None, None] / 97
    vectors = torch.linspace(-1, 1, config.total_senses * config.hidden_size).reshape(
        config.total_senses, -1
    )
    return types.SimpleNamespace(senses=vectors * seeds, scores=seeds[:, 0, 0])


def main() -> None:
    """Run the command, stopped or to its end, and write its parts."""
    checkout, out, *words = sys.argv[1:]
    flags = {word for word in words if word.startswith("--")}
    command, *given = [word for word in words if word not in flags]
    sys.path[0] = checkout
    probe = Probe("--first-batch" in flags, "--no-network" not in flags)
    probe.start()
    sys.argv = [str(Path(checkout) / "evaluate.py")]
    try:
        if command == "rank":
            import backpack_rank

            backpack_rank.load(given[0]).rank(
                "who can rewire a house?", ["She is an electrician.", "He sells flowers."]
            )
        else:
            from backpack_rank.cli import evaluate

            evaluate(given)
    except Stopped:
        # The end of the process is no part of its start.
        Path(out).write_text(json.dumps(probe.clock.result()))
        os._exit(0)
    Path(out).write_text(json.dumps(probe.clock.result()))


if __name__ == "__main__":
    main()
