"""Where answers stand: matches, relative starts, histogram and distance, original and rotated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backpack_rank.data.answers import Answer, Answers, load_answers
from backpack_rank.data.collection import MemoryStore
from backpack_rank.data.rotation import Rotation, word_starts
from backpack_rank.position.passages.answer_positions import (
    AnswerPositions,
    answer_positions,
    occurrences,
    start_word,
)


def distance_by_hand(values: list[float]) -> float:
    """sup over x of |share of values <= x - x|, at the steps."""
    ordered = sorted(values)
    count = len(ordered)
    differences = []
    for place, value in enumerate(ordered):
        differences += [abs(place / count - value), abs((place + 1) / count - value)]
    return max(differences)


def answers(documents: dict[str, str], rows: list[Answer]) -> Answers:
    return Answers("c", MemoryStore(documents), tuple(rows))


def test_starts_are_counted_in_words() -> None:
    text = 'He said "Big  Ben"\nis in London.'
    texts = ("He", "Big  Ben", "en", "London", "in London.")
    rows = [Answer("q", "d", answer, text.index(answer)) for answer in texts]
    (positions,) = answer_positions(answers({"d": text}, rows))
    assert positions.starts.tolist() == [0, 2, 3, 6, 5]
    assert positions.words.tolist() == [7] * 5
    assert positions.relative.tolist() == [0, 2 / 7, 3 / 7, 6 / 7, 5 / 7]
    assert (positions.answers, positions.unmatched, positions.cut) == (5, 0, 0)


def test_a_search_finds_whole_words_whatever_case_and_punctuation() -> None:
    text = "Un-ited unite. UNITED (States)! of the united  states"
    found = [text[slice(*span)] for span in occurrences("united states", text)]
    assert found == ["UNITED (States", "united  states"]
    assert occurrences("unite", text) == [(8, 13)]
    assert occurrences("un ited", text) == [(0, 7)]
    assert occurrences("%", "5 % of 7%") == [(2, 3), (8, 9)]
    assert occurrences("a.b", "a+b") == [(0, 3)]
    assert occurrences("state", text) == []


def test_offsets_are_taken_where_there_are_any_and_unmatched_answers_left_out() -> None:
    text = "red green red blue"
    rows = [Answer("a", "d", "red", 10), Answer("b", "d", "Blue"), Answer("c", "d", "yellow")]
    (given,) = answer_positions(answers({"d": text}, rows))
    assert given.starts.tolist() == [2, 3]
    assert (given.answers, given.unmatched) == (3, 1)
    (every,) = answer_positions(answers({"d": text}, rows), match="all")
    assert every.starts.tolist() == [0, 2, 3]


def test_uncertain_answers_can_be_left_out() -> None:
    rows = [Answer("a", "d", "red", 0, certain=False), Answer("b", "d", "blue", 4)]
    rows_of_answers = answers({"d": "red blue"}, rows)
    assert answer_positions(rows_of_answers, certain_only=True)[0].starts.tolist() == [1]
    message = r"c has no answer whose place is certain: leave out task\.certain_only"
    with pytest.raises(ValueError, match=message):
        answer_positions(answers({"d": "red blue"}, rows[:1]), certain_only=True)


def test_wrong_match_is_named() -> None:
    with pytest.raises(ValueError, match=r"task\.match='some': use one of offsets, all"):
        answer_positions(answers({"d": "x"}, [Answer("a", "d", "x", 0)]), match="some")


def test_rotated_starts_are_those_of_the_rotated_words() -> None:
    documents = {}
    for number in range(60):
        documents[f"d{number}"] = " ".join(f"w{word}" for word in range(9 + number % 5))
    rows = []
    for number, (doc_id, text) in enumerate(documents.items()):
        words = text.split()
        first = number % (len(words) - 2)
        answer = " ".join(words[first : first + 3])
        rows.append(Answer(f"q{number}", doc_id, answer, text.index(answer)))
    rotation = Rotation(seed=2)
    original, rotated = answer_positions(answers(documents, rows), [None, rotation])
    starts, words, cut = [], [], 0
    for row in rows:
        rotated_words = rotation.rotate(row.doc_id, documents[row.doc_id]).text.split()
        wanted = row.text.split()
        count = len(rotated_words)
        places = [place for place in range(count) if rotated_words[place : place + 3] == wanted]
        cut += not places
        starts += places
        words += [count] * len(places)
    assert cut > 3
    assert rotated.cut == cut
    assert rotated.starts.tolist() == starts
    assert rotated.words.tolist() == words
    assert rotated.unmatched == original.unmatched == 0
    assert len(original.starts) == 60


def test_histogram_and_distance_by_hand() -> None:
    positions = AnswerPositions(np.array([0, 3, 1, 9]), np.array([10, 10, 2, 10]), 5, 1)
    assert positions.histogram(10).tolist() == [1, 0, 0, 1, 0, 1, 0, 0, 0, 1]
    assert positions.histogram(4).tolist() == [1, 1, 1, 1]
    assert positions.uniform_distance == pytest.approx(distance_by_hand([0.05, 0.35, 0.75, 0.95]))
    # Every word of a passage once is as even as words can be.
    even = AnswerPositions(np.arange(20), np.full(20, 20), 20, 0)
    assert even.uniform_distance == pytest.approx(1 / 40)
    assert np.isnan(AnswerPositions(np.array([], int), np.array([], int), 2, 2).uniform_distance)


def test_a_place_before_the_first_word_belongs_to_it() -> None:
    assert start_word(word_starts("  ab cd"), 0) == 0
    assert start_word(word_starts("  ab cd"), 5) == 1


@pytest.mark.parametrize(
    ("name", "below", "rotated_below"), [("xquad_en", 0.12, 0.04), ("nq_open_oracle", 0.25, 0.04)]
)
def test_rotation_evens_out_the_real_answers(real_data, name, below, rotated_below) -> None:
    """XQuAD is near uniform, Natural Questions favour the beginning; rotated, both are nearly
    uniform.
    """
    original, rotated = answer_positions(load_answers(str(real_data / name)), [None, Rotation()])
    assert original.uniform_distance < below
    assert rotated.uniform_distance < rotated_below
    assert rotated.uniform_distance < original.uniform_distance / 3
    assert original.relative.mean() < rotated.relative.mean() < 0.5
    assert original.unmatched == 0


@pytest.mark.slow
def test_squad_is_nearer_to_uniform_than_natural_questions(real_data: Path) -> None:
    names = ("squad", "nq_open_oracle")
    squad, natural = (
        answer_positions(load_answers(str(real_data / name)))[0].uniform_distance for name in names
    )
    assert squad < 0.1 < natural / 1.5
