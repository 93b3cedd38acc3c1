"""The ir_datasets source, with the real library offline: tiny files stand where it keeps its
downloads.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import ir_datasets
import pytest
from irds_home import PASSAGES, build_home, run_offline
from worker_processes import working

from backpack_rank.data.sources.irds import IrDatasetsStore, load_irds


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_home(tmp_path_factory.mktemp("irds"))


_SHOW = """
def show(collection):
    c = collection
    return [c.name, list(c.queries.items()), c.qrels, c.candidates and {q: list(s) for q, s in c.candidates.items()},
            dict(c.documents)]
"""


@pytest.mark.slow
def test_the_dev_set_of_ms_marco_has_queries_judgements_and_candidates(home: Path) -> None:
    script = "print(json.dumps(show(load_irds('msmarco-passage/dev/small'))))"
    shown = run_offline(home, _SHOW + script)
    assert shown == [
        "msmarco-passage/dev/small",
        [["300", "what does a nurse do"], ["200", "who flies"]],
        {"300": {"0": 1}, "200": {"1": 1}},
        {"300": ["0", "2", "7"], "200": ["1"]},
        PASSAGES,
    ]


def test_the_unordered_lists_of_msmarco_cannot_be_cut(home: Path) -> None:
    script = """
try:
    load_irds('msmarco-passage/dev/small', depth=2)
except ValueError as error:
    print(json.dumps(str(error)))
"""
    message = run_offline(home, script)
    beginning = "msmarco-passage/dev/small: the 3 or more scoreddocs of query '300' all have the"
    assert message.startswith(f"{beginning} score 0")
    assert "so there is no best 2" in message


def test_msmarco_qna_train_gives_training_lists(home: Path) -> None:
    script = """
lists = load_irds('msmarco-qna/train', answerable_only=True)
every = load_irds('msmarco-qna/train', depth=2)
shown = show(lists)[:4]
texts = [lists.documents.get_many(scores) for scores in lists.candidates.values()]
print(json.dumps([shown, texts, {q: list(s) for q, s in every.candidates.items()}, len(lists.documents)]))
"""
    shown, texts, cut, documents = run_offline(home, _SHOW + script)
    assert shown == [
        "msmarco-qna/train",
        [["11", "nurse duties"], ["13", "flying"]],
        {"11": {"2-0": 0, "0-0": 1, "7-0": 0}, "13": {"0-0": 0, "1-1": 1}},
        {"11": ["2-0", "0-0", "7-0"], "13": ["0-0", "1-1"]},  # the order in which they were shown
    ]
    assert texts[1] == {"0-0": PASSAGES["0"], "1-1": PASSAGES["1"]}
    assert cut == {"11": ["2-0", "0-0"], "12": ["1-0", "0-1"], "13": ["0-0", "1-1"]}
    assert documents == 7  # passages of the three splits by page, train, dev and eval


@pytest.mark.slow
def test_data_msmarco_dl_trains_on_lists_and_tests_on_judged_queries(home: Path) -> None:
    script = """
from hydra import compose, initialize_config_dir
from backpack_rank.files import resource_folder
from backpack_rank.pipelines.chosen_data import dataset_of
with initialize_config_dir(str(resource_folder('conf')), version_base='1.3'):
    options = ['data=msmarco_dl', 'data.train.max_queries=1', 'data.dev.max_queries=1']
    dataset = dataset_of(compose('train', overrides=options).data)
splits = {name: dataset.split(name) for name in ('train', 'dev', 'test')}
candidates = {name: dataset.candidates(name, split)[1] for name, split in splits.items()}
print(json.dumps({name: [split.qrels, {q: list(of) for q, of in candidates[name].items()}]
                  for name, split in splits.items()}))
"""
    shown = run_offline(home, script)
    assert set(shown["train"][0]) <= {"11", "13"}
    assert len(shown["train"][0]) == 1
    assert shown["dev"] == [{"21": {"7-1": 1}}, {"21": ["7-1"]}]
    assert shown["test"] == [{"400": {"7": 3, "1": 0}}, {"400": ["1", "7"]}]


@pytest.mark.slow
def test_a_beir_id_drops_the_space_before_untitled_texts(home: Path) -> None:
    script = "print(json.dumps(show(load_irds('beir/scifact/test', candidates='none'))))"
    shown = run_offline(home, _SHOW + script)
    assert shown == [
        "beir/scifact/test",
        [["1", "cells?"]],
        {"1": {"5": 1}},
        None,
        {"5": "Cells divide.", "6": "Untitled."},
    ]


@pytest.mark.slow
def test_a_parent_id_names_the_ids_below_it(home: Path) -> None:
    script = """
said = []
for arguments in [('beir', {}), ('msmarco-passage', {}), ('beir/scifact/test', {})]:
    try:
        load_irds(arguments[0], **arguments[1])
    except ValueError as error:
        said.append(str(error))
print(json.dumps(said))
"""
    beir, passages, scifact = run_offline(home, script)
    assert beir.startswith("beir has no docs; ids below it: beir/")
    assert passages.startswith(
        "msmarco-passage has no queries; ids below it: msmarco-passage/dev, "
    )
    advice = "set candidates to none or to the path of a TREC run"
    assert scifact == f"beir/scifact/test has no scoreddocs; {advice}"


@pytest.mark.slow
def test_forked_workers_read_the_shared_docstore_of_msmarco_qna(home: Path) -> None:
    script = """
import multiprocessing
store = IrDatasetsStore('msmarco-qna/train')
expected = dict(store)

