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
    """The probabilities of the candidates among themselves. [m] -> [m], sum 1

    >>> normalised(np.log([0.1, 0.3])).round(2).tolist()
    [0.25, 0.75]
    """
    # Less the largest, so that no exponential overflows and not all are 0.
    weights = np.exp(log_probabilities - log_probabilities.max())
    return weights / weights.sum()


def entropy(probabilities: np.ndarray) -> float:
    """The Shannon entropy in nats of probabilities [m].

    >>> round(entropy(np.array([0.5, 0.5, 0.0])), 4)  # ln 2, since 0 ln 0 = 0
    0.6931
    """
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())


def calibrated(probabilities: np.ndarray, prior: np.ndarray, alpha: float) -> np.ndarray:
    """Subtract a prior: ``S = P - alpha (P_empty - 1 / |C|)`` (eq. 3). [m], [m] -> [m]

    >>> calibrated(np.array([0.6, 0.4]), prior=np.array([0.7, 0.3]), alpha=1.0).round(2).tolist()
    [0.4, 0.6]
    """
    return probabilities - alpha * (prior - 1 / len(prior))


@checked("calibration")
class ContentFreeCalibration:
    """Subtracts what a model prefers without having seen any content (CapCal)::

        ranker = CausalLmRanker(model, pair_tokenizer, calibration=ContentFreeCalibration())

    P and P_empty are probabilities of complete identifiers (section 3, eq. 2), normalised over the
    candidates that remain. P_empty is that behind the same prompt with every passage replaced, the
    same query and the same identifiers generated so far. The weight is alpha = beta H(P) (eq. 4):
    the less sure the model, the more is subtracted.

    A ranker in ``first_token`` mode needs one extra forward pass, with short passages, for each
    distinct content-free prompt. Priors are remembered: with ``fixed_string``, ``space``,
    ``spaces_20`` and ``random_20`` there is one for each query and number of passages, however
    often its passages are shuffled; with ``first_passage``, ``spaces_first`` and ``random_first``
    it returns only with the same (length of the) first passage, with ``spaces_each`` only with the
    same lengths in the same order. In ``generate`` mode priors of later steps depend on what has
    been generated; the content-free prompt is read once per batch for all lists that share it, and
    its keys and values serve all steps.

    Attributes:
        beta: 0 leaves the ranker unchanged, without the extra pass. The paper prints no value. Of a
            model that prefers by position alone (P = P_empty), 1 - alpha of the preference is left:
            nothing at alpha = 1, and the opposite preference above it. The default, about 1 / ln
            20, gives at most 0.9 for the paper's lists of 20.
        relative: whether the entropy is divided by ``ln |C|``, its largest value.
        limit: largest alpha, or None. The code that the authors released takes beta 5, relative,
            limit 2; the equation has neither.
        placeholder: a name of :data:`~backpack_rank.position.lists.calibration.PLACEHOLDERS`.
        seed: of random placeholders.
        remembered: priors kept for each ranker, those used last.
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
        """See the class.

        Raises:
            ValueError: a negative beta, limit or memory, or an unknown placeholder.
        """
        self.beta = beta
        self.relative = relative
        self.limit = limit
        self.placeholder = placeholder
        self.seed = seed
        self.remembered = remembered
        # By ranker, because priors are those of one model and one prompt; they go when the ranker
        # goes.
        self._priors: WeakKeyDictionary[object, OrderedDict[ContentFreePrompt, np.ndarray]] = (
            WeakKeyDictionary()
        )

    @property
    def active(self) -> bool:
        """Whether anything is changed; where not, a ranker saves the passes of the prior."""
        return self.beta > 0

    def content_free(self, shown: PassageList) -> PassageList:
        """The list with its passages replaced."""
        passages = placeholders(self.placeholder, shown.passages, self.seed)
        return PassageList(shown.query, passages, query_id=shown.query_id)

    def priors(
        self,
        lists: Sequence[PassageList],
        compute: Callable[[list[PassageList]], list[np.ndarray]],
        owner: object,
    ) -> list[np.ndarray]:
        """Log-probabilities of the identifiers of each list without content. [m] each

        Each distinct prompt is computed once.

        Args:
            compute: gives them for content-free lists.
            owner: the ranker that computes them; it gets only its own back.
        """
        known = self._priors.setdefault(owner, OrderedDict())
        keys: list[ContentFreePrompt] = []
        missing: dict[ContentFreePrompt, PassageList] = {}
        priors: dict[ContentFreePrompt, np.ndarray] = {}
        for shown in lists:
            content_free = self.content_free(shown)
            key = (content_free.query, content_free.passages)
            keys.append(key)
            if key in known:
                priors[key] = known[key]
            else:
                missing[key] = content_free
        if missing:
            # In one call, which may batch them.
            computed = compute(list(missing.values()))
            priors.update(zip(missing, computed, strict=True))

        # The prior used longest ago is forgotten first. What is forgotten here is still in
        # ``priors``, so more lists than are remembered can be asked for.
        for key, prior in priors.items():
            known[key] = prior
            known.move_to_end(key)
        while len(known) > self.remembered:
            known.popitem(last=False)
        return [priors[key] for key in keys]

    def alpha(self, probabilities: np.ndarray) -> float:
        """The weight of the prior: beta H(P) (eq. 4), with the options above. [m] -> number"""
        weight = self.beta * entropy(probabilities)
        if self.relative:
            # The last candidate is certain: its entropy is 0, and so is the largest one, ln 1.
            weight = weight / math.log(len(probabilities)) if len(probabilities) > 1 else 0.0
        if self.limit is not None:
            weight = min(weight, self.limit)
        return weight

    def scores(self, log_probabilities: np.ndarray, log_prior: np.ndarray) -> np.ndarray:
        """Calibrated scores of the remaining candidates. [m]

        Args:
            log_probabilities: with content. [m]
            log_prior: without content. [m]
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
x len[1], Random x len[1], Space x len[i]. The same random text replaces all passages of a list, as
the other contents do.
"""


def placeholders(name: str, passages: Sequence[str], seed: int = 0) -> tuple[str, ...]:
    """Replace passages by texts without content, equal passages by equal texts.

    >>> placeholders("spaces_first", ["four", "passages"])
    ('    ', '    ')

    Raises:
        ValueError: there is no such variant.
    """
    one_of("calibration.placeholder", name, PLACEHOLDERS)
    return tuple(PLACEHOLDERS[name](passages, random.Random(seed)))


def _random_text(length: int, draw: random.Random) -> str:
    return "".join(draw.choices(string.ascii_letters + string.digits, k=length))
