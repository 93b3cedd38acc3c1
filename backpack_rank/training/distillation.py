"""Knowledge distillation: a term that draws a ranker's scores to those of a teacher."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from backpack_rank.data.datamodule import ListBatch
from backpack_rank.models.factory import Ranker
from backpack_rank.models.rankers import RankerOutput
from backpack_rank.training.losses import listwise_kl, margin_mse

KINDS = ("margin_mse", "listwise_kl")


@dataclass
class Distillation:
    """A :class:`~backpack_rank.training.terms.Term` on the teacher's scores of a batch.

    Documents without a teacher's score, and lists with too few of them, play no part.

    Attributes:
        kind: ``margin_mse`` (differences of scores between relevant and other documents) or ``listwise_kl``
            (the whole list as a distribution, whatever the labels).
        weight: factor of the term.
        temperature: of both softmaxes of ``listwise_kl``; higher looks more at the lower documents.

    Raises:
        ValueError: an unknown kind, or a weight or temperature that is not above 0.
    """

    kind: str = "margin_mse"
    weight: float = 1.0
    temperature: float = 1.0

    name: str = field(default="distillation", init=False)
    needs_senses: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"teacher.loss={self.kind}: use one of {', '.join(KINDS)}")
        if not self.weight > 0 or not self.temperature > 0:
            raise ValueError(
                f"teacher.weight={self.weight} and teacher.temperature={self.temperature} must be above 0; "
                "teacher=none trains without a teacher"
            )

    def loss(self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor) -> Tensor:
        """The distance to the teacher's scores; 0 where the batch has none of them.

        Raises:
            ValueError: the batch was made without a teacher.
        """
        if batch.teacher is None:
            raise ValueError("the batch has no teacher's scores: give RankingData a teacher")
        if self.kind == "margin_mse":
            return margin_mse(scores, batch.teacher, batch.labels, batch.mask)[0]
        return listwise_kl(scores, batch.teacher, batch.mask, self.temperature)[0]
