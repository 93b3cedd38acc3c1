"""Contrast: queries that ask for one group, does the right text score above the wrong one?

Averages over neutral queries cannot see what a dial takes from a query that asks for a group, such
as "heart attack symptoms in women". A contrast set has such queries, each with a right text and two
wrong ones::

    contrast            share of queries whose right text scores above the same text with its
                        words swapped
    contrast natural    share of queries whose right text scores above a text on the other group

A tie counts as a half, so a ranker that cannot tell the two texts apart has .5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backpack_rank.attributes.lexicon import find_lexicon
from backpack_rank.attributes.word_files import WordFile
from backpack_rank.data.collection import Collection, MemoryStore, Run
from backpack_rank.evaluation.measure import Described, Direction
from backpack_rank.evaluation.results import PerQuery

RIGHT, SWAPPED_TEXT, NATURAL = "right", "swapped", "natural"
COLUMNS = ("id", "topic", "group", "query", "right", "distractor")


@dataclass(eq=False)
class ContrastMeasure(Described):
    """A share of queries in the right order.

    Attributes:
        wrong: which of the texts the right one is compared with.
    """

    wrong: str = SWAPPED_TEXT


CONTRAST_MEASURES = (
    ContrastMeasure(
        "contrast",
        Direction.HIGHER,
        best=1.0,
        wrong=SWAPPED_TEXT,
        words="queries that ask for a group: share answered by the right group",
        explained="share of queries that ask for a group whose text scores above its swap, .5 is "
        "chance",
        place=7,
    ),
    ContrastMeasure(
        "contrast natural",
        Direction.HIGHER,
        best=1.0,
        wrong=NATURAL,
        words="the same beside a text on the other group",
        explained="the same beside a text on the other group",
        place=8,
    ),
)


@dataclass(frozen=True)
class ContrastSet:
    """Texts of a contrast set as a collection, and who is asked for.

    Attributes:
        collection: its queries and texts; a text of query ``q`` has the id ``q/right``,
            ``q/swapped`` or ``q/natural``.
        topics: topic of each query.
    """

    collection: Collection
    topics: Mapping[str, str]

    @property
    def candidates(self) -> Run:
        """All texts of every query."""
        run: Run = {}
        for query_id in self.collection.queries:
            run[query_id] = dict.fromkeys(_ids_of(query_id), 0.0)
        return run


def load_contrast(file: str | Path, swap: Callable[[str], str]) -> ContrastSet:
    """Read a contrast set, from a CSV file with the columns of :data:`COLUMNS`.

    ::

        gender = Attribute.named("gender")
        contrast = load_contrast("gender_contrast", lambda text: gender.swap()(text).text)

    Args:
        file: a file, or a name in ``lexicons/``.
        swap: gives a text with the words of its group replaced by those of the other.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names file and line of a missing or empty column, an id that occurs twice, or a
            right text that the swap leaves as it is.
    """
    lines = WordFile(find_lexicon(file))
    queries: dict[str, str] = {}
    texts: dict[str, str] = {}
    topics: dict[str, str] = {}
    for row in lines.rows(COLUMNS):
        query_id, right = row["id"], row["right"]
        if query_id in queries:
            raise ValueError(f"{lines.where}: query {query_id!r} occurs twice")
        swapped = swap(right)
        if swapped == right:
            raise ValueError(
                f"{lines.where}: the right text of {query_id!r} has no word that a swap replaces, "
                "so it cannot be told from its swap"
            )
        queries[query_id] = row["query"]
        topics[query_id] = row["topic"]
        wordings = (right, swapped, row["distractor"])
        texts |= dict(zip(_ids_of(query_id), wordings, strict=True))
    if not queries:
        raise ValueError(f"{lines.path}: there is no query below the header")
    name = lines.path.stem
    return ContrastSet(Collection(name, MemoryStore(texts), queries, {}), topics)


def contrast(run: Run, query_ids: Iterable[str]) -> PerQuery:
    """The measures of :data:`CONTRAST_MEASURES` for the scores of a contrast set's texts.

    >>> run = {"q": {"q/right": 2.0, "q/swapped": 2.0, "q/natural": 1.0}}
    >>> contrast(run, ["q"]).values
    {'contrast': {'q': 0.5}, 'contrast natural': {'q': 1.0}}
    """
    values: dict[str, dict[str, float]] = {measure.name: {} for measure in CONTRAST_MEASURES}
    for query_id in query_ids:
        scores = run[query_id]
        right = scores[f"{query_id}/{RIGHT}"]
        for measure in CONTRAST_MEASURES:
            wrong = scores[f"{query_id}/{measure.wrong}"]
            order = 0.5 if right == wrong else float(right > wrong)
            values[measure.name][query_id] = order
    return PerQuery(values)


def _ids_of(query_id: str) -> list[str]:
    return [f"{query_id}/{kind}" for kind in (RIGHT, SWAPPED_TEXT, NATURAL)]
