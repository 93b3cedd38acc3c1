"""Queries that are documents, as in ArguAna and Quora: a query is not ranked for itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from beir_folders import write_beir
from in_process import configured

from backpack_rank import evaluate
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import Bm25, GivenCandidates, RunFile
from backpack_rank.data.public.downloads import Downloads
from backpack_rank.data.public.names import QUERIES_ARE_DOCUMENTS
from backpack_rank.data.public.sets import SETS, get
from backpack_rank.data.rotation import Rotation, rotated_collection
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.sources.trec import load_trec
from backpack_rank.data.sources.union import load_union
from backpack_rank.data.trec import write_run
from backpack_rank.pipelines.evaluate import evaluate as evaluated
from backpack_rank.reranking.rerankers import FirstStageOrder

TEXTS = {
    "a1": "taxes on sugar help the health of children",
    "a2": "taxes on sugar do not help the health of anybody",
    "b1": "school uniforms make children equal",
    "b2": "school uniforms do not make any children equal",
}
COUNTERS = {"a1": "a2", "b1": "b2"}
QUERIES = {query_id: TEXTS[query_id] for query_id in COUNTERS}
QRELS = {query_id: {doc_id: 1} for query_id, doc_id in COUNTERS.items()}
# Each query's own document stands first.
RUN = {query_id: dict.fromkeys(TEXTS, 1.0) | {query_id: 9.0} for query_id in COUNTERS}


def write_folder(folder: Path, _: object = None) -> None:
    """ArguAna's layout, with counters as judgements."""
    write_beir(folder, QUERIES, TEXTS, QRELS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "arguments")
    write_run(tmp_path / "arguments" / "run.trec", RUN, "t")
    return tmp_path / "arguments"


def has_own(run) -> bool:
    return any(query_id in documents for query_id, documents in run.items())


@pytest.mark.parametrize("name", QUERIES_ARE_DOCUMENTS)
def test_data_get_builds_these_sets_with_the_rule(name, tmp_path, monkeypatch):
    monkeypatch.setitem(SETS, name, replace(SETS[name], build=write_folder))
    built = get(name, tmp_path / "data", Downloads(tmp_path / "downloads"))
    collection = load_beir(built.folder, "test")
    assert collection.ignore_identical_ids
    _, run = Dataset.of(collection, Bm25(cache=False)).candidates("test")
    # BM25 would rank the query first, which shares all words with itself.
    assert {query_id: next(iter(documents)) for query_id, documents in run.items()} == COUNTERS


@pytest.mark.parametrize("stage", ["bm25", "given", "file"])
@pytest.mark.parametrize("how", ["beir", "trec", "select", "rotated", "union"])
def test_no_route_from_a_collection_to_candidates_has_a_query_s_own_document(folder, how, stage):
    first_stage = {
        "bm25": Bm25(cache=False),
        "given": GivenCandidates(),
        "file": RunFile(folder / "run.trec"),
    }[stage]
    if how == "trec":
        names = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "run.trec")
        files = [folder / name for name in names]
        collection = load_trec("arguments", *files, ignore_identical_ids=True)
    else:
        collection = load_beir(folder, "test", candidates="run.trec", ignore_identical_ids=True)
    assert not has_own(collection.candidates)
    if how == "select":
        collection = collection.select_queries(["b1"])
    if how == "rotated":
        collection = rotated_collection(collection, Rotation())
    if how == "union":
        if stage == "file":
            pytest.skip("a run file has no ids of a union")
        collection = load_union({"x": collection})
    dataset = Dataset.of(collection, first_stage)
    if how == "select" and stage == "file":
        first_stage = RunFile(folder / "run.trec", other_queries=True)
        dataset = Dataset.of(collection, first_stage)
    _, run = dataset.candidates("test")
    assert len(run) == len(collection.queries)
    assert all(run.values())
    assert not has_own(run)


@pytest.mark.slow
@pytest.mark.parametrize(("ignore", "expected"), [("true", 1.0), ("null", 1 / 2)])
def test_a_finished_run_is_measured_without_it_and_else_a_note_says_so(
    folder, tmp_path, ignore, expected
):
    # The own document first, the counter second.
    ranked = {q: {q: 3.0, counter: 2.0} for q, counter in COUNTERS.items()}
    write_run(tmp_path / "mine.trec", ranked, "t")
    options = ["data=beir", f"data.folder={folder}", f"data.ignore_identical_ids={ignore}"]
    options += [f"run={tmp_path / 'mine.trec'}", "measures=['RR@10']", "bias.families=[RaB]"]
    report = evaluated(configured("evaluate", *options), tmp_path / "out")
    (row,) = report.rows
    assert row.effectiveness.figures["RR@10"].mean == pytest.approx(expected)
    notes = [note for note in report.about.notes if "ranked for themselves" in note]
    assert len(notes) == (ignore == "null")
    if notes:
        assert "2 of 2 queries" in notes[0]
        assert "ignore_identical_ids=true" in notes[0]


def test_from_python_too():
    collection = Collection("arguments", MemoryStore(TEXTS), QUERIES, QRELS)
    for ignore, expected in ((False, 0.5), (True, 1.0)):
        data = replace(collection, ignore_identical_ids=ignore)
        table = evaluate(FirstStageOrder("again"), data, measures=["RR@10"])
        assert table.report().rows[0].effectiveness.figures["RR@10"].mean == expected
        assert any("ranked for themselves" in note for note in table.info.notes) != ignore


def test_ids_that_two_numberings_share_are_no_own_documents(caplog):
    # As in MS MARCO, whose queries and passages are numbered apart.
    collection = Collection("m", MemoryStore({"1": "roof", "2": "x roof"}), {"1": "a roof"}, {})
    _, run = Dataset.of(collection, Bm25(cache=False)).candidates("test")
    assert "1" in run["1"]
    assert not caplog.records
