"""data.rotation=... from the command line to the measures, and training that goes on from a saved
ranker.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from in_process import composed, configured, evaluated, trained_in
from omegaconf import DictConfig, OmegaConf
from workplace import ROOT, SMALL, Workplace

from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import Bm25, GivenCandidates
from backpack_rank.data.rotation import Rotation
from backpack_rank.data.trec import read_run
from backpack_rank.models.loading import load_ranker
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.run_folder import save_overrides
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.train import build
from backpack_rank.pipelines.training_settings import TrainingSettings

DATA = sorted(path.stem for path in (ROOT / "conf" / "data").glob("*.yaml"))
SHORT = ["training.epochs=1", "lists.per_epoch=4"]


def of_training(*options: str) -> DictConfig:
    return configured("train", *SMALL, *options)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("script", ["train", "evaluate"])
def test_every_data_takes_the_options(name: str, script: str) -> None:
    options = [
        f"data={name}",
        "data.rotation=both",
        "data.rotation_level=sentence",
        "data.rotation_seed=3",
    ]
    data = configured(script, *options).data
    assert (data.rotation, data.rotation_level, data.rotation_seed) == ("both", "sentence", 3)
    assert "name" in data


@pytest.mark.parametrize(
    ("rotation", "rotated"),
    [
        ("none", ()),
        ("train", ("train", "dev")),
        ("test", ("test",)),
        ("both", ("train", "dev", "test")),
    ],
)
def test_the_splits_asked_for_are_rotated_and_say_so(
    rotation: str, rotated: tuple[str, ...]
) -> None:
    rotating = dataset_of(of_training(f"data.rotation={rotation}", "data.rotation_seed=4").data)
    plain = dataset_of(of_training().data)
    for split in ("train", "dev", "test"):
        rotated_split, original = rotating.split(split), plain.split(split)
        texts = dict(original.documents)
        if split in rotated:
            assert rotated_split.name == f"synthetic/{split}, rotated (seed 4)"
            texts = {
                doc_id: Rotation(seed=4).rotate(doc_id, text).text for doc_id, text in texts.items()
            }
        else:
            assert rotated_split.name == original.name
        assert dict(rotated_split.documents) == texts
        assert (rotated_split.queries, rotated_split.qrels) == (original.queries, original.qrels)


def test_a_bias_set_of_its_own_is_rotated_with_the_test_split() -> None:
    data = of_training("data.rotation=test").data
    OmegaConf.set_struct(data, False)
    data.bias = data.test
    assert dataset_of(data).split("bias").name.endswith(", rotated (seed 0)")
    data.rotation = "train"
    assert dataset_of(data).split("bias").name == "synthetic/test"


def test_both_are_ranked_from_the_same_candidates_of_one_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path))
    candidates = [
        dataset_of(of_training(f"data.rotation={rotation}").data).candidates("test")
        for rotation in ("none", "test")
    ]
    assert candidates[0] == candidates[1]
    assert len([path for path in (tmp_path / "bm25").iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("data.rotation=all", "data.rotation=all: use one of none, train, test, both"),
        ("data.rotation_level=page", "data.rotation_level=page: use one of word, sentence"),
        ("data.rotation_seed=1.5", "data.rotation_seed=1.5 must be a whole number"),
    ],
)
def test_a_wrong_option_is_named_even_where_nothing_is_rotated(option: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataset_of(of_training(option).data)


@pytest.mark.slow
def test_an_evaluation_on_rotated_passages(trained: Workplace, tmp_path: Path) -> None:
    plain = evaluated(trained, tmp_path / "plain", "swap=false", quiet=False)
    rotated = evaluated(
        trained, tmp_path / "turned", "swap=false", "data.rotation=test", quiet=False
    )
    assert plain is not None
    assert rotated is not None
    assert rotated.about.effectiveness_set == "synthetic/test, rotated (seed 0)"
    assert "synthetic/test, rotated (seed 0)" in rotated.about.bias_set
    assert "rotated (seed 0)" in (tmp_path / "turned" / "report.html").read_text()
    assert OmegaConf.load(tmp_path / "turned" / "config.yaml").data.rotation == "test"
    runs = [
        read_run(tmp_path / folder / "runs" / f"alpha-1__synthetic-test{ending}.run")
        for folder, ending in (("plain", ""), ("turned", "-rotated-seed-0"))
    ]
    assert {q: set(docs) for q, docs in runs[0].items()} == {
        q: set(docs) for q, docs in runs[1].items()
    }
    changes = [
        abs(score - runs[1][q][d]) for q, docs in runs[0].items() for d, score in docs.items()
    ]
    assert max(changes) > 1e-4
    bm25 = [report.rows[0].effectiveness for report in (plain, rotated)]
    assert bm25[0] == bm25[1]


@pytest.mark.slow
def test_without_data_an_evaluation_rotates_and_retrieves_as_in_training(
    trained: Workplace, tmp_path: Path
) -> None:
    (tmp_path / "ranker").mkdir()
    save_overrides(tmp_path, ["data.rotation=both", "data.rotation_seed=7", "first_stage=given"])
    checkpoint = tmp_path / "ranker"

    def dataset(*options: str) -> Dataset:
        return EvaluationSettings.of(composed(trained, *options)).dataset(checkpoint)

    assert dataset().rotated == "both"
    assert dataset().split("test").name == "synthetic/test, rotated (seed 7)"
    assert dataset("data.rotation=none").split("test").name == "synthetic/test"
    assert dataset("data=synthetic").split("test").name == "synthetic/test"
    stages = [
        dataset(*options).first_stage("test")
        for options in ((), ("first_stage=bm25",), ("data=synthetic",))
    ]
    assert [type(stage) for stage in stages] == [GivenCandidates, Bm25, Bm25]


@pytest.mark.slow
def test_a_ranker_is_trained_on_rotated_passages_and_then_on_others(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    first = trained_in(
        place, "first", *SMALL, "pretraining.epochs=0", "data.rotation=train", *SHORT
    )
    small = [option for option in SMALL if not option.startswith(("model.", "pretraining."))]
    again = [
        f"checkpoint={first}",
        *small,
        "data=synthetic",
        "data.rotation=none",
        "lists.size=4",
        *SHORT,
    ]
    second = trained_in(place, "second", *again)
    saved = [OmegaConf.load(folder / "config.yaml") for folder in (first, second)]
    assert [config.data.rotation for config in saved] == ["train", "none"]
    assert saved[1].checkpoint == str(first / "ranker")
    assert saved[1].model == {
        "name": saved[0].model.name,
        "recommended": saved[0].model.recommended,
    }
    rankers = [load_ranker(folder / "ranker")[0] for folder in (first, second)]
    settings = TrainingSettings.of(configured("train", *again))
    ranker, pair_tokenizer = build(settings, settings.dataset.split("train"))
    assert ranker.training
    assert pair_tokenizer.max_length == 96
    for name, weight in ranker.state_dict().items():
        assert torch.equal(weight, rankers[0].state_dict()[name])
    moved = [
        (weight.float() - rankers[1].state_dict()[name].float()).abs().max().item()
        for name, weight in rankers[0].state_dict().items()
    ]
    assert 0 < max(moved) < 0.1


@pytest.mark.parametrize(
    "option",
    ["model=gpt2_tiny", "model.ranker.layers=1", "start.weights=sharp", "pretraining.epochs=2"],
)
def test_options_of_new_rankers_are_refused_with_a_checkpoint(
    trained: Workplace, option: str
) -> None:
    config = of_training(f"checkpoint={trained.newest('train')}")
    with pytest.raises(
        ValueError, match=rf"goes on from a saved ranker, and {option} is about new ones"
    ):
        TrainingSettings.of(config, ["lists.size=5", option])


def test_a_saved_ranker_without_its_run_takes_the_model_that_is_named(
    trained: Workplace, tmp_path: Path
) -> None:
    (tmp_path / "mine").symlink_to(trained.newest("train") / "ranker")
    settings = TrainingSettings.of(
        of_training(f"checkpoint={tmp_path / 'mine'}"), ["model=backpack_tiny"]
    )
    assert settings.checkpoint == tmp_path / "mine"
    assert settings.options["model"] == of_training().model
