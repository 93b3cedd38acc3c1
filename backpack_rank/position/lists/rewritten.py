"""A ranking of a list, aggregated from rankings of the list in several wordings.

The wordings are those of ``policy=renditions``. Where they depend on the canonical form of the
passages alone, a passage that is replaced by another one of the same form leaves the order
unchanged, as long as the ranker itself answers equal lists equally.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from backpack_rank.position.aggregation.aggregate import Aggregator, Borda
from backpack_rank.position.lists.base import ListwiseRanker, RankerWrapper, Ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import aggregate_of, ranking_of

_BORDA = Borda()  # aggregators keep no state, so all rankers may share it


class RewrittenLists(RankerWrapper):
    """Lists whose order does not hang on the wording of texts, such as their pronouns::

        rewrites = [lambda query, passage: (query, passage), to_masculine, to_feminine]
        ranker = RewrittenLists(ranker, rewrites, wording="renditions")
        rankings = ranker.rank(lists)

    The ranker answers to every wording of a list, and its answers are aggregated. Ties that the
    aggregator leaves open go to the earlier input position. A list whose wordings are all equal is
    ranked once, and its answer keeps its scores.

    Attributes:
        rewrites: each gives the (query, passage) to show in place of a (query, passage); the query
            that it gives may not depend on the passage.
        wording: first part of the label in tables.
        aggregator: makes a ranking of the answers.
    """

    def __init__(
        self,
        ranker: ListwiseRanker,
        rewrites: Sequence[Callable[[str, str], tuple[str, str]]],
        wording: str,
        aggregator: Aggregator = _BORDA,
    ) -> None:
        super().__init__(ranker)
        self.rewrites = rewrites
        self.wording = wording
        self.aggregator = aggregator
        self.label = f"{wording} {aggregator.name}"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """A ranking for each list."""
        wordings: list[PassageList] = []
        wordings_per_list = []
        for passages in lists:
            reworded = [_reword(passages, rewrite) for rewrite in self.rewrites]
            # Equal wordings would give equal answers, so each is asked for once.
            distinct = list(dict.fromkeys(reworded))
            wordings += distinct
            wordings_per_list.append(len(distinct))

        # All lists in one call of the ranker, which may batch them.
        rankings = iter(self.ranker.rank(wordings))
        aggregated = []
        for passages, count in zip(lists, wordings_per_list, strict=True):
            rankings_of_list = list(islice(rankings, count))
            if count == 1:
                aggregated.append(rankings_of_list[0])
                continue
            answers = [ranking.ranked for ranking in rankings_of_list]
            aggregate = aggregate_of(self.aggregator, answers, len(passages))
            aggregated.append(ranking_of(aggregate, answers))
        return aggregated


def _reword(passages: PassageList, rewrite: Callable[[str, str], tuple[str, str]]) -> PassageList:
    """The list with its texts rewritten."""
    pairs = [rewrite(passages.query, passage) for passage in passages.passages]
    query, _ = pairs[0]  # all pairs have the same query
    texts = tuple(text for _, text in pairs)
    return PassageList(query, texts, passages.ids, passages.query_id)
