"""``policy=erase`` as a user gets it: fitted on dev, measured on test, kept for other doors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from foreign_rankers import bert, saved
from in_process import configured, evaluated, inline
from workplace import Workplace

import backpack_rank
from backpack_rank.data.trec import read_run
from backpack_rank.models.finding import find_ranker
from backpack_rank.models.pooled_map import MAP_FILE
from backpack_rank.scale.rerank import rerank
from backpack_rank.serving.jobs import RequestOptions
from backpack_rank.serving.kinds import served

DATA = inline({"q1": "the nurse saw"}, {"d1": "he saw the nurse"}, qrels={"q1": {"d1": 1}})


@pytest.fixture(scope="module")
def evaluated_folder(gpt2: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``evaluate.py alpha=0.5 policy=erase`` of a ranker without senses."""
    folder = tmp_path_factory.mktemp("measured")
    evaluated(gpt2, folder, "alpha=0.5", "policy=erase", "swap=false", quiet=False)
    return folder


@pytest.mark.slow
def test_it_is_fitted_on_dev_and_the_report_says_that_it_certifies_nothing(
    evaluated_folder: Path,
) -> None:
    page = (evaluated_folder / "report.html").read_text()
    assert "Policy erase_leace: 1 of 32 directions of the pooled vector, fitted on" in page
    assert "It certifies nothing" in page
    runs = {
        path.name.partition("__")[0]: read_run(path) for path in evaluated_folder.glob("runs/*.run")
    }
    assert runs["alpha-1"] != runs["alpha-0.5"]


@pytest.mark.slow
def test_a_file_of_an_earlier_evaluation_gives_the_same_run(
    gpt2: Workplace, evaluated_folder: Path, tmp_path: Path
) -> None:
    options = [
        "alpha=0.5",
        "policy=erase",
        f"policy.file={evaluated_folder / MAP_FILE}",
        "swap=false",
    ]
    evaluated(gpt2, tmp_path, *options)
    (run_file,) = tmp_path.glob("runs/alpha-0*.run")
    expected = read_run(evaluated_folder / "runs" / run_file.name)
    for query_id, scores in read_run(run_file).items():
        assert scores == pytest.approx(expected[query_id], abs=1e-6)


@pytest.mark.slow
def test_rerank_takes_the_file_and_the_server_finds_it_beside_the_weights(
    gpt2: Workplace, evaluated_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "ranker"
    shutil.copytree(find_ranker(None, str(gpt2.output)), folder)
    data = ["data=synthetic", "+data.test.test_queries=12", "+data.test.documents=80"]
    options = [f"checkpoint={folder}", *data, "alpha=[1,0.5]", "policy=erase", "shards=2"]
    with pytest.raises(ValueError, match=r"give it as policy\.file="):
        rerank(configured("rerank", *options, f"folder={tmp_path / 'refused'}"))
    done = rerank(
        configured(
            "rerank",
            *options,
            f"policy.file={evaluated_folder / MAP_FILE}",
            f"folder={tmp_path / 'done'}",
        )
    )
    reranked = read_run(done / "runs" / "alpha-0.5" / "run.txt")
    (expected,) = evaluated_folder.glob("runs/alpha-0*.run")
    for query_id, scores in read_run(expected).items():
        assert reranked[query_id] == pytest.approx(scores, abs=1e-5)

    assert "erase" not in served("plain", backpack_rank.load(folder)).policies
    shutil.copy(evaluated_folder / MAP_FILE, folder)
    ranker = served("erased", backpack_rank.load(folder))
    assert "erase" in ranker.policies
    texts = ["she saw a nurse", "he saw a nurse", "bread"]
    job = ranker.job("the nurse saw", texts, RequestOptions([1.0, 0.5, 0.0], "erase"))
    assert sum(len(part.texts) for part in job.slices) == 3  # read once for all alphas
    ranker.score(job.slices)
    reranker = backpack_rank.load(folder)
    swept = reranker.sweep("the nurse saw", texts, [1.0, 0.5, 0.0], "erase")
    assert job.plan.sums(job.scores) == pytest.approx(swept, abs=1e-6)
    assert ranker.reads_once("erase")


def test_a_certificate_is_refused(gpt2: Workplace, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="policy erase_leace promises nothing about single texts"):
        evaluated(gpt2, tmp_path, "alpha=0", "policy=erase", "certificate=true", "swap=false")


def test_data_without_dev_needs_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "cross_encoder"
    saved(bert, folder)
    place = Workplace(tmp_path)
    with pytest.raises(ValueError, match=r"data=inline has no dev split: set data.dev, or give"):
        evaluated(
            place, tmp_path / "out", f"checkpoint={folder}", "alpha=0", "policy=erase", data=DATA
        )


@pytest.mark.slow
def test_alpha_auto_searches_with_the_fitted_map(gpt2: Workplace, tmp_path: Path) -> None:
    report = evaluated(
        gpt2, tmp_path, "alpha=auto", "policy=erase", "budget='nDCG@10 loss<=90%'", "swap=false"
    )
    assert report is not None
    assert (tmp_path / MAP_FILE).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("fit", ["orthogonal", "sentdebias", "inlp", "random", "none"])
def test_every_fit_is_measured(trained: Workplace, tmp_path: Path, fit: str) -> None:
    report = evaluated(
        trained, tmp_path, "alpha=0", "policy=erase", f"policy.fit={fit}", "swap=false"
    )
    assert report is not None
    assert (tmp_path / MAP_FILE).is_file()
