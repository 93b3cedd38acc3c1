"""``backpack-rank retrieve``: the candidates of a collection, as a TREC run.

They are those of BM25 or another first stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backpack_rank.checks import one_of
from backpack_rank.constructors import check_value
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.trec import write_run
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.nodes import plain_options
from backpack_rank.pipelines.option_types import Alpha, Alphas
from backpack_rank.pipelines.settings import slugify
from backpack_rank.progress import printable

SPLITS = ("test", "dev", "train")


def retrieve(config: Mapping[str, Any]) -> Path:
    """Search, write the run, and give its path.

    What to search for is said by ``conf/retrieve.yaml`` and the command line.

    ::

        backpack-rank retrieve data=beir data.folder=my_collection output=bm25.trec

    With ``alpha``, a run is written for each position of the dial, and the path of the last is
    given.

    Raises:
        ValueError: there is no data or no such split, the data has no first stage, or ``alpha`` is
            given and the first stage has no dial.
        IsADirectoryError: ``output`` is a folder.
    """
    quiet_libraries()
    options = plain_options(config)
    split = options["split"]
    one_of("split", split, SPLITS)
    check_value("alpha", options["alpha"], Alpha | Alphas | None)
    if "name" not in (options.get("data") or {}):
        raise ValueError("retrieve needs the collection to search: add data=..., one of conf/data")
    dataset = dataset_of(options["data"], options.get("first_stage"))
    path = _path(options["output"], f"{dataset.name}-{split}")
    collection = dataset.split(split)
    if options["alpha"] is None:
        name, run = dataset.candidates(split, collection)
        _write(path, name, run, collection)
        return path
    alphas = options["alpha"] if isinstance(options["alpha"], list) else [options["alpha"]]
    for alpha, (name, run) in dataset.candidates_at(split, collection, alphas).items():
        path_at_alpha = path.with_name(f"{path.stem}-alpha={alpha:g}{path.suffix}")
        _write(path_at_alpha, name, run, collection)
    return path_at_alpha


def _write(path: Path, name: str, run: Run, collection: Collection) -> None:
    write_run(path, run, "-".join(name.split()))
    documents = sum(map(len, run.values()))
    print(
        printable(f"{name}: {documents:,} documents of {collection.name} for {len(run):,} queries")
    )
    empty = [query_id for query_id, documents_of_query in run.items() if not documents_of_query]
    if empty:
        print(printable(f"No document for {len(empty):,} of them, such as {empty[0]}"))
    print(printable(f"Run: {path}"))


def _path(output: str | None, name: str) -> Path:
    """Where the run goes; looked at before anything is searched."""
    if output is None:
        path = Path("outputs", "retrieve", f"{slugify(name)}.trec")
    else:
        path = Path(str(output)).expanduser()
    if path.is_dir():
        raise IsADirectoryError(
            f"output={path}: this is a folder; give the run a name, such as {path / 'bm25.trec'}"
        )
    return path
