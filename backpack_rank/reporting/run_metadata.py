"""A run with its description, in the form that TIRA and TIREx take.

A folder gets ``run.txt`` and ``ir-metadata.yml``. ir_metadata 0.1 (Breuer, Keller and Schaer, SIGIR
2022) describes a run by platform, research goal, implementation, method, actor and data.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from backpack_rank.data.collection import Run
from backpack_rank.data.trec import write_run
from backpack_rank.files import write_text
from backpack_rank.reporting.page.provenance import git_commit, installed_version

TEAM = "BACKPACK_RANK_TEAM"
"""The variable with the name of the team, which only its members know."""
FILE = "ir-metadata.yml"
_GOAL = "Rank documents for queries, and measure and reduce bias of the ranking."
_LIBRARIES = ("backpack-rank", "torch", "transformers", "ir-measures")


def write_submission(
    folder: Path,
    run: Run,
    tag: str,
    *,
    collection: str,
    description: str,
    stages: Sequence[Mapping[str, Any]],
) -> None:
    """Write a run as ``run.txt``, and what is known of it as ``ir-metadata.yml``.

    Args:
        folder: gets both files.
        run: the ranking.
        tag: of the run, and name of the method.
        collection: name of the test collection.
        description: of the method, a sentence.
        stages: of the ranking, first to last, each with ``name`` and what else is known of it.
    """
    write_run(folder / "run.txt", run, tag)
    write_metadata(folder, tag, collection=collection, description=description, stages=stages)


def write_metadata(
    folder: Path,
    tag: str,
    *,
    collection: str,
    description: str,
    stages: Sequence[Mapping[str, Any]],
) -> None:
    """Where the run is written already; arguments as of :func:`write_submission`."""
    libraries = []
    for name in _LIBRARIES:
        version = installed_version(name)
        if version:
            libraries.append(f"{name}=={version}")
    retrieval = []
    for number, stage in enumerate(stages):
        described = dict(stage)
        # The first stage retrieves; each other one ranks what the one before it gives.
        if number > 0:
            described["reranks"] = stages[number - 1]["name"]
        retrieval.append(described)
    content = {
        "platform": {
            "hardware": {
                "cpu": {"architecture": platform.machine(), "number of cores": os.cpu_count()}
            },
            "operating system": {
                "kernel": platform.release(),
                "distribution": platform.system(),
            },
            "software": {"libraries": libraries},
        },
        "research goal": {"description": _GOAL},
        "implementation": {
            "executable": {"cmd": shlex.join(sys.argv)},
            "source": {
                "lang": ["python"],
                "repository": "backpack-rank",
                "commit": git_commit(Path(__file__).parent) or "a release",
            },
        },
        "method": {
            "name": tag,
            "description": description,
            "automatic": True,
            "score ties": "none: an equal score is lowered to the next float32",
            "retrieval": retrieval,
        },
        "actor": {"team": os.environ.get(TEAM, f"not said; set {TEAM}")},
        "data": {"test collection": {"name": collection}},
        "tag": tag,
    }
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
    write_text(folder / FILE, f"# ir_metadata.start\n{text}# ir_metadata.end\n")
