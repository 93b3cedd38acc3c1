"""What experiments share: rows of rerankers x collections -> values, and the checks of what such a row can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.dataset import Dataset
from backpack_rank.pipelines.listwise import ListwiseSettings
from backpack_rank.pipelines.settings import EvaluationSettings, dataset_of


def needed_listwise(settings: EvaluationSettings, what: str) -> ListwiseSettings:
    """The listwise ranker asked for. Raises ``ValueError`` without one; ``what`` begins the sentence."""
    if settings.alpha != 1:
        raise ValueError(f"alpha={settings.alpha} turns the senses of a Backpack; a listwise ranker has none")
    if settings.listwise is None:
        raise ValueError(
            f"{what}: add listwise=trained, listwise=hugging_face listwise.ranker.name=NAME, or listwise=openai"
        )
    return settings.listwise


def refuse_alpha(settings: EvaluationSettings) -> None:
    """Raise ``ValueError`` for an alpha beside an experiment that has its own, or none."""
    if settings.alpha != 1:
        raise ValueError(
            f"alpha={settings.alpha}: an experiment has alphas of its own or none; give task.alphas=[1,0.5] where it "
            "has some"
        )


def dataset_with(node: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[str, Dataset]:
    """A node of ``conf/data`` with some of it changed, such as its candidates; a text that tells equal ones, and it.

    Args:
        node: of ``conf/data``.
        changes: merged into it; ``{folder}`` is the folder of its test split.
    """
    filled = _in_folder(dict(changes), str(node["test"].get("folder", "")))
    merged = OmegaConf.merge(OmegaConf.create(dict(node)), OmegaConf.create(filled))
    assert isinstance(merged, DictConfig)
    return OmegaConf.to_yaml(merged), dataset_of(merged)


def _in_folder(value: Any, folder: str) -> Any:
    """The value with ``{folder}`` filled into all its texts."""
    if isinstance(value, Mapping):
        return {name: _in_folder(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [_in_folder(one, folder) for one in value]
    return value.replace("{folder}", folder) if isinstance(value, str) else value
