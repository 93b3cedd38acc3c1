"""Senses that training has set apart for an attribute, and the policy ``specialised`` that scales exactly them.

Training with ``specialise=attribute`` (:mod:`backpack_rank.training.specialisation`) leaves an attribute such as gender
to a few senses S and writes them into the ranker's configuration, so a saved ranker knows its S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.senses.control import Control
from backpack_rank.senses.policy import check_alpha
from backpack_rank.senses.subject import Subject

KEY = "specialised"


@dataclass(frozen=True)
class Specialised:
    """The senses of a ranker that were trained to hold an attribute.

    Attributes:
        attribute: name of the attribute, such as ``gender``.
        senses: S, ascending.
    """

    attribute: str
    senses: tuple[int, ...]

    @classmethod
    def of(cls, ranker: PreTrainedModel) -> Specialised | None:
        """What the ranker's configuration says, or None.

        Raises:
            ValueError: the entry is not what :meth:`write` writes.
        """
        found = getattr(ranker.config, KEY, None)
        if found is None:
            return None
        try:
            entry = cls(str(found["attribute"]), tuple(int(sense) for sense in found["senses"]))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"the ranker's configuration has {KEY}={found!r}, without attribute and senses") from error
        check_senses(entry.senses, ranker.config.num_senses, f"the ranker's configuration, {KEY}.senses")
        return entry

    def write(self, ranker: PreTrainedModel) -> None:
        """Put it into the ranker's configuration, which is saved with the ranker."""
        setattr(ranker.config, KEY, {"attribute": self.attribute, "senses": list(self.senses)})


@dataclass(frozen=True)
class SpecialisedSenses:
    """The senses that training has set apart, times alpha, the others times 1.

    Attributes:
        attribute: what the senses must have been set apart for; None takes any.
    """

    attribute: str | None = None

    @property
    def name(self) -> str:
        return KEY

    def chosen(self, subject: Subject) -> tuple[int, ...]:
        """S of the ranker.

        Raises:
            TypeError: the ranker has no senses.
            ValueError: it was trained without specialisation, or for another attribute.
        """
        ranker = subject.ranker
        if not isinstance(ranker, BackpackForRanking):
            raise TypeError(f"{type(ranker).__name__} has no sense vectors; policy {self.name} needs a Backpack ranker")
        found = Specialised.of(ranker)
        if found is None:
            raise ValueError(
                f"policy {self.name} needs a ranker trained with `train.py specialise=attribute`; this one has no "
                "senses set apart for an attribute (policy=lowest_senses takes the most sensitive ones of any Backpack)"
            )
        if self.attribute is not None and found.attribute != self.attribute:
            raise ValueError(
                f"senses {list(found.senses)} of this ranker were set apart for {found.attribute}, and attribute="
                f"{self.attribute} is measured; policy.attribute={found.attribute} turns them all the same"
            )
        return found.senses

    def control(self, subject: Subject, alpha: float) -> Control:
        """Weights of alpha for S; nothing at alpha = 1.

        Raises:
            TypeError, ValueError: as :meth:`chosen`; alpha is not a number >= 0.
        """
        alpha = check_alpha(alpha)
        chosen = self.chosen(subject)
        if alpha == 1:
            return Control(self.name, alpha)
        weights = torch.ones(subject.ranker.config.num_senses)
        weights[list(chosen)] = alpha
        return Control(self.name, alpha, weights=weights)


def check_senses(senses: Sequence[int], count: int, where: str) -> None:
    """Raise ``ValueError`` unless these are some, not all, of the senses 0 to ``count`` - 1, each once."""
    unknown = [sense for sense in senses if not 0 <= sense < count]
    if unknown:
        raise ValueError(f"{where}={list(senses)}: the ranker has senses 0 to {count - 1}, not {unknown[0]}")
    if not senses or len(set(senses)) != len(senses):
        raise ValueError(f"{where}={list(senses)}: name one sense or more, each once")
    if len(senses) == count:
        raise ValueError(f"{where}={list(senses)}: all {count} senses; at least one must be left without the attribute")
