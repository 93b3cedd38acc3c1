"""A collection of long documents: evaluate.py and ``backpack-rank rerank`` read it in chunks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from in_process import evaluated
from reranked import reranked
from workplace import Workplace

import backpack_rank
from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import read_run, write_run

CHUNKS = [
    "scoring.long_documents=chunks",
    "scoring.max_chunks_per_doc=3",
    "scoring.chunk_overlap=8",
]
POLICY = "paired_tokens"


@pytest.fixture(scope="module")
def long_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder in which every fourth document is forty others, one after the other."""
    folder = tmp_path_factory.mktemp("long")
    collection = load_synthetic("test", test_queries=4, documents=60)
    texts = dict(collection.documents)
    short = list(texts.values())
    for place, doc_id in enumerate(list(texts)[::4]):
        texts[doc_id] = " ".join(short[place:] + short[:place])
    rows = [{"_id": doc_id, "title": "", "text": text} for doc_id, text in texts.items()]
    write_jsonl(folder / "corpus.jsonl", rows)
    queries = [{"_id": key, "text": text} for key, text in collection.queries.items()]
    write_jsonl(folder / "queries.jsonl", queries)
    first = {key: {doc: -float(n) for n, doc in enumerate(texts)} for key in collection.queries}
    write_run(folder / "first.trec", first, "first")
    return folder


def options_of(folder: Path) -> list[str]:
    return ["data=beir", f"data.folder={folder}", f"policy={POLICY}", *CHUNKS]


def scores_in_python(trained: Workplace, folder: Path, alpha: float, **options) -> dict:
    """The scores of ``predict``, query by query."""
    reranker = backpack_rank.load(trained.newest("train") / "ranker")
    collection = load_beir(folder, "test")
    scores = {}
    for query_id, query in collection.queries.items():
        texts = dict(collection.documents)
        pairs = [(query, text) for text in texts.values()]
        predicted = reranker.predict(pairs, alpha=alpha, policy=POLICY, **options).tolist()
        scores[query_id] = dict(zip(texts, predicted, strict=True))
    return scores


def all_scores(run: dict) -> list[float]:
    """The scores of all queries together, lowest first."""
    scores: list[float] = []
    for scores_of_query in run.values():
        scores += scores_of_query.values()
    return sorted(scores)


def assert_equal_runs(run: dict, expected: dict) -> None:
    assert set(run) == set(expected)
    for query_id, scores in expected.items():
        assert run[query_id] == pytest.approx(scores, abs=1e-5)


@pytest.fixture(scope="module")
def scores_in_chunks(trained: Workplace, long_texts: Path) -> dict[float, dict]:
    options = {"long_documents": "chunks", "max_chunks_per_doc": 3, "chunk_overlap": 8}
    return {alpha: scores_in_python(trained, long_texts, alpha, **options) for alpha in (1.0, 0.5)}


@pytest.mark.slow
def test_evaluate_ranks_by_the_best_chunks(trained, long_texts, scores_in_chunks, tmp_path) -> None:
    run = long_texts / "first.trec"
    evaluated(
        trained,
        tmp_path,
        *options_of(long_texts),
        "first_stage=run",
        f"first_stage.path={run}",
        "alpha=0.5",
        "swap=false",
    )
    (path,) = (tmp_path / "runs").glob("alpha-0.5__*.run")
    assert_equal_runs(read_run(path), scores_in_chunks[0.5])


@pytest.mark.slow
def test_rerank_sweeps_and_leaves_out_what_is_below_a_threshold(
    trained, long_texts, scores_in_chunks, tmp_path, caplog
) -> None:
    options = [*options_of(long_texts), f"run={long_texts / 'first.trec'}", "alpha=[1,0.5]"]
    folder = reranked(trained, *options, f"folder={tmp_path}", "shards=2")
    for label, alpha in (("alpha-1", 1.0), ("alpha-0.5", 0.5)):
        assert_equal_runs(read_run(folder / "runs" / label / "run.txt"), scores_in_chunks[alpha])
    cut_scores = scores_in_python(trained, long_texts, 1.0)
    changes = []
    for query_id, scores_of_query in cut_scores.items():
        for doc_id, cut_score in scores_of_query.items():
            changes.append(scores_in_chunks[1.0][query_id][doc_id] - cut_score)
    assert max(changes) > 1e-3
    assert min(changes) > -1e-5

    scores = all_scores(scores_in_chunks[0.5])
    threshold = (scores[99] + scores[100]) / 2
    reranked(trained, f"folder={tmp_path}", "action=merge", f"score_threshold={threshold}", *CHUNKS)
    kept = read_run(folder / "runs" / "alpha-0.5" / "run.txt")
    assert all_scores(kept) == pytest.approx(scores[100:], abs=1e-5)
    metadata = yaml.safe_load((folder / "runs" / "alpha-0.5" / "ir-metadata.yml").read_text())
    assert "'documents below the threshold': 100" in str(metadata)
    assert "'max_chunks_per_doc': 3" in str(metadata)


@pytest.mark.slow
def test_a_plan_is_one_of_its_chunks(trained, long_texts, tmp_path) -> None:
    options = [*options_of(long_texts), f"run={long_texts / 'first.trec'}", f"folder={tmp_path}"]
    reranked(trained, *options, "action=plan")
    with pytest.raises(ValueError, match=r"it differs in .*long documents"):
        reranked(trained, *options, "scoring.max_chunks_per_doc=2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["score_threshold=high"], "score_threshold=high must be a number"),
        (["score_threshold=nan"], "score_threshold=nan must be"),
        (["scoring.long_documents=all"], "scoring.long_documents=all: use one of cut, chunks"),
    ],
)
def test_wrong_values_are_named(trained, tmp_path, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        reranked(trained, f"folder={tmp_path}", *options)
