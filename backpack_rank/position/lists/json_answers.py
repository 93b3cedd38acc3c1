"""Rankings that language models write as JSON, as their JSON modes make them do.

    [2,3,1]                                          identifiers, best first
    {"ranking": ["Passage 2", "Passage 3"]}          below a name
    [{"id": 2, "score": 0.9}, {"id": 3, "score": 1}] with scores: highest first
    [{"passage": 2, "rank": 1}, ...]                 with ranks: lowest first
    {"1": 0.2, "2": 0.9}                             scores by identifier

Objects may also stand in lines of their own. What is none of these forms is left to the rules for
texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_FENCE = re.compile(r"```[A-Za-z]*")
# Without signs and in lower case: documentNumber and document_number are one.
_IDENTIFIERS = (
    *("id", "identifier", "index", "number", "passage", "document", "doc", "candidate", "item"),
    *("passageid", "documentid", "docid", "candidateid", "itemid", "text", "option", "choice"),
    *("passagenumber", "documentnumber", "docnumber", "answernum"),
)
_RANKS = ("rank", "position", "place", "ranking", "order")
_SCORES = (
    *("score", "relevance", "relevancescore", "answerrelevance", "rating", "confidence"),
    *("probability", "similarity", "relevancy"),
)
_LISTS = (
    *("ranking", "rankings", "ranked", "order", "result", "results", "answer", "documents"),
    *("rankedpassages", "rankeddocuments", "rankedlist", "passages", "sorted", "permutation"),
)

Reader = Callable[[str], int | None]
"""The number of a text that is one identifier, else None."""


def json_ranking(text: str, number_of: Reader) -> list[int] | None:
    """Numbers of the identifiers that an answer in JSON names, best first; None for other texts.

    >>> json_ranking('{"ranking": [2, 1]}', lambda text: int(text) if text.isdigit() else None)
    [2, 1]
    """
    value = _value(_FENCE.sub("", text).strip())
    return None if value is None else _ranking(value, number_of)


def _value(text: str) -> Any:
    """The JSON of a text, or the list of objects of its lines; None where there is none."""
    if not text.startswith(("[", "{")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    objects = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if not line.startswith("{"):
            return None
        try:
            objects.append(json.loads(line.rstrip(",")))
        except (ValueError, RecursionError):
            return None
    return objects


def _ranking(value: Any, number_of: Reader) -> list[int] | None:
    if isinstance(value, Mapping):
        return _ranking_below_a_name(value, number_of) or _ranking_of_scores(value, number_of)
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(item, Mapping) for item in value):
        return _ranking_of_objects(value, number_of)
    numbers = [_number(item, number_of) for item in value]
    found = [number for number in numbers if number is not None]
    return found if len(found) == len(numbers) else None


def _ranking_below_a_name(value: Mapping[str, Any], number_of: Reader) -> list[int] | None:
    lists = {name: item for name, item in value.items() if isinstance(item, list)}
    named = [item for name, item in lists.items() if _plain(name) in _LISTS]
    # Another list may be of topics, or of passages that are not relevant.
    chosen = named or (list(lists.values()) if len(lists) == 1 else [])
    return _ranking(chosen[0], number_of) if chosen else None


def _ranking_of_scores(value: Mapping[str, Any], number_of: Reader) -> list[int] | None:
    """Of ``{"1": 0.2, "2": 0.9}``."""
    scores: dict[int, float] = {}
    for name, score in value.items():
        number = number_of(name)
        if number is None or isinstance(score, bool) or not isinstance(score, (int, float)):
            return None
        scores[number] = score
    # {"1": 3, "2": 1, "3": 2} may be ranks of passages, passages of ranks, or scores.
    if not scores or sorted(scores.values()) == list(range(1, len(scores) + 1)):
        return None
    return sorted(scores, key=lambda number: -scores[number])


def _ranking_of_objects(
    objects: Sequence[Mapping[str, Any]], number_of: Reader
) -> list[int] | None:
    """Of ``[{"id": 2, "score": 0.9}, ...]``: by rank, else by score, else as they stand."""
    numbers: list[int] = []
    for item in objects:
        number = _number(_under(item, _IDENTIFIERS), number_of)
        if number is None:
            return None
        numbers.append(number)
    keys = [_amount(_under(item, _RANKS)) for item in objects]
    if None in keys:
        scores = [_amount(_under(item, _SCORES)) for item in objects]
        keys = [None if score is None else -score for score in scores]
    if None in keys:
        return numbers
    # Equal keys keep their order.
    places = sorted(range(len(numbers)), key=keys.__getitem__)  # type: ignore[arg-type]
    return [numbers[place] for place in places]


def _under(item: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of these names that an object has."""
    plain = {_plain(name): value for name, value in item.items()}
    return next((plain[name] for name in names if name in plain), None)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalpha())


def _number(value: Any, number_of: Reader) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list) and len(value) == 1:  # [[2], [1]]
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    return number_of(str(value))


def _amount(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
