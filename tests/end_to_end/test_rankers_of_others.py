"""``evaluate.py checkpoint=...`` of rankers that were trained elsewhere: a classifier's folder, and
a server.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_rankers import bert, saved, score, served
from in_process import configured, evaluated, inline
from rerank_servers import running
from workplace import Workplace

from backpack_rank.data.trec import read_run
from backpack_rank.pipelines.train import train
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.serving.jobs import served as ranker_served

QUERIES = {"q1": "the nurse saw", "q2": "bread and fish"}
DOCUMENTS = {"d1": "he saw the nurse", "d2": "she saw the nurse", "d3": "bread and fish"}
DATA = inline(QUERIES, DOCUMENTS, qrels={"q1": {"d1": 1, "d2": 1}, "q2": {"d3": 1}})


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def test_a_classifier_is_audited_and_its_words_are_moved(place: Workplace) -> None:
    folder = place.folder / "cross_encoder"
    saved(bert, folder)
    report = evaluated(
        place,
        place.folder / "out",
        f"checkpoint={folder}",
        "alpha=0",
        "policy=paired_tokens",
        data=DATA,
    )
    assert report is not None
    assert [row.label for row in report.rows][-1] == "alpha=0"
    run = read_run(place.folder / "out" / "runs" / "alpha-0__inline.run")
    assert run["q1"]["d1"] == pytest.approx(run["q1"]["d2"], abs=1e-5), "he and she are one word"
    plain = evaluated(place, place.folder / "plain", f"checkpoint={folder}", data=DATA)
    assert plain is not None
    assert [row.label for row in plain.rows][-1] == "alpha=1"
    run = read_run(place.folder / "plain" / "runs" / "alpha-1__inline.run")
    assert abs(run["q1"]["d1"] - run["q1"]["d2"]) > 1e-3


def test_a_server_is_audited(place: Workplace) -> None:
    with served("jina") as (url, _):
        report = evaluated(place, place.folder / "out", f"checkpoint={url}", data=DATA)
        assert report is not None
        run = read_run(place.folder / "out" / "runs" / "alpha-1__inline.run")
        expected = {doc_id: score(QUERIES["q1"], text) for doc_id, text in DOCUMENTS.items()}
        assert run["q1"] == pytest.approx(expected, abs=1e-5)
        with pytest.raises(ValueError, match="out of reach"):
            evaluated(
                place,
                place.folder / "b",
                f"checkpoint={url}",
                "alpha=0",
                "policy=paired_tokens",
                data=DATA,
            )


def test_the_projects_own_server_is_audited_as_the_ranker_behind_it(
    place: Workplace, make_backpack, pair_tokenizer
) -> None:
    reranker = PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))
    with running({"mine": lambda: ranker_served("mine", reranker)}) as server:
        assert (
            evaluated(place, place.folder / "out", f"checkpoint={server.url}", data=DATA)
            is not None
        )
    file = place.folder / "out" / "runs" / "alpha-1__inline.run"
    scores = reranker.predict([(QUERIES["q2"], text) for text in DOCUMENTS.values()])
    assert read_run(file)["q2"] == pytest.approx(
        dict(zip(DOCUMENTS, scores.tolist(), strict=True)), abs=1e-5
    )


def test_a_classifier_is_not_trained_further(place: Workplace) -> None:
    folder = place.folder / "cross_encoder"
    saved(bert, folder)
    with pytest.raises(
        ValueError, match="was trained elsewhere; start from its weights with model"
    ):
        train(
            configured("train", f"checkpoint={folder}", f"output={place.output}"),
            place.folder / "run",
            [],
        )
