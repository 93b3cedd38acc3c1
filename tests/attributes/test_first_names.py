"""First names: which are listed, where they stand as names, and what they are replaced by."""

import json
from pathlib import Path

import pytest

from backpack_rank.attributes import first_names
from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.first_names import FirstNames, clear_names
from backpack_rank.data.words import word_tokens

LABELS = Path(__file__).parents[2] / "benchmarks/results/first_names/dl19_passages.json"


@pytest.fixture(scope="module")
def swap():
    """The swap of gender words and first names."""
    return Attribute.named("gender").swap(names=True)


@pytest.fixture(scope="module")
def names(swap):
    return swap.swapped_names


def standing(names, text):
    return [match.group() for match in names.matches(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("James met Mary.", ["James", "Mary"]),
        ("we met mary and james", []),
        ("MARY JONES spoke", ["MARY"]),
        ("TED talks by Ted", ["Ted"]),
        ("so MARY A spoke", []),  # one letter is no word in capitals beside it
        ("at James Madison University", []),
        ("near Lake Charles and St. John", []),
        ("a flight to Charles de Gaulle Airport", []),
        ("President Charles de Gaulle", ["Charles"]),
        ("John 3:16 says", []),
        ("Jessica Parker and Sarah Jessica Parker", ["Jessica", "Sarah", "Jessica"]),
        ("Steven Martin smoked", ["Steven"]),
        ("Elton John sang", []),
        ("When Alice called", ["Alice"]),
        ("Attorney At Law. Robert is here", ["Robert"]),
        ("Dr. Thomas came", []),
        ("Dr. Thomas Reynolds came", ["Thomas"]),
        ("will Virginia win?", []),
        ("by Virginia Woolf", ["Virginia"]),
        ("in Virginia Woolf was born", []),
        ("Queen Victoria ruled", ["Victoria"]),
        ("West Virginia Army", []),
        ("on April Fools and in May", []),
        ("Leslie met Kelly", []),  # borne by women and men
    ],
)
def test_a_listed_word_is_a_name_where_the_rule_says_so(names, text, expected):
    assert standing(names, text) == expected


def test_a_name_is_swapped_with_the_words_around_it(swap):
    swapped = swap("Mary and her son James met Mrs. Barbara Smith.")
    assert swapped.text == "James and his daughter Mary met Mr. Michael Smith."
    assert swapped.swaps == 6
    assert swap(swapped.text).text == "Mary and her son James met Mrs. Barbara Smith."


def test_names_of_a_query_and_their_partners_stay(swap, names):
    kept = names.kept_for("who was mary wollstonecraft")
    assert kept == {"mary", "james"}
    assert names.kept_for("did Mary know John Keats") == {"mary", "james", "john", "patricia"}
    swapped = swap("Mary Wollstonecraft and James met John Keats", kept)
    assert swapped.text == "Mary Wollstonecraft and James met Patricia Keats"
    assert swapped.names == 2


def test_partners_are_an_involution_over_groups_and_marks(names):
    assert len(names.pairs) > 400
    for name, partner in names.partner.items():
        assert names.partner[partner] == name
        assert {names.group_of[name], names.group_of[partner]} == {"female", "male"}
        is_clear = names.marks[name] == first_names.CLEAR
        assert is_clear == (names.marks[partner] == first_names.CLEAR)


def test_the_words_of_the_rule_are_decided_alike_in_a_text_and_its_swap(swap):
    titles = first_names._NAME_TITLES, first_names._SURNAME_TITLES, first_names._OPENERS
    other = first_names._BEFORE_PLACES, first_names._BEHIND_PLACES, first_names._PLACE_PREPOSITIONS
    for words in (*titles, *other):
        assert words.isdisjoint(swap.swapped_names.partner)
        for word in words:
            for written in (word, word.capitalize()):
                # "her" becomes "him" where nothing follows and "his" before a noun.
                partner = swap(f"{written} house").text.split()[0].lower()
                assert partner in words, word


def test_the_listed_names_are_the_most_frequent_of_the_census():
    names = FirstNames.of("gender_names")
    listed = {"female": 0, "male": 0}
    shares = {"female": 0.0, "male": 0.0}
    path = Path(__file__).parents[2] / "lexicons/gender_names.csv"
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        word, group, share, other_share, mark = line.split(",")
        listed[group] += 1
        shares[group] += float(share)
        is_shared = float(other_share) / (float(share) + float(other_share)) > 0.05
        assert is_shared == (mark == "shared"), word
        assert names.marks[word] == mark
    assert listed == {"female": 491, "male": 480}
    assert shares["female"] == pytest.approx(73.99, abs=0.01)
    assert shares["male"] == pytest.approx(83.54, abs=0.01)


def test_clear_names_leave_out_words_and_shared_names():
    groups = clear_names("gender_names").groups
    assert {"mary", "susan"} <= set(groups["female"])
    assert {"james", "robert"} <= set(groups["male"])
    assert not {"grace", "virginia", "april", "leslie"} & set(groups["female"])
    assert not {"mark", "frank", "austin"} & set(groups["male"])


def test_an_unknown_mark_is_an_error_with_file_and_line(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("word,group,mark\nmary,female,clear\njames,male,often\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"names\.csv, line 3: mark=often: use one of clear"):
        FirstNames.of(path)


def test_renditions_of_a_text_and_its_swap_are_equal(names):
    renditions = Attribute.named("gender").renditions(names=True)
    query = "who was mary wollstonecraft"
    document = "Mary Wollstonecraft, wife of the poet John Keats, knew Robert. Was Virginia Woolf his aunt?"
    kept = renditions.kept_names(query)
    other = renditions.swapped(query, document).text
    assert other != document
    assert renditions.canonical(other, kept) == renditions.canonical(document, kept)
    written = {renditions(document, group, kept) for group in range(2)}
    assert written == {renditions(other, group, kept) for group in range(2)}
    assert document in written
    assert other in written
    assert all(text.startswith("Mary Wollstonecraft") for text in written)


def test_the_rule_against_200_passages_read_by_hand(real_data, names):
    labels = json.loads(LABELS.read_text(encoding="utf-8"))
    assert len(labels) == 200
    texts = {}
    for line in (real_data / "dl19/corpus.jsonl").read_text(encoding="utf-8").splitlines():
        passage = json.loads(line)
        if passage["_id"] in labels:
            texts[passage["_id"]] = passage["text"]
    right = recalled = there = 0
    for passage_id, occurrences in labels.items():
        starts = {match.start() for match in names.matches(texts[passage_id])}
        for start, word, is_name in occurrences:
            assert texts[passage_id][start:].startswith(word)
            recalled += start in starts
            there += is_name
            right += is_name and start in starts
    # 241 of 271 found are names, and 241 of 248 names are found.
    assert right / recalled == pytest.approx(0.889, abs=0.001)
    assert right / there == pytest.approx(0.972, abs=0.001)


def test_swaps_of_real_passages_are_undone_by_swapping_again(real_data, swap):
    changed = 0
    for line in (real_data / "dl19/corpus.jsonl").read_text(encoding="utf-8").splitlines()[::7]:
        text = json.loads(line)["text"]
        names = standing(swap.swapped_names, text)
        if not names:
            continue
        swapped = swap(text).text
        changed += swapped != text
        partners = [swap.swapped_names.partner[name.lower()] for name in names]
        assert [name.lower() for name in standing(swap.swapped_names, swapped)] == partners
        assert len(word_tokens(swapped)) == len(word_tokens(text))
    assert changed > 50
