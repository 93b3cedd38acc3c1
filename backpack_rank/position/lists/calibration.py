"""Content-free calibration of a listwise ranker's identifier probabilities (CapCal)."""

from __future__ import annotations

import math
import random
import string
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Annotated
from weakref import WeakKeyDictionary

import numpy as np

from backpack_rank.checks import one_of
from backpack_rank.constructors import (
    CountOrZero,
    NonNegative,
    Note,
    OneOf,
    Positive,
    Seed,
    checked,
)
from backpack_rank.position.lists.passages import PassageList

ContentFreePrompt = tuple[str, tuple[str, ...]]
"""A query and the placeholders of its passages: all that a prior depends on."""
FIXED_STRING = "This is a placeholder"


def normalised(log_probabilities: np.ndarray) -> np.ndarray:
    """Probabilities of the candidates among themselves. [m] -> [m], sum 1"""
    weights = np.exp(log_probabilities - log_probabilities.max())
    return weights / weights.sum()


def entropy(probabilities: np.ndarray) -> float:
    """Shannon entropy in nats of probabilities [m]; 0 ln 0 = 0."""
    some = probabilities[probabilities > 0]
    return float(-(some * np.log(some)).sum())


def calibrated(probabilities: np.ndarray, prior: np.ndarray, alpha: float) -> np.ndarray:
    """S = P - alpha (P_empty - 1 / |C|) (eq. 3). [m], [m] -> [m]"""
    return probabilities - alpha * (prior - 1 / len(prior))


@checked("calibration")
class ContentFreeCalibration:
    """Subtracts what a model prefers without having seen any content (CapCal, section 3).

    P and P_empty are probabilities of whole identifiers (eq. 2), normalised over the candidates
    that remain. P_empty is that behind the same prompt with every passage replaced, the same query
    and the same identifiers generated so far. The weight is alpha = beta H(P) (eq. 4): the less
    sure the model, the more is subtracted.

    A ranker in ``first_token`` mode needs one extra forward pass, with short passages, for each
    distinct content-free
    prompt. Priors are remembered: with ``fixed_string``, ``space``, ``spaces_20`` and ``random_20``
    there is one for each query and number of passages, however often its passages are shuffled;
    with ``first_passage``, ``spaces_first`` and ``random_first`` it returns only with the same
    (length of the) first passage, with ``spaces_each`` only with the same lengths in the same
    order. In ``generate`` mode priors of later steps depend on what has been generated; the
    content-free prompt is read once per batch for all lists that share it, and its keys and values
    serve all steps.

    Attributes:
        beta: 0 leaves the ranker as it is, without the extra pass. The paper prints no value. Of a
            model that prefers by position alone (P = P_empty), 1 - alpha of the preference is left:
            nothing at alpha = 1, and the opposite preference above it. The default, about 1 / ln
            20, gives at most 0.9 for the paper's lists of 20.
        relative: whether the entropy is divided by ln |C|, its largest value.
        limit: largest alpha, or None. The code that the authors released takes beta 5, relative,
            limit 2; the equation has neither.
        placeholder: a name of :data:`~backpack_rank.position.lists.calibration.PLACEHOLDERS`.
        seed: of random placeholders.
        remembered: priors kept for each ranker, the latest used ones.
    """

    label = "CapCal"

    def __init__(
        self,
        beta: NonNegative = 0.3,
        relative: bool = False,
        limit: Positive | Annotated[None, Note("for none")] = None,
        placeholder: Annotated[str, OneOf(PLACEHOLDERS)] = "fixed_string",
        seed: Seed = 0,
        remembered: CountOrZero = 10_000,
    ) -> None:
        """Raises ``ValueError`` for a negative beta, limit or memory, and for an unknown
        placeholder.
        """
        self.beta, self.relative, self.limit = beta, relative, limit
        self.placeholder, self.seed, self.remembered = placeholder, seed, remembered
        # By ranker, because priors are those of one model and one prompt; they go when the ranker
        # goes.
        self._priors: WeakKeyDictionary[object, OrderedDict[ContentFreePrompt, np.ndarray]] = (
            WeakKeyDictionary()
        )

    @property
    def active(self) -> bool:
        """Whether anything is changed."""
        return self.beta > 0

    def content_free(self, shown: PassageList) -> PassageList:
        """The list with its passages replaced."""
        return PassageList(
            shown.query,
            placeholders(self.placeholder, shown.passages, self.seed),
            query_id=shown.query_id,
        )

    def priors(
        self,
        lists: Sequence[PassageList],
        compute: Callable[[list[PassageList]], list[np.ndarray]],
        owner: object,
    ) -> list[np.ndarray]:
        """Log-probabilities of the identifiers of each list without content; each distinct prompt
        is computed once.

        Args:
            compute: gives them for content-free lists.
            owner: the ranker that computes them; it gets only its own back.
        """
        known = self._priors.setdefault(owner, OrderedDict())
        free = [self.content_free(shown) for shown in lists]
        keys = [(one.query, one.passages) for one in free]
        missing = {key: one for key, one in zip(keys, free, strict=True) if key not in known}
        found = {key: known[key] for key in keys if key in known}
        found.update(zip(missing, compute(list(missing.values())) if missing else [], strict=True))
        for key, prior in found.items():
            known[key] = prior
            known.move_to_end(key)
        while len(known) > self.remembered:
            known.popitem(last=False)
        return [found[key] for key in keys]

    def alpha(self, probabilities: np.ndarray) -> float:
        """The weight of the prior: beta H(P) (eq. 4), with the options above. [m] -> number"""
        weight = self.beta * entropy(probabilities)
        if self.relative:
            weight = weight / math.log(len(probabilities)) if len(probabilities) > 1 else 0.0
        return weight if self.limit is None else min(weight, self.limit)

    def scores(self, log_probabilities: np.ndarray, log_prior: np.ndarray) -> np.ndarray:
        """Calibrated scores of the remaining candidates from log-probabilities with and without
        content. [m]
        """
        probabilities = normalised(log_probabilities)
        return calibrated(probabilities, normalised(log_prior), self.alpha(probabilities))


PLACEHOLDERS: dict[str, Callable[[Sequence[str], random.Random], list[str]]] = {
    "fixed_string": lambda passages, _: [FIXED_STRING] * len(passages),
    "first_passage": lambda passages, _: [passages[0]] * len(passages),
    "space": lambda passages, _: [" "] * len(passages),
    "spaces_20": lambda passages, _: [" " * 20] * len(passages),
    "random_20": lambda passages, draw: [_random_text(20, draw)] * len(passages),
    "spaces_first": lambda passages, _: [" " * len(passages[0])] * len(passages),
    "random_first": lambda passages, draw: [_random_text(len(passages[0]), draw)] * len(passages),
    "spaces_each": lambda passages, _: [" " * len(passage) for passage in passages],
}
"""By name: passages and a source of random numbers -> what each is replaced by. Lengths are in
characters.

The paper's names: Fixed String, Passage[1] Content, Empty (a space), Space x 20, Random x 20, Space
x len[1], Random x len[1], Space x len[i]. One random text stands in place of all passages of a
list, as the other contents do.
"""


def placeholders(name: str, passages: Sequence[str], seed: int = 0) -> tuple[str, ...]:
    """The texts in place of these passages; the same ones for the same passages.

    Raises:
        ValueError: there is no such variant.
    """
    one_of("calibration.placeholder", name, PLACEHOLDERS)
    return tuple(PLACEHOLDERS[name](passages, random.Random(seed)))


def _random_text(length: int, draw: random.Random) -> str:
    return "".join(draw.choices(string.ascii_letters + string.digits, k=length))
