"""What comes before ranking training of a new Backpack over a pretrained backbone.

The contextual weights get their first values, and senses learn to reconstruct the backbone's pooled
vector.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from backpack_rank.data.batching import Pairs, sample_texts
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.backpack_encoder import BackpackEncoderForRanking, SenseRanker
from backpack_rank.models.initialisation import check_start, start_weights
from backpack_rank.models.rankers import Ranker
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.reconstruction import (
    Reconstruction,
    ReconstructionModule,
    VectorReconstruction,
    train_senses_only,
)
from backpack_rank.training.trainer import TrainerSettings, quiet_lightning

log = logging.getLogger(__name__)
_TEXTS = 32
"""(query, document) texts of the training queries that a start of the weights is measured on."""


@dataclass(frozen=True)
class WarmStart:
    """A new Backpack over a pretrained backbone: its start before ranking training.

        start = WarmStart("sharp", Reconstruction(steps=500))
        start.apply(settings, ranker, pair_tokenizer, collection, candidates, folder)

    Attributes:
        weights: ``start.weights`` of ``conf/train.yaml``, see
            :func:`~backpack_rank.models.initialisation.start_weights`.
        reconstruction: ``reconstruct`` there.
    """

    weights: str = "random"
    reconstruction: Reconstruction = field(default_factory=Reconstruction)

    def __post_init__(self) -> None:
        check_start(self.weights)

    def apply(
        self,
        settings: TrainerSettings,
        ranker: Ranker,
        pair_tokenizer: PairTokenizer,
        collection: Collection,
        candidates: Run,
        folder: Path,
    ) -> None:
        """Start a new ranker's contextual weights, and reconstruct the backbone's vectors.

        Args:
            settings: hardware and seed.
            collection: of the training queries.
            candidates: of its queries; texts are drawn from the pairs, labels are not used.
            folder: of the run.

        Raises:
            ValueError: the ranker has no senses, or has trained ones that a start would overwrite.
        """
        weights = self.weights
        reconstruction = self.reconstruction
        if weights == "random" and reconstruction.steps == 0:
            return
        if not isinstance(ranker, SenseRanker):
            raise ValueError(
                f"{type(ranker).__name__} has no senses to begin with: leave out start.weights "
                "and reconstruct.steps, or use model=backpack"
            )
        run = {}
        for query_id, documents in candidates.items():
            if query_id in collection.queries:
                run[query_id] = documents
        pairs = Pairs.from_run(run, collection)
        if weights != "random":
            if isinstance(ranker, BackpackEncoderForRanking):
                raise ValueError(
                    "start.weights is for weights that are an attention, and those of "
                    "model=backpack_encoder are none: leave it out"
                )
            if ranker.name_or_path:
                raise ValueError(
                    f"the weights of {ranker.name_or_path} are trained ones: leave out "
                    "start.weights"
                )
            texts = sample_texts(pairs, pair_tokenizer, _TEXTS, settings.seed)
            start_weights(ranker.backpack, weights, texts, settings.seed)
            log.info("start: weights=%s", weights)
        if reconstruction.steps:
            reconstruct(settings, reconstruction, ranker, pair_tokenizer, pairs, folder)


def reconstruct(
    settings: TrainerSettings,
    reconstruction: Reconstruction,
    ranker: SenseRanker,
    pair_tokenizer: PairTokenizer,
    pairs: Pairs,
    folder: Path,
) -> None:
    """Train senses to reconstruct the backbone's vectors, on texts of pairs."""
    count = reconstruction.texts + reconstruction.held_out
    drawn = sample_texts(pairs, pair_tokenizer, count, settings.seed)
    texts, held_out = reconstruction.split(drawn)
    optimisation = OptimizerConfig(reconstruction.learning_rate, settings.weight_decay)
    trainer = settings.warm_up_trainer(
        folder,
        max_epochs=-1,
        max_steps=reconstruction.steps,
        gradient_clip_val=settings.gradient_clip,
    )
    log.info("reconstruction: %d steps over %d texts", reconstruction.steps, len(texts))
    module: ReconstructionModule | VectorReconstruction
    if isinstance(ranker, BackpackEncoderForRanking):
        module = VectorReconstruction(ranker, optimisation, held_out)
        loader = reconstruction.loader(texts, settings.seed, module.collate)
    else:
        module = ReconstructionModule(ranker, optimisation, held_out)
        loader = reconstruction.loader(texts, settings.seed)
    with quiet_lightning(), train_senses_only(ranker), warnings.catch_warnings():
        # Eval mode is meant: the backbone's vectors must have no dropout.
        warnings.filterwarnings("ignore", message=".*in eval mode.*")
        trainer.fit(module, loader)
