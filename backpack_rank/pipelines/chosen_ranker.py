"""Which ranker is evaluated, and how it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.constructors import Name
from backpack_rank.models.factory import split_attribute
from backpack_rank.models.finding import find_ranker
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.prompted_ranker import PromptTemplate
from backpack_rank.pipelines.chosen_data import ChosenData
from backpack_rank.pipelines.tasks import SavedOptions
from backpack_rank.reranking.load import (
    is_address,
    local_folder,
    refuse_model_of_server,
    refuse_ways_of_asking,
)
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.remote_encoder import server_scorer
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policies import Policy


@dataclass(kw_only=True, eq=False)
class ChosenRanker:
    """Finds the ranker that an evaluation is about, and loads it.

    Attributes:
        checkpoint: folder, hub id or address of a server; None: the ranker trained last.
        output: folder below which rankers are trained.
        attribute: whose words policies are about.
        scoring: how scores are computed; None: by the defaults.
        cache: of sense vectors on disk, or None.
        split_attribute: give attribute senses to a Backpack that was trained without them.
        template: how a language model is asked; None: as its folder says.
        labels: of a classifier with two labels, the relevant one first; None: as its folder says.
        server_model: which of a server's rankers is asked; None: its own choice.
        pooling: how an encoder without modules makes a vector of a text; None: it has modules.
    """

    checkpoint: str | None = None
    output: str = "outputs"
    attribute: Attribute
    scoring: ScoringSettings | None = None
    cache: SenseCache | None = None
    split_attribute: bool = True
    template: PromptTemplate | None = None
    labels: Sequence[str] | None = None
    server_model: Name | None = None
    pooling: str | None = None

    def find_ranker(self) -> Path | str:
        """Folder of the ranker, downloaded where it is on the hub, or the address of its server.

        Raises:
            FileNotFoundError: there is none.
        """
        if self.checkpoint is None:
            return find_ranker(None, self.output)
        if is_address(self.checkpoint):
            return self.checkpoint
        return local_folder(self.checkpoint, "checkpoint")

    def load_ranker(self, checkpoint: Path | str) -> PointwiseReranker:
        """A saved ranker at alpha = 1; :meth:`PointwiseReranker.with_policy` sets another alpha.

        Args:
            checkpoint: folder of the ranker, or the address of its server.
        """
        if isinstance(checkpoint, str):
            refuse_ways_of_asking(checkpoint, self.template, self.labels, self.pooling)
            return PointwiseReranker(
                server_scorer(checkpoint, self.server_model),
                attribute=self.attribute,
                source=checkpoint,
            )
        refuse_model_of_server(str(checkpoint), self.server_model, "server_model")
        ranker, pair_tokenizer = load_ranker(checkpoint, self.template, self.labels, self.pooling)
        if self.split_attribute:
            split_attribute(ranker, pair_tokenizer, self.attribute)
        scorer = Scorer(ranker, pair_tokenizer, self.scoring)
        return PointwiseReranker(
            scorer, attribute=self.attribute, cache=self.cache, source=str(checkpoint)
        )


@dataclass(kw_only=True, eq=False)
class RankerOptions(ChosenRanker):
    """Options of ``conf/evaluate.yaml`` that every task takes which loads a ranker.

    Attributes:
        saved: all options, for ``config.yaml``.
        chosen_data: which collection is ranked.
    """

    saved: SavedOptions
    data: Mapping[str, Any] | None = None
    first_stage: Mapping[str, Any] | None = None
    policy: Policy
    alpha: float | str = 1.0

    def __post_init__(self) -> None:
        self.chosen_data = ChosenData(self.data, self.first_stage)
