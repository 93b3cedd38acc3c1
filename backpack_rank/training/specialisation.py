"""Sense specialisation (``specialise=attribute``): training that leaves an attribute to a few senses S of a Backpack.

Trained without it, an attribute such as gender spreads over all senses, and scaling some of them does no more than
scaling all. The terms are in :mod:`backpack_rank.training.specialisation_terms`; policy ``specialised`` turns S.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from transformers import PreTrainedTokenizerBase

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.counterfactual import LexiconSwap
from backpack_rank.checks import finite, whole
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.factory import Ranker, load_ranker
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.token_shift import TokenClasses
from backpack_rank.models.utils import eval_mode
from backpack_rank.senses.policies import LowestSenses
from backpack_rank.senses.sensitivity import sensitivity
from backpack_rank.senses.specialised import Specialised, check_senses, specialised_senses
from backpack_rank.training.losses import AuxiliaryLoss, RankingLoss
from backpack_rank.training.specialisation_terms import (
    AlphaRobust,
    ContentFree,
    Counterfactual,
    CounterfactualScorer,
    ReferenceGap,
    TiedSenses,
)

log = logging.getLogger(__name__)
PARTS = ("tied", "counterfactual", "content", "any_alpha", "kept")
_SMALL = 1e-6


@dataclass(frozen=True)
class NoSpecialisation:
    """The attribute spreads over all senses (``specialise=none``)."""

    swap: ClassVar[None] = None

    def apply(
        self,
        ranker: Ranker,
        pair_tokenizer: PairTokenizer,
        ranking_loss: RankingLoss,
        teacher_terms: Sequence[AuxiliaryLoss] = (),
    ) -> tuple[AuxiliaryLoss, ...]:
        """No term. An earlier specialisation leaves the ranker's configuration: training without it undoes it."""
        if (found := specialised_senses(ranker.config)) is not None:
            log.warning(
                "the ranker was specialised for %s in senses %s; with specialise=none it is no longer said to be",
                found.attribute,
                list(found.senses),
            )
            ranker.config.specialised = None
            if isinstance(ranker, BackpackForRanking):
                ranker.backpack.split_word_classes()
        return ()

    def finalise(self, ranker: Ranker, pair_tokenizer: PairTokenizer) -> None:
        """Nothing to settle."""


