"""``backpack-rank rerank``: the runs of evaluate.py from shards, step by step or at once, and its
mistakes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from in_process import TEST_SPLIT, configured, evaluated
from omegaconf import OmegaConf
from reranked import reranked, run_bytes, score_times
from workplace import Workplace

from backpack_rank.data.trec import read_run
from backpack_rank.scale.settings import RerankSettings

SWEEP = ["alpha=[1,0.5,0]", "policy=paired_tokens"]


@pytest.fixture(scope="module")
def evaluated_folder(trained: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``evaluate.py`` at alpha = 0.5."""
    folder = tmp_path_factory.mktemp("measured")
    evaluated(trained, folder, "alpha=0.5", "policy=paired_tokens", "swap=false")
    return folder


@pytest.fixture(scope="module")
def finished_rerank(trained: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a re-ranking at once."""
    return reranked(trained, *SWEEP, f"folder={tmp_path_factory.mktemp('whole') / 'at once'}")


def test_the_runs_are_those_that_evaluate_writes(
    finished_rerank: Path, evaluated_folder: Path
) -> None:
    assert set(run_bytes(finished_rerank)) == {"alpha-1", "alpha-0.5", "alpha-0"}
    run = read_run(finished_rerank / "runs" / "alpha-0.5" / "run.txt")
    expected = read_run(evaluated_folder / "runs" / "alpha-0.5__synthetic-test.run")
    assert {q: list(d) for q, d in run.items()} == {q: list(d) for q, d in expected.items()}
    for query_id, documents in expected.items():
        assert list(run[query_id].values()) == pytest.approx(list(documents.values()), abs=1e-5)


@pytest.mark.slow
def test_a_run_file_is_ranked_as_the_first_stage_that_it_came_from(
    trained: Workplace, finished_rerank: Path, evaluated_folder: Path, tmp_path: Path
) -> None:
    run = evaluated_folder / "runs" / "BM25__synthetic-test.run"
    folder = reranked(trained, *SWEEP, *TEST_SPLIT, f"run={run}", f"folder={tmp_path}", "shards=3")
    for label in ("alpha-1", "alpha-0"):
        from_file, from_first_stage = (
            read_run(path / "runs" / label / "run.txt") for path in (folder, finished_rerank)
        )
        assert {q: set(d) for q, d in from_file.items()} == {
            q: set(d) for q, d in from_first_stage.items()
        }
        for query_id, scores in from_first_stage.items():
            for doc_id, score in scores.items():
                assert from_file[query_id][doc_id] == pytest.approx(score, abs=1e-5)


@pytest.mark.slow
def test_step_by_step_gives_the_same_bytes(
    trained: Workplace, finished_rerank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*SWEEP, f"folder={tmp_path}"]
    reranked(trained, *options, "action=plan")
    shown = capsys.readouterr().out
    assert "Open: 0-11" in shown
    with pytest.raises(ValueError, match="12 of 12 shards have no scores yet: 0-11"):
        reranked(trained, *options, "action=merge")
    reranked(trained, *options, "action=score", "shard=7")
    assert set(score_times(tmp_path)) == {"00007.safetensors"}
    assert "1 of 12 shards are scored" in capsys.readouterr().out
    reranked(trained, *options, "action=score", "shard=7")
    reranked(trained, *options, "action=score")
    before = score_times(tmp_path)
    reranked(trained, "action=status", f"folder={tmp_path}")
    shown = capsys.readouterr().out
    assert "12 of 12 shards are scored" in shown
    assert "Scored on" in shown
    reranked(trained, "action=merge", f"folder={tmp_path}")
    assert run_bytes(tmp_path) == run_bytes(finished_rerank)
    reranked(trained, *options)
    assert score_times(tmp_path) == before
    assert run_bytes(tmp_path) == run_bytes(finished_rerank)


@pytest.mark.slow
def test_the_metadata_hold_what_was_really_used(
    trained: Workplace, finished_rerank: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load((finished_rerank / "runs" / "alpha-0" / "ir-metadata.yml").read_text())
    (first, second) = content["method"]["retrieval"]
    assert first["name"] == "BM25"
    assert second["params"]["number format"] == "float32 on cpu"
    assert (second["params"]["alpha"], second["params"]["policy"]) == (0.0, "paired_tokens")
    plain = yaml.safe_load((finished_rerank / "runs" / "alpha-1" / "ir-metadata.yml").read_text())
    assert "policy" not in plain["method"]["retrieval"][1]["params"]
    reranked(trained, f"folder={tmp_path}", "scoring.dtype=bfloat16", "scoring.device=cpu")
    half = yaml.safe_load((tmp_path / "runs" / "alpha-1" / "ir-metadata.yml").read_text())
    assert half["method"]["retrieval"][1]["params"]["number format"] == "bfloat16 on cpu"


def test_folders_are_named_after_the_run_or_the_data(tmp_path: Path) -> None:
    def folder(*options: str) -> str:
        settings = RerankSettings.of(configured("rerank", f"output={tmp_path}", *options))
        return settings.folder.relative_to(tmp_path).as_posix()

    assert folder() == "rerank/trained"
    assert folder("data=synthetic") == "rerank/synthetic"
    assert folder("data=synthetic", "run=runs/my bm25.trec.gz") == "rerank/my-bm25.trec"
    assert RerankSettings.of(configured("rerank", "folder='~/plan'")).folder == Path.home() / "plan"


def test_it_needs_no_option_of_an_evaluation(trained: Workplace) -> None:
    config = configured("rerank", f"output={trained.output}")
    checkpoint = RerankSettings.of(config).checkpoint
    assert Path(checkpoint).is_relative_to(trained.output)
    assert not OmegaConf.missing_keys(config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["action=go"], "action=go: use one of plan, score, merge, status, all"),
        (["shard=3"], "shard=3 is for action=score"),
        (["action=score", "shard=-1"], "shard=-1 must be a whole number of at least 0"),
        (["action=score", "shard=two"], "shard=two must be a whole number"),
        (["workers=0"], "workers=0 must be a whole number from 1 to 4096"),
        (["workers=100000"], "workers=100000 must be a whole number from 1 to 4096"),
        (["threads=1.5"], r"threads=1\.5 must be a whole number"),
        (["shards=0"], "shards=0 must be a whole number from 1 to 1000000"),
        (["shards=3", "pairs_per_shard=10"], "say the same twice"),
        (["alpha=high"], "alpha=high must be a finite number"),
        (["alpha=[]"], r"alpha=\[\] must be a finite number"),
        (["alpha=[1,-1]"], r"alpha=-1.0 must be a finite number"),
        (["alpha=[0.5,0.5]"], r"alpha=0\.5 is given twice"),
        (["run=[a.trec,b.trec]"], "must be a path"),
        (["run=gone.trec"], "run=gone.trec: there is no such file"),
        (["split=validation"], "split=validation: use one of test, dev, train"),
        (["action=score"], "nothing is planned there"),
        (["action=merge"], "nothing is planned there"),
        (["server_model=m"], "server_model=m says which ranker of a server is asked"),
    ],
)
def test_mistakes_are_said_before_anything_is_scored(
    trained: Workplace, tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        reranked(trained, f"folder={tmp_path / 'none'}", *options)
    assert not list(tmp_path.glob("none/scores/*"))


@pytest.mark.slow
def test_other_options_than_those_of_the_plan_are_refused(
    trained: Workplace, finished_rerank: Path
) -> None:
    for action in ("all", "score", "plan"):
        with pytest.raises(
            ValueError,
            match=r"it differs in .*alpha \(\[1\.0, 0\.5, 0\.0\] was planned, now it is \[0",
        ):
            reranked(
                trained,
                f"folder={finished_rerank}",
                f"action={action}",
                "alpha=0.5",
                "policy=paired_tokens",
            )
