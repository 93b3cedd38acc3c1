"""A listwise ranker behind the server ends where nobody waits any more, whatever is around it."""

from __future__ import annotations

import time

import pytest
from rerank_servers import running, wait_for
from small_rankers import SmallRanker

from backpack_rank.position.lists.pairwise import AllPairs
from backpack_rank.position.lists.permutation import PermutationSelfConsistency
from backpack_rank.position.lists.reranker import ListwiseReranker
from backpack_rank.position.lists.windows import SlidingWindows
from backpack_rank.serving.kinds import served

NUMBERS = [str(number * 7 % 40) for number in range(40)]


class SlowRanker(SmallRanker):
    """Takes as long as a model that generates, list by list."""

    def rank(self, lists):
        time.sleep(0.1 * len(lists))
        return super().rank(lists)


WRAPPED = {
    "windows": lambda ranker: SlidingWindows(ranker, size=3, stride=1),
    "pairs": AllPairs,
    "permutations of windows": lambda ranker: PermutationSelfConsistency(
        SlidingWindows(ranker, size=5, stride=2), permutations=20
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRAPPED)
def test_a_request_past_its_deadline_leaves_the_model(kind):
    ranker = SlowRanker()
    reranker = ListwiseReranker(WRAPPED[kind](ranker))
    with running({"lists": lambda: served("lists", reranker)}, timeout=1.0) as server:
        answer = server.rerank(query="largest", documents=NUMBERS)
        assert answer.status_code == 504
        wait_for(lambda: server.rerank(query="largest", documents=["1"]).status_code == 200)
    assert len(ranker.lists_asked) < 30


@pytest.mark.parametrize("kind", WRAPPED)
def test_watched_rankings_are_the_same(kind):
    plain, looks = ListwiseReranker(WRAPPED[kind](SmallRanker(slope=0.5))), []
    watched = plain.watched(lambda: looks.append(1))
    assert watched.rank("largest", NUMBERS) == plain.rank("largest", NUMBERS)
    assert len(looks) > 8
