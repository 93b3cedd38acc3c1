"""Rankings of passage lists in a file, as they come: a job that was interrupted goes on from there."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backpack_rank.digests import digest
from backpack_rank.files import write_text
from backpack_rank.position.lists.base import ListwiseRanker, RankerWrapper, Ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.progress import Progress

log = logging.getLogger(__name__)


class RankingCache:
    """Rankings by list, kept in a JSON Lines file to which every new one is appended."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Read what is there.

        Args:
            path: of the file; it need not exist.
            settings: everything but the list that a ranking depends on; rankings under others are
                not taken.
        """
        self.path = path
        self._settings = json.dumps(settings, sort_keys=True, default=str)
        self._known: dict[str, Ranking] = {}
        if path.is_file():
            self._read()

    def __contains__(self, one: PassageList) -> bool:
        return self._key(one) in self._known

    def __getitem__(self, one: PassageList) -> Ranking:
        return self._known[self._key(one)]

    def add(self, lists: Sequence[PassageList], rankings: Sequence[Ranking]) -> None:
        """Keep rankings and append them to the file; they are on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as handle:
            for one, ranking in zip(lists, rankings, strict=True):
                key = self._key(one)
                self._known[key] = ranking
                line = {
                    "key": key,
                    "query_id": one.query_id,
                    "ids": list(one.ids),
                    "order": ranking.order.tolist(),
                    "named": ranking.num_ranked,
                    "scores": None if ranking.scores is None else ranking.scores.tolist(),
                }
                handle.write(json.dumps({**line, "checksum": _checksum(line)}) + "\n")
            handle.flush()
            os.fsync(handle.fileno())

    def _key(self, one: PassageList) -> str:
        parts = json.dumps([self._settings, one.query, one.passages, one.ids, one.query_id])
        return digest(parts)

    def _read(self) -> None:
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        whole = []
        for line in lines:
            try:
                row = json.loads(line)
                if row.pop("checksum", None) not in (None, _checksum(row)):  # older files have none
                    continue
                scores = None if row["scores"] is None else np.array(row["scores"])
                self._known[row["key"]] = Ranking(np.array(row["order"]), scores, row["named"])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            whole.append(line.rstrip("\n") + "\n")  # a kill may have kept the end of the last line
        if len(whole) < len(lines):
            log.warning(
                "%s: %d damaged lines are left out and ranked again",
                self.path,
                len(lines) - len(whole),
            )
        if whole != lines:
            write_text(self.path, "".join(whole))


def _checksum(line: Mapping[str, Any]) -> str:
    return digest(json.dumps(line), algorithm="xxh3")


class CachedRanker(RankerWrapper):
    """Keeps every ranking in a file as it comes, and ranks only what is not there yet."""

    def __init__(self, ranker: ListwiseRanker, known: RankingCache, lists_per_call: int) -> None:
        """``lists_per_call``: lists that the ranker gets at once; their rankings are then kept."""
        super().__init__(ranker)
        self.known, self.lists_per_call = known, lists_per_call

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """One ranking for each list; several lists that are equal are ranked once."""
        distinct = list(dict.fromkeys(lists))
        missing = [one for one in distinct if one not in self.known]
        if (there := len(distinct) - len(missing)) > 0:
            log.info("%s: %d of %d lists are ranked already", self.known.path, there, len(distinct))
        with Progress(total=len(missing), desc=f"ranking by {self.name}", unit="list") as bar:
            for start in range(0, len(missing), self.lists_per_call):
                part = missing[start : start + self.lists_per_call]
                self.known.add(part, self.ranker.rank(part))
                bar.update(len(part))
        return [self.known[one] for one in lists]
