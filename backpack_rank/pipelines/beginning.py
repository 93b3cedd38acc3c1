"""What a new Backpack over a pretrained backbone does before ranking training: first values and reconstruction."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path

import lightning as L
from hydra.utils import instantiate
from lightning.pytorch.callbacks import TQDMProgressBar
from omegaconf import DictConfig

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.drawn import drawn_texts
from backpack_rank.data.pairs import Pairs
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.build import Ranker
from backpack_rank.models.initialisation import check_starts, start_senses
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.pipelines.fitting import less_advice, trainer_options
from backpack_rank.training.module import Optimisation
from backpack_rank.training.reconstruction import Reconstruction, ReconstructionModule, only_senses_learn

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """First values of senses and weights (``start`` in ``conf/train.yaml``).

    Attributes:
        senses, weights: see :func:`~backpack_rank.models.initialisation.start_senses`.
        texts: (query, document) texts of the training queries to measure on, and for ``context`` to learn from.
    """

    senses: str = "random"
    weights: str = "random"
    texts: int = 500

    def __post_init__(self) -> None:
        check_starts(self.senses, self.weights)
        if self.texts < 2:
            raise ValueError(f"start.texts={self.texts} must be at least 2")

    @property
    def random(self) -> bool:
        """Whether nothing is to do."""
        return self.senses == self.weights == "random"


@dataclass(frozen=True)
class Beginning:
    """Both steps, each of which may be nothing."""

    start: Start
    reconstruction: Reconstruction

    @classmethod
    def of(cls, config: DictConfig) -> Beginning:
        """As configured; nothing in configurations that know of neither. Raises ``ValueError`` for a wrong option."""
        start: Start = instantiate(config.start) if config.get("start") else Start()
        reconstruction: Reconstruction = (
            instantiate(config.reconstruct) if config.get("reconstruct") else Reconstruction()
        )
        return cls(start, reconstruction)

    def apply(
        self,
        config: DictConfig,
        ranker: Ranker,
        encoder: PairEncoder,
        collection: Collection,
        candidates: Run,
        folder: Path,
    ) -> None:
        """Give a new ranker's senses and weights their start and warm them up.

        Args:
            config: as composed from ``conf/train.yaml``.
            collection: of the training queries.
            candidates: of its queries; texts are drawn from the pairs, labels are not looked at.
            folder: of the run.

        Raises:
            ValueError: the ranker has no senses, or has trained ones that a start would overwrite.
        """
        start, reconstruction = self.start, self.reconstruction
        if start.random and reconstruction.steps == 0:
            return
        if not isinstance(ranker, BackpackForRanking):
            raise ValueError(
                f"{type(ranker).__name__} has no senses to begin with: leave out start.senses, start.weights and "
                "reconstruct.steps, or use model=backpack"
            )
        known = {query_id: documents for query_id, documents in candidates.items() if query_id in collection.queries}
        pairs = Pairs.from_run(known, collection)
        if not start.random:
            if ranker.name_or_path:
                raise ValueError(
                    f"the senses of {ranker.name_or_path} are trained ones: leave out start.senses and start.weights"
                )
            texts = drawn_texts(pairs, encoder, start.texts, config.seed)
            options = {"senses": start.senses, "weights": start.weights}
            start_senses(ranker, encoder.tokenizer, **options, seed=config.seed, texts=texts)
            log.info("start: senses=%s weights=%s, measured on %d texts", start.senses, start.weights, len(texts))
        if reconstruction.steps:
            reconstruct(config, reconstruction, ranker, encoder, pairs, folder)


def reconstruct(
    config: DictConfig,
    reconstruction: Reconstruction,
    ranker: BackpackForRanking,
    encoder: PairEncoder,
    pairs: Pairs,
    folder: Path,
) -> None:
    """The warm-up on the backbone's pooled vector."""
    wanted = reconstruction.texts + reconstruction.held_out
    texts, held_out = reconstruction.split(drawn_texts(pairs, encoder, wanted, config.seed))
    optimisation = Optimisation(reconstruction.learning_rate, config.training.weight_decay)
    trainer = L.Trainer(
        **trainer_options(config),
        max_epochs=-1,
        max_steps=reconstruction.steps,
        gradient_clip_val=config.training.gradient_clip,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[TQDMProgressBar(leave=True)],
        default_root_dir=folder,
    )
    log.info("reconstruction: %d steps over %d texts", reconstruction.steps, len(texts))
    with less_advice(), only_senses_learn(ranker), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*in eval mode.*")  # as it should be: no dropout
        trainer.fit(ReconstructionModule(ranker, optimisation, held_out), reconstruction.loader(texts, config.seed))
