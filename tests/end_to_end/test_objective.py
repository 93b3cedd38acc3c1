"""What evaluations give to a sweeper that optimises: one option, a measure, read by Optuna's."""

from __future__ import annotations

import math

import pytest
from workplace import Workplace

from backpack_rank.evaluation.results import Estimate, Report, RunInfo, Summary, SystemResult
from backpack_rank.files import read_yaml
from backpack_rank.pipelines.objective import is_failure, no_objective, objective_of
from backpack_rank.reporting.measure_files import read_json

SWAP = "swap change/std (swapped)"


def test_an_objective_is_of_the_last_system_and_names_what_was_measured() -> None:
    figures = {"nDCG@10": Estimate(0.0, 0.0), "RaB(tf)@10": Estimate(math.nan, 0.5)}
    rows = [SystemResult("BM25"), SystemResult("alpha=0", 0.0, Summary(figures, 3))]
    report = Report(rows, RunInfo())
    assert objective_of(report, ["nDCG@10", "|nDCG@10|"]) == [0, 0]
    with pytest.raises(ValueError, match=r"nDGC@10 was not measured: did you mean nDCG@10\?"):
        objective_of(report, "nDGC@10")
    with pytest.raises(ValueError, match="has no value"):
        objective_of(report, "RaB(tf)@10")
    with pytest.raises(ValueError, match="measures nothing"):
        objective_of(None, "nDCG@10")


def test_a_value_of_0_is_no_failure_and_no_number_is_one() -> None:
    assert not is_failure(0.0)
    assert not is_failure([0.0, 1.0])
    assert not is_failure(True)
    assert is_failure(False)
    assert is_failure(None)
    assert is_failure(no_objective("nDCG@10"))
    assert is_failure(no_objective(["nDCG@10", SWAP]))


@pytest.mark.processes
def test_optunas_sweeper_finds_the_alpha_that_keeps_the_promise(trained: Workplace) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    trained.run(
        "evaluate.py",
        "-m",
        "hydra/sweeper=optuna",
        "hydra.sweeper.n_trials=4",
        "hydra.sweeper.n_jobs=1",
        "hydra.sweeper.direction=minimize",
        "alpha=choice(0,0.5,1)",
        "hydra.sweeper.sampler.seed=1",
        f"objective='{SWAP}'",
    )
    folder = trained.newest("sweep")
    best = read_yaml(folder / "optimization_results.yaml")
    alphas = {}
    for file in folder.glob("*/measures.json"):
        row = read_json(file).rows[-1]
        figure = row.figure(SWAP)
        assert figure is not None
        alphas[figure.mean] = row.alpha
    assert best["best_value"] == pytest.approx(min(alphas), abs=1e-6)
    assert float(best["best_params"]["alpha"]) == alphas[min(alphas)]


@pytest.mark.processes
def test_an_objective_that_was_not_measured_ends_a_sweep_with_2(trained: Workplace) -> None:
    done = trained.run(
        "evaluate.py", "-m", "alpha=1,0", "swap=false", "objective=nDGC@10", check=False
    )
    shown = done.stdout + done.stderr
    assert done.returncode == 2
    assert "Report: " in shown, "the results are whole"
    assert "objective=nDGC@10 was not measured: did you mean nDCG@10?" in shown
