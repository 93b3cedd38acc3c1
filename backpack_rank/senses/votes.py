"""The senses that most pairs of words vote for: the rule in the code of Afzali et al.

Equation 4 of the paper averages cosines over pairs. The authors' code lets every pair vote for the
one sense in which its two words differ most, and scales the senses with most votes. The two rules
agree where all pairs differ in the same senses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from backpack_rank.attributes.crows_pairs import crows_pairs
from backpack_rank.attributes.lexicon import load_pairs
from backpack_rank.checks import located
from backpack_rank.constructors import Count, FilePath, Name, OneOf, checked
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.senses.policies import Policy, PolicyContext, check_enough
from backpack_rank.senses.sensitivity import first_token_cosines
from backpack_rank.senses.views import View

COMPARED = ("words", "first_tokens")


@checked("policy")
@dataclass(frozen=True)
class MostVoted(Policy):
    """Chooses senses as the paper's authors do in code: by votes of word pairs.

    >>> cosines = torch.tensor([[0.9, 0.1, 0.8], [0.9, 0.2, 0.7], [0.1, 0.9, 0.5]])
    >>> votes(cosines)  # two pairs differ most in sense 1, one in sense 0
    tensor([1, 2, 0])
    >>> most_voted(votes(cosines), 2)
    tensor([1, 0])

    Attributes:
        count: how many senses are scaled; the authors' measurements of bias scale 2.
        pairs: a file of word pairs, a name in ``lexicons/`` or a path; None: the attribute's.
        crows_pairs: CrowS-Pairs, ``crows_pairs_anonymized.csv``, whose pairs the authors take by
            the rule of :func:`~backpack_rank.attributes.crows_pairs.crows_pairs`.
        bias_type: whose sentences of CrowS-Pairs count.
        compare: ``words``, as for eq. 4, or ``first_tokens``, the first two tokens of the text
            "a b", as in the authors' code: of a word in several tokens, these are two of its parts.
    """

    in_words = "Turns down the parts of the ranker in which most pairs of words differ."

    count: Count = 2
    pairs: FilePath | None = None
    crows_pairs: FilePath | None = None
    bias_type: Name = "gender"
    compare: Annotated[str, OneOf(COMPARED)] = "words"

    def __post_init__(self) -> None:
        if self.pairs is not None and self.crows_pairs is not None:
            raise ValueError("give either policy.pairs or policy.crows_pairs, and not both")

    @property
    def name(self) -> str:
        return self.named(f"most_voted_{self.count}_senses")

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        votes_of_senses = self.votes(context)
        check_enough(self.count, votes_of_senses)
        weights = torch.ones(len(votes_of_senses))
        weights[most_voted(votes_of_senses, self.count)] = alpha
        return (View(sense_weights=weights),)

    def votes(self, context: PolicyContext) -> Tensor:
        """Votes of the pairs for each sense of the context's ranker. int64 [k]

        Raises:
            TypeError: the ranker has no senses.
            ValueError: no pair is in the files, or the tokenizer knows none of them.
        """
        context.needed_sensitivity(self.name)  # refuses rankers without senses
        pairs = self._pairs(context)
        if self.compare == "words":
            return votes(context.sensitivity_of(pairs).cosines)
        ranker, tokenizer = context.ranker, context.tokenizer
        assert isinstance(ranker, BackpackForRanking)
        assert tokenizer is not None
        return votes(first_token_cosines(ranker.backpack, tokenizer, pairs))

    def _pairs(self, context: PolicyContext) -> Sequence[tuple[str, str]]:
        if self.crows_pairs is not None:
            with located("policy.crows_pairs"):
                return crows_pairs(self.crows_pairs, self.bias_type)
        if self.pairs is not None:
            with located("policy.pairs"):
                return load_pairs(self.pairs, sides=None).pairs
        return context.pairs


def votes(cosines: Tensor) -> Tensor:
    """Votes for each sense; every pair has one, for its lowest cosine. [pairs, k] -> int64 [k]"""
    lowest = cosines.argmin(dim=1)  # of equal cosines, that of the first sense
    return lowest.bincount(minlength=cosines.shape[1])


def most_voted(votes_of_senses: Tensor, count: int) -> Tensor:
    """The ``count`` senses with most votes, most first. int64 [count]

    Of senses with equal votes, that with the higher number comes first, as in the authors' code.
    """
    return votes_of_senses.argsort(stable=True).flip(0)[:count]
