"""``backpack-rank retrieve``: a run of BM25, or of another first stage, alone."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from in_process import configured

from backpack_rank import cli
from backpack_rank.checks import UsageError
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import read_run
from backpack_rank.pipelines.retrieve import retrieve

SMALL = ["data=synthetic", "+data.test.test_queries=6", "+data.test.documents=40"]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_run_is_that_of_bm25(working_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = retrieve(configured("retrieve", *SMALL, "output=runs/bm25.trec"))
    assert written.resolve() == working_folder / "runs" / "bm25.trec"
    expected = Bm25(depth=20, cache=False).candidates(
        load_synthetic("test", test_queries=6, documents=40)
    )
    run = read_run(written)
    assert {query_id: list(documents) for query_id, documents in run.items()} == {
        query_id: list(documents) for query_id, documents in expected.items()
    }
    assert {line.split()[-1] for line in written.read_text().splitlines()} == {"BM25"}
    total = sum(map(len, expected.values()))
    assert (
        capsys.readouterr().out.splitlines()[0]
        == f"BM25: {total} documents of synthetic/test for 6 queries"
    )


def test_another_first_stage_of_another_split_and_a_compressed_file(working_folder: Path) -> None:
    options = [
        "data=synthetic",
        "+data.dev.dev_queries=3",
        "+data.dev.documents=30",
        "split=dev",
        "output=dev.trec.gz",
    ]
    written = retrieve(configured("retrieve", *options, "first_stage=bm25", "first_stage.depth=2"))
    assert len(gzip.decompress(written.read_bytes()).splitlines()) == 3 * 2


def test_without_a_name_the_run_lies_in_outputs_and_empty_queries_are_named(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(working_folder / "own" / "corpus.jsonl", [{"_id": "d1", "text": "two nurses"}])
    write_jsonl(
        working_folder / "own" / "queries.jsonl",
        [{"_id": "q1", "text": "nurse"}, {"_id": "q2", "text": "bread"}],
    )
    assert retrieve(configured("retrieve", "data=beir", "data.folder=own")) == Path(
        "outputs/retrieve/beir-test.trec"
    )
    assert "No document for 1 of them, such as q2" in capsys.readouterr().out


def test_mistakes_are_sentences_before_anything_is_searched(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        ValueError, match=r"retrieve needs the collection to search: add data=\.\.\."
    ):
        retrieve(configured("retrieve"))
    with pytest.raises(
        IsADirectoryError, match=r"output=\.: this is a folder; .* such as bm25\.trec"
    ):
        retrieve(configured("retrieve", *SMALL, "output=."))
    with pytest.raises(ValueError, match="split=tset: use one of test, dev, train"):
        retrieve(configured("retrieve", *SMALL, "split=tset"))
    with pytest.raises(UsageError, match="policy: backpack-rank retrieve has no such option"):
        cli.main(["retrieve", "policy=uniform"])
    with pytest.raises(UsageError, match="backpack-rank retrieve takes no -m"):
        cli.main(["retrieve", "-m", "split=dev,test"])
