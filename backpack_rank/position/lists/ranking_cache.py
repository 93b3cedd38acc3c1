"""Rankings of passage lists in a file, appended as they come.

An interrupted job goes on from there.
"""

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
    """Looks up rankings by list in a JSON Lines file, and appends new ones::

    known = RankingCache(folder / "rankings.jsonl", settings={"model": "my model"})
    known.add(lists, ranker.rank(lists))
    known[lists[0]]  # also in a later process with the same settings
    """

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

    def __contains__(self, passages: PassageList) -> bool:
        return self._key(passages) in self._known

    def __getitem__(self, passages: PassageList) -> Ranking:
        return self._known[self._key(passages)]

    def add(self, lists: Sequence[PassageList], rankings: Sequence[Ranking]) -> None:
        """Keep rankings and append them to the file; they are on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as handle:
            for passages, ranking in zip(lists, rankings, strict=True):
                key = self._key(passages)
                self._known[key] = ranking
                line = {
                    "key": key,
                    "query_id": passages.query_id,
                    "ids": list(passages.ids),
                    "order": ranking.order.tolist(),
                    "named": ranking.num_ranked,
                    "scores": None if ranking.scores is None else ranking.scores.tolist(),
                }
                handle.write(json.dumps({**line, "checksum": _checksum(line)}) + "\n")
            # A ranking may have cost money or hours, so it must outlive a crash of the machine.
            handle.flush()
            os.fsync(handle.fileno())

    def _key(self, passages: PassageList) -> str:
        """A list's key: it changes with the settings, the texts, their order, and the ids."""
        texts = [passages.query, passages.passages]
        ids = [passages.ids, passages.query_id]
        return digest(json.dumps([self._settings, *texts, *ids]))

    def _read(self) -> None:
        """Take all lines that are undamaged, and write the file without the others."""
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        undamaged = []
        for line in lines:
            try:
                row = json.loads(line)
                if row.pop("checksum", None) not in (None, _checksum(row)):  # older files have none
                    continue
                scores = None if row["scores"] is None else np.array(row["scores"])
                self._known[row["key"]] = Ranking(np.array(row["order"]), scores, row["named"])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            # A kill may have kept the end of the last line from the file.
            undamaged.append(line.rstrip("\n") + "\n")
        if len(undamaged) < len(lines):
            log.warning(
                "%s: %d damaged lines are left out and ranked again",
                self.path,
                len(lines) - len(undamaged),
            )
        if undamaged != lines:
            write_text(self.path, "".join(undamaged))


def _checksum(line: Mapping[str, Any]) -> str:
    """A digest of a line without its checksum, which tells damage from JSON that still parses."""
    return digest(json.dumps(line), algorithm="xxh3")


class CachedRanker(RankerWrapper):
    """Keeps every ranking in a file as it comes, and ranks only what is missing::

    known = RankingCache(folder / "rankings.jsonl", settings)
    rankings = CachedRanker(ranker, known, lists_per_call=16).rank(lists)
    """

    def __init__(self, ranker: ListwiseRanker, known: RankingCache, lists_per_call: int) -> None:
        """``lists_per_call``: lists that the ranker gets at once; their rankings are then kept."""
        super().__init__(ranker)
        self.known = known
        self.lists_per_call = lists_per_call

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """A ranking for each list; several lists that are equal are ranked once."""
        distinct = list(dict.fromkeys(lists))
        missing = [passages for passages in distinct if passages not in self.known]
        num_known = len(distinct) - len(missing)
        if num_known > 0:
            log.info(
                "%s: %d of %d lists are ranked already", self.known.path, num_known, len(distinct)
            )
        with Progress(total=len(missing), desc=f"ranking by {self.name}", unit="list") as bar:
            for start in range(0, len(missing), self.lists_per_call):
                part = missing[start : start + self.lists_per_call]
                self.known.add(part, self.ranker.rank(part))
                bar.update(len(part))
        return [self.known[passages] for passages in lists]
