"""Sorting tasks of Tang et al. (section 3.1, appendix B.2): items whose right order needs no judge.

MathSort: ten expressions ``digit op digit`` by value, all values of a list different. WordSort: ten
words in alphabetical order, five that follow one another in the dictionary and five others.
GSM8KSort: the sentences of a word problem in the order in which they tell it. The first two are
generated here; all three can be read from the files that were published with the paper.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from backpack_rank.checks import fraction, whole_number
from backpack_rank.data.json_lines import json_value, read_jsonl, text_under
from backpack_rank.data.text_files import fail, numbered_lines, read_rows
from backpack_rank.data.words import word_tokens
from backpack_rank.position.lists.passages import ListwiseExample, PassageList, check_size

MATHSORT, WORDSORT, GSM8KSORT = "mathsort", "wordsort", "gsm8ksort"
QUERIES = {
    MATHSORT: "the value of the expression, smallest first",
    WORDSORT: "alphabetical order of the words",
    GSM8KSORT: "the order in which the sentences tell a word problem",
}
"""What a prompt says the items are to be ranked by."""
MATH_COLUMNS = ("expression", "answer", "group")
_OPERATIONS = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
}
_EXPRESSION = re.compile(r"([1-9]) ([-+*/]) ([1-9])")
# Behind the end of a sentence, with what closes it.
_SENTENCE = re.compile(r"(?:(?<=[.?!])|(?<=[.?!][\"'\u201d\u2019)]))\s+")


def _all_expressions() -> list[tuple[str, float]]:
    """All expressions with their values; rounded, so that equal values are equal numbers."""
    expressions = []
    for sign, operation in _OPERATIONS.items():
        for left, right in itertools.product(range(1, 10), repeat=2):
            expressions.append((f"{left} {sign} {right}", round(operation(left, right), 9)))
    return expressions


_EXPRESSIONS = _all_expressions()


class MathSort:
    """Lists of random expressions to sort by value, drawn anew in each epoch.

    >>> (example,) = MathSort(number=1, size=3).lists(epoch=0)
    >>> example.passages.passages, example.ranks.tolist()
    (('5 - 8', '8 * 1', '6 + 5'), [0, 1, 2])

    Attributes:
        number: lists of an epoch.
        size: expressions of a list.
        seed: of all draws.
        imbalance: 0 shows the items in random order; 1 in target order, so that the best always
            stands first; between them, as a first stage of that quality would (see
            :func:`shown_order`).
    """

    name = MATHSORT

    def __init__(self, number: int, size: int = 10, seed: int = 0, imbalance: float = 0.0) -> None:
        """See the class.

        Raises:
            ValueError: no list, a wrong size, or an imbalance outside [0, 1].
        """
        _check(number, size, imbalance)
        self.number = number
        self.size = size
        self.seed = seed
        self.imbalance = imbalance

    def __len__(self) -> int:
        return self.number

    def lists(self, epoch: int) -> list[ListwiseExample]:
        """The lists of an epoch."""
        rng = np.random.default_rng([self.seed, epoch, 1])
        examples = []
        for number in range(self.number):
            expressions: list[str] = []
            values: list[float] = []
            # The first expressions of different values in a random order of all: as many draws as
            # are needed, and the same distribution as drawing anew until the value is a new one.
            for place in rng.permutation(len(_EXPRESSIONS)).tolist():
                expression, value = _EXPRESSIONS[place]
                if value not in values:
                    expressions.append(expression)
                    values.append(value)
                if len(values) == self.size:
                    break
            example = _of_values(MATHSORT, f"{epoch}.{number}", expressions, values)
            examples.append(_in_shown_order(example, self.imbalance, rng))
        return examples


class WordSort:
    """Lists of words to sort, half of them neighbours in the dictionary.

    They are drawn anew in each epoch::

        words = dictionary(collection_texts)
        examples = WordSort(words, number=2_000).lists(epoch=0)

    Attributes:
        words: the dictionary, in alphabetical order; see :func:`dictionary`.
        number: lists of an epoch; likewise ``size``, ``seed`` and ``imbalance`` of
            :class:`MathSort`.
        neighbours: share of a list's words that follow one another in the dictionary.
    """

    name = WORDSORT

    def __init__(
        self,
        words: tuple[str, ...],
        number: int,
        size: int = 10,
        seed: int = 0,
        imbalance: float = 0.0,
        neighbours: float = 0.5,
    ) -> None:
        """See the class.

        Raises:
            ValueError: as :class:`MathSort`, a share outside [0, 1], or fewer than ``2 * size``
                different words in alphabetical order.
        """
        _check(number, size, imbalance)
        fraction("task.neighbours", neighbours)
        if len(words) < 2 * size or list(words) != sorted(set(words)):
            raise ValueError(
                f"WordSort needs a sorted dictionary of at least {2 * size} different words, "
                f"got {len(words)}: train on data with more text"
            )
        self.words = words
        self.number = number
        self.size = size
        self.seed = seed
        self.imbalance = imbalance
        self.neighbours = neighbours

    def __len__(self) -> int:
        return self.number

    def lists(self, epoch: int) -> list[ListwiseExample]:
        """The lists of an epoch."""
        rng = np.random.default_rng([self.seed, epoch, 2])
        num_neighbours = round(self.neighbours * self.size)
        examples = []
        for number in range(self.number):
            start = int(rng.integers(len(self.words) - num_neighbours + 1))
            places = set(range(start, start + num_neighbours))
            while len(places) < self.size:
                places.add(int(rng.integers(len(self.words))))
            # The dictionary is sorted, so places are the alphabetical order.
            ordered = sorted(places)
            words = [self.words[place] for place in ordered]
            example = _of_values(WORDSORT, f"{epoch}.{number}", words, ordered)
            examples.append(_in_shown_order(example, self.imbalance, rng))
        return examples


def dictionary(texts: Iterable[str]) -> tuple[str, ...]:
    """The words of some texts, each once, in alphabetical order.

    >>> dictionary(["The old tree", "a tree of 1900"])
    ('old', 'the', 'tree')

    Only words of three letters or more, a to z.
    """
    words = set()
    for text in texts:
        for word in word_tokens(text):
            if len(word) > 2 and word.isascii() and word.isalpha():
                words.add(word)
    return tuple(sorted(words))


def shown_order(ranks: np.ndarray, imbalance: float, rng: np.random.Generator) -> np.ndarray:
    """Show items as a first stage of some quality would: input order [m].

    >>> shown_order(np.array([2, 0, 1]), imbalance=1.0, rng=np.random.default_rng(0)).tolist()
    [1, 2, 0]

    Items are sorted by ``imbalance * rank / m + (1 - imbalance) * u`` with u uniform in [0, 1): in
    random order at 0, and in target order at 1.
    """
    noise = rng.random(len(ranks))
    keys = imbalance * ranks / len(ranks) + (1 - imbalance) * noise
    return np.argsort(keys, kind="stable")


def read_mathsort(path: str | Path) -> list[ListwiseExample]:
    """Read the published lists of expressions, in the order of the file::

        examples = read_mathsort("mathsort.tsv")

    Equal values, in 38 of its 100 lists, are ties.

    Raises:
        ValueError: a line is malformed or its answer is not the expression's value; file and line
            are named.
    """
    groups: dict[str, list[tuple[str, float]]] = {}
    columns: dict[str, int] = {}
    for number, line in numbered_lines(path):
        fields = line.rstrip("\r\n").split("\t")
        if not columns:
            columns = {name: place for place, name in enumerate(fields)}
            if not set(MATH_COLUMNS) <= set(columns):
                fail(
                    path,
                    number,
                    f"expected a header with {', '.join(MATH_COLUMNS)}, got {line.strip()[:80]!r}",
                )
            continue
        if len(fields) != len(columns):
            fail(
                path,
                number,
                f"expected {len(columns)} columns, got {len(fields)}: {line.strip()[:80]!r}",
            )
        expression, answer, group = [fields[columns[name]] for name in MATH_COLUMNS]
        value = _value(expression)
        if value is None:
            fail(
                path,
                number,
                f"{expression!r} is no expression of two digits from 1 to 9 and one of + - * /",
            )
        if not _is_number(answer) or abs(float(answer) - value) > 1e-6:
            fail(path, number, f"the answer of {expression!r} is {value:g}, not {answer!r}")
        # Rounded, so that equal values are equal numbers.
        groups.setdefault(group, []).append((expression, round(value, 9)))
    examples = []
    for group, items in groups.items():
        if len(items) > 1:
            expressions, values = zip(*items, strict=True)
            examples.append(_of_values(MATHSORT, group, expressions, values))
    return _not_empty(path, examples)


def read_wordsort(path: str | Path) -> list[ListwiseExample]:
    """Read the published lists of words, in the order of the file::

        examples = read_wordsort("wordsort.csv")

    Raises:
        ValueError: a line is no JSON list of different words; file and line are named.
    """
    examples: list[ListwiseExample] = []
    for _, words in read_rows(path, _words):
        if words is None:
            continue
        ordered = sorted(words)
        places = [bisect.bisect_left(ordered, word) for word in words]
        examples.append(_of_values(WORDSORT, str(len(examples)), words, places))
    return _not_empty(path, examples)


def read_gsm8ksort(
    path: str | Path, seed: int = 0, least: int = 2, most: int = 20
) -> list[ListwiseExample]:
    """Read the sentences of the published word problems, to be put in order::

        examples = read_gsm8ksort("gsm8ksort.jsonl", least=5, most=10)  # as the published code

    They are shown in an order drawn by ``seed`` and line.

    Args:
        least: problems with fewer sentences are left out, as are those with more than ``most``. Two
            already can be in the wrong order; the paper's published code takes 5 to 10, which are
            11 of its 100 problems.

    Raises:
        ValueError: a line is no JSON object with a ``question``, or no problem has that many
            sentences.
    """
    examples = []
    for number, question in read_jsonl(path, lambda record: text_under(record, "question")):
        if not question.strip():
            fail(path, number, "the text under 'question' is empty")
        sentences = []
        for piece in _SENTENCE.split(question.strip()):
            if piece.strip():
                sentences.append(piece.strip())
        if least <= len(sentences) <= most:
            order = np.random.default_rng([seed, number]).permutation(len(sentences))
            shuffled = [sentences[place] for place in order]
            examples.append(_of_values(GSM8KSORT, str(number), shuffled, order.tolist()))
    return _not_empty(path, examples, f" of {least} to {most} sentences")


READERS = {MATHSORT: read_mathsort, WORDSORT: read_wordsort, GSM8KSORT: read_gsm8ksort}
"""By name of the task: gives the lists of a published file."""


def _in_shown_order(
    example: ListwiseExample, imbalance: float, rng: np.random.Generator
) -> ListwiseExample:
    """A generated list in the order in which it is shown."""
    return example.permute(shown_order(example.ranks, imbalance, rng))


def _of_values(
    task: str, number: str, texts: Sequence[str], values: Sequence[float]
) -> ListwiseExample:
    """Items to be ranked by value, smallest first."""
    ids = tuple(str(place) for place in range(len(texts)))
    passages = PassageList(QUERIES[task], tuple(texts), ids, f"{task}-{number}")
    # The grade of an item is the number of items that belong behind it: those of a larger value.
    item_values = np.array(values)
    grades = (item_values[:, None] < item_values[None, :]).sum(axis=1)
    keys = [(value,) for value in values]
    return ListwiseExample.by_keys(passages, keys, range(len(texts)), grades)


def _value(expression: str) -> float | None:
    """The value of an expression; None where it is none."""
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        return None
    return _OPERATIONS[match[2]](int(match[1]), int(match[3]))


def _words(line: str) -> list[str] | None:
    """The words of a line; None for the header."""
    if line.strip() == "word_samples":
        return None
    words = json_value(line, "JSON")
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not is_list or len(words) < 2:
        raise ValueError(f"expected a JSON list of two words or more, got {line.strip()[:80]!r}")
    if len(set(words)) < len(words):
        raise ValueError(f"a word stands twice in {line.strip()[:80]!r}")
    return words


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _not_empty(
    path: str | Path, examples: list[ListwiseExample], what: str = ""
) -> list[ListwiseExample]:
    if not examples:
        raise ValueError(f"{path} holds no list{what}")
    return examples


def _check(number: int, size: int, imbalance: float) -> None:
    check_size(size)
    whole_number("task.number", number, 1)
    fraction("task.imbalance", imbalance)
