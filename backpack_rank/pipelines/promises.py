"""What a policy promises of two documents at alpha = 0, as ``certificate=true`` counts it.

    promised = promise_of(reranker.at(0))
    promised("who can rewire a house?", "She is an electrician.", "He is an electrician.")

One score for both is promised

- by ``policy=renditions`` where they have one canonical form; of renditions of one's own where
  they have the same ones, which is so where these are closed: rewriting one gives all of them,
- by ``policy=lowest_senses`` of a ranker that was trained with attribute senses where they differ
  in words of their classes alone,
- by ``policy=paired_tokens`` where they differ in moved tokens alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from backpack_rank.attributes.own_renditions import OwnRenditions
from backpack_rank.models.backpack_encoder import SenseRanker
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.erase import Erase
from backpack_rank.senses.policies import PairedTokens
from backpack_rank.senses.renditions import MeanOfRenditions

_LONGEST = 10**6
"""Tokens that no text has which is looked at as a whole."""
Promise = Callable[[str, str, str], bool]
"""Whether a policy promises one score to two documents of a query, at alpha = 0."""


def promise_of(reranker: PointwiseReranker) -> Promise:
    """What the policy of a reranker promises.

        promised = promise_of(reranker.at(0))

    Raises:
        ValueError: another alpha than 0, or a policy that promises nothing.
    """
    policy = reranker.hook.policy
    alpha = reranker.hook.alpha
    if policy is None or alpha != 0:
        raise ValueError(
            "certificate=true is about alpha=0, where a policy acts in full, and not "
            f"alpha={alpha:g}"
        )
    if isinstance(policy, MeanOfRenditions):
        if policy.own is not None:
            return partial(_same_own_form, reranker, policy, policy.own)
        return partial(_same_form, policy)
    if isinstance(policy, Erase):
        raise ValueError(
            f"policy {policy.name} promises nothing about single texts: no linear probe finds "
            f"{policy.attribute.name} in the vectors that it was fitted on, at best; leave out "
            "certificate=true, or take policy=renditions"
        )
    if _scales_attribute_senses(reranker):
        return partial(_same_classes, reranker)
    ranker = reranker.scorer.ranker
    if isinstance(policy, PairedTokens):
        # Under another scope than its default the policy moves less than the ranker reads.
        default = replace(policy, scope=None)
        if policy.scope_for(ranker) == default.scope_for(ranker):
            return partial(_same_tokens, reranker)
    raise ValueError(
        f"policy {policy.name} promises nothing about single texts of this ranker: "
        "certificate=true needs policy=renditions, policy=paired_tokens without policy.scope, or "
        "policy=lowest_senses and a Backpack trained with attribute senses"
    )


def promise_of_whole_texts(reranker: PointwiseReranker, promise: Promise) -> Promise:
    """What would be promised if no text were cut.

        uncut = promise_of_whole_texts(reranker, promise_of(reranker))

    Words of one class may have other numbers of tokens. Then the two wordings are cut at different
    places, and one has words at its end that the other lacks.
    """
    scorer = reranker.scorer
    if isinstance(reranker.hook.policy, MeanOfRenditions) or not isinstance(scorer, Scorer):
        return promise  # about texts, which are rewritten first and cut then
    uncut = copy.copy(scorer)
    uncut.pair_tokenizer = replace(scorer.pair_tokenizer, max_length=_LONGEST)
    return promise_of(PointwiseReranker(uncut, reranker.hook, attribute=reranker.attribute))


def _scales_attribute_senses(reranker: PointwiseReranker) -> bool:
    """Whether all senses of the attribute have weight 0.

    Only of a ranker that was trained to read all words of a class as the same.
    """
    ranker = reranker.scorer.ranker
    view = reranker.hook.views[0]
    if not isinstance(ranker, SenseRanker) or view.sense_weights is None:
        return False
    senses = ranker.backpack.attribute_senses
    places = []
    for place, (name, _) in enumerate(ranker.config.groups):
        if name == reranker.attribute.name:
            places.append(place)
    if senses is None or not places:
        return False
    groups_of_attribute = torch.tensor(places, device=senses.group_of.device)
    of_attribute = torch.isin(senses.group_of, groups_of_attribute)
    # Weights of the attribute's senses stand behind those of the senses that every Backpack has.
    weights = view.sense_weights[ranker.config.num_senses :][places]
    return bool(senses.read_as_one[of_attribute].all()) and not bool(weights.any())


def _same_form(policy: MeanOfRenditions, query: str, document: str, other: str) -> bool:
    """Whether two documents have the same renditions, and the query asks for no group."""
    if not policy.covers(query):
        return False
    renditions = policy.renditions
    return renditions.same(document, other, renditions.kept_names(query))


def _same_own_form(
    reranker: PointwiseReranker,
    policy: MeanOfRenditions,
    own: OwnRenditions,
    query: str,
    document: str,
    other: str,
) -> bool:
    """The same of renditions of one's own."""
    if not policy.covers(query):
        return False
    return own.same(document, other, in_order=in_order(reranker, own, query))


def _same_classes(reranker: PointwiseReranker, query: str, document: str, other: str) -> bool:
    """Whether two documents differ in words of one class alone, with any numbers of tokens."""
    ranker = reranker.scorer.ranker
    assert isinstance(ranker, SenseRanker)
    senses = ranker.backpack.attribute_senses
    assert senses is not None
    return _same_as(senses.with_classes, reranker.local_scorer, query, document, other)


def _same_tokens(reranker: PointwiseReranker, query: str, document: str, other: str) -> bool:
    """Whether two documents differ in tokens of one class alone, at the same places."""
    shift = reranker.hook.view.token_shift
    assert shift is not None
    return _same_as(shift.merged, reranker.local_scorer, query, document, other)


def _same_as(
    read: Callable[[np.ndarray], np.ndarray],
    scorer: Scorer,
    query: str,
    document: str,
    other: str,
) -> bool:
    """Whether two documents are the same, chunk by chunk, with classes in place of words."""
    joined = scorer.join(query, [document, other])
    first, second = joined.of_pair(0), joined.of_pair(1)
    if len(first) != len(second):
        return False
    return all(
        np.array_equal(read(ids), read(others)) for ids, others in zip(first, second, strict=True)
    )


def in_order(reranker: PointwiseReranker, own: OwnRenditions, query: str) -> bool:
    """Whether renditions of two texts must be the same in their order too.

        own.same(text, other, in_order=in_order(reranker, own, query))

    A query is rewritten with the document, group by group, and then the pairs must be the same. A
    ranker that compares vectors leaves the query as it is.
    """
    return not reranker.scorer.ranker.compares_vectors and own.moves(query)
