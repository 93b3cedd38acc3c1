"""train.py and evaluate.py without processes of their own: far faster, with everything but Hydra's
folders.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from workplace import ROOT, Workplace

from backpack_rank.evaluation.results import Report
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.pipelines.train import train

TEST_SPLIT = ["data=synthetic", "+data.test.test_queries=12", "+data.test.documents=80"]
"""The data of the small trained ranker, for what does not find it beside the ranker."""
INLINE = "backpack_rank.data.sources.inline.load_inline"


def configured(script: str, *options: str) -> DictConfig:
    """What ``train.py`` or ``evaluate.py`` (``script`` is ``train`` or ``evaluate``) composes."""
    register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose(script, overrides=list(options))


def composed(place: Workplace, *options: str, data: dict | None = None) -> DictConfig:
    """What evaluate.py composes in a workplace; ``data`` replaces the collection."""
    cache = f"cache.folder={place.folder / 'cache' / 'senses'}"
    config = configured("evaluate", f"output={place.output}", cache, *options)
    if data is not None:
        OmegaConf.set_struct(config, False)
        config.data = data
    return config


def evaluated(
    place: Workplace, folder: Path, *options: str, data: dict | None = None, quiet: bool = True
) -> Report | None:
    """Evaluate into a folder; quiet as in a job of a multirun."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKPACK_RANK_CACHE", str(place.folder / "cache"))
        return evaluate(composed(place, *options, data=data), folder, quiet)


def trained_in(place: Workplace, name: str, *options: str) -> Path:
    """The folder of a run that is trained in a workplace with these options."""
    folder = place.output / "train" / name
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKPACK_RANK_CACHE", str(place.folder / "cache"))
        train(configured("train", *options, f"output={place.output}"), folder, options)
    return folder


def inline(queries: dict[str, str], documents: dict[str, str], **more: dict) -> dict:
    """Data with a test split of these texts and no other split."""
    return {
        "name": "inline",
        "test": {
            "_target_": INLINE,
            "name": "inline",
            "queries": queries,
            "documents": documents,
            **more,
        },
        "dev": None,
        "first_stage": {
            "_target_": "backpack_rank.data.first_stage.GivenCandidates",
            "name": "given",
        },
        "bias": None,
        "bias_queries": None,
        "measures": ["nDCG@10"],
    }
