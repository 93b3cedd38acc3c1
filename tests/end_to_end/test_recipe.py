"""A ranker of real passages from one option, on small files in the real layouts: trained, measured,
saved.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from in_process import composed, trained_in
from real_layout import OCCUPATIONS, write_data, write_encoder
from workplace import Workplace

import backpack_rank
from backpack_rank.evaluation.results import Report
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.run_folder import run_config
from backpack_rank.training import trainer

FEW = (
    *("reconstruct.steps=3", "reconstruct.texts=20", "reconstruct.held_out=10"),
    "reconstruct.batch_size=2",
)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("recipe")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKPACK_RANK_DATA", str(write_data(folder / "data")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        write_encoder(folder / "bert")
        yield Workplace(folder)


@pytest.fixture(scope="module")
def run_and_output(workplace: Workplace) -> tuple[Path, str]:
    """The folder of a run of the recipe, and what it printed, with a line for every step."""
    encoder = f"model.ranker.name={workplace.folder / 'bert'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "INTERVAL", 0.0)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            folder = trained_in(workplace, "minilm", "recipe=minilm", encoder, *FEW)
    return folder, shown.getvalue()


@pytest.fixture(scope="module")
def run(run_and_output: tuple[Path, str]) -> Path:
    return run_and_output[0]


@pytest.fixture(scope="module")
def measured(
    workplace: Workplace, run: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Report]:
    """The folder and the report of an evaluation on the data of the recipe."""
    folder = tmp_path_factory.mktemp("dl19")
    options = ("variants=grep_biasir", "policy=paired_tokens", "alpha=0")
    report = evaluate(composed(workplace, f"checkpoint={run}", *options), folder)
    assert report is not None
    return folder, report


@pytest.mark.slow
def test_the_recipe_is_the_command_that_was_measured(workplace: Workplace, run: Path) -> None:
    config = run_config(run)
    assert (config.data.name, config.data.train.parts.squad, config.lists.size) == ("dl19", None, 8)
    assert (config.model.name, config.max_length, config.training.epochs) == ("backpack", 256, 1)
    assert (config.model.ranker.similarity, config.model.ranker.token_similarity) == (20, 20)
    assert config.trainer.precision == "auto"


@pytest.mark.slow
def test_options_of_the_command_line_win_over_the_recipe(workplace: Workplace) -> None:
    options = (
        "model=cross_encoder",
        "reconstruct.steps=0",
        f"model.ranker.name={workplace.folder / 'bert'}",
    )
    plain = trained_in(
        workplace, "plain", "recipe=minilm", *options, "lists.size=4", "lists.per_epoch=4"
    )
    assert run_config(plain).lists.size == 4
    assert not backpack_rank.load(plain).local_scorer.ranker.has_senses


@pytest.mark.slow
def test_the_ranker_is_measured_on_the_data_of_the_recipe(
    workplace: Workplace, run: Path, measured: tuple[Path, Report], tmp_path: Path
) -> None:
    _, report = measured
    assert report.about.effectiveness_set == "dl19/test"
    assert report.rows[0].figure("nDCG@10").mean > 0.5
    controlled = report.rows[-1]
    assert controlled.figure("swap change/std (swapped)").mean < 1e-4
    assert controlled.figure("|gap|/std").mean < 1e-4
    other = evaluate(
        composed(workplace, f"checkpoint={run}", "data=dl20"), tmp_path / "dl20", quiet=True
    )
    assert other is not None
    assert other.about.effectiveness_set == "dl20/test"


@pytest.mark.slow
def test_dev_queries_of_fewer_grades_choose_by_the_measures_that_they_have(
    workplace: Workplace, run: Path, tmp_path: Path
) -> None:
    # The measures of dl19 have RR(rel=2)@10, and labels of its dev queries end at 1.
    options = ("policy=paired_tokens", "alpha=auto", "budget='nDCG@10 loss<=50%'")
    report = evaluate(
        composed(workplace, f"checkpoint={run}", *options), tmp_path / "auto", quiet=True
    )
    assert report is not None
    assert report.rows[-1].figure("RR(rel=2)@10") is not None


def test_the_ranker_is_saved_with_a_card_that_names_its_weights_and_figures(
    run: Path, measured: tuple[Path, Report], tmp_path: Path
) -> None:
    folder, _ = measured
    weights = "sentence-transformers/all-MiniLM-L6-v2"
    backpack_rank.save_pretrained(
        backpack_rank.load(run),
        tmp_path / "saved",
        base_model=weights,
        measures=folder / "measures.json",
    )
    card = (tmp_path / "saved" / "README.md").read_text()
    assert f"base_model: {weights}" in card
    assert "nDCG@10" in card
    (first, *_) = backpack_rank.load(tmp_path / "saved").rank(
        f"what does a {OCCUPATIONS[0]} do", ["a nurse", "bread"]
    )
    assert set(first) == {"corpus_id", "score"}


def test_the_steps_of_reconstruction_are_counted_down(run_and_output: tuple[Path, str]) -> None:
    _, shown = run_and_output
    lines = [line for line in shown.splitlines() if "reconstruct/loss" in line and "left" in line]
    assert [re.findall(r"(\d+/\d+) .* (-?\d+) s left", line)[0][0] for line in lines] == [
        "1/3",
        "2/3",
        "3/3",
    ]
    assert not any("-" in re.findall(r"(\S+) s left", line)[0] for line in lines)
