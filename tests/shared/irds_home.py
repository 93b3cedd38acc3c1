"""A home folder of ir_datasets with tiny files where the library keeps its downloads, and a process
that uses it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

PASSAGES = {
    "0": "The nurse worked in a hospital.",
    "1": "Pilots fly planes.",
    "2": "A nurse needs training and a licence.",
    "7": "Straßenbahn drivers pass an exam.",
}


_ENDINGS = ("a", "ela", "inor", "ova", "urt", "eck", "iso", "ane", "ol", "um")

# The library reads its home folder when it is imported, so its own datasets run in a process of
# their own.


def _tar(path: Path, members: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            data = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def write_gzip(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def _qna(rows: list[tuple[int, str, list[tuple[int, str, int | None]]]]) -> str:
    """A file of msmarco-qna; rows are (query id, text, [(passage id, url, selected)])."""
    data: dict[str, dict[str, Any]] = {
        key: {} for key in ("answers", "passages", "query", "query_type", "query_id")
    }
    for index, (query_id, text, passages) in enumerate(rows):
        labelled = (
            [] if passages[0][2] is None else ["is_selected"]
        )  # the eval file has no labels and no answers
        if labelled:
            data["answers"][str(index)] = ["No Answer Present."]
        data["passages"][str(index)] = [
            dict.fromkeys(labelled, selected) | {"passage_text": PASSAGES[str(number)], "url": url}
            for number, url, selected in passages
        ]
        data["query"][str(index)] = text
        data["query_type"][str(index)] = "DESCRIPTION"
        data["query_id"][str(index)] = query_id
    return json.dumps(data)


def build_home(root: Path) -> Path:
    """Files of msmarco-passage, msmarco-qna and beir/scifact below ``root``."""
    passage = root / "msmarco-passage"
    _tar(
        passage / "collectionandqueries.tar.gz",
        {
            "collection.tsv": "".join(f"{key}\t{text}\n" for key, text in PASSAGES.items()),
            "queries.dev.small.tsv": "300\twhat does a nurse do\n200\twho flies\n",
            "qrels.dev.small.tsv": "300\t0\t0\t1\n200\t0\t1\t1\n",
        },
    )
    deep = passage / "trec-dl-2019"
    deep.mkdir()
    (deep / "queries.tsv").write_text("400\twho drives\n401\tnobody judged this\n")
    (deep / "qrels").write_text("400 0 7 3\n400 0 1 0\n")
    (deep / "ms.run").write_text("400\t7\n400\t1\n401\t2\n")
    (passage / "dev").mkdir()
    (passage / "dev" / "ms.run").write_text("300\t2\n300\t7\n300\t0\n200\t1\n")
    write_gzip(
        root / "msmarco-document" / "collection.tsv.gz",
        "<DOC>\n<DOCNO>D1</DOCNO>\n<TEXT>\nhttp://a\ntitle\nbody\n</TEXT>\n</DOC>\n",
    )
    qna = root / "msmarco-qna"
    train = [
        (11, "nurse duties", [(2, "http://a", 0), (0, "http://b", 1), (7, "http://b", 0)]),
        (12, "nothing useful", [(1, "http://c", 0), (0, "http://c", 0)]),
        (13, "flying", [(0, "http://b", 0), (1, "http://a", 1)]),
    ]
    write_gzip(qna / "train_v2.1.json.gz", _qna(train))
    write_gzip(qna / "dev_v2.1.json.gz", _qna([(21, "exam", [(7, "http://d", 1)])]))
    write_gzip(qna / "eval_v2.1_public.json.gz", _qna([(31, "open", [(7, "http://d", None)])]))
    beir = root / "beir" / "scifact"
    beir.mkdir(parents=True)
    with zipfile.ZipFile(beir / "source.zip", "w") as archive:
        corpus = [
            {"_id": "5", "title": "Cells", "text": "divide.", "metadata": {}},
            {"_id": "6", "title": "", "text": "Untitled.", "metadata": {}},
        ]
        archive.writestr("scifact/corpus.jsonl", "".join(json.dumps(row) + "\n" for row in corpus))
        archive.writestr(
            "scifact/queries.jsonl",
            '{"_id": "1", "text": "cells?", "metadata": {}}\n{"_id": "2", "text": "other", "metadata": {}}\n',
        )
        archive.writestr("scifact/qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\t5\t1\n")
    return root


def add_training_files(root: Path, queries: int) -> list[str]:
    """Files that ``data=msmarco`` reads to train and to validate, with so many training queries.

    Returns:
        All texts.
    """
    rng = random.Random(0)
    words = [f"{first}{last}" for first in "bcdfghklmnprst" for last in _ENDINGS]

    def text(shortest: int, longest: int) -> str:
        return " ".join(rng.choice(words) for _ in range(rng.randint(shortest, longest)))

    # The dev and eval files below show one of PASSAGES; the library looks every text up.
    passages = [text(20, 90) for _ in range(2 * queries)] + list(PASSAGES.values())
    data: dict[str, dict[str, Any]] = {
        key: {} for key in ("answers", "passages", "query", "query_type", "query_id")
    }
    lines: list[str] = []
    for number in range(queries):
        row = str(number)
        shown = [(2 * number + place) % (2 * queries) for place in range(10)]
        lines.append(text(3, 9))
        data["query"][row] = lines[-1]
        data["query_id"][row] = 1000 + number
        data["query_type"][row] = "DESCRIPTION"
        data["answers"][row] = ["No Answer Present."]
        # Three of five queries have a passage that was selected, as in the published file.
        data["passages"][row] = [
            {
                "is_selected": int(place == number % 10 and number % 5 < 3),
                "passage_text": passages[passage],
                "url": f"http://site{passage // 3}.org/{passage}",
            }
            for place, passage in enumerate(shown)
        ]
    qna = root / "msmarco-qna"
    write_gzip(qna / "train_v2.1.json.gz", json.dumps(data))
    few = [(21, "exam", [(7, "http://d", 1)])]
    write_gzip(qna / "dev_v2.1.json.gz", _qna(few))
    write_gzip(qna / "eval_v2.1_public.json.gz", _qna([(31, "open", [(7, "http://d", None)])]))
    write_gzip(
        root / "msmarco-document" / "collection.tsv.gz",
        "<DOC>\n<DOCNO>D1</DOCNO>\n<TEXT>\nhttp://a\ntitle\nbody\n</TEXT>\n</DOC>\n",
    )
    collection = "".join(f"{number}\t{passage}\n" for number, passage in enumerate(passages))
    passage_home = root / "msmarco-passage"
    _tar(passage_home / "collectionandqueries.tar.gz", {"collection.tsv": collection})
    dev = "".join(f"{number}\t{lines[number]}\n" for number in range(20))
    _tar(passage_home / "queries.tar.gz", {"queries.dev.tsv": dev})
    (passage_home / "dev").mkdir()
    labels = "".join(f"{number} 0 {2 * number} 1\n" for number in range(20))
    (passage_home / "dev" / "qrels").write_text(labels)
    second = root / "msmarco-passage-v2" / "dev2"
    second.mkdir(parents=True)
    (second / "queries.tsv").write_text(dev)
    return [*lines, *passages]


def run_offline(home: Path, script: str) -> Any:
    """What a script prints as JSON that has imported all of the ir_datasets source."""
    environment = dict(
        os.environ,
        IR_DATASETS_HOME=str(home),
        BACKPACK_RANK_CACHE=str(home / "our cache"),
        IR_DATASETS_SKIP_DISK_FREE="true",
        IR_DATASETS_DL_TRIES="1",
        http_proxy="http://127.0.0.1:9",  # a download would fail at once
        https_proxy="http://127.0.0.1:9",
    )
    lines = ["import json, sys", "from backpack_rank.data.sources.irds import *", script]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
