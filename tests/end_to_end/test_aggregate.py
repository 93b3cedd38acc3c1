"""``evaluate.py run=[...] aggregate=...`` on small files, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from forked import ForkedWorkplace
from in_process import composed, evaluated, inline
from workplace import Workplace

from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import read_run, write_run
from backpack_rank.evaluation.results import Report

QUERIES = {"q1": "what stops?", "q2": "what turns?"}
DOCUMENTS = {name: f"the {name} wheel stops" for name in ("d1", "d2", "d3", "d4")}
DATA = inline(QUERIES, DOCUMENTS, qrels={"q1": {"d1": 1}, "q2": {"d4": 1}})
# Of q1 three orders of d1, d2, d3: two say d1 > d2, two d2 > d3, all d1 > d3. d4 stands in the
# first alone.
ORDERS = {
    "one": {"q1": ["d1", "d2", "d3", "d4"], "q2": ["d4", "d3"]},
    "two": {"q1": ["d2", "d1", "d3"], "q2": ["d3", "d4"]},
    "three": {"q1": ["d1", "d3", "d2"], "q2": ["d4", "d2"]},
}


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    for name, orders in ORDERS.items():
        lines = [
            f"{query_id} Q0 {doc_id} {rank} {10 - rank} {name}\n"
            for query_id, order in orders.items()
            for rank, doc_id in enumerate(order, start=1)
        ]
        (tmp_path / f"{name}.trec").write_text("".join(lines))
    return {name: tmp_path / f"{name}.trec" for name in ORDERS}


def given(*files: Path) -> str:
    return f"run=[{','.join(map(str, files))}]"


def fused(
    workplace: Workplace, files: dict[str, Path], *options: str, quiet: bool = True
) -> Report:
    report = evaluated(
        workplace,
        workplace.folder / "out",
        given(*files.values()),
        *options,
        data=DATA,
        quiet=quiet,
    )
    assert report is not None
    return report


def order_in(workplace: Workplace, name: str) -> dict[str, list[str]]:
    run = read_run(workplace.folder / "out" / "runs" / f"{name}__inline.run")
    return {query_id: list(scores) for query_id, scores in run.items()}


@pytest.mark.slow
def test_the_aggregate_stands_behind_the_runs_in_tables_files_and_page(
    workplace: Workplace, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    report = fused(workplace, files, "aggregate=kemeny", quiet=False)
    assert [row.label for row in report.rows] == [
        "one.trec",
        "two.trec",
        "three.trec",
        "kemeny depth 100",
    ]
    assert order_in(workplace, "kemeny-depth-100") == {
        "q1": ["d1", "d2", "d3", "d4"],
        "q2": ["d4", "d3", "d2"],
    }
    ndcg = [row.effectiveness.figures["nDCG@10"].mean for row in report.rows if row.effectiveness]
    assert ndcg == pytest.approx([1.0, 0.63093, 1.0, 1.0], abs=1e-5)
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "kemeny depth 100: 2 queries of 3 runs, 3 to 4 documents each, all solved to optimality"
        in shown
    )
    out = workplace.folder / "out"
    assert "kemeny depth 100" in (out / "comparison.csv").read_text()
    assert "kemeny depth 100" in (out / "report.html").read_text()
    with open(out / "aggregation.csv") as handle:
        rows = list(csv.DictReader(handle))
    # q1: d1-d2, d2-d3 against one run each. q2: d4-d3 against one, d3-d2 tied between "two" and
    # "three".
    assert [(row["set"], row["query"], row["runs"], row["documents"]) for row in rows] == [
        ("inline", "q1", "3", "4"),
        ("inline", "q2", "3", "3"),
    ]
    assert [(row["cost"], row["bound"], row["optimal"]) for row in rows] == [
        ("2", "2", "yes"),
        ("2", "2", "yes"),
    ]


@pytest.mark.slow
def test_methods_and_depths_are_options(workplace: Workplace, files: dict[str, Path]) -> None:
    fused(workplace, files, "aggregate=rrf", "aggregate_depth=1", "aggregate.k=5")
    out = read_run(workplace.folder / "out" / "runs" / "rrf-depth-1__inline.run")
    assert {q: list(scores) for q, scores in out.items()} == {
        "q1": ["d1", "d2"],
        "q2": ["d4", "d3"],
    }
    assert out["q1"]["d1"] == pytest.approx(2 / 6)
    fused(workplace, files, "aggregate=borda", "aggregate_depth=null")
    # Ranks in the runs, absent documents last: of q1 d1 1, 2, 1; d2 2, 1, 3; d3 3, 3, 2; d4 4, 4,
    # 4, and of q2 d4 1, 2, 1; d3 2, 1, 3; d2 3, 3, 2.
    assert order_in(workplace, "borda") == {
        "q1": ["d1", "d2", "d3", "d4"],
        "q2": ["d4", "d3", "d2"],
    }
    scores = read_run(workplace.folder / "out" / "runs" / "borda__inline.run")["q1"]
    assert list(scores.values()) == pytest.approx([-4 / 3, -2, -8 / 3, -4])


@pytest.mark.slow
def test_queries_that_are_not_solved_are_counted(
    workplace: Workplace, files: dict[str, Path]
) -> None:
    """A circle of eight documents that local search may not prove: the bound without a programme is
    too low.
    """
    documents = {f"d{number}": "a text" for number in range(8)}
    orders = ["01234567", "34567012", "67012345"]
    for path, order in zip(files.values(), orders, strict=True):
        path.write_text(
            "".join(f"q1 Q0 d{number} 1 {9 - rank} t\n" for rank, number in enumerate(order))
        )
    data = inline(QUERIES, documents, qrels={"q1": {"d1": 1}})

    def notes(*options: str) -> list[str]:
        notes_of_run = evaluated(
            workplace,
            workplace.folder / "out",
            given(*files.values()),
            "aggregate=kemeny",
            *options,
            data=data,
        )
        assert notes_of_run is not None
        return list(notes_of_run.about.notes)

    assert any("8 documents each, all solved to optimality" in note for note in notes())
    notes_of_run = notes("aggregate.largest=2")
    assert not any("all solved" in note for note in notes_of_run)
    assert any(
        "1 of 1 queries not solved to optimality" in note and "(q1)" in note
        for note in notes_of_run
    )
    with open(workplace.folder / "out" / "aggregation.csv") as handle:
        (row,) = csv.DictReader(handle)
    assert (row["optimal"], int(row["bound"]) < int(row["cost"])) == ("no", True)


def test_queries_of_some_runs_only_are_said(workplace: Workplace, files: dict[str, Path]) -> None:
    lines = files["two"].read_text().splitlines()
    files["two"].write_text(
        "\n".join(line for line in lines if line.startswith("q1")) + "\nother Q0 d1 1 2.0 t\n"
    )
    report = fused(workplace, files, "aggregate=borda")
    assert any("1 of 2 queries are not in every run" in note for note in report.about.notes)
    assert set(order_in(workplace, "borda-depth-100")) == {"q1", "q2"}


def test_a_bias_set_of_its_own_is_fused_too(workplace: Workplace, files: dict[str, Path]) -> None:
    bias = inline({"b1": "which wheel?"}, DOCUMENTS)["test"] | {"name": "bias"}
    for name, order in {"one": ["d1", "d2"], "two": ["d2", "d1"], "three": ["d2", "d1"]}.items():
        with open(files[name], "a") as handle:
            handle.writelines(
                f"b1 Q0 {doc_id} 1 {9 - rank} t\n" for rank, doc_id in enumerate(order)
            )
    options = [given(*files.values()), "aggregate=kemeny"]
    report = evaluated(workplace, workplace.folder / "out", *options, data=DATA | {"bias": bias})
    assert report is not None
    runs = workplace.folder / "out" / "runs"
    assert list(read_run(runs / "kemeny-depth-100__bias.run")["b1"]) == ["d2", "d1"]
    assert set(read_run(runs / "kemeny-depth-100__inline.run")) == {"q1", "q2"}
    assert report.rows[-1].bias is not None


@pytest.mark.slow
def test_what_cannot_be_aggregated_is_refused(
    workplace: Workplace, files: dict[str, Path], tmp_path: Path
) -> None:
    def message(*options: str) -> str:
        with pytest.raises((ValueError, FileNotFoundError)) as error:
            evaluated(workplace, tmp_path / "refused", *options, data=DATA)
        assert not (tmp_path / "refused").exists()
        return str(error.value)

    bm25, dense, _ = files.values()
    several = "give run=[a.trec,b.trec]"
    assert several in message("aggregate=kemeny", given(bm25))
    assert several in message("aggregate=borda", f"run={bm25}")
    assert several in message("aggregate=rrf")
    assert "is given twice" in message("aggregate=kemeny", given(bm25, bm25))
    assert "aggregate_depth=0" in message(
        "aggregate=kemeny", given(bm25, dense), "aggregate_depth=0"
    )
    assert "aggregate_depth=all" in message(
        "aggregate=kemeny", given(bm25, dense), "aggregate_depth=all"
    )
    foreign = tmp_path / "foreign.trec"
    foreign.write_text("q9 Q0 d1 1 2.0 t\n")
    assert f"{foreign}: none of its 1 queries is in inline" in message(
        "aggregate=kemeny", given(bm25, foreign)
    )
    apart = [tmp_path / "first.trec", tmp_path / "second.trec"]
    for path, query_id in zip(apart, QUERIES, strict=True):
        path.write_text(f"{query_id} Q0 d1 1 2.0 t\n")
    assert "no query is in two of the runs" in message("aggregate=rrf", given(*apart))
    clash = tmp_path / "rrf depth 100"
    clash.write_text(bm25.read_text())
    assert "a run is called 'rrf depth 100'" in message("aggregate=rrf", f"run=[{bm25},'{clash}']")
    with pytest.raises(Exception, match="absent=first: use one of ignored, last"):
        evaluated(
            workplace,
            tmp_path / "x",
            given(bm25, dense),
            "aggregate=kemeny",
            "aggregate.absent=first",
            data=DATA,
        )
    with pytest.raises(Exception, match="Could not find 'aggregate/mean'"):
        composed(workplace, given(bm25, dense), "aggregate=mean")


@pytest.mark.processes
def test_a_user_gets_the_aggregate_from_the_command_line(tmp_path: Path) -> None:
    """In a process of its own, on the synthetic collection: BM25's ranking, and the same one upside
    down.
    """
    collection = load_synthetic("test", test_queries=6, documents=60)
    run = Bm25(depth=20, cache=False).candidates(collection)
    options = {
        query_id: {doc: -score for doc, score in scores.items()} for query_id, scores in run.items()
    }
    for name, content in (("up", run), ("down", options)):
        write_run(tmp_path / f"{name}.trec", content, name)
    data = [
        "data=synthetic",
        "+data.test.test_queries=6",
        "+data.test.documents=60",
        "bias.families=[RaB]",
    ]
    runs = given(tmp_path / "up.trec", tmp_path / "down.trec")
    workplace = ForkedWorkplace(tmp_path)
    workplace.run("evaluate.py", runs, *data, "aggregate=kemeny", "aggregate_depth=5")
    systems = json.loads((workplace.newest("evaluate") / "measures.json").read_text())["systems"]
    assert [system["label"] for system in systems] == ["up.trec", "down.trec", "kemeny depth 5"]
    fused = read_run(workplace.newest("evaluate") / "runs" / "kemeny-depth-5__synthetic-test.run")
    assert all(len(scores) == min(10, len(run[query_id])) for query_id, scores in fused.items())
