"""Names of the folders that ``backpack-rank data get`` builds, for errors about missing ones."""

from __future__ import annotations

from pathlib import Path

from backpack_rank.commands import called

NAMES = (
    "squad",
    "squad_train",
    "msmarco_dev600",
    "dl19",
    "dl20",
    "trec_dl",
    "gender_bias_ir",
    "grep_biasir",
    "wikiqa",
    "nfcorpus",
    "scifact",
    "arguana",
    "fiqa",
)


def how_to_get(path: str | Path) -> str:
    """Use it at the end of an error about a missing folder or file: the command that gets it.

    >>> how_to_get("/data/dl19/corpus.jsonl")
    '; `backpack-rank data get dl19` gets it'

    Empty where no folder of the path is a public one.
    """
    for part in reversed(Path(path).parts):
        if part in NAMES:
            return f"; `{called('data')} get {part}` gets it"
    return ""
