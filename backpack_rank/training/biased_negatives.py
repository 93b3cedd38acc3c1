"""Negatives of training lists that lean to one group: bias-aware sampling (Bigdeli et al. 2022)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from backpack_rank.attributes.lexicon import Lexicon, count_groups
from backpack_rank.data.collection import Collection


class BiasAwareNegatives:
    """Negatives from which a ranker learns that leaning to a group makes no document relevant.

        negatives = BiasAwareNegatives(collection, Attribute.named("gender").lexicon(), share=0.5)
        TrainingLists(collection, candidates, negatives=negatives)

    Of a query without a word of any group, a share of the negatives are the candidates whose words
    lean most to one group; the others are drawn at random. Other queries ask for a group, so all of
    their negatives are drawn at random. After Bigdeli et al., *A Light-Weight Strategy for
    Restraining Gender Biases in Neural Rankers*, ECIR 2022.

    Attributes:
        share: of the negatives of such a query, in (0, 1].
    """

    def __init__(self, collection: Collection, lexicon: Lexicon, share: float) -> None:
        self.share = share
        self._collection = collection
        self._lexicon = lexicon
        self._leaning_by_query: dict[str, list[str]] = {}

    def __call__(
        self, rng: random.Random, query_id: str, candidates: Sequence[str], room: int
    ) -> list[str]:
        """At most ``room`` of a query's candidates that are not relevant, all different."""
        if query_id not in self._leaning_by_query:
            self._leaning_by_query[query_id] = self._leaning(query_id, candidates)
        most = round(self.share * room)
        leaning = self._leaning_by_query[query_id][:most]
        others = [doc_id for doc_id in candidates if doc_id not in leaning]
        return leaning + rng.sample(others, min(room - len(leaning), len(others)))

    def _leaning(self, query_id: str, candidates: Sequence[str]) -> list[str]:
        """Candidates that lean to a group, most first; none where the query asks for a group."""
        query = self._collection.queries[query_id]
        if count_groups([query], self._lexicon).any():
            return []
        text_by_id = self._collection.documents.get_many(candidates)
        texts = [text_by_id[doc_id] for doc_id in candidates]
        counts = count_groups(texts, self._lexicon)
        # Of two groups this is |male - female|.
        leaning = counts.max(axis=1) - counts.min(axis=1)
        # Equal ones stay in the order of the candidates, so that a list depends on nothing else.
        most_first = (-leaning).argsort(kind="stable")
        leaning_places = most_first[leaning[most_first] > 0]
        return [candidates[place] for place in leaning_places]
