"""Which senses tell two groups of words apart (Afzali et al., section 3, eq. 4)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.utils import eval_mode

log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Sensitivity:
    """What :func:`sensitivity` returns: s_l of each sense, and the words it was computed from.

    Attributes:
        values: mean cosine of the pairs' l-th sense vectors [k]; low = the sense tells the words
            apart.
        cosines: of each pair of token variants that went in. [pairs, k]
        in_parts: words without a one-token variant, for which the mean of their tokens' senses was
            used.
        unknown: word pairs left out because the tokenizer has no token for one of the words.
    """

    values: Tensor
    cosines: Tensor
    in_parts: tuple[str, ...]
    unknown: tuple[tuple[str, str], ...]

    @property
    def pairs(self) -> int:
        """How many pairs of token variants went in."""
        return len(self.cosines)

    def __repr__(self) -> str:
        """s_l of each sense, and of how many pairs it is the mean."""
        values = ", ".join(f"{value:.3f}" for value in self.values.tolist())
        return f"Sensitivity(s_l=[{values}], pairs={self.pairs})"


@torch.no_grad()
def sensitivity(
    backpack: BackpackModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]
) -> Sensitivity:
    """Which senses of a Backpack tell the words of pairs apart.

    s_l = mean over pairs of cos(C(a)_l, C(b)_l)    (eq. 4)

    >>> sensitivity(ranker.backpack, tokenizer, [("she", "he")]).values  # doctest: +SKIP
    tensor([0.91, 0.13, 0.87, 0.90])

    A word has up to four one-token variants (with and without a leading space, lower case and
    capitalised); each variant that is one token for both words is a pair. Where there is none, the
    words' lower-case variants with a space are compared by the mean of their tokens' senses.

    In a Backpack with attribute senses, only words of classes are split into a shared part (the k
    senses) and a difference (the senses of the groups). Other words are not split, so their pairs
    would say that the k senses tell words apart and the senses of the groups do not. Where there
    are pairs within a class, s_l is therefore the mean over these alone.

    Raises:
        ValueError: the tokenizer knows none of the pairs.
    """
    cosines: list[Tensor] = []
    cosines_of_one_class: list[Tensor] = []
    in_parts: list[str] = []
    unknown: list[tuple[str, str]] = []
    with eval_mode(backpack):
        for first, second in pairs:
            variants = _variants(tokenizer, first, second)
            if not variants:
                unknown.append((first, second))
                continue
            # A variant of several tokens is the only variant of its pair.
            for word, ids in zip((first, second), variants[0], strict=True):
                if len(ids) > 1:
                    in_parts.append(word)
            for first_ids, second_ids in variants:
                cosine = _cosines(backpack, first_ids, second_ids)
                cosines.append(cosine)
                if _are_of_one_class(backpack, first_ids, second_ids):
                    cosines_of_one_class.append(cosine)
    if unknown:
        log.warning("the tokenizer does not know %s; these pairs are left out", unknown)
    if not cosines:
        raise ValueError(
            f"the tokenizer knows none of the {len(unknown)} word pairs, for example {unknown[:3]}"
        )
    used = torch.stack(cosines_of_one_class or cosines)
    return Sensitivity(used.mean(dim=0), used, tuple(in_parts), tuple(unknown))


@torch.no_grad()
def first_token_cosines(
    backpack: BackpackModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]
) -> Tensor:
    """Cosines by sense of the first two tokens of the text "a b", for each pair. [pairs, k + G]

    The authors of Afzali et al. compare these. Where a is one token, they are a and the beginning
    of b; where it is several, they are two parts of a. A text of one token is left out.

    Raises:
        ValueError: no text has two tokens.
    """
    cosines = []
    with eval_mode(backpack):
        for first, second in pairs:
            ids = tokenizer(f"{first} {second}", add_special_tokens=False)["input_ids"]
            if len(ids) >= 2:
                cosines.append(_cosines(backpack, ids[:1], ids[1:2]))
    if not cosines:
        raise ValueError(f"none of the {len(pairs)} word pairs has two tokens: {pairs[:3]}")
    return torch.stack(cosines)


def _variants(
    tokenizer: PreTrainedTokenizerBase, first: str, second: str
) -> list[tuple[list[int], list[int]]]:
    """Token ids of both words, in each variant that is one token for both of them.

    Where there is none, in the first variant that the tokenizer knows, in several tokens.
    """
    known: list[tuple[list[int], list[int]]] = []
    for space in (" ", ""):
        for case in (str.lower, str.capitalize):
            first_ids = _token_ids(tokenizer, space + case(first))
            second_ids = _token_ids(tokenizer, space + case(second))
            # A tokenizer without case gives the same ids twice: that is one pair.
            if first_ids and second_ids and (first_ids, second_ids) not in known:
                known.append((first_ids, second_ids))
    of_one_token = [ids for ids in known if len(ids[0]) == len(ids[1]) == 1]
    return of_one_token or known[:1]


def _token_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids, or none when the tokenizer does not know a part of the text."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    unknown = tokenizer.unk_token_id
    # Byte-level vocabularies know every text. GPT-2 still declares its end of text as the unknown
    # token, so that there is an unknown token says nothing yet.
    if unknown is not None and unknown in ids:
        return []
    return list(ids)


def _are_of_one_class(backpack: BackpackModel, first: list[int], second: list[int]) -> bool:
    """True where the two words are of one class of the attribute senses, such as he and she."""
    senses = backpack.attribute_senses
    if senses is None:
        return False
    forms = senses.form_of(first), senses.form_of(second)
    if None in forms:
        return False
    return bool(senses.class_of[forms[0]] == senses.class_of[forms[1]])


def _cosines(backpack: BackpackModel, first: list[int], second: list[int]) -> Tensor:
    """Cosines of two words by sense, of the k senses and the G attribute senses. [k + G]

    The vector of an attribute sense is the stack of W_1 d ... W_k d.
    """
    cosines = []
    first_senses, second_senses = backpack.word_senses(first), backpack.word_senses(second)
    for a, b in zip(first_senses, second_senses, strict=True):
        cosine = F.cosine_similarity(a, b, dim=-1)  # 0 where one of the vectors is 0
        # Two vectors of 0 are equal: the sense does not tell these words apart.
        both_zero = ~(a.any(dim=-1) | b.any(dim=-1))
        cosines.append(cosine.masked_fill(both_zero, 1.0))
    return torch.cat(cosines).cpu()
