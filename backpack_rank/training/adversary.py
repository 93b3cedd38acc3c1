"""An adversarial head that a ranker learns to defeat (``training.adversary=WEIGHT``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backpack_rank.attributes.lexicon import Lexicon, count_groups
from backpack_rank.data.datamodule import ListBatch
from backpack_rank.models.rankers import Ranker, RankerOutput


class GroupAdversary(nn.Module):
    """A term of the loss, to train a ranker whose text vectors do not tell a group.

        term = GroupAdversary(ranker, groups=2, weight=1.0)
        RankingModule(ranker, optimisation, dev, terms=[term])

    A classifier of two layers reads the vector x that the ranker's head reads, and learns to which
    group the words of a document lean, or that they lean to none. Behind a gradient-reversal layer
    (Ganin and Lempitsky 2015) the ranker learns the opposite:

        loss = cross entropy(classifier(x), leaning);   d loss / d x is multiplied by -weight

    Alpha has no part in it: how far the attribute is removed is fixed by ``weight`` when the ranker
    is trained. After AdvBert (Rekabsaz et al. 2021, SIGIR).

    With a similarity (:mod:`backpack_rank.models.similarity`), x is the vector without it: training
    leaves the encoder as it is, and what its cosine tells of a group stays in the score.

    Attributes:
        reversal: what gradients are multiplied by on their way to the ranker, with a minus.
        weight: 1; the classifier learns at its full loss.
    """

    name = "adversary"
    weight = 1.0

    def __init__(self, ranker: Ranker, groups: int, weight: float) -> None:
        """
        Args:
            ranker: must have a head that reads one vector for each text.
            groups: of documents; leaning to none is one more class.
            weight: of the reversed gradient.

        Raises:
            ValueError: the ranker has no such head.
        """
        super().__init__()
        head = getattr(ranker, "head", None)
        if head is None:
            raise ValueError(
                f"training.adversary={weight} reads what a ranker's head reads, and "
                f"{type(ranker).__name__} has none: use model=backpack or model=cross_encoder"
            )
        self.reversal = weight
        self._size: int = head.out.in_features
        self.classifier = nn.Sequential(
            nn.Linear(self._size, self._size), nn.Tanh(), nn.Linear(self._size, groups + 1)
        )
        self._vectors: Tensor | None = None
        head.register_forward_pre_hook(self._remember)

    def loss(
        self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor
    ) -> Tensor:
        """Cross entropy of the batch's N documents."""
        assert self._vectors is not None
        assert batch.leanings is not None
        vectors: Tensor = _ReverseGradient.apply(self._vectors.float(), self.reversal)
        return F.cross_entropy(self.classifier(vectors), batch.leanings)

    def _remember(self, head: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # A similarity stands behind the vector. No gradient goes through it: against a classifier
        # that reads it, the ranker could do nothing.
        self._vectors = inputs[0][..., : self._size]


def leaning_of(lexicon: Lexicon) -> Callable[[str], int]:
    """Get the function that says to which group a text leans: 0 for none, 1 + its number.

    >>> gender = Lexicon("gender", {"female": ("she", "her"), "male": ("he", "his")})
    >>> lean = leaning_of(gender)
    >>> [lean(text) for text in ("It rains.", "She met his mother.", "He, his dog and she")]
    [0, 0, 2]
    """
    # A partial of a module's function, because processes that read data pickle it.
    return partial(_leaning, lexicon)


def _leaning(lexicon: Lexicon, text: str) -> int:
    counts = count_groups([text], lexicon)[0]
    most = counts.max()
    is_tie = (counts == most).sum() > 1
    return 0 if is_tie else 1 + int(counts.argmax())


class _ReverseGradient(torch.autograd.Function):
    """The same vectors, with a gradient of the other sign."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return vectors.view_as(vectors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.weight * gradients[0], None
