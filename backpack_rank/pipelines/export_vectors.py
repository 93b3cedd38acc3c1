"""``backpack-rank export vectors``: the vectors of a collection, for a database that has its own
search.

A document has two vectors, and their concatenation serves every alpha:

    q . e_alpha = [q ; alpha q] . [e_0 ; e - e_0]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backpack_rank.checks import one_of
from backpack_rank.constructors import check_value
from backpack_rank.data.collection import Collection
from backpack_rank.data.rotation import original_collection
from backpack_rank.files import atomic_path
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.nodes import plain_options
from backpack_rank.pipelines.option_types import Alpha
from backpack_rank.pipelines.retrieve import SPLITS
from backpack_rank.pipelines.settings import slugify
from backpack_rank.progress import printable
from backpack_rank.reranking.dense import Dense

FORMATS = ("npy", "parquet")


def export_vectors(config: Mapping[str, Any]) -> Path:
    """Encode the documents and the queries of a collection, write their vectors, and say where.

    What is encoded is said by ``conf/vectors.yaml`` and the command line.

    ::

        backpack-rank export vectors data=dl19 first_stage=dense first_stage.checkpoint=FOLDER

    Without ``alpha``, a document has [e_0 ; e - e_0], of twice the dimensions; with it, e_alpha.

    Raises:
        ValueError: there is no data, or ``first_stage`` is no encoder.
        ModuleNotFoundError: Parquet needs a library.
    """
    quiet_libraries()
    options = plain_options(config)
    split, form, alpha = options["split"], options["format"], options["alpha"]
    one_of("split", split, SPLITS)
    one_of("format", form, FORMATS)
    check_value("alpha", alpha, Alpha | None)
    if "name" not in (options.get("data") or {}):
        raise ValueError("export vectors needs the collection to encode: add data=...")
    write = _write_npy if form == "npy" else _parquet()
    dataset = dataset_of(options["data"], options.get("first_stage"))
    stage = dataset.first_stage(split)
    if not isinstance(stage, Dense):
        raise ValueError(
            f"the first stage {stage.name} makes no vectors: add first_stage=dense "
            "first_stage.checkpoint=FOLDER"
        )
    collection = original_collection(dataset.split(split))
    folder = Path(options["output"] or Path("outputs", "vectors", slugify(collection.name)))
    with atomic_path(folder.expanduser()) as made:
        made.mkdir()
        write(made, stage, collection, alpha)
    size = stage.dimensions * (1 if alpha is not None else 2)
    number = len(collection.documents)
    print(printable(f"{number:,} documents of {collection.name}, {size:,} numbers each: {folder}"))
    return folder


def document_vectors(stage: Dense, collection: Collection, alpha: float | None) -> Iterator[Any]:
    """What a database holds of the documents, in blocks. float32 [n, 2 d], or [n, d] at an alpha"""
    for vectors, neutral in stage.pairs_of_vectors(collection.documents):
        if alpha is None:
            yield np.concatenate([neutral, vectors - neutral], axis=1)
        else:
            yield neutral + np.float32(alpha) * (vectors - neutral)


def query_vectors(stage: Dense, collection: Collection) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the queries [Q, d], and which are searched for without the dial [Q]."""
    asks_for_group = ~stage.is_turned(list(collection.queries.values()))
    queries = stage.encoding.queries(collection.queries)[:, : stage.dimensions]
    return queries, asks_for_group


def _write_npy(folder: Path, stage: Dense, collection: Collection, alpha: float | None) -> None:
    rows = None
    start = 0
    for block in document_vectors(stage, collection, alpha):
        if rows is None:
            shape = (len(collection.documents), block.shape[1])
            rows = np.lib.format.open_memmap(
                folder / "vectors.npy", mode="w+", dtype=np.float32, shape=shape
            )
        rows[start : start + len(block)] = block
        start += len(block)
    queries, asks = query_vectors(stage, collection)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "asks_for_group.npy", asks)
    _write_ids(folder / "ids.txt", (doc_id for doc_id, _ in collection.documents))
    _write_ids(folder / "query_ids.txt", collection.queries)


def _write_ids(path: Path, ids: Any) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for name in ids:
            file.write(f"{name}\n")


def _parquet() -> Any:
    """Writes Parquet. Raises ``ModuleNotFoundError`` without its library, before anything else."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "format=parquet needs pyarrow: pip install pyarrow, or take format=npy"
        ) from error

    def columns(ids: Sequence[str], vectors: np.ndarray) -> dict[str, Any]:
        flat = pyarrow.array(vectors.reshape(-1))
        rows = pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        return {"id": pyarrow.array(ids, pyarrow.string()), "vector": rows}

    def write(folder: Path, stage: Dense, collection: Collection, alpha: float | None) -> None:
        ids = [doc_id for doc_id, _ in collection.documents]
        start = 0
        writer = None
        for block in document_vectors(stage, collection, alpha):
            table = pyarrow.table(columns(ids[start : start + len(block)], block))
            if writer is None:
                writer = pyarrow.parquet.ParquetWriter(folder / "vectors.parquet", table.schema)
            writer.write_table(table)
            start += len(block)
        if writer is not None:
            writer.close()
        queries, asks = query_vectors(stage, collection)
        of_queries = columns(list(collection.queries), queries)
        of_queries["asks_for_group"] = pyarrow.array(asks)
        pyarrow.parquet.write_table(pyarrow.table(of_queries), folder / "queries.parquet")

    return write
