"""Measures of fairness, policies, comparisons, explanations and reports as a user gets them."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import math
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from forked import ForkedWorkplace
from in_process import TEST_SPLIT, composed, evaluated
from workplace import ROOT, Workplace

from backpack_rank.data.trec import read_run
from backpack_rank.models.configuration import SENSES
from backpack_rank.pipelines.evaluate import evaluation_loader
from backpack_rank.pipelines.metrics import rank_all
from backpack_rank.pipelines.settings import EvaluationSettings

POLICIES = sorted(path.stem for path in (ROOT / "conf" / "policy").glob("*.yaml"))
USUAL = {"lowest_senses", "paired_tokens", "renditions"}
"""Policies that are evaluated with every change; test_recorded_scores has the scores under all of
them.
"""
EVERY_SENSE = "policy.values=[0,1,0.5,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0.5]"
ALL_KINDS = ["swap", "swapped documents"]


def of_policy(name: str) -> list[str]:
    return [f"policy={name}", *([EVERY_SENSE] if name == "explicit" else [])]


def rows(path: Path) -> list[dict[str, str]]:
    with open(path) as handle:
        return list(csv.DictReader(handle))


@pytest.fixture(scope="module")
def evaluated_at_zero(
    trained: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Folder and output of ``evaluate.py alpha=0 policy=paired_tokens``."""
    folder = tmp_path_factory.mktemp("turned_off")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        evaluated(trained, folder, "alpha=0", "policy=paired_tokens", quiet=False)
    return folder, shown.getvalue()


