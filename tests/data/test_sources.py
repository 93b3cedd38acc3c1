"""BEIR folders and TREC files give the same collection; every id that leads nowhere is named."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest
from beir_folders import HEADER, write_beir
from in_process import configured

from backpack_rank.data import documents as stores
from backpack_rank.data.collection import MissingSplitError
from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.sources.trec import load_trec
from backpack_rank.pipelines.chosen_data import dataset_of

CORPUS = [
    {"_id": "d1", "title": "Nurse", "text": "how to become one"},
    {"_id": "d2", "title": "", "text": "salary of a nurse"},
    {"_id": "d3", "title": "Pilot", "text": "training"},
]
QUERIES = {"q1": "nurse job", "q2": "pilot", "q3": "not answered", "q4": "no label"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "toy"
    write_beir(root, QUERIES, {}, {"q1": {"d1": 2, "d3": 0}}, "train")
    write_beir(root, QUERIES, {}, {"q3": {"d1": 0}, "q2": {"d3": 1}}, "test")
    write_jsonl(root / "corpus.jsonl", CORPUS)
    (root / "runs").mkdir()
    lines = ["q1 Q0 d3 1 1 x", "q1 Q0 d2 2 3 x", "q2 Q0 d1 1 5 x", "q4 Q0 d1 1 5 x", ""]
    (root / "runs" / "all.trec").write_text("\n".join(lines))
    return root


def test_a_split_has_the_queries_of_its_qrels_in_the_order_of_the_queries_file(folder) -> None:
    test = load_beir(str(folder), "test", candidates="runs/all.trec")
    assert test.name == "toy/test"
    assert list(test.queries.items()) == [("q2", "pilot"), ("q3", "not answered")]
    assert test.qrels == {"q2": {"d3": 1}, "q3": {"d1": 0}}
    assert test.candidates == {"q2": {"d1": 5.0}}
    assert dict(test.documents) == {
        "d1": "Nurse how to become one",
        "d2": "salary of a nurse",
        "d3": "Pilot training",
    }


def test_options_of_a_beir_folder_choose_queries_candidates_and_names(folder: Path) -> None:
    assert list(load_beir(str(folder), "test", answerable_only=True).queries) == ["q2"]
    every = load_beir(str(folder), "test", judged_queries_only=False)
    assert list(every.queries) == ["q1", "q2", "q3", "q4"]
    assert "q1" not in every.qrels
    options = {"candidates": "runs/all.trec", "depth": 1, "title": False, "name": "mine"}
    train = load_beir(str(folder), "train", **options)
    assert train.name == "mine"
    assert train.candidates == {"q1": {"d2": 3.0}}
    assert train.documents.get_many(["d1"]) == {"d1": "how to become one"}
    assert load_beir(str(folder), "train").candidates is None


def test_a_sample_of_queries_is_drawn_by_its_seed(folder: Path) -> None:
    drawn = [load_beir(str(folder), "test", max_queries=1, seed=seed) for seed in range(20)]
    assert {tuple(sample.queries) for sample in drawn} == {("q2",), ("q3",)}
    assert all(sample.qrels.keys() == sample.queries.keys() for sample in drawn)
    assert load_beir(str(folder), "test", max_queries=1, seed=5).queries == drawn[5].queries
    assert list(load_beir(str(folder), "test", max_queries=9).queries) == ["q2", "q3"]
    message = "max_queries=0 must be at least 1, or null for all queries"
    with pytest.raises(ValueError, match=message):
        load_beir(str(folder), "test", max_queries=0)


def test_every_file_may_be_compressed(folder: Path) -> None:
    plain = load_beir(str(folder), "train", candidates="runs/all.trec")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "runs/all.trec"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    packed = load_beir(str(folder), "train", candidates="runs/all.trec")
    assert (packed.queries, packed.qrels) == (plain.queries, plain.qrels)
    assert packed.candidates == plain.candidates
    assert dict(packed.documents) == dict(plain.documents)
    assert packed.documents.fingerprint == plain.documents.fingerprint


def test_a_big_corpus_stays_on_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"title": True, "memory_limit": 10}
    monkeypatch.setattr(stores.open_documents, "__kwdefaults__", small)
    collection = load_beir(str(folder), "train", candidates="runs/all.trec")
    assert isinstance(collection.documents, stores.OffsetStore)
    assert collection.documents.get_many(["d3"]) == {"d3": "Pilot training"}


def test_complete_labels_replace_those_of_the_split_and_keep_unknown_documents(folder, tmp_path):
    complete = tmp_path / "official.txt"
    complete.write_text("q2 0 d3 3\nq2 0 elsewhere 2\nq3 0 d1 0\nq99 0 d1 1\n")
    collection = load_beir(str(folder), "test", qrels=str(complete))
    assert collection.qrels == {"q2": {"d3": 3, "elsewhere": 2}, "q3": {"d1": 0}}
    assert list(collection.queries) == ["q2", "q3"]
    shutil.rmtree(folder / "qrels")
    complete.write_text("q2 0 d3 3\n")
    assert list(load_beir(str(folder), "test", qrels=str(complete)).queries) == ["q2"]


def test_complete_labels_that_lack_a_query_of_the_split_are_refused(folder, tmp_path) -> None:
    complete = tmp_path / "official.txt"
    complete.write_text("q2 0 d3 3\n")
    message = r"official\.txt has no judgement of query 'q3', which is in .*test\.tsv"
    with pytest.raises(ValueError, match=message):
        load_beir(str(folder), "test", qrels=str(complete))


def test_a_folder_without_dev_judgements_holds_out_training_queries(folder: Path, caplog) -> None:
    with open(folder / "queries.jsonl", "a") as handle:
        for number in range(300):
            handle.write(json.dumps({"_id": f"t{number}", "text": f"query {number}"}) + "\n")
    with open(folder / "qrels" / "train.tsv", "a") as handle:
        handle.writelines(f"t{number}\td1\t1\n" for number in range(300))
    with caplog.at_level("INFO"):
        train, dev = (load_beir(folder, split, dev_fraction=0.2) for split in ("train", "dev"))
    assert not set(train.queries) & set(dev.queries)
    assert len(train.queries) + len(dev.queries) == 301
    assert 40 <= len(dev.queries) <= 80
    sentence = "has no qrels/dev.tsv: data.dev_fraction=0.2 of the training queries"
    assert f"{folder} {sentence}" in caplog.text
    assert list(load_beir(folder, "dev", dev_fraction=0.2).queries) == list(dev.queries)
    # Who is held out does not depend on who else is there.
    shorter = "".join((folder / "qrels" / "train.tsv").read_text().splitlines(keepends=True)[:-100])
    (folder / "qrels" / "train.tsv").write_text(shorter)
    again = load_beir(folder, "dev", dev_fraction=0.2)
    assert list(again.queries) == [query_id for query_id in dev.queries if query_id in again.qrels]
    # With judgements of its own, the dev split is what they say.
    (folder / "qrels" / "dev.tsv").write_text(f"{HEADER}q2\td3\t1\n")
    assert list(load_beir(folder, "dev", dev_fraction=0.2).queries) == ["q2"]
    assert len(load_beir(folder, "train", dev_fraction=0.2).queries) == 201


def test_a_folder_without_judgements_has_all_queries_in_its_test_split_and_no_other(folder, caplog):
    shutil.rmtree(folder / "qrels")
    with caplog.at_level("INFO"):
        test = load_beir(folder, "test")
    assert (list(test.queries), test.qrels) == (["q1", "q2", "q3", "q4"], {})
    assert f"{folder} has no judgements: effectiveness is not measured" in caplog.text
    with pytest.raises(MissingSplitError, match="splits there: none"):
        load_beir(folder, "train", dev_fraction=0.1)


def test_a_dataset_knows_which_splits_a_folder_has(folder: Path) -> None:
    data = dataset_of(configured("evaluate", "data=beir", f"data.folder={folder}").data)
    there = [split for split in ("train", "dev", "test", "bias") if data.has(split)]
    assert there == ["train", "test"]
    with pytest.raises(MissingSplitError, match="leaves none of its 1 training queries to dev"):
        data.split("dev")
    (folder / "qrels" / "train.tsv").unlink()
    data = dataset_of(configured("evaluate", "data=beir", f"data.folder={folder}").data)
    assert [split for split in ("train", "dev", "test") if data.has(split)] == ["test"]


# bad input


def test_missing_folder_and_files_are_named(folder: Path, tmp_path: Path) -> None:
    message = r"no folder .*gone; expected corpus\.jsonl, queries\.jsonl and qrels/dev"
    with pytest.raises(FileNotFoundError, match=message):
        load_beir(str(tmp_path / "gone"), "dev")
    message = r"dev\.tsv \(nor \.gz\); splits there: test, train"
    with pytest.raises(FileNotFoundError, match=message):
        load_beir(str(folder), "dev")
    with pytest.raises(ValueError, match=r"data.dev_fraction=1.5 must lie in \(0, 1\)"):
        load_beir(str(folder), "dev", dev_fraction=1.5)
    with pytest.raises(FileNotFoundError, match=r"runs/none\.trec"):
        load_beir(str(folder), "test", candidates="runs/none.trec")
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"corpus\.jsonl \(nor corpus\.jsonl\.gz\)"):
        load_beir(str(folder), "test")


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        (
            "runs/all.trec",
            "q1 Q0 d9 3 0.5 x\n",
            "line 5: document id 'd9' of query 'q1' is not in the collection",
        ),
        (
            "runs/all.trec",
            "q9 Q0 d1 1 0.5 x\n",
            "line 5: query id 'q9' is not in {root}/queries.jsonl",
        ),
        ("qrels/test.tsv", "q9\td1\t1\n", "line 4: query id 'q9' is not in {root}/queries.jsonl"),
        (
            "qrels/test.tsv",
            "q2\td1\tx\n",
            "line 4: relevance of query 'q2', document 'd1' must be an integer",
        ),
        (
            "queries.jsonl",
            '{"_id": "q5", "text": " "}\n',
            "line 5: the text of query 'q5' is empty",
        ),
        (
            "corpus.jsonl",
            '{"_id": "d1", "text": "again"}\n',
            "line 4: document id 'd1' stands twice, first in line 1",
        ),
    ],
)
def test_ids_that_lead_nowhere_are_named_with_file_and_line(folder, file, line, message) -> None:
    with open(folder / file, "a") as handle:
        handle.write(line)
    expected = f"{folder / file}, {message.format(root=folder)}"
    with pytest.raises(ValueError, match=re.escape(expected)):
        load_beir(str(folder), "test", candidates="runs/all.trec")


def test_a_split_without_a_relevant_document_is_refused(folder: Path) -> None:
    (folder / "qrels" / "dev.tsv").write_text(f"{HEADER}q1\td1\t0\n")
    with pytest.raises(ValueError, match="toy/dev has no queries with a relevant document"):
        load_beir(str(folder), "dev", answerable_only=True)


# TREC files


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    texts = {
        "collection": "d1\tNurse\thow to become one\nd2\t\tsalary of a nurse\nd3\tPilot\ttraining\n",
        "topics": "q1\tnurse job\nq2\tpilot\nq4\tno label\n",
        "qrels": "q1 0 d1 2\nq1 0 d3 0\nq2 0 d8 1\nq77 0 d1 1\n",
        "candidates": "q1 Q0 d3 1 1 x\nq1 Q0 d2 2 3 x\nq4 Q0 d1 1 5 x\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.tsv").write_text(text)
    return {name: str(tmp_path / f"{name}.tsv") for name in texts}


def test_trec_files_give_a_collection(files: dict[str, str]) -> None:
    collection = load_trec("mine", **files, depth=1)  # type: ignore[arg-type]
    assert collection.name == "mine"
    assert collection.queries == {"q1": "nurse job", "q2": "pilot"}
    assert collection.qrels == {"q1": {"d1": 2, "d3": 0}, "q2": {"d8": 1}}
    assert collection.candidates == {"q1": {"d2": 3.0}}
    assert collection.documents.get_many(["d1", "d2"]) == {
        "d1": "Nurse how to become one",
        "d2": "salary of a nurse",
    }


def test_trec_topics_without_qrels_are_only_ranked(files: dict[str, str]) -> None:
    collection = load_trec("mine", files["collection"], files["topics"])
    assert list(collection.queries) == ["q1", "q2", "q4"]
    assert collection.qrels == {}
    assert collection.candidates is None


def test_trec_errors_name_the_file(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.tsv \(topics\)"):
        load_trec("mine", files["collection"], str(tmp_path / "gone.tsv"))
    Path(files["candidates"]).write_text("q1 Q0 d1 1 1 x\nq1 Q0 d9 2 0 x\n")
    message = r"candidates\.tsv, line 2: document id 'd9' of query 'q1'"
    with pytest.raises(ValueError, match=message):
        load_trec("mine", **files)  # type: ignore[arg-type]


# real data


@pytest.mark.slow
def test_wikiqa_has_its_published_counts(real_data: Path) -> None:
    root = str(real_data / "wikiqa")
    test = load_beir(root, "test", candidates="candidates/test.trec", title=False)
    assert len(test.queries) == 633
    assert len(test.documents) == 28_876
    assert test.candidates is not None
    assert set(test.candidates) == set(test.queries)
    for split, count in (("train", 873), ("dev", 126), ("test", 243)):
        assert len(load_beir(root, split, answerable_only=True).queries) == count


def test_dl19_takes_its_complete_labels_from_another_file(real_data: Path) -> None:
    folder = str(real_data / "dl19")
    complete = str(real_data / "trec_dl" / "qrels.dl19-passage.txt")
    dl19 = load_beir(folder, "test", candidates="candidates/bm25.trec", qrels=complete)
    assert len(dl19.queries) == 43
    assert sum(len(judged) for judged in dl19.qrels.values()) == 9_260
    assert dl19.candidates is not None
    assert {len(scores) for scores in dl19.candidates.values()} == {100}
    own = load_beir(folder, "test").qrels
    assert sum(len(judged) for judged in own.values()) == 3_983


@pytest.mark.slow
def test_squad_train_is_read_from_gzip_files(real_data, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path))
    root = real_data / "squad_train"
    dev = load_beir(str(root), "dev")
    assert (len(dev.queries), len(dev.documents)) == (2_922, 18_896)
    on_disk = stores.OffsetStore(root / "corpus.jsonl.gz")
    some = [next(iter(judged)) for judged in dev.qrels.values()][::50]
    assert on_disk.get_many(some) == dev.documents.get_many(some)
    assert len(on_disk) == 18_896
