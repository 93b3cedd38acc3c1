"""``train.py checkpoint=FOLDER``: training that goes on from a saved ranker, with other data for example (transfer)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.build import Ranker, load_ranker, pair_encoder
from backpack_rank.pipelines.common import CONFIG, RANKER, find_ranker

_OF_NEW_RANKERS = ("model.", "start.", "reconstruct.", "warmup.")


def continued(config: DictConfig, changed: Sequence[str]) -> DictConfig:
    """The configuration with the model of ``checkpoint``, whose recommendations then count; else as it is.

    Args:
        config: as composed from ``conf/train.yaml``.
        changed: options of the command line.

    Raises:
        FileNotFoundError: there is no ranker in that folder.
        ValueError: an option that is about new rankers only.
    """
    if config.get("checkpoint") is None:
        return config
    folder = find_ranker(config.checkpoint, config.output)
    saved = folder.parent / CONFIG
    known = folder.name == RANKER and saved.is_file()
    refused = _OF_NEW_RANKERS + (("model=",) if known else ())
    ignored = [option for option in changed if option.lstrip("+~").startswith(refused)]
    if ignored:
        raise ValueError(
            f"checkpoint={config.checkpoint} goes on from a saved ranker, and {', '.join(ignored)} is about new ones: "
            "leave it out"
        )
    continued = config.copy()
    OmegaConf.set_struct(continued, False)
    continued.checkpoint = str(folder)  # a later run may lie in the same folder
    if known:
        continued.model = OmegaConf.load(saved).model
    return continued


def saved_ranker(config: DictConfig) -> tuple[Ranker, PairEncoder]:
    """The ranker of ``checkpoint`` in training mode, reading up to ``max_length`` tokens."""
    ranker, encoder = load_ranker(Path(config.checkpoint))
    return ranker.train(), pair_encoder(encoder.tokenizer, ranker, config.max_length)
