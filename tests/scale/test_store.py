"""Tasks of machines that share nothing but a store: each scores its own shards, and their merged
runs are those of one process.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fsspec
import pytest
from in_process import configured
from reranked import run_bytes, score_times
from saved_rankers import FIXTURES

from backpack_rank.scale.rerank import rerank

SHARDS = 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Six queries of four documents each, in a folder in BEIR's layout and a run."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "qrels").mkdir()
    texts = {f"d{n}": f"He said that a doctor and {n} nurses rewire her house." for n in range(4)}
    queries = {f"q{n}": f"who is nurse {n}" for n in range(6)}
    for name, lines in (("corpus", texts), ("queries", queries)):
        rows = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in lines.items()]
        (folder / f"{name}.jsonl").write_text("".join(rows))
    judged = "".join(f"q{n}\td1\t1\n" for n in range(6))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    run = "".join(f"q{q} Q0 d{d} {d + 1} {-d} first\n" for q in range(6) for d in range(4))
    (folder / "first.trec").write_text(run)
    given = ["data=beir", f"data.folder={folder}", f"run={folder / 'first.trec'}", "alpha=[1,0]"]
    return [f"checkpoint={FIXTURES / 'backpack'}", *given, f"shards={SHARDS}", "workers=1"]


@pytest.fixture(scope="module")
def done(data: list[str]):
    """A function that re-ranks, and gives the folder."""

    def of(*options: str) -> Path:
        return rerank(configured("rerank", *data, *options))

    return of


@pytest.fixture(scope="module")
def expected(done, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The runs of one process without a store."""
    content = run_bytes(done(f"folder={tmp_path_factory.mktemp('expected') / 'one'}"))
    assert len(content["alpha-0"].splitlines()) == 24
    return content


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a file is moved into its place, and where it appears whole."""
    if request.param == "file":
        return f"file://{tmp_path / 'store'}"
    return f"memory://{tmp_path.name}/store"


def names(store: str) -> set[str]:
    """Of all files in a store."""
    files, root = fsspec.core.url_to_fs(store)
    return {path.split("/store/")[-1] for path in files.find(root)}


def test_tasks_with_folders_of_their_own_write_the_bytes_of_one_process(
    done, expected, store, tmp_path: Path
) -> None:
    done(f"folder={tmp_path / 'planned'}", f"store={store}", "action=plan")
    for task in (1, 0):
        done(
            f"folder={tmp_path / str(task)}",
            f"store={store}",
            "action=score",
            "parts=2",
            f"part={task}",
        )
    assert set(score_times(tmp_path / "0")) == {f"0000{n}.safetensors" for n in (0, 2, 4)}
    assert set(score_times(tmp_path / "1")) == {f"0000{n}.safetensors" for n in (1, 3)}
    assert not list((tmp_path / "0").glob("locks/0*"))
    merged = done(f"folder={tmp_path / 'merged'}", f"store={store}", "action=merge")
    assert run_bytes(merged) == expected
    pairs = {f"plan/0000{n}.tsv" for n in range(SHARDS)}
    scores = {f"scores/0000{n}.safetensors" for n in range(SHARDS)}
    runs = {f"runs/alpha-{a}/{file}" for a in (1, 0) for file in ("run.txt", "ir-metadata.yml")}
    assert names(store) == {"plan/plan.json"} | pairs | scores | runs


@pytest.mark.slow
def test_a_task_on_a_new_machine_scores_only_what_the_store_lacks_or_holds_damaged(
    done, expected, store, tmp_path: Path
) -> None:
    first = done(f"folder={tmp_path / 'first'}", f"store={store}", "action=plan")
    done(f"folder={first}", f"store={store}", "action=score")
    files, root = fsspec.core.url_to_fs(store)
    files.rm(f"{root}/scores/00001.safetensors")
    content = files.cat_file(f"{root}/scores/00003.safetensors")
    files.pipe_file(f"{root}/scores/00003.safetensors", content[:-1] + b"?")
    with pytest.raises(ValueError, match=r"2 of 5 shards have no scores yet: 1, 3\."):
        done(f"folder={tmp_path / 'early'}", f"store={store}", "action=merge")

    before = files.cat_file(f"{root}/scores/00000.safetensors")
    done(f"folder={tmp_path / 'second'}", f"store={store}", "action=score")
    # The time of scoring stands in a file: it is the first task's.
    assert files.cat_file(f"{root}/scores/00000.safetensors") == before
    merged = done(f"folder={tmp_path / 'merged'}", f"store={store}", "action=merge")
    assert run_bytes(merged) == expected


@pytest.mark.slow
def test_the_plan_of_another_re_ranking_is_refused(done, store, tmp_path: Path) -> None:
    done(f"folder={tmp_path / 'one'}", f"store={store}", "action=plan")
    done(f"folder={tmp_path / 'two'}", "action=plan", "alpha=0.5")
    with pytest.raises(ValueError, match="has another plan than"):
        done(f"folder={tmp_path / 'two'}", f"store={store}", "action=status")
    with pytest.raises(ValueError, match="it differs in alpha"):
        done(f"folder={tmp_path / 'three'}", f"store={store}", "action=score", "alpha=0.5")


@pytest.mark.slow
def test_without_a_store_tasks_share_a_folder_without_locks(done, expected, tmp_path: Path) -> None:
    folder = done(f"folder={tmp_path / 'one'}", "action=plan")
    for task in range(3):
        done(f"folder={folder}", "action=score", "claim=static", "parts=3", f"part={task}")
    assert not list(folder.glob("locks/0*"))
    assert run_bytes(done(f"folder={folder}", "action=merge")) == expected
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["parts=2", "part=2", "claim=static"], "part=2 is none of parts=2, which are 0 to 1"),
        (["parts=2"], "parts=2 share shards out beforehand: add claim=static"),
        (["store=memory://x", "claim=locks"], "a store has no locks"),
        (["store=nowhere://x"], "store=nowhere://x: Protocol not known: nowhere"),
        (["parts=2", "claim=static", "action=all"], "action=all waits for every shard"),
        (["parts=2", "claim=static", "shard=1"], "both say what to score"),
    ],
)
def test_options_that_do_not_go_together_are_refused(done, options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        done("action=score", *options)
