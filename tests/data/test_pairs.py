"""A table of pairs is a collection, whatever its format; what is wrong with a row is named."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from in_process import configured
from ir_measures import nDCG

from backpack_rank.data.collection import MissingSplitError
from backpack_rank.data.sources.pairs import load_pairs
from backpack_rank.pipelines.evaluate import evaluate

ROWS: list[dict[str, Any]] = [
    {"search": "roofer", "passage": "She repairs\nroofs.", "our_score": 1.5, "judged": 1},
    {"search": "roofer", "passage": 'He sells "roofs".', "our_score": 2.0, "judged": 0},
    {"search": "joiner", "passage": 'He sells "roofs".', "our_score": -1.0, "judged": None},
    {"search": "joiner", "passage": "Doors, windows.", "our_score": 3.0, "judged": 2},
]
COLUMNS = {"query": "search", "text": "passage", "score": "our_score", "label": "judged"}


def table(separator: str, rows: list[dict[str, Any]] = ROWS) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def lines(rows: list[dict[str, Any]] = ROWS) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pairs.csv", table(",")),
        ("pairs.csv", b"\xef\xbb\xbf" + table(";")),
        ("pairs.tsv.gz", gzip.compress(table("\t"))),
        ("pairs.jsonl", lines()),
        ("pairs.parquet", b""),
    ],
    ids=["commas", "semicolons and a mark", "tabs, packed", "json", "parquet"],
)
def test_every_format_gives_the_same_collection(name: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / name
    if name.endswith("parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    else:
        file.write_bytes(content)
    pairs = load_pairs(file, **COLUMNS)
    assert pairs.queries == {"q1": "roofer", "q2": "joiner"}
    assert dict(pairs.documents) == {
        "d1": "She repairs\nroofs.",
        "d2": 'He sells "roofs".',
        "d3": "Doors, windows.",
    }
    assert pairs.candidates == {"q1": {"d1": 1.5, "d2": 2.0}, "q2": {"d2": -1.0, "d3": 3.0}}
    assert pairs.qrels == {"q1": {"d1": 1, "d2": 0}, "q2": {"d3": 2}}
    assert pairs.field_values("our_score", ["d3"]) in ({"d3": "3.0"}, {"d3": 3.0})


def test_ids_of_columns_are_kept_and_without_scores_the_order_is_that_of_the_rows(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("qid,query,doc,text\n7,roofer,z,Roofs.\n7,roofer,a,Doors.\n")
    pairs = load_pairs(file, query_id="qid", doc_id="doc")
    assert pairs.queries == {"7": "roofer"}
    assert list(pairs.candidates["7"]) == ["z", "a"]
    assert pairs.candidates["7"]["z"] > pairs.candidates["7"]["a"]
    assert pairs.qrels == {}


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("a,b\n1,2\n", {}, 'no column \'query\' (data.query); its columns are ["a", "b"]'),
        ("query,text\nroofer, \n", {}, "line 2: column 'text' must hold a text, and holds ' '"),
        ("query,text\nroofer\n", {}, "line 2: 2 cells expected, found 1"),
        ('query,text\nroofer,"Roofs.\n', {}, "line 2: unexpected end of data"),
        ("query,text\n", {}, "has no rows"),
        (
            'query,text\n"two\nlines",Roofs.\nroofer,a\nroofer,a\n',
            {},
            "line 5: this pair of query and text stands in line 4 already",
        ),
        ("query,text,s\nroofer,a,high\n", {"score": "s"}, "line 2: column 's' must hold a number"),
        ("query,text,s\nroofer,a,nan\n", {"score": "s"}, "line 2: column 's' must hold a number"),
        ("query,text,s\nroofer,a,\n", {"score": "s"}, "line 2: column 's' has no score"),
        ("query,text,l\nroofer,a,.5\n", {"label": "l"}, "line 2: column 'l' has 0.5, and labels"),
        ("query,text,d\nr,a,1\nr,b,1\n", {"doc_id": "d"}, "line 3: text '1' has another text"),
        ("query,text,d\nr,a,x y\n", {"doc_id": "d"}, "line 2: column 'd' must not be empty or"),
    ],
)
def test_what_is_wrong_is_named(
    content: str, options: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(content)
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        load_pairs(file, **options)
    assert str(file) in str(refused.value)


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "pairs.parquet"
    file.write_bytes(b"PAR1 not much more PAR1")
    with pytest.raises(ValueError, match=f"{file} is no Parquet file"):
        load_pairs(file)


def test_dev_has_the_queries_that_test_has_not(tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("query,text\n" + "".join(f"query {n},text {n}\n" for n in range(40)))
    with pytest.raises(MissingSplitError, match=r"data\.dev_fraction=0\.5 makes half"):
        load_pairs(file, "dev")
    dev, test = (load_pairs(file, split, dev_fraction=0.5) for split in ("dev", "test"))
    assert sorted([*dev.queries, *test.queries]) == sorted(load_pairs(file).queries)
    assert 10 < len(dev.queries) < 30


def test_the_scores_of_pairs_are_measured_as_a_run(tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_bytes(table(","))
    options = [f"data.{option}={column}" for option, column in COLUMNS.items()]
    config = configured("evaluate", "run=first_stage", "data=pairs", f"data.file={file}", *options)
    report = evaluate(config, tmp_path / "out", quiet=True)
    assert report is not None
    (row,) = report.rows
    assert row.label == "given"
    note = (
        "No ranking has more than 2 documents: measures of bias at 5, 10, 20, 30, 40 are of these"
    )
    assert any(line.startswith(note) for line in report.about.notes)
    # What ir_measures says of the same run and judgements, written by hand.
    run = {"q1": {"d1": 1.5, "d2": 2.0}, "q2": {"d2": -1.0, "d3": 3.0}}
    qrels = {"q1": {"d1": 1, "d2": 0}, "q2": {"d3": 2}}
    expected = ir_measures.calc_aggregate([nDCG @ 10], qrels, run)[nDCG @ 10]
    figure = row.figure("nDCG@10")
    assert figure is not None
    assert figure.mean == pytest.approx(expected)
    # The first two documents of q1, "He sells" and "She repairs": log(1 + 1) each, so even at 2.
    bias = row.figure("RaB(tf)@10")
    assert bias is not None
    assert bias.mean == pytest.approx((0 + 0.6931471805599453 / 2) / 2)
