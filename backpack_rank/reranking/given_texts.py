"""Texts as a caller gives them: queries, documents and pairs, each looked at with its place.

Documents may be objects, such as hits of a search engine, of which some fields are read; they come
back whole.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

TEXT_FIELDS = ("text",)
"""Fields of objects that are read where nobody says otherwise."""
_SHOWN = 40

Given = Sequence[str | Mapping[str, Any]]
"""Documents of a caller."""


class Documents(list[str]):
    """The texts of documents, with the objects that they come from.

    Attributes:
        given: what the caller gave, by place.
    """

    def __init__(self, texts: Iterable[str], given: Sequence[Any]) -> None:
        super().__init__(texts)
        self.given = given


def checked_text(text: object, place: str) -> str:
    """A text that somebody gave.

    >>> checked_text(b"He", "documents[0]")
    Traceback (most recent call last):
    TypeError: documents[0] must be a text, and is bytes: b'He'; decode it: .decode("utf-8")

    Raises:
        TypeError: it is none; the sentence begins with ``place``.
    """
    if isinstance(text, str):
        return text
    hint = '; decode it: .decode("utf-8")' if isinstance(text, bytes) else ""
    shown = repr(text)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}..."
    raise TypeError(f"{place} must be a text, and is {type(text).__name__}: {shown}{hint}")


def checked_documents(documents: Given, rank_fields: Sequence[str] | None = None) -> Documents:
    """The documents of a query: their texts.

    >>> checked_documents(["a saw", {"id": 7, "text": "a hammer"}])
    ['a saw', 'a hammer']

    Args:
        documents: texts, or objects.
        rank_fields: which fields of objects are read, one below the other; None: ``text``.

    Raises:
        TypeError: one text is given in their place, whose letters would be scored; or a document is
            neither a text nor an object with these fields. Its place is named.
    """
    if isinstance(documents, (str, bytes)):
        raise TypeError(
            f"documents must be a list of texts, not one text: give [{documents[:_SHOWN]!r}]"
        )
    if isinstance(documents, Mapping) or not isinstance(documents, Iterable):
        hint = ": give list(documents.values())" if isinstance(documents, Mapping) else ""
        raise TypeError(
            f"documents must be a list of texts, and is {type(documents).__name__}{hint}"
        )
    if isinstance(rank_fields, str):
        rank_fields = [rank_fields]
    given = list(documents)
    texts = []
    for number, document in enumerate(given):
        place = f"documents[{number}]"
        if not isinstance(document, Mapping):
            texts.append(checked_text(document, place))
            continue
        parts = []
        for field in rank_fields or TEXT_FIELDS:
            if field not in document:
                raise TypeError(
                    f"{place} has no field {field!r}; its fields are "
                    f"{', '.join(map(str, document))}: name those to read as rank_fields=[...]"
                )
            parts.append(checked_text(document[field], f"{place}[{field!r}]"))
        texts.append("\n".join(parts))
    return Documents(texts, given)


def checked_pairs(pairs: Sequence[Sequence[str]]) -> tuple[list[tuple[str, str]], bool]:
    """Pairs of a query and a document, in the forms that CrossEncoder takes.

    >>> checked_pairs([["tools", "a saw"]])
    ([('tools', 'a saw')], False)
    >>> checked_pairs(("tools", "a saw"))
    ([('tools', 'a saw')], True)

    Returns:
        The pairs, and whether one pair was given in place of a list.

    Raises:
        TypeError: an entry is no pair of texts; its place is named.
    """
    if isinstance(pairs, (str, bytes, Mapping)) or not isinstance(pairs, Iterable):
        raise TypeError(f"pairs must be a list of (query, document), and is {type(pairs).__name__}")
    given: list[Any] = list(pairs)
    is_one = len(given) == 2 and all(isinstance(text, str) for text in given)
    if is_one:
        given = [given]
    checked = []
    for number, pair in enumerate(given):
        place = f"pairs[{number}]"
        is_pair = isinstance(pair, (tuple, list, np.ndarray)) and len(pair) == 2
        if not is_pair:
            raise TypeError(f"{place} must be a pair (query, document), and is {pair!r:.80}")
        query, document = pair
        checked.append(
            (
                checked_text(query, f"the query of {place}"),
                checked_text(document, f"the document of {place}"),
            )
        )
    return checked, is_one


def check_names(given: Iterable[str], call: Callable[..., Any], named: str) -> None:
    """Where one method passes its options on to another: the first is named.

    Raises:
        TypeError: an option that the other does not take.
    """
    known = list(inspect.signature(call).parameters)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f": did you mean {close[0]}?" if close else ""
            raise TypeError(f"{named}() has no option {name}{hint}")
