"""Every file of conf/ composes, and what it names exists."""

from __future__ import annotations

from pathlib import Path

import hydra.utils
import pytest
from in_process import configured
from omegaconf import OmegaConf
from workplace import ROOT

from backpack_rank.reporting.published import published

CONF = ROOT / "conf"
NO_GROUPS = {"experiment", "experiment_base", "published", "recipe"}
GROUPS = [
    (path.parent.name, path.stem)
    for path in sorted(CONF.glob("*/*.yaml"))
    if path.parent.name not in NO_GROUPS
]
EXPERIMENTS = [
    path.relative_to(CONF / "experiment").with_suffix("")
    for path in CONF.glob("experiment/**/*.yaml")
]
OF_TRAINING = {"adapter", "task", "teacher", "data", "model", "trainer", "logger"}
ELSEWHERE = {"prompt"}  # groups of other groups' options
WITHOUT_TARGET = {"trainer", "attribute", "task"}


def targets(node) -> list[str]:
    """Every ``_target_`` below a configuration node."""
    if isinstance(node, dict):
        own_target = [node["_target_"]] if "_target_" in node else []
        return own_target + [target for value in node.values() for target in targets(value)]
    if isinstance(node, list):
        return [target for value in node for target in targets(value)]
    return []


@pytest.mark.parametrize(("group", "name"), GROUPS)
def test_every_choice_composes_and_its_targets_exist(
    group: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", "/nowhere")
    added = "+" if group in ELSEWHERE else ""
    config = configured("train" if group in OF_TRAINING else "evaluate", f"{added}{group}={name}")
    names = targets(OmegaConf.to_container(config[group], resolve=False))
    assert names or group in WITHOUT_TARGET
    for target in names:
        assert callable(hydra.utils.get_object(target))


@pytest.mark.parametrize("name", EXPERIMENTS, ids=str)
def test_every_experiment_composes_and_its_targets_exist(
    name: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", "/nowhere")
    config = configured("evaluate", f"experiment={name.as_posix()}")
    names = targets(OmegaConf.to_container(config, resolve=False))
    assert "task" in config
    assert config.task["_target_"] in names
    assert "published" not in config.task or published(config.task.published)
    for target in names:
        assert callable(hydra.utils.get_object(target))


@pytest.mark.parametrize("name", [path.stem for path in CONF.glob("recipe/*.yaml")])
def test_every_recipe_composes_and_its_targets_exist(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", "/nowhere")
    config = configured("train", f"recipe={name}")
    assert config != configured("train")
    for target in targets(OmegaConf.to_container(config, resolve=False)):
        assert callable(hydra.utils.get_object(target))


@pytest.mark.parametrize("name", ["train", "evaluate", "rerank", "calibrate"])
def test_the_defaults_need_no_argument(name: str) -> None:
    config = configured(name)
    assert not OmegaConf.missing_keys(config) - {"logger.save_dir"}
    for target in targets(OmegaConf.to_container(config, resolve=False)):
        assert callable(hydra.utils.get_object(target))


@pytest.mark.parametrize(
    "name", ["backpack_tiny", "gpt2_tiny", pytest.param("backpack_small", marks=pytest.mark.slow)]
)
def test_models_from_scratch_are_built(name: str) -> None:
    config = configured("train", f"model={name}", "model.tokenizer.vocab_size=400")
    texts = ["the electrician rewires the old house", "a nurse gives injections at night"]
    tokenizer = hydra.utils.instantiate(config.model.tokenizer).build(texts)
    ranker = hydra.utils.instantiate(config.model.ranker, tokenizer=tokenizer)
    assert ranker.config.vocab_size == len(tokenizer)
    assert ranker.config.n_positions >= config.max_length
