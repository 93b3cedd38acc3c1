"""Lists in several wordings: one answer for all passages that have the same wordings."""

from __future__ import annotations

import re

import numpy as np
import pytest
from small_rankers import SmallRanker

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.position.aggregation.kemeny import Kemeny
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import PermutationSelfConsistency
from backpack_rank.position.lists.rewritten import RewrittenLists
from backpack_rank.senses.renditions import MeanOfRenditions

POLICY = MeanOfRenditions(Attribute.named("gender"))


class Letters(SmallRanker):
    """Best first by letters "e" and "o", which "woman" has and "man" has not, and by position."""

    def _rank_list(self, passages: PassageList) -> Ranking:
        scores = []
        for place, text in enumerate(passages.passages):
            scores.append(len(re.findall("[eo]", text)) - 0.1 * place)
        return Ranking.of_scores(np.array(scores))


def lists(*passages: str, query: str = "who cooks") -> PassageList:
    return PassageList(query, passages, tuple(f"d{place}" for place in range(len(passages))), "q")


@pytest.mark.parametrize(
    "around", [lambda ranker: ranker, lambda ranker: PermutationSelfConsistency(ranker, 3)]
)
@pytest.mark.parametrize("aggregator", [None, Kemeny()])
def test_a_passage_of_equal_form_in_the_same_place_changes_nothing(around, aggregator) -> None:
    shown = lists("a woman cooks", "the stew is old", "one man sees")
    swapped = lists("a man cooks", "the stew is old", "one woman sees")
    plain = around(Letters())
    assert plain.rank([shown])[0].order.tolist() != plain.rank([swapped])[0].order.tolist()
    options = {} if aggregator is None else {"aggregator": aggregator}
    rewritten = RewrittenLists(around(Letters()), POLICY.rewritings, POLICY.name, **options)
    ranking, ranking_of_swapped = rewritten.rank([shown, swapped])
    assert ranking.order.tolist() == ranking_of_swapped.order.tolist()


def test_the_order_is_that_of_mean_ranks() -> None:
    ranker = Letters()
    shown = lists("she and she", "one, e", "a stone")
    (aggregate,) = RewrittenLists(ranker, POLICY.rewritings, POLICY.name).rank([shown])
    (wordings,) = ranker.calls
    assert [wording.passages[0] for wording in wordings] == ["she and she", "he and he"]
    mean_ranks = np.mean([ranker._rank_list(wording).ranks() for wording in wordings], axis=0)
    assert aggregate.order.tolist() == np.argsort(mean_ranks, kind="stable").tolist()


def test_a_list_without_class_words_and_one_of_a_gendered_query_are_ranked_once_unchanged() -> None:
    ranker = Letters()
    shown = [lists("a stone", "one"), lists("a woman", "one", query="her soup")]
    rankings = RewrittenLists(ranker, POLICY.rewritings, POLICY.name).rank(shown)
    (wordings,) = ranker.calls
    assert [wording.passages for wording in wordings] == [("a stone", "one"), ("a woman", "one")]
    for ranking, passages in zip(rankings, shown, strict=True):
        assert ranking.order.tolist() == ranker._rank_list(passages).order.tolist()
