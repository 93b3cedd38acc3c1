"""``evaluate.py checkpoint=...`` of rankers that were trained elsewhere: a classifier's folder, and
a server.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_rankers import bert, saved, score, served
from in_process import configured, evaluated, inline
from prompted_models import qwen3_card, save_model
from rerank_servers import running
from workplace import ROOT, Workplace

from backpack_rank.data.trec import read_run
from backpack_rank.pipelines.train import train
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.serving.kinds import served as ranker_served

QUERIES = {"q1": "the nurse saw", "q2": "bread and fish"}
DOCUMENTS = {"d1": "he saw the nurse", "d2": "she saw the nurse", "d3": "bread and fish"}
DATA = inline(QUERIES, DOCUMENTS, qrels={"q1": {"d1": 1, "d2": 1}, "q2": {"d3": 1}})


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.mark.slow
def test_a_classifier_is_audited_and_its_words_are_moved(workplace: Workplace) -> None:
    folder = workplace.folder / "cross_encoder"
    saved(bert, folder)
    report = evaluated(
        workplace,
        workplace.folder / "out",
        f"checkpoint={folder}",
        "alpha=0",
        "policy=paired_tokens",
        data=DATA,
    )
    assert report is not None
    assert [row.label for row in report.rows][-1] == "alpha=0"
    run = read_run(workplace.folder / "out" / "runs" / "alpha-0__inline.run")
    assert run["q1"]["d1"] == pytest.approx(run["q1"]["d2"], abs=1e-5), "he and she are one word"
    plain = evaluated(workplace, workplace.folder / "plain", f"checkpoint={folder}", data=DATA)
    assert plain is not None
    assert [row.label for row in plain.rows][-1] == "alpha=1"
    run = read_run(workplace.folder / "plain" / "runs" / "alpha-1__inline.run")
    assert abs(run["q1"]["d1"] - run["q1"]["d2"]) > 1e-3


@pytest.mark.slow
def test_a_server_is_audited(workplace: Workplace) -> None:
    with served("jina") as (url, _):
        report = evaluated(workplace, workplace.folder / "out", f"checkpoint={url}", data=DATA)
        assert report is not None
        run = read_run(workplace.folder / "out" / "runs" / "alpha-1__inline.run")
        expected = {doc_id: score(QUERIES["q1"], text) for doc_id, text in DOCUMENTS.items()}
        assert run["q1"] == pytest.approx(expected, abs=1e-5)
        with pytest.raises(ValueError, match="out of reach"):
            evaluated(
                workplace,
                workplace.folder / "b",
                f"checkpoint={url}",
                "alpha=0",
                "policy=paired_tokens",
                data=DATA,
            )


@pytest.mark.slow
def test_the_projects_own_server_is_audited_as_the_ranker_behind_it(
    workplace: Workplace, make_backpack, pair_tokenizer
) -> None:
    reranker = PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))
    with running({"mine": lambda: ranker_served("mine", reranker)}) as server:
        assert (
            evaluated(workplace, workplace.folder / "out", f"checkpoint={server.url}", data=DATA)
            is not None
        )
    file = workplace.folder / "out" / "runs" / "alpha-1__inline.run"
    scores = reranker.predict([(QUERIES["q2"], text) for text in DOCUMENTS.values()])
    assert read_run(file)["q2"] == pytest.approx(
        dict(zip(DOCUMENTS, scores.tolist(), strict=True)), abs=1e-5
    )


@pytest.mark.slow
def test_a_classifier_is_not_trained_further(workplace: Workplace) -> None:
    folder = workplace.folder / "cross_encoder"
    saved(bert, folder)
    with pytest.raises(
        ValueError, match="was trained elsewhere; start from its weights with model"
    ):
        train(
            configured("train", f"checkpoint={folder}", f"output={workplace.output}"),
            workplace.folder / "run",
            [],
        )


@pytest.mark.slow
def test_two_labels_are_named_on_the_command_line(workplace: Workplace) -> None:
    folder = workplace.folder / "two"
    model, tokenizer = bert()
    model.config.id2label = {0: "bad", 1: "good"}
    model.config.label2id = {"bad": 0, "good": 1}
    type(model)(model.config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"name it first, as labels=\[RELEVANT,OTHER\]"):
        evaluated(workplace, workplace.folder / "none", f"checkpoint={folder}", data=DATA)
    runs = []
    for name, labels in {"a": "[good,bad]", "b": "[bad,good]"}.items():
        options = (f"checkpoint={folder}", f"labels={labels}")
        assert evaluated(workplace, workplace.folder / name, *options, data=DATA) is not None
        runs.append(read_run(workplace.folder / name / "runs" / "alpha-1__inline.run"))
    for doc_id, score_of_a in runs[0]["q1"].items():
        assert runs[1]["q1"][doc_id] == pytest.approx(-score_of_a, abs=1e-5)


@pytest.mark.slow
def test_a_language_model_is_asked_as_the_command_line_says(workplace: Workplace) -> None:
    folder = save_model("Qwen3", workplace.folder / "qwen3")
    options = [f"checkpoint={folder}", "template=qwen3_reranker"]
    with pytest.raises(ValueError, match="give template=qwen3_reranker"):
        evaluated(workplace, workplace.folder / "none", options[0], data=DATA)
    assert evaluated(workplace, workplace.folder / "card", *options, data=DATA) is not None
    run = read_run(workplace.folder / "card" / "runs" / "alpha-1__inline.run")
    pairs = [(QUERIES["q1"], DOCUMENTS[doc_id]) for doc_id in run["q1"]]
    assert list(run["q1"].values()) == pytest.approx(qwen3_card(folder, pairs), abs=1e-5)
    # Another instruction is an option of the template, or stands in a file.
    options.append("template.instruction='Find a nurse'")
    assert evaluated(workplace, workplace.folder / "asked", *options, data=DATA) is not None
    asked = read_run(workplace.folder / "asked" / "runs" / "alpha-1__inline.run")
    assert asked != run
    text = (ROOT / "conf" / "template" / "qwen3_reranker.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("instruction:")]
    mine = workplace.folder / "mine.yaml"
    mine.write_text("\n".join([*lines, "instruction: Find a nurse"]))
    options = [f"checkpoint={folder}", "template=file", f"template.file={mine}"]
    assert evaluated(workplace, workplace.folder / "file", *options, data=DATA) is not None
    assert read_run(workplace.folder / "file" / "runs" / "alpha-1__inline.run") == asked