@dataclass(frozen=True, kw_only=True)
class Specialisation:
    """Options of ``conf/specialise/attribute.yaml``.

    Attributes:
        attribute: an entry of ``conf/attribute``: the words of the attribute.
        senses: S, sense numbers from 0; or how many, those with the lowest s_l (eq. 4) before training. Those tell
            the words apart most already; where all s_l are alike, as in new senses, any choice is as good.
        tied, counterfactual, content, any_alpha, kept: weights of the terms; 0 leaves one out.
        moved: before training, what sets the words of the classes apart is moved from the other senses into S, see
            :func:`~backpack_rank.training.specialisation.project_into_senses`.
        alike: the contextual network reads the words of a class alike at every alpha
            (:mod:`backpack_rank.models.word_boundaries`), so the attribute passes through sense vectors alone.
        wide: titles, occupations with gendered forms and kinship are tied, moved and read alike as well.
        counterfactuals: texts per batch at most whose swapped wording is scored; None is all that have one.
        reference: folder of a ranker trained without specialisation, for ``kept``; None leaves that term out.

    Raises:
        ValueError: a weight below 0 or all of them 0, no number of senses above 0, senses that stand twice, or no
            counterfactual.
    """

    attribute: Mapping[str, Any]
    senses: int | Sequence[int] = 2
    tied: float = 100.0
    counterfactual: float = 1000.0
    content: float = 30.0
    any_alpha: float = 1.0
    kept: float = 100.0
    moved: bool = True
    alike: bool = True
    wide: bool = True
    counterfactuals: int | None = 8
    reference: str | None = None

    def __post_init__(self) -> None:
        weights = {part: getattr(self, part) for part in PARTS}
        for part, weight in weights.items():
            finite(f"specialise.{part}", weight, 0)
        if not (self.tied or self.counterfactual):
            raise ValueError(
                "specialise.tied=0 and specialise.counterfactual=0 leave nothing that takes the attribute out of the "
                "other senses; specialise=none trains without specialisation"
            )
        if isinstance(self.senses, bool) or (isinstance(self.senses, int) and self.senses < 1):
            raise ValueError(f"specialise.senses={self.senses}: at least one sense must take the attribute")
        if not isinstance(self.senses, int) and (not self.senses or len(set(self.senses)) != len(self.senses)):
            raise ValueError(f"specialise.senses={list(self.senses)}: name one sense or more, each once")
        whole("specialise.counterfactuals", self.counterfactuals, 1, null="for all")

    @property
    def swap(self) -> Callable[[str], str] | None:
        """Gives a text's counterfactual, for the training lists; None when no term needs it.

        ContentFree needs it too: it must tell what the attribute adds from what else a text says.
        """
        if not (self.counterfactual or self.content or (self.kept and self.reference)):
            return None
        return partial(_swapped, self._words.swap())

    @property
    def _words(self) -> Attribute:
        return Attribute(**self.attribute)

    def apply(
        self,
        ranker: Ranker,
        pair_tokenizer: PairTokenizer,
        ranking_loss: RankingLoss,
        teacher_terms: Sequence[AuxiliaryLoss] = (),
    ) -> tuple[AuxiliaryLoss, ...]:
        """Choose S, move the attribute into it, write it into the ranker's configuration, and give the terms.

        Args:
            ranker: as it starts.
            pair_tokenizer: its tokenizer.
            ranking_loss: of the training.
            teacher_terms: terms of the training that look at scores alone; they hold at every alpha.

        Raises:
            TypeError: the ranker has no senses.
            ValueError: S has an unknown sense or all of them, the tokenizer has no class of the attribute's words, or
                the reference reads other tokens.
            FileNotFoundError: there is no reference.
        """
        if not isinstance(ranker, BackpackForRanking):
            raise TypeError(
                f"{type(ranker).__name__} has no sense vectors, so none can be set apart: use a Backpack, or "
                "specialise=none"
            )
        tokenizer = pair_tokenizer.tokenizer
        chosen = self._choose(ranker, tokenizer)
        outside = torch.ones(ranker.config.num_senses)
        outside[list(chosen)] = 0
        wordings = CounterfactualScorer(outside, self.counterfactuals)
        terms: list[AuxiliaryLoss] = []
        ranker.backpack.split_word_classes()  # whatever an earlier specialisation made of it
        classes = self._classes(tokenizer)
        if classes is not None:
            log.info("specialise: %d tokens in %d classes", sum(map(len, classes.members)), len(classes.members))
            if self.alike:
                ranker.backpack.merge_word_classes(classes.members, classes.boundaries)
            if self.moved:
                log.info("specialise: %d directions moved", project_into_senses(ranker, classes, chosen))
            if self.tied:
                others = [sense for sense in range(ranker.config.num_senses) if sense not in chosen]
                terms.append(TiedSenses(classes, others, self.tied))
        if self.counterfactual:
            terms.append(Counterfactual(wordings, self.counterfactual))
        if self.content:
            terms.append(ContentFree(wordings, self.content))
        if self.kept and self.reference is not None:
            terms.append(ReferenceGap(wordings, self._reference(pair_tokenizer), self.kept))
        if self.any_alpha:
            terms.append(AlphaRobust(outside, self.any_alpha, ranking_loss, teacher_terms))
        found = Specialised(self.attribute["name"], chosen)
        found.write(ranker.config)
        log.info("specialise: senses %s are set apart for %s", list(chosen), found.attribute)
        return tuple(terms)

    def _choose(self, ranker: BackpackForRanking, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
        count = ranker.config.num_senses
        if not isinstance(self.senses, int):
            chosen = [int(sense) for sense in self.senses]
        elif self.senses < count:
            pairs = self._words.pairs().pairs
            chosen = LowestSenses(self.senses).chosen(sensitivity(ranker.backpack, tokenizer, pairs).values).tolist()
        else:
            chosen = list(range(self.senses))  # refused below
        check_senses(chosen, count, "specialise.senses")
        return tuple(sorted(chosen))

    def finalise(self, ranker: Ranker, pair_tokenizer: PairTokenizer) -> None:
        """Behind training: move into S what the other senses still tell of the words, so that they are alike exactly.

        Does nothing unless the classes were moved before training as well.
        """
        found = specialised_senses(ranker.config)
        if self.moved and found is not None and isinstance(ranker, BackpackForRanking):
            classes = self._classes(pair_tokenizer.tokenizer)
            assert classes is not None
            project_into_senses(ranker, classes, found.senses)

    def _classes(self, tokenizer: PreTrainedTokenizerBase) -> TokenClasses | None:
        """Token classes of the attribute, None where no option needs them."""
        if not (self.tied or self.moved or self.alike):
            return None
        return TokenClasses.of(tokenizer, self._words.classes(wide=self.wide))

    def _reference(self, pair_tokenizer: PairTokenizer) -> Ranker:
        assert self.reference is not None
        reference, other = load_ranker(self.reference)
        if _vocabulary(other) != _vocabulary(pair_tokenizer):
            raise ValueError(
                f"specialise.reference={self.reference} has another tokenizer than the ranker in training, and reads "
                "the same token ids; start both from the same tokenizer"
            )
        return reference


def _swapped(swap: LexiconSwap, text: str) -> str:
    return swap(text).text


def _vocabulary(pair_tokenizer: PairTokenizer) -> tuple[int | None, int, int, dict[str, int]]:
    return (
        pair_tokenizer.start_id,
        pair_tokenizer.separator_id,
        pair_tokenizer.end_id,
        pair_tokenizer.tokenizer.get_vocab(),
    )


@torch.no_grad()
def project_into_senses(ranker: BackpackForRanking, classes: TokenClasses, chosen: Sequence[int]) -> int:
    """Move what sets the words of the classes apart from all other senses into the chosen ones, in place.

    Sense vectors are linear in h(x), C(x)_l = W_l h(x) + b_l. With P the projection onto all differences of h between
    words of a class, W_l loses W_l P in every other sense, and each chosen sense gains an equal share of what they
    lose. So the words of a class become alike in the other senses, and the sum over all senses stays as it is for
    every token: where the contextual weights of the senses are alike, so does the score.

    Returns:
        The number of directions that were moved, the rank of P.
    """
    network = ranker.backpack.sense_network
    weight = network.final_mlp.c_proj.weight  # [f, k d]
    with eval_mode(network):
        hidden = [ranker.backpack.token_hidden(torch.tensor(ids, device=weight.device)) for ids in classes.members]
    differences = torch.cat([part - part.mean(dim=0) for part in hidden]).double().cpu()
    _, lengths, directions = torch.linalg.svd(differences, full_matrices=False)
    basis = directions[lengths > _SMALL * lengths[0]].to(weight)  # [r, f], orthonormal rows
    senses = weight.unflatten(1, (ranker.config.num_senses, -1))  # a view: changes go into the weight
    moved = torch.einsum("rf,re,ekd->fkd", basis, basis, senses)
    moved[:, list(chosen)] = 0
    senses -= moved
    senses[:, list(chosen)] += moved.sum(dim=1, keepdim=True) / len(chosen)
    return len(basis)
