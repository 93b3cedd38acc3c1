"""``train.py`` for rankers that count a collection and learn nothing (``model=bm25``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.data.pairs import Pairs
from backpack_rank.data.vocabulary import WordPairEncoder
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.models.bm25_ranker import Bm25ForRanking
from backpack_rank.models.build import save_ranker
from backpack_rank.pipelines.common import RANKER, candidates_of, load_split, refuse_options
from backpack_rank.pipelines.train import build
from backpack_rank.scoring import Scorer, ScoringSettings

log = logging.getLogger(__name__)
OPTIONS = ("data", "model", "max_length", "seed", "output", "task", "trainer", "logger", "loader", "resume", "hydra")
MEASURE = "nDCG@10"


@dataclass(frozen=True)
class Counting:
    """Takes the place of training (``counting`` in ``conf/model/bm25.yaml``)."""

    def run(self, config: DictConfig, folder: Path, changed: Sequence[str] = (), resumed: bool = False) -> float:
        """Count the training collection's documents and save the ranker to ``folder/ranker``.

        Args:
            config: as composed from ``conf/train.yaml``.
            folder: of the run.
            changed: options of the command line, to refuse those that would be ignored.
            resumed: is without meaning here, because an interrupted count leaves nothing to go on from.

        Returns:
            nDCG@10 on the dev split.

        Raises:
            ValueError: an option of training; the dev split is missing; the ranker is not one that counts.
        """
        refuse_options(
            changed,
            OPTIONS,
            f"options of training, but model={config.model.name} learns nothing, it counts the documents of the "
            "training collection; leave them out",
        )
        collection = load_split(config.data, "train")
        dev = load_split(config.data, "dev")
        pairs = Pairs.from_run(candidates_of(config.data, "dev", dev)[1], dev)
        ranker, encoder = build(config, collection)
        if not isinstance(ranker, Bm25ForRanking) or not isinstance(encoder, WordPairEncoder):
            raise ValueError(f"model={config.model.name}: {type(ranker).__name__} counts no documents")
        ranker.count((text for _, text in collection.documents), encoder)
        documents, words = ranker.totals.tolist()
        log.info("%s: counted %d documents of %.1f words", collection.name, documents, words / documents)
        scores = Scorer(ranker, encoder, ScoringSettings(device="cpu")).scores(pairs)
        found = effectiveness(pairs.to_run(scores), dev.qrels, (MEASURE,)).mean(MEASURE)
        save_ranker(folder / RANKER, ranker, encoder)
        log.info("val/%s %.4f; ranker saved to %s", MEASURE, found, folder / RANKER)
        return found
