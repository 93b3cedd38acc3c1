"""Sense specialisation as ``conf/train.yaml`` asks for it (``specialise``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.build import Ranker
from backpack_rank.pipelines.common import find_ranker, save_config
from backpack_rank.senses.specialised import Specialised
from backpack_rank.training.ranking_loss import RankingLoss
from backpack_rank.training.specialisation import NoSpecialisation, Specialisation
from backpack_rank.training.terms import Term


def specialisation_of(config: DictConfig) -> Specialisation | NoSpecialisation:
    """The configured options, checked; configurations of older runs have none.

    Raises:
        ValueError: as :class:`~backpack_rank.training.specialisation.Specialisation`.
        FileNotFoundError: there is no ranker in the folder of the reference.
    """
    if "specialise" not in config:
        return NoSpecialisation()
    options: Specialisation | NoSpecialisation = instantiate(config.specialise, _convert_="all")
    if isinstance(options, NoSpecialisation) or options.reference is None:
        return options
    try:
        return replace(options, reference=str(find_ranker(options.reference, "")))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"specialise.reference: {error}") from error


def specialised(
    options: Specialisation | NoSpecialisation,
    config: DictConfig,
    folder: Path,
    ranker: Ranker,
    encoder: PairEncoder,
    ranking_loss: RankingLoss,
    taught: Sequence[Term],
) -> tuple[Term, ...]:
    """The terms of the loss; the chosen senses go into the ranker's configuration and into that of the run.

    A resumed run reads them there: it does not repeat the steps before ranking training, on which the choice depends.
    """
    terms = options.apply(ranker, encoder, ranking_loss, taught)
    if (found := Specialised.of(ranker)) is not None:
        config.specialise.senses = list(found.senses)
        save_config(folder, config)
    return terms
