"""What a training does against bias in its data: the usual baselines, each by one option."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.counterfactual import LexiconSwap
from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.collection import Collection
from backpack_rank.data.training_lists import Negatives, random_negatives
from backpack_rank.models.rankers import Ranker
from backpack_rank.training.adversary import GroupAdversary, leaning_of
from backpack_rank.training.biased_negatives import BiasAwareNegatives


class Debiasing:
    """Trains against bias without a dial: what a dial is compared with.

        debiasing = Debiasing("gender", augment="swap")
        data = RankingData(lists, ..., augment=debiasing.augmentation())

    Each baseline fixes how far the attribute is removed when the ranker is trained:

    - **augmentation**: beside every list a copy in which the words of query and documents are
      swapped (counterfactual data augmentation);
    - **bias-aware negatives**: documents that lean to a group are not relevant for it
      (:mod:`backpack_rank.training.biased_negatives`);
    - **an adversary** reads the group off text vectors, and the ranker learns to defeat it
      (:mod:`backpack_rank.training.adversary`).
    """

    def __init__(
        self,
        attribute: str,
        *,
        augment: str | None = None,
        adversary: float | None = None,
        negatives: str = "random",
        biased_share: float = 0.5,
    ) -> None:
        """
        Args:
            attribute: a name of ``conf/attribute``, or a YAML file.
            augment: ``swap`` or None.
            adversary: weight of its reversed gradient, or None.
            negatives: ``random`` or ``bias_aware``.
            biased_share: of the negatives of a query that asks for no group, in (0, 1].

        Raises:
            FileNotFoundError: there is no attribute of that name.
            ValueError: a value of its file is wrong.
        """
        # Read now, so that a wrong name ends a training before it starts.
        self._attribute = Attribute.named(attribute)
        self._augment = augment
        self._adversary = adversary
        self._negatives = negatives
        self._biased_share = biased_share

    def negatives(self, collection: Collection) -> Negatives:
        """What chooses the negatives of training lists."""
        if self._negatives == "random":
            return random_negatives
        return BiasAwareNegatives(collection, self._lexicon, self._biased_share)

    def augmentation(self) -> Callable[[str], str] | None:
        """What swaps the words of a text, or None."""
        if self._augment is None:
            return None
        # A partial of a module's function, because processes that read data pickle it.
        return partial(_swapped, self._attribute.swap())

    def leaning(self) -> Callable[[str], int] | None:
        """What the adversary learns of a document, or None without one."""
        return None if self._adversary is None else leaning_of(self._lexicon)

    def adversaries(self, ranker: Ranker) -> tuple[GroupAdversary, ...]:
        """The adversary's term of the loss, or none.

        Raises:
            ValueError: the ranker has no head whose vectors it could read.
        """
        if self._adversary is None:
            return ()
        groups = len(self._lexicon.group_names)
        return (GroupAdversary(ranker, groups, self._adversary),)

    @cached_property
    def _lexicon(self) -> Lexicon:
        return self._attribute.lexicon()


def _swapped(swap: LexiconSwap, text: str) -> str:
    return swap(text).text