@pytest.fixture(scope="module")
def unchanged_run(trained: Workplace, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The run file of the unchanged ranker."""
    folder = tmp_path_factory.mktemp("unchanged")
    evaluated(trained, folder, "swap=false")
    return (folder / "runs" / "alpha-1__synthetic-test.run").read_bytes()


def test_an_evaluation_writes_measures_tests_figures_and_a_report(
    evaluated_at_zero: tuple[Path, str],
) -> None:
    folder, shown = evaluated_at_zero
    systems = json.loads((folder / "measures.json").read_text())["systems"]
    assert [system["label"] for system in systems] == ["BM25", "alpha=1", "alpha=0"]
    assert all(system["effectiveness"] and system["bias"] for system in systems)
    assert [sorted(system["further"]) for system in systems] == [[], ALL_KINDS, ALL_KINDS]
    assert f"Report: {folder / 'report.html'}" in shown
    assert "tokens in 3 classes are moved" in shown
    assert len(json.loads((folder / "senses.json").read_text())["senses"]) == SENSES + 2
    page = (folder / "report.html").read_text()
    assert page.rstrip().endswith("</html>")
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "paired_tokens" in page
    pictures = {path.suffix for path in (folder / "figures").iterdir()}
    assert pictures == {".png", ".svg"}
    for name in ("comparison.csv", "comparison.md", "comparison.tex"):
        assert "alpha=0" in (folder / name).read_text()
    tests = {
        (row["first"], row["second"], row["measure"]) for row in rows(folder / "significance.csv")
    }
    assert ("alpha=1", "alpha=0", "nDCG@10") in tests
    assert ("BM25", "alpha=0", "RaB(tf)@10") in tests
    assert ("alpha=1", "alpha=0", "swap change/std") in tests


def test_swaps_within_moved_classes_leave_the_scores_alone(trained: Workplace) -> None:
    """Documents found by their token ids: as many after the swap, and partners where they differ."""
    settings = EvaluationSettings.of(composed(trained, "policy=paired_tokens", *TEST_SPLIT))
    dataset, ranker = (
        settings.needed_dataset(),
        settings.reranker(trained.newest("train") / "ranker"),
    )
    data = evaluation_loader(settings, dataset, settings.metrics(dataset))("test")
    assert data.swapped is not None
    controlled = ranker.with_policy(settings.policy, 0.0)
    plain, moved = rank_all(ranker, data), rank_all(controlled, data)
    assert plain.swapped
    assert moved.swapped
    shift = controlled.hook.view.token_shift
    assert shift is not None
    class_of = {
        token: number for number, members in enumerate(shift.classes.members) for token in members
    }

    def within_classes(doc_id: str) -> bool:
        texts = [
            store.get_many([doc_id])[doc_id]
            for store in (data.bias.documents, data.swapped.collection.documents)
        ]
        original_run, swapped_run = (
            ranker.scorer.pair_tokenizer.tokenizer(f" {text.strip()}")["input_ids"]
            for text in texts
        )
        differing = [(x, y) for x, y in zip(original_run, swapped_run, strict=False) if x != y]
        partners = all(x in class_of and class_of[x] == class_of.get(y) for x, y in differing)
        return len(original_run) == len(swapped_run) and bool(differing) and partners

    changes = []
    for query_id, scores in moved.bias.items():
        for doc_id, score in scores.items():
            if within_classes(doc_id):
                before = plain.bias[query_id][doc_id] - plain.swapped[query_id][doc_id]
                changes.append((abs(before), abs(score - moved.swapped[query_id][doc_id])))
    assert len(changes) > 10
    assert max(before for before, _ in changes) > 1e-4
    assert max(after for _, after in changes) < 1e-6


@pytest.mark.parametrize(
    "policy",
    [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in POLICIES],
)
def test_a_policy_leaves_the_ranker_alone_at_1_and_changes_it_at_a_half(
    trained: Workplace, unchanged_run: bytes, tmp_path: Path, policy: str
) -> None:
    options = of_policy(policy)
    evaluated(trained, tmp_path / "one", "swap=false", *options)
    half = evaluated(trained, tmp_path / "half", "alpha=0.5", *options)
    name = "alpha-1__synthetic-test.run"
    assert (tmp_path / "one" / "runs" / name).read_bytes() == unchanged_run
    at_a_half = read_run(tmp_path / "half" / "runs" / "alpha-0.5__synthetic-test.run")
    original = read_run(tmp_path / "one" / "runs" / name)
    assert {q: set(d) for q, d in at_a_half.items()} == {q: set(d) for q, d in original.items()}
    changes = [
        abs(score - original[q][d])
        for q, scores in at_a_half.items()
        for d, score in scores.items()
    ]
    assert max(changes) > 1e-6
    assert half is not None
    details = json.loads((tmp_path / "half" / "sensitivity.json").read_text())
    assert details["policy"] == half.about.policy
    weighted = any(weight != 1 for weight in details["weights"])
    assert weighted is not policy.startswith(("paired_tokens", "renditions", "erase"))
    assert bool(details["moved_tokens"]) is policy.startswith("paired_tokens")
    for block in half.rows[-1].blocks.values():
        assert all(math.isfinite(figure.mean) for figure in block.figures.values())


@pytest.mark.slow
def test_a_ranker_without_senses_moves_tokens_where_it_reads_them(
    gpt2: Workplace, tmp_path: Path
) -> None:
    report = evaluated(gpt2, tmp_path / "moved", "alpha=0", "policy=paired_tokens", quiet=False)
    assert report is not None
    assert [row.label for row in report.rows] == ["BM25", "alpha=1", "alpha=0"]
    at_one, at_zero = (
        read_run(tmp_path / "moved" / "runs" / f"alpha-{alpha}__synthetic-test.run")
        for alpha in (1, 0)
    )
    assert at_one != at_zero
    assert (tmp_path / "moved" / "report.html").is_file()
    for options in (["policy=lowest_senses"], ["policy=paired_tokens", "policy.scope=both"]):
        with pytest.raises(ValueError, match="GPT2ForRanking has no sense vectors"):
            evaluated(gpt2, tmp_path / "refused", "alpha=0", *options)
    pair = ["explain.query=a question", "explain.document=She gave an answer"]
    with pytest.raises(ValueError, match="does not split into senses: explain by words"):
        evaluated(gpt2, tmp_path / "refused", *pair, "explain.by=senses")
    evaluated(gpt2, tmp_path / "explained", *pair, "alpha=0")
    written = json.loads((tmp_path / "explained" / "explanation.json").read_text())
    (explanation,) = written["explanations"]
    assert (explanation["senses"], explanation["empty_score"]) == ([], None)
    assert [word["text"] for word in explanation["words"]] == [
        "a",
        "question",
        "She",
        "gave",
        "an",
        "answer",
    ]
    assert explanation["renditions"]["change"] == pytest.approx(
        explanation["score"] - explanation["score_before"],
        abs=1e-7,  # two scores in float32
    )


@pytest.mark.slow
def test_runs_side_by_side_have_the_measures_of_the_ranker_that_wrote_them(
    trained: Workplace,
    evaluated_at_zero: tuple[Path, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrote, _ = evaluated_at_zero
    files = [
        wrote / "runs" / f"{name}__synthetic-test.run" for name in ("BM25", "alpha-1", "alpha-0")
    ]
    given = f"run=[{','.join(map(str, files))}]"
    report = evaluated(trained, tmp_path, given, *TEST_SPLIT, quiet=False)
    assert report is not None
    assert [row.label for row in report.rows] == [file.name for file in files]
    expected = json.loads((wrote / "measures.json").read_text())["systems"]
    for row, system in zip(report.rows, expected, strict=True):
        for kind in ("effectiveness", "bias"):
            figures = {name: figure["mean"] for name, figure in system[kind]["figures"].items()}
            assert {
                name: figure.mean for name, figure in row.blocks[kind].figures.items()
            } == pytest.approx(figures, abs=1e-9)
    tests = [row for row in rows(tmp_path / "significance.csv") if row["measure"] == "nDCG@10"]
    assert len(tests) == 3
    ndcg = {
        row.label: row.effectiveness.figures["nDCG@10"].mean
        for row in report.rows
        if row.effectiveness
    }
    for test in tests:
        assert float(test["difference"]) == pytest.approx(
            ndcg[test["first"]] - ndcg[test["second"]], abs=1e-9
        )
        assert float(test["p_holm"]) >= float(test["p_randomisation"])
    shown = capsys.readouterr().out
    assert "A letter behind a figure" in shown
    assert r"\toprule" in (tmp_path / "comparison.tex").read_text()
    assert "BM25" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_one_run_of_some_of_the_queries_says_what_is_missing(
    trained: Workplace,
    evaluated_at_zero: tuple[Path, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = (evaluated_at_zero[0] / "runs" / "BM25__synthetic-test.run").read_text().splitlines()
    first = lines[0].split()[0]
    path = tmp_path / "part.run"
    path.write_text(
        "\n".join([line for line in lines if line.split()[0] == first] + ["other Q0 d 1 1.0 t"])
        + "\n"
    )
    report = evaluated(trained, tmp_path / "out", f"run={path}", *TEST_SPLIT, quiet=False)
    assert report is not None
    (row,) = report.rows
    assert row.bias is not None
    assert row.bias.queries == 1
    assert "part.run: 11 queries missing from the run, counted as 0" in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["paired_tokens", pytest.param("renditions", marks=pytest.mark.slow)]
)
def test_alpha_auto_finds_the_last_alpha_within_the_budget(
    trained: Workplace, tmp_path: Path, policy: str
) -> None:
    measure = "swap change/std (swapped)"
    config = composed(
        trained,
        f"policy={policy}",
        *TEST_SPLIT,
        "+data.dev.dev_queries=6",
        "+data.dev.documents=60",
    )
    settings = EvaluationSettings.of(config)
    dataset, ranker = (
        settings.needed_dataset(),
        settings.reranker(trained.newest("train") / "ranker"),
    )
    metrics = settings.metrics(dataset)
    dev = evaluation_loader(settings, dataset, metrics)("dev")

    def at(alpha: float) -> float:
        (system,) = metrics.evaluate([ranker.with_policy(settings.policy, alpha)], dev).systems
        return system.values["swapped documents"].mean(measure)

    bound = round((at(1.0) + at(0.0)) / 2, 4)
    report = evaluated(
        trained, tmp_path, "alpha=auto", f"budget='{measure}<={bound}'", f"policy={policy}"
    )
    assert report is not None
    chosen_alpha = report.about.alpha
    assert chosen_alpha is not None
    assert 0 < chosen_alpha < 1
    assert at(chosen_alpha) <= bound < at(chosen_alpha + 0.01)
    assert [row.label for row in report.rows] == ["BM25", f"alpha={chosen_alpha:g}"]
    assert any(
        f"alpha=auto: {chosen_alpha:g} is the smallest change within" in note
        for note in report.about.notes
    )


@pytest.mark.slow
def test_an_explanation_adds_up_to_the_score(
    trained: Workplace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [
        "explain.query='who repairs engines?'",
        "explain.document='She repairs it, as he did.'",
    ]
    evaluated(trained, tmp_path, *texts, "alpha=0", "policy=paired_tokens")
    shown = capsys.readouterr().out
    (row,) = json.loads((tmp_path / "explanation.json").read_text())["explanations"]
    for parts in (row["words"], row["senses"]):
        total = sum(part["contribution"] for part in parts)
        assert total + row["residual"] == pytest.approx(row["score"] - row["empty_score"], abs=1e-6)
        changes = sum(part["change"] for part in parts)
        assert changes == pytest.approx(row["score"] - row["score_before"], abs=1e-6)
    groups = {word["text"]: word["group"] for word in row["words"]}
    assert (groups["She"], groups["he"], groups["it"]) == ("female", "male", "")
    assert "paired_tokens" in shown
    assert f"{row['score']:.4f}" in shown


@pytest.mark.slow
def test_the_recruitment_example_gives_scores_ranks_and_changes(
    trained: Workplace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated(trained, tmp_path, "experiment=recruitment", "policy=paired_tokens", quiet=False)
    score_rows = rows(tmp_path / "scores.csv")
    assert len(score_rows) == 3 * 5
    at_one = {row["doc_id"]: float(row["score"]) for row in score_rows if row["alpha"] == "1.0"}
    for row in score_rows:
        assert float(row["change"]) == pytest.approx(
            float(row["score"]) - at_one[row["doc_id"]], abs=1e-9
        )
        of_alpha = sorted(
            (other for other in score_rows if other["alpha"] == row["alpha"]),
            key=lambda o: -float(o["score"]),
        )
        assert of_alpha[int(row["rank"]) - 1]["doc_id"] == row["doc_id"]
    assert {row["group"] for row in score_rows} == {"male", "female"}
    assert "alpha=0.7" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    ["table1", *(pytest.param(name, marks=pytest.mark.slow) for name in ("table2", "figure2"))],
)
def test_the_tables_of_the_paper_stand_beside_measured_figures(
    trained: Workplace, tmp_path: Path, table: str
) -> None:
    evaluated(trained, tmp_path, f"experiment=fair_retrieval/{table}")
    assert {f"{table}.md", f"{table}.csv", f"{table}.tex"} <= {
        path.name for path in tmp_path.iterdir()
    }
    text = (tmp_path / f"{table}.md").read_text()
    report = json.loads((tmp_path / "measures.json").read_text())
    (at_one,) = [system for system in report["systems"] if system["label"] == "alpha=1"]
    measured = (
        at_one["bias"]["figures"]["RaB(tf)@10"]
        if table != "table1"
        else at_one["effectiveness"]["figures"]["nDCG@5"]
    )
    assert f"{abs(measured['mean']):.4f}" in text
    if table == "table1":
        assert "0.3343" in text  # MRR@10 of the paper's Backpack at alpha = 1


@pytest.mark.processes
def test_a_multirun_reports_what_it_has_when_a_job_fails(trained: Workplace) -> None:
    policies = "policy=paired_tokens,lowest_senses"
    message = ForkedWorkplace(trained.folder).fails("evaluate.py", "-m", "alpha=1,0.5,-1", policies)
    assert "Traceback" not in message
    assert "2 of 6 jobs failed" in message
    assert "alpha=-1 must be a finite number >= 0" in message
    folder = trained.newest("sweep")
    page = (folder / "report.html").read_text()
    assert page.rstrip().endswith("</html>")
    assert 'id="policies"' in page
    assert "paired_tokens" in page
    assert "lowest_senses" in page
    assert f"Report: {folder / 'report.html'}" in message
    swept = rows(folder / "sweep.csv")
    settings = {(row["setting"], row["alpha"]) for row in swept if row["alpha"]}
    policies = ("policy=paired_tokens", "policy=lowest_senses")
    assert settings == set(itertools.product(policies, ("1.0", "0.5")))
    assert any("significan" in column or "p_" in column for column in swept[0])
    assert "alpha--1_policy-paired_tokens" in (folder / "sweep.md").read_text()


@pytest.mark.processes
def test_an_evaluation_that_is_killed_leaves_no_half_written_report(trained: Workplace) -> None:
    before = set((trained.output / "evaluate").glob("*"))
    process = trained.start("evaluate.py", "alpha=0.25")
    try:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            new = set((trained.output / "evaluate").glob("*")) - before
            if any((folder / "significance.csv").exists() for folder in new):
                break
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (folder,) = set((trained.output / "evaluate").glob("*")) - before
    assert (folder / "measures.json").is_file(), "killed too early to test anything"
    assert json.loads((folder / "measures.json").read_text())["systems"]
    assert not (folder / "report.html").exists() or (
        folder / "report.html"
    ).read_text().rstrip().endswith("</html>")
    for path in (folder / "runs").glob("*.run"):
        for scores in read_run(path).values():
            assert np.isfinite(list(scores.values())).all()


@pytest.mark.slow
def test_another_run_is_recalibrated_by_the_changes_of_the_dial(
    trained: Workplace, tmp_path: Path
) -> None:
    evaluated(trained, tmp_path / "first", "alpha=1")
    path = tmp_path / "first" / "runs" / "BM25__synthetic-test.run"
    options = [f"recalibrate.run='{path}'", "recalibrate.weight=0.5"]
    evaluated(trained, tmp_path / "second", "policy=paired_tokens", "alpha=0", *options)
    runs = {file.name: file for file in (tmp_path / "second" / "runs").iterdir()}
    zero, bm25 = read_run(runs["alpha-0__synthetic-test.run"]), read_run(path)
    at_one = read_run(tmp_path / "first" / "runs" / "alpha-1__synthetic-test.run")
    (name,) = [name for name in runs if "change" in name]
    recalibrated = read_run(runs[name])
    for query_id, scores in bm25.items():
        ids = list(scores)
        change = np.array([zero[query_id][d] - at_one[query_id][d] for d in ids])
        given_scores = np.array([scores[d] for d in ids])
        z = [(values - values.mean()) / (values.std() or 1) for values in (given_scores, change)]
        assert [recalibrated[query_id][d] for d in ids] == pytest.approx(
            (z[0] + 0.5 * z[1]).tolist(), abs=2e-3
        )
    with pytest.raises(ValueError, match="needs an alpha other than 1"):
        evaluated(trained, tmp_path / "third", "alpha=1", *options)
