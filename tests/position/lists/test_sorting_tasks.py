"""Sorting tasks: what is drawn is what the paper says, and the published files are read as they
are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from backpack_rank.position.lists.passages import ListwiseExample, PassageList
from backpack_rank.position.lists.sorting_tasks import (
    QUERIES,
    MathSort,
    WordSort,
    dictionary,
    read_gsm8ksort,
    read_mathsort,
    read_wordsort,
    shown_order,
)

WORDS = tuple(sorted(f"{first}{second}x" for first in "abcdefgh" for second in "aeiou"))


def in_order(item: ListwiseExample) -> list[str]:
    return [item.passages.passages[place] for place in item.order]


def test_mathsort_lists_hold_ten_expressions_of_two_digits_sorted_by_different_values() -> None:
    lists = MathSort(50, seed=3).lists(0)
    assert len(lists) == 50
    for item in lists:
        expressions = in_order(item)
        values = []
        for text in expressions:
            assert re.fullmatch("[1-9] [-+*/] [1-9]", text)
            values.append(eval(text))
        assert len(values) == 10
        for before, after in pairwise(values):
            assert after - before > 1e-6
        assert item.relevance_levels.tolist() == item.ranks.tolist()
        assert [item.grades[place] for place in item.order] == list(range(9, -1, -1))
        assert item.passages.query == QUERIES["mathsort"]
    signs = Counter()
    for item in lists:
        signs.update(text[2] for text in item.passages.passages)
    for sign in "+-*/":
        assert signs[sign] > 60


def test_lists_depend_on_seed_and_epoch_alone() -> None:
    def drawn(task: MathSort, epoch: int) -> list[PassageList]:
        return [item.passages for item in task.lists(epoch)]

    task = MathSort(5, seed=1)
    expected = drawn(task, epoch=4)
    assert drawn(task, epoch=4) == expected
    assert drawn(MathSort(5, seed=1), epoch=4) == expected
    assert drawn(task, epoch=5) != expected
    assert drawn(MathSort(5, seed=2), epoch=4) != expected


def test_wordsort_lists_hold_a_run_of_neighbours_and_words_from_anywhere() -> None:
    runs, places = [], []
    for item in WordSort(WORDS, 60).lists(0):
        words = in_order(item)
        assert words == sorted(words)
        assert len(set(words)) == 10
        places_of_list = [WORDS.index(word) for word in words]
        longest = run = 1
        for before, after in pairwise(places_of_list):
            run = run + 1 if after == before + 1 else 1
            longest = max(longest, run)
        runs.append(longest)
        places += places_of_list
    assert min(runs) >= 5
    assert np.mean(runs) < 8
    assert len(set(places)) == len(WORDS)


def test_random_order_is_even_and_imbalance_brings_the_best_to_the_front() -> None:
    def shares_of_places(imbalance: float) -> np.ndarray:
        """How often the best item is shown at each place. [5]"""
        lists = MathSort(400, 5, imbalance=imbalance).lists(0)
        return np.bincount([item.order[0] for item in lists], minlength=5) / 400

    even = shares_of_places(imbalance=0)
    assert even.max() < 0.28
    assert even.min() > 0.12
    assert shares_of_places(imbalance=1).tolist() == [1, 0, 0, 0, 0]
    between = shares_of_places(imbalance=0.5)
    assert between[0] > 2 * between[2] > 0
    assert shown_order(np.array([2, 0, 1]), 1.0, np.random.default_rng(0)).tolist() == [1, 2, 0]


def test_a_dictionary_has_every_word_of_three_letters_once_in_order() -> None:
    words = dictionary(["The cat, a Dog!", "the 7th caf\u00e9 cats' dog"])
    assert words == ("cat", "cats", "dog", "the")


def test_published_expressions_keep_their_order_and_ties(tmp_path: Path) -> None:
    rows = ["expression\tanswer\tgroup\tanswer_index"]
    rows += ["8 / 4\t2.0\t0\t5", "1 - 8\t-7.0\t0\t5", "1 + 1\t2.0\t0\t5"]
    rows += ["9 * 9\t81.0\t7\t5", "1 / 3\t0.3333333333333333\t7\t5"]
    file = tmp_path / "math.tsv"
    file.write_text("\n".join(rows) + "\n")
    first_group, second_group = read_mathsort(file)
    assert first_group.passages.passages == ("8 / 4", "1 - 8", "1 + 1")
    assert first_group.relevance_levels.tolist() == [1, 0, 1]
    assert first_group.ranks.tolist() == [1, 0, 2]
    assert first_group.grades.tolist() == [0, 2, 0]
    assert second_group.order.tolist() == [1, 0]


def test_published_words_and_sentences_are_read_with_their_right_order(tmp_path: Path) -> None:
    words = tmp_path / "words.tsv"
    words.write_text('word_samples\n["ox", "ant", "bee"]\n')
    (item,) = read_wordsort(words)
    assert item.passages.passages == ("ox", "ant", "bee")
    assert item.ranks.tolist() == [2, 0, 1]
    sentences = ["Ann said \u201cgo.\u201d", "She ran 1.5 miles!", "How far is it?"]
    problems = tmp_path / "problems.jsonl"
    lines = [{"question": " ".join(sentences), "answer": "x"}, {"question": "One sentence only."}]
    problems.write_text("\n".join(json.dumps(line) for line in lines))
    (item,) = read_gsm8ksort(problems, seed=1)
    assert sorted(item.passages.passages) == sorted(sentences)
    assert in_order(item) == sentences
    orders = {read_gsm8ksort(problems, seed=seed)[0].passages.passages for seed in range(30)}
    assert len(orders) == 6


HEADER = "expression\tanswer\tgroup\n"
NO_HEADER = "expected a header with expression, answer, group"


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (read_mathsort, "expression\tanswer\n1 + 1\t2", f"f, line 1: {NO_HEADER}"),
        (
            read_mathsort,
            f"{HEADER}1 + 1\t2\t0\n1 + 0\t1\t0",
            r"f, line 3: '1 \+ 0' is no expression",
        ),
        (read_mathsort, f"{HEADER}1 + 1\t3\t0", r"f, line 2: the answer of '1 \+ 1' is 2, not '3'"),
        (read_mathsort, f"{HEADER}1 + 1\t2", "f, line 2: expected 3 columns, got 2"),
        (read_mathsort, HEADER, "f holds no list"),
        (read_wordsort, '["a", "b"]\n["a"', "f, line 2: expected JSON"),
        (read_wordsort, '["a", "a"]', "f, line 1: a word stands twice"),
        (read_wordsort, '{"a": 1}', "f, line 1: expected a JSON list of two words"),
        (read_gsm8ksort, '{"answer": "x"}', "f, line 1: expected a string under 'question'"),
        (read_gsm8ksort, '{"question": "One."}', "f holds no list of 2 to 20 sentences"),
    ],
)
def test_mistakes_in_files_are_named(tmp_path: Path, reader, text: str, message: str) -> None:
    file = tmp_path / "f"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        reader(file)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MathSort(0), "task.number=0"),
        (lambda: MathSort(3, size=21), "task.size=21 must be from 2 to 20"),
        (lambda: MathSort(3, imbalance=1.5), r"task.imbalance=1.5 must lie in \[0, 1\]"),
        (lambda: WordSort(("b", "a") * 20, 3), "sorted dictionary of at least 20"),
        (lambda: WordSort(WORDS, 3, neighbours=2), "task.neighbours=2"),
    ],
)
def test_wrong_options_are_named(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_published_files_are_read_whole(real_data: Path) -> None:
    folder = real_data / "sorting"
    math = read_mathsort(folder / "mathsort.tsv")
    assert (len(math), {len(item) for item in math}) == (100, {10})
    assert sum(item.relevance_levels.max() < 9 for item in math) == 38
    assert math[0].passages.passages[math[0].order[0]] == "1 - 8"
    words = read_wordsort(folder / "wordsort.tsv")
    assert (len(words), {len(item) for item in words}) == (100, {10})
    assert in_order(words[0])[0] == "hemopoietic"
    assert len(read_gsm8ksort(folder / "gsm8ksort.jsonl")) == 99
    assert len(read_gsm8ksort(folder / "gsm8ksort.jsonl", least=5, most=10)) == 11
