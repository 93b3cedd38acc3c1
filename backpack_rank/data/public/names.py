"""Names of the folders that ``backpack-rank data get`` builds, for errors about missing ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backpack_rank.commands import called

VARIABLE = "BACKPACK_RANK_DATA"

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
    "xquad_en",
    "nq_open_oracle",
    "gender_sentences",
    "nfcorpus",
    "scifact",
    "arguana",
    "quora",
    "fiqa",
    "sorting",
)
QUERIES_ARE_DOCUMENTS = ("arguana", "quora")
"""Collections of BEIR in which a query's own document has to be left out."""
SOURCE = "source.json"
"""File of a built folder that says where it is from."""
IDENTICAL_IDS = "ignore_identical_ids"
"""Key of it: whether queries are documents of the collection."""
GROUPS = {
    "minilm": ("msmarco_dev600", "dl19", "dl20", "trec_dl", "gender_bias_ir", "grep_biasir"),
}
"""Names for several: what ``recipe=minilm`` and its measures need."""
_READ_WITH = {"dl19": ("trec_dl", "gender_bias_ir"), "dl20": ("trec_dl",)}
"""Folders that ``data=dl19`` reads beside its own."""


def how_to_get(path: str | Path) -> str:
    """At the end of an error about a missing folder or file: the command that gets it.

    >>> how_to_get("/data/wikiqa/corpus.jsonl")
    '; `backpack-rank data get wikiqa` gets it'
    >>> print(how_to_get("/data/dl20/corpus.jsonl"))
    ; `backpack-rank data get dl20 trec_dl` gets it, `data get minilm` all that recipe=minilm needs

    Empty where no folder of the path is a public one.
    """
    for part in reversed(Path(path).parts):
        if part in NAMES:
            names = " ".join((part, *_READ_WITH.get(part, ())))
            command = f"; `{called('data')} get {names}` gets it"
            for group, members in GROUPS.items():
                if part in members:
                    command += f", `data get {group}` all that recipe={group} needs"
            return command
    return ""


def data_folder() -> Path:
    """The folder that options name: that of ``BACKPACK_RANK_DATA``, else ``data`` here."""
    return Path(os.environ.get(VARIABLE) or "data").expanduser()


@contextmanager
def named_data_folder() -> Iterator[None]:
    """Around whatever reads options: ``BACKPACK_RANK_DATA`` names :func:`data_folder` then.

    What ``data get`` built is found without the variable, by further processes of a training too.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        os.environ[VARIABLE] = str(data_folder().absolute())
    try:
        yield
    finally:
        if given is not None:
            os.environ[VARIABLE] = given
        else:
            os.environ.pop(VARIABLE, None)
