"""One ranking of a list from rankings of the list in several wordings.

The wordings are those of ``policy=renditions``. Where they depend on the canonical form of the
passages alone, a passage that is replaced by another one of the same form leaves the order
unchanged, as long as the ranker itself gives one answer to one list.
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
    """Use this so that the wording of texts, such as their pronouns, does not decide the order.

    It aggregates a ranker's answers to a list whose texts are rewritten in several ways.

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
        wordings: list[PassageList] = []
        ends = []  # where the wordings of each list end
        for passages in lists:
            wordings += dict.fromkeys(_reword(passages, rewrite) for rewrite in self.rewrites)
            ends.append(len(wordings))
        rankings = self.ranker.rank(wordings)
        aggregated = []
        start = 0
        for passages, end in zip(lists, ends, strict=True):
            aggregated.append(self._aggregate(rankings[start:end], len(passages)))
            start = end
        return aggregated

    def _aggregate(self, rankings: Sequence[Ranking], size: int) -> Ranking:
        # A single answer keeps its scores.
        if len(rankings) == 1:
            return rankings[0]
        answers = [ranking.ranked for ranking in rankings]
        return ranking_of(aggregate_of(self.aggregator, answers, size), answers)


def _reword(passages: PassageList, rewrite: Callable[[str, str], tuple[str, str]]) -> PassageList:
    """The list with its texts rewritten."""
    pairs = [rewrite(passages.query, passage) for passage in passages.passages]
    query = pairs[0][0]
    return PassageList(query, tuple(text for _, text in pairs), passages.ids, passages.query_id)
