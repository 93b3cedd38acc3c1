"""One ranking of a list from rankings of the list in several wordings, such as the renditions of
``policy=renditions``.

Where the wordings depend on the canonical form of the passages alone, a passage that is replaced by
another one of the same form leaves the order as it is, as long as the ranker itself gives one
answer to one list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backpack_rank.position.aggregation.aggregate import Aggregator, Borda
from backpack_rank.position.lists.base import RankerWrapper, Ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import aggregate_of, ranking_of


@dataclass
class RewrittenLists(RankerWrapper):
    """Aggregates a ranker's answers to a list whose texts are rewritten in several ways.

    Ties that the aggregator leaves open go to the earlier input position. A list whose wordings are
    all equal is ranked once.

    Attributes:
        rewrites: (query, passage) to the texts that are shown in their place; the query's may not
            depend on the passage.
        wording: of the label in tables.
        aggregator: makes one ranking of the answers.
    """

    rewrites: Sequence[Callable[[str, str], tuple[str, str]]]
    wording: str
    aggregator: Aggregator = field(default_factory=Borda)

    def __post_init__(self) -> None:
        self.label = f"{self.wording} {self.aggregator.name}"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """One ranking for each list."""
        shown = [
            dict.fromkeys(self._rewritten(one, rewrite) for rewrite in self.rewrites)
            for one in lists
        ]
        ranked = iter(self.ranker.rank([wording for wordings in shown for wording in wordings]))
        answers = [[next(ranked) for _ in wordings] for wordings in shown]
        return [
            self._common(rankings, len(one)) for rankings, one in zip(answers, lists, strict=True)
        ]

    def _common(self, rankings: Sequence[Ranking], size: int) -> Ranking:
        if len(rankings) == 1:
            return rankings[0]
        answers = [ranking.ranked for ranking in rankings]
        return ranking_of(aggregate_of(self.aggregator, answers, size), answers)

    @staticmethod
    def _rewritten(one: PassageList, rewrite: Callable[[str, str], tuple[str, str]]) -> PassageList:
        pairs = [rewrite(one.query, passage) for passage in one.passages]
        return PassageList(
            pairs[0][0], tuple(passage for _, passage in pairs), one.ids, one.query_id
        )
