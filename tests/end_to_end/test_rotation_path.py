"""data.rotation=... from the command line to the measures, and training that goes on from a saved ranker."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from in_process import composed, evaluated
from omegaconf import DictConfig, OmegaConf
from workplace import ROOT, SMALL, Workplace

from backpack_rank.data.formats import read_run
from backpack_rank.models.build import load_ranker
from backpack_rank.pipelines.common import candidates_of, load_split, register_resolvers
from backpack_rank.pipelines.evaluate import data_of
from backpack_rank.pipelines.fine_tuning import continued
from backpack_rank.pipelines.train import build, train
from backpack_rank.position.rotation import Rotation

DATA = sorted(path.stem for path in (ROOT / "conf" / "data").glob("*.yaml"))
SHORT = ["training.epochs=1", "lists.per_epoch=4"]


def of_training(*options: str) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("train", overrides=[*SMALL, *options])


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("script", ["train", "evaluate"])
def test_every_data_takes_the_options(name: str, script: str) -> None:
    options = [f"data={name}", "data.rotation=both", "data.rotation_level=sentence", "data.rotation_seed=3"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        register_resolvers()
        data = compose(script, overrides=options).data
    assert (data.rotation, data.rotation_level, data.rotation_seed) == ("both", "sentence", 3)
    assert "name" in data


@pytest.mark.parametrize(
    ("rotation", "rotated"),
    [("none", ()), ("train", ("train", "dev")), ("test", ("test",)), ("both", ("train", "dev", "test"))],
)
def test_the_splits_asked_for_are_rotated_and_say_so(rotation: str, rotated: tuple[str, ...]) -> None:
    data = of_training(f"data.rotation={rotation}", "data.rotation_seed=4").data
    plain = of_training().data
    for split in ("train", "dev", "test"):
        found, original = load_split(data, split), load_split(plain, split)
        texts = dict(original.documents)
        if split in rotated:
            assert found.name == f"embedded/{split}, rotated (seed 4)"
            texts = {doc_id: Rotation(seed=4).rotate(doc_id, text).text for doc_id, text in texts.items()}
        else:
            assert found.name == original.name
        assert dict(found.documents) == texts
        assert (found.queries, found.qrels) == (original.queries, original.qrels)


def test_a_bias_set_of_its_own_is_rotated_with_the_test_split() -> None:
    data = of_training("data.rotation=test").data
    OmegaConf.set_struct(data, False)
    data.bias = data.test
    assert load_split(data, "bias").name.endswith(", rotated (seed 0)")
    data.rotation = "train"
    assert load_split(data, "bias").name == "embedded/test"


def test_both_are_ranked_from_the_same_candidates_of_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path))
    found = []
    for rotation in ("none", "test"):
        data = of_training(f"data.rotation={rotation}").data
        found.append(candidates_of(data, "test", load_split(data, "test")))
    assert found[0] == found[1]
    assert len([path for path in (tmp_path / "bm25").iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("data.rotation=all", "data.rotation=all: use one of none, train, test, both"),
        ("data.rotation_level=page", "data.rotation_level='page': use one of word, sentence"),
        ("data.rotation_seed=1.5", "data.rotation_seed=1.5 must be a whole number"),
    ],
)
def test_a_wrong_option_is_named_even_where_nothing_is_rotated(option: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_split(of_training(option).data, "train")


def test_an_evaluation_on_rotated_passages(trained: Workplace, tmp_path: Path) -> None:
    plain = evaluated(trained, tmp_path / "plain", "swap=false", quiet=False)
    turned = evaluated(trained, tmp_path / "turned", "swap=false", "data.rotation=test", quiet=False)
    assert plain is not None
    assert turned is not None
    assert turned.about.effectiveness_set == "embedded/test, rotated (seed 0)"
    assert "embedded/test, rotated (seed 0)" in turned.about.bias_set
    assert "rotated (seed 0)" in (tmp_path / "turned" / "report.html").read_text()
    assert OmegaConf.load(tmp_path / "turned" / "config.yaml").data.rotation == "test"
    runs = [
        read_run(tmp_path / folder / "runs" / f"alpha-1__embedded-test{ending}.run")
        for folder, ending in (("plain", ""), ("turned", "-rotated-seed-0"))
    ]
    assert {q: set(docs) for q, docs in runs[0].items()} == {q: set(docs) for q, docs in runs[1].items()}
    changes = [abs(score - runs[1][q][d]) for q, docs in runs[0].items() for d, score in docs.items()]
    assert max(changes) > 1e-4
    bm25 = [report.rows[0].effectiveness for report in (plain, turned)]
    assert bm25[0] == bm25[1]


def test_without_data_an_evaluation_rotates_as_the_ranker_was_trained(trained: Workplace, tmp_path: Path) -> None:
    saved = OmegaConf.load(trained.newest("train") / "config.yaml")
    saved.data.update({"rotation": "both", "rotation_seed": 7})
    (tmp_path / "ranker").mkdir()
    OmegaConf.save(saved, tmp_path / "config.yaml")
    checkpoint = tmp_path / "ranker"
    assert data_of(composed(trained), checkpoint).rotation == "both"
    assert load_split(data_of(composed(trained), checkpoint), "test").name == "embedded/test, rotated (seed 7)"
    assert load_split(data_of(composed(trained, "data.rotation=none"), checkpoint), "test").name == "embedded/test"
    chosen = data_of(composed(trained, "data=embedded"), checkpoint)
    assert load_split(chosen, "test").name == "embedded/test"


def test_a_ranker_is_trained_on_rotated_passages_and_then_on_others(trained: Workplace, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKPACK_RANK_CACHE", str(trained.folder / "cache"))
        train(of_training("data.rotation=train", *SHORT), first, [])
        config = of_training(f"checkpoint={first}", "data=embedded", "data.rotation=none", "lists.size=4", *SHORT)
        train(config, second, ["lists.size=4"])
    saved = [OmegaConf.load(folder / "config.yaml") for folder in (first, second)]
    assert [one.data.rotation for one in saved] == ["train", "none"]
    assert saved[1].checkpoint == str(first / "ranker")
    assert saved[1].model == saved[0].model
    rankers = [load_ranker(folder / "ranker")[0] for folder in (first, second)]
    ranker, encoder = build(continued(config, []), load_split(config.data, "train"))
    assert ranker.training
    assert encoder.max_length == 96
    for name, weight in ranker.state_dict().items():
        assert torch.equal(weight, rankers[0].state_dict()[name])
    moved = [
        (weight - rankers[1].state_dict()[name]).abs().max().item() for name, weight in rankers[0].state_dict().items()
    ]
    assert 0 < max(moved) < 0.1


@pytest.mark.parametrize(
    "option", ["model=gpt2_tiny", "model.ranker.layers=1", "start.senses=context", "warmup.epochs=2"]
)
def test_options_of_new_rankers_are_refused_with_a_checkpoint(trained: Workplace, option: str) -> None:
    config = of_training(f"checkpoint={trained.newest('train')}")
    with pytest.raises(ValueError, match=rf"goes on from a saved ranker, and {option} is about new ones"):
        continued(config, ["lists.size=5", option])


def test_a_saved_ranker_without_its_run_takes_the_model_that_is_named(trained: Workplace, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(trained.newest("train") / "ranker")
    config = continued(of_training(f"checkpoint={tmp_path / 'mine'}"), ["model=backpack_tiny"])
    assert config.checkpoint == str(tmp_path / "mine")
    assert config.model == of_training().model
