"""Sense specialisation through train.py and evaluate.py: options, what a run leaves behind, and the policy on it."""

from pathlib import Path

import pytest
from hydra.errors import InstantiationException
from in_process import configured
from omegaconf import OmegaConf

from backpack_rank.models.factory import load_ranker
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.train import train
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.senses.specialised import specialised_senses
from backpack_rank.training.specialisation import NoSpecialisation

SMALL = [
    "model.tokenizer.vocab_size=600",
    "model.ranker.layers=1",
    "model.ranker.hidden_size=16",
    "model.ranker.heads=2",
    "model.ranker.senses=4",
    "+data.train.train_queries=8",
    "+data.train.documents=60",
    "+data.dev.dev_queries=3",
    "+data.dev.documents=30",
    "+data.test.test_queries=4",
    "+data.test.documents=40",
    "max_length=64",
    "pretraining.epochs=0",
    "training.epochs=2",
    "lists.size=5",
]


def specialisation(*options: str):
    return TrainingSettings.of(configured("train", *options)).specialisation


def trained(folder: Path, *options: str) -> None:
    train(configured("train", *SMALL, f"output={folder}", *options), folder, [])


def evaluated(run: Path, folder: Path, *options: str):
    options = (f"checkpoint={run}", f"cache.folder={folder / 'cache'}", f"output={folder}", "swap=false", *options)
    return evaluate(configured("evaluate", *options), folder, quiet=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("specialised")
    trained(folder, "specialise=attribute", "specialise.senses=1")
    return folder


@pytest.mark.filterwarnings("ignore")
def test_a_run_leaves_its_senses_in_the_ranker_and_in_its_configuration(run: Path) -> None:
    found = specialised_senses(load_ranker(run / "ranker")[0].config)
    assert found is not None
    assert found.attribute == "gender"
    (sense,) = found.senses
    config = OmegaConf.load(run / "config.yaml")
    assert config.specialise.senses == [sense], "a resumed run takes them from there"
    assert config.specialise.attribute.name == "gender"


@pytest.mark.filterwarnings("ignore")
def test_the_last_epoch_is_saved(run: Path) -> None:
    """By nDCG alone an early epoch may be best, before the attribute is where it belongs."""
    (path,) = (run / "checkpoints").glob("step=*.ckpt")
    assert path.name == "step=4-1.0000.ckpt"


@pytest.mark.filterwarnings("ignore")
def test_the_policy_turns_the_trained_senses_in_sweeps_from_one_cache(run: Path, tmp_path: Path) -> None:
    reports = [
        evaluated(run, tmp_path / name, "policy=specialised", f"alpha={alpha}")
        for name, alpha in (("one", 1), ("zero", 0))
    ]
    assert reports[1].about.policy == "specialised"
    runs = [
        (tmp_path / name / "runs" / f"alpha-{alpha}__synthetic-test.run").read_text()
        for name, alpha in (("one", 1), ("zero", 0))
    ]
    assert runs[0] != runs[1]
    with pytest.raises(ValueError, match=r"set apart for gender"):
        evaluated(run, tmp_path / "age", "policy=specialised", "alpha=0", "attribute=age")


@pytest.mark.filterwarnings("ignore")
def test_a_ranker_trained_without_it_is_refused_by_the_policy(tmp_path: Path) -> None:
    trained(tmp_path / "run", "training.epochs=1")
    assert "specialised" not in (tmp_path / "run" / "ranker" / "config.json").read_text()
    with pytest.raises(ValueError, match=r"train\.py specialise=attribute"):
        evaluated(tmp_path / "run", tmp_path / "out", "policy=specialised", "alpha=0.5")


def test_another_attribute_brings_its_own_words() -> None:
    found = specialisation("specialise=attribute", "attribute@specialise.attribute=religion", "specialise.tied=7")
    assert found.attribute["name"] == "religion"
    assert found.tied == 7
    assert found.swap("A Muslim prays.") == "A Christian prays."


def test_without_it_nothing_is_swapped_or_added() -> None:
    assert specialisation() == NoSpecialisation()
    assert NoSpecialisation().swap is None


def test_a_reference_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"specialise\.reference: .*nowhere"):
        specialisation("specialise=attribute", "specialise.reference=/nowhere")


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(InstantiationException, match=r"specialise\.content=-2") as error:
        specialisation("specialise=attribute", "specialise.content=-2")
    assert isinstance(error.value.__cause__, ValueError)


def test_a_ranker_without_senses_is_refused(tmp_path: Path) -> None:
    small = [option for option in SMALL if not option.startswith("model.ranker.senses")]
    config = configured("train", "model=gpt2_tiny", *small, "specialise=attribute", f"output={tmp_path}")
    with pytest.raises(TypeError, match="has no sense vectors"):
        train(config, tmp_path, [])
