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
    """Best first by letters "e" and "o", which "woman" and "man" share unequally, and by position."""

    def _one(self, passages: PassageList) -> Ranking:
        counts = [
            len(re.findall("[eo]", text)) - 0.1 * place
            for place, text in enumerate(passages.passages)
        ]
        return Ranking.of_scores(np.array(counts))


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
    found = RewrittenLists(around(Letters()), POLICY.rewritings, POLICY.name, **options)
    one, other = found.rank([shown, swapped])
    assert one.order.tolist() == other.order.tolist()


def test_the_order_is_that_of_mean_ranks() -> None:
    ranker = Letters()
    shown = lists("she and she", "one, e", "a stone")
    (found,) = RewrittenLists(ranker, POLICY.rewritings, POLICY.name).rank([shown])
    (call,) = ranker.calls
    assert [one.passages[0] for one in call] == ["she and she", "he and he"]
    ranks = np.mean([ranker._one(one).ranks() for one in call], axis=0)
    assert found.order.tolist() == np.argsort(ranks, kind="stable").tolist()


def test_a_list_without_class_words_is_ranked_once_and_a_gendered_query_as_it_is() -> None:
    ranker = Letters()
    shown = [lists("a stone", "one"), lists("a woman", "one", query="her soup")]
    found = RewrittenLists(ranker, POLICY.rewritings, POLICY.name).rank(shown)
    assert [list(map(str, one.passages)) for one in ranker.calls[0]] == [
        ["a stone", "one"],
        ["a woman", "one"],
    ]
    assert [one.order.tolist() for one in found] == [
        ranker._one(one).order.tolist() for one in shown
    ]