def work(given):
    for _ in range(300):
        for doc_id, text in expected.items():
            if given.get_many([doc_id])[doc_id] != text:
                sys.exit(1)

context = multiprocessing.get_context('fork')
workers = [context.Process(target=work, args=(store,)) for _ in range(3)]
[worker.start() for worker in workers]
work(store)
[worker.join(60) for worker in workers]
print(json.dumps([worker.exitcode for worker in workers]))
"""
    assert run_offline(home, script) == [0, 0, 0]


# Datasets that are registered from three small files run in this process.


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    files = [tmp_path / name for name in ("docs.tsv", "queries.tsv", "qrels")]
    docs, queries, qrels = files
    docs.write_text("".join(f"d{index}\ttext {index}\n" for index in range(300)))
    queries.write_text("".join(f"q{index}\tquery {index}\n" for index in range(60)))
    labels = [f"q{index} 0 d{index} {index % 3}\n" for index in range(30)]
    # q1 judges d1 twice: 1 and 0.
    qrels.write_text("".join([*labels, "q0 0 extra 2\nq1 0 d1 0\n"]))
    made = ir_datasets.create_dataset(*map(str, files))
    name = f"test-{uuid4().hex}"
    ir_datasets.registry.register(name, made)
    yield name
    del ir_datasets.registry._registered[name]


def test_judged_answerable_and_all_queries(dataset: str) -> None:
    judged = load_irds(dataset, candidates="none")
    assert list(judged.queries) == [f"q{index}" for index in range(30)]
    assert judged.qrels["q0"] == {"d0": 0, "extra": 2}
    assert judged.qrels["q1"] == {"d1": 1}
    assert judged.candidates is None
    answerable = load_irds(dataset, candidates="none", answerable_only=True, name="mine")
    assert answerable.name == "mine"
    assert list(answerable.queries) == ["q0", *(f"q{index}" for index in range(30) if index % 3)]
    assert len(load_irds(dataset, candidates="none", judged_queries_only=False).queries) == 60


def test_a_sample_of_queries_follows_the_seed_and_keeps_the_order(dataset: str) -> None:
    options = {"candidates": "none", "max_queries": 10}
    first, again, other = (load_irds(dataset, **options, seed=seed) for seed in (1, 1, 2))
    assert list(first.queries) == list(again.queries)
    assert list(first.queries) != list(other.queries)
    assert len(first.queries) == 10
    numbers = [int(query_id[1:]) for query_id in first.queries]
    assert numbers == sorted(numbers)
    assert set(first.qrels) == set(first.queries)
    assert len(load_irds(dataset, candidates="none", max_queries=999).queries) == 30


def test_candidates_from_a_run_file_are_checked(dataset: str, tmp_path: Path) -> None:
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 d5 1 2 x\nq1 Q0 d6 2 1 x\nq59 Q0 d6 2 1 x\n")
    assert load_irds(dataset, candidates=str(run), depth=1).candidates == {"q1": {"d5": 2.0}}
    run.write_text("q1 Q0 d5 1 2 x\nq1 Q0 d999 2 1 x\n")
    with pytest.raises(ValueError, match=r"run\.trec, line 2: document id 'd999' of query 'q1'"):
        load_irds(dataset, candidates=str(run))
    with pytest.raises(FileNotFoundError, match="scoreddocs, none, or a path"):
        load_irds(dataset, candidates="bm25")


def test_the_store_fetches_by_id_and_pickles_by_id(dataset: str) -> None:
    store = IrDatasetsStore(dataset)
    assert store.get_many(["d7", "d3", "d7"]) == {"d7": "text 7", "d3": "text 3"}
    assert "d299" in store
    assert "d300" not in store
    assert "d2999" not in store  # longer than every key of the library's index, which cuts it
    assert len(store) == 300
    with pytest.raises(KeyError, match="'d300'"):
        store.get_many(["d1", "d300"])
    data = pickle.dumps(store)
    assert len(data) < 300
    back = pickle.loads(data)
    assert back.get_many(["d1"]) == {"d1": "text 1"}
    assert back.fingerprint == store.fingerprint
    assert [doc_id for doc_id, _ in store] == [f"d{index}" for index in range(300)]


def _check(store: IrDatasetsStore) -> None:
    for _ in range(20):
        for start in range(10):
            wanted = [f"d{index}" for index in range(start, 300, 10)]
            if store.get_many(wanted) != {doc_id: f"text {doc_id[1:]}" for doc_id in wanted}:
                sys.exit(1)


def test_forked_workers_open_their_own_files(dataset: str) -> None:
    store = IrDatasetsStore(dataset)
    assert "d1" in store  # opened before the fork
    with working(_check, [(store,)] * 2):
        _check(store)


def test_errors_say_what_to_do(dataset: str, tmp_path: Path) -> None:
    message = r"no dataset 'msmarco-pasage/dev/small'; close ids: msmarco-passage/dev/small"
    with pytest.raises(ValueError, match=message):
        load_irds("msmarco-pasage/dev/small")
    with pytest.raises(ValueError, match="max_queries=0 must be at least 1"):
        load_irds(dataset, max_queries=0)
    with pytest.raises(ValueError, match="depth=0 must be at least 1"):
        load_irds(dataset, depth=0)
    (tmp_path / "queries.tsv").write_text("q1\t \nq2\tx\n")
    with pytest.raises(ValueError, match=f"{dataset}: the text of query 'q1' is empty"):
        load_irds(dataset, candidates="none")
