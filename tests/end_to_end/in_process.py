"""evaluate.py without a process of its own: far faster, with everything but Hydra's folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from workplace import ROOT, Workplace

from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.reporting.rows import Report

TEST_SPLIT = ["data=embedded", "+data.test.test_queries=12", "+data.test.documents=80"]
"""The data of the small trained ranker, for what does not find it beside the ranker."""
INLINE = "backpack_rank.data.sources.inline.load_inline"


def composed(place: Workplace, *options: str, data: dict | None = None) -> DictConfig:
    """What evaluate.py composes; ``data`` replaces the collection."""
    cache = f"cache.folder={place.folder / 'cache' / 'senses'}"
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("evaluate", overrides=[f"output={place.output}", cache, *options])
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


def inline(queries: dict[str, str], documents: dict[str, str], **more: dict) -> dict:
    """Data with a test split of these texts and no other split."""
    return {
        "name": "inline",
        "test": {"_target_": INLINE, "name": "inline", "queries": queries, "documents": documents, **more},
        "dev": None,
        "first_stage": {"_target_": "backpack_rank.data.first_stage.GivenCandidates", "name": "given"},
        "bias": None,
        "bias_queries": None,
        "measures": ["nDCG@10"],
    }
