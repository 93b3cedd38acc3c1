"""Which senses tell two groups of words apart (Afzali et al., section 3, eq. 4)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.utils import eval_mode

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sensitivity:
    """s_l per sense and what it was computed from.

    Attributes:
        values: mean cosine of the pairs' l-th sense vectors [k]; low = the sense tells the words
            apart.
        pairs: how many pairs of token variants went in.
        in_parts: words without a one-token variant, for which the mean of their tokens' senses was
            used.
        unknown: word pairs left out because the tokenizer has no token for one of the words.
    """

    values: Tensor
    pairs: int
    in_parts: tuple[str, ...]
    unknown: tuple[tuple[str, str], ...]


@torch.no_grad()
def sensitivity(
    backpack: BackpackModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]
) -> Sensitivity:
    """s_l = mean over pairs of cos(C(a)_l, C(b)_l) (eq. 4).

    A word has up to four one-token variants (with and without a leading space, lower case and
    capitalised); each variant that is one token for both words is a pair of its own. Where there is
    none, the words' lower-case variants with a space are compared by the mean of their tokens'
    senses.

    Of a Backpack with attribute senses, pairs of words of one class count alone, where there are
    any: of other words nothing is split, so they would say that its senses tell words apart and
    that those of the groups do not.

    Raises:
        ValueError: no pair is left that the tokenizer knows.
    """
    cosines, of_one_class, in_parts, unknown = [], [], [], []
    for first, second in pairs:
        variants = list(_token_pairs(tokenizer, first, second))
        if not variants:
            unknown.append((first, second))
            continue
        if max(map(len, variants[0])) > 1:
            in_parts += [
                word for word, ids in zip((first, second), variants[0], strict=True) if len(ids) > 1
            ]
        with eval_mode(backpack):
            cosines += [_cosines(backpack, *variant) for variant in variants]
        of_one_class += [_are_of_one_class(backpack, *variant) for variant in variants]
    if unknown:
        log.warning("the tokenizer does not know %s; these pairs are left out", unknown)
    if not cosines:
        raise ValueError(
            f"the tokenizer knows none of the {len(unknown)} word pairs, for example {unknown[:3]}"
        )
    values = [
        value for value, counts in zip(cosines, of_one_class, strict=True) if counts
    ] or cosines
    return Sensitivity(
        torch.stack(values).mean(dim=0), len(values), tuple(in_parts), tuple(unknown)
    )


def _token_pairs(
    tokenizer: PreTrainedTokenizerBase, first: str, second: str
) -> Iterator[tuple[list[int], list[int]]]:
    variants = [
        (_ids(tokenizer, space + case(first)), _ids(tokenizer, space + case(second)))
        for space in (" ", "")
        for case in (str.lower, str.capitalize)
    ]
    known = [pair for pair in dict.fromkeys((tuple(a), tuple(b)) for a, b in variants) if all(pair)]
    single = [pair for pair in known if len(pair[0]) == len(pair[1]) == 1]
    for a, b in single or known[:1]:
        yield list(a), list(b)


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids, or none when the tokenizer does not know a part of the text."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    unknown = tokenizer.unk_token_id
    # Byte-level vocabularies know every text; GPT-2 still declares its end of text as the unknown
    # token.
    return [] if unknown is not None and unknown in ids else list(ids)


def _are_of_one_class(backpack: BackpackModel, first: list[int], second: list[int]) -> bool:
    """Whether a Backpack's attribute senses set these two words apart."""
    own = backpack.attribute_senses
    if own is None:
        return False
    forms = own.form_of(first), own.form_of(second)
    return None not in forms and bool(own.class_of[forms[0]] == own.class_of[forms[1]])


def _cosines(backpack: BackpackModel, first: list[int], second: list[int]) -> Tensor:
    """Cosines of two words by sense; the vector of an attribute sense is the stack of W_1 d ... W_k
    d. [k + G]
    """
    cosines = []
    for a, b in zip(backpack.word_senses(first), backpack.word_senses(second), strict=True):
        cosine = F.cosine_similarity(a, b, dim=-1)  # 0 where one of the vectors is 0
        # Two vectors of 0 are equal: the sense does not tell these words apart.
        both_zero = ~(a.any(dim=-1) | b.any(dim=-1))
        cosines.append(cosine.masked_fill(both_zero, 1.0))
    return torch.cat(cosines).cpu()
