"""What a policy may look at, and the one interface of all policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from backpack_rank.senses.control import Control
from backpack_rank.senses.fitted import SwappedSenses


@dataclass(frozen=True, eq=False)
class Subject:
    """A ranker and what is known of it.

    Attributes:
        ranker: any ranker; one without senses takes only policies that move tokens where it reads them.
        tokenizer: the ranker's.
        sensitivity: s_l [k] (eq. 4), or None for a ranker without senses.
        swapped: computes the sense vectors of texts and of their swapped wordings, for policies that are fitted.
    """

    ranker: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    sensitivity: Tensor | None
    swapped: Callable[[], SwappedSenses] | None = None


class Policy(Protocol):
    """From alpha to a control. Every policy leaves the ranker bit for bit as it is at alpha = 1."""

    @property
    def name(self) -> str:
        """Short name for tables and files."""
        ...

    def control(self, subject: Subject, alpha: float) -> Control:
        """What is done to the ranker at this alpha.

        Raises:
            ValueError: alpha is not a number >= 0, or the policy does not fit the ranker.
            TypeError: the ranker has no senses and the policy needs them.
        """
        ...
