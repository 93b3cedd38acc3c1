"""A query for which the first stage finds no document: it ranks nothing, and every other query is
measured.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import composed, evaluated, inline
from workplace import Workplace

from backpack_rank.data.trec import write_run
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.reporting.measure_files import read_per_query

QUERIES = {
    "nurse": "how does a nurse work",
    "boss": "who is the boss of a shop",
    "PLAIN-510": "zyxxyz",
}
DOCUMENTS = {
    "d1": "The nurse said she would work late; her boss was glad of the help.",
    "d2": "The boss of the shop said he would pay for the work of his nurse.",
    "d3": "A nurse must work at night, and a boss must pay for it.",
    "d4": "Bread is baked of flour and water in every shop.",
}
QRELS = {"nurse": {"d1": 1, "d3": 2}, "boss": {"d2": 1}, "PLAIN-510": {"d4": 1}}


def data() -> dict:
    node = inline(QUERIES, DOCUMENTS, qrels=QRELS)
    first_stage = {"_target_": "backpack_rank.data.first_stage.Bm25", "depth": 10, "cache": False}
    return {**node, "dev": node["test"], "first_stage": first_stage}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["alpha=1"],
        ["alpha=0", "policy=paired_tokens"],
        pytest.param(["alpha=0"], marks=pytest.mark.slow),
        ["alpha=auto", "policy=paired_tokens", "budget='nDCG@10 loss<=100%'"],
    ],
    ids=" ".join,
)
def test_one_query_without_candidates_leaves_the_others_measured(
    trained: Workplace, tmp_path: Path, options: list[str]
) -> None:
    report = evaluated(trained, tmp_path, *options, data=data(), quiet=False)
    assert report is not None
    for row in report.rows:
        assert row.effectiveness is not None
        assert row.bias is not None
        assert (row.effectiveness.queries, row.effectiveness.missing) == (3, 1)  # counted as 0
        assert (row.bias.queries, row.bias.left_out) == (2, 1)
    measures = json.loads((tmp_path / "measures.json").read_text())
    assert measures["systems"][-1]["effectiveness"]["missing"] == 1
    runs = [path.read_text() for path in (tmp_path / "runs").iterdir()]
    assert all(text.count(" Q0 ") == 7 and "PLAIN-510" not in text for text in runs)


@pytest.mark.slow
def test_runs_are_measured_where_the_first_stage_finds_nothing(
    trained: Workplace, tmp_path: Path, capsys
) -> None:
    every = {query_id: {"d1": 4.0, "d2": 3.0, "d4": 2.0} for query_id in QUERIES}
    write_run(tmp_path / "a.trec", every, "a")
    write_run(
        tmp_path / "b.trec", {query_id: every[query_id] for query_id in ("nurse", "PLAIN-510")}, "b"
    )
    runs = f"run=[{tmp_path / 'a.trec'},{tmp_path / 'b.trec'}]"
    evaluated(trained, tmp_path / "out", runs, "verbose=true", data=data(), quiet=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert "NFaiRR leaves out 1 of 3 queries, of which BM25 has no document: 'PLAIN-510'" in printed
    # Two figures of one measure on two sets of queries have two names.
    assert (
        "Bias on inline: 3 gender-neutral queries (every system on its own 2 to 3 queries)"
        in printed
    )
    assert "bias set of inline (2 queries that every system has)" in printed
    assert "Best figures are bold" not in printed  # nothing is in a pipe
    assert "**" in (tmp_path / "out" / "comparison.md").read_text()
    assert "Best figures are bold" in (tmp_path / "out" / "comparison.md").read_text()
    values = read_per_query(tmp_path / "out" / "per_query.csv")
    assert values["a.trec"]["NFaiRR@10"].keys() == {"nurse", "boss"}
    assert values["a.trec"]["RaB(tf)@10"].keys() == QUERIES.keys()


def test_a_defect_is_not_shown_as_a_bare_key(
    trained: Workplace, tmp_path: Path, monkeypatch
) -> None:
    from backpack_rank.pipelines import evaluate as module
    from backpack_rank.pipelines.errors import friendly_errors

    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.setattr(module, "load_evaluation_data", lambda *_, **__: {}["PLAIN-510"])
    with pytest.raises(KeyError), friendly_errors():  # the traceback says where
        evaluate(composed(trained, data=data()), tmp_path)
