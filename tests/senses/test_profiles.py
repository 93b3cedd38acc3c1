"""What senses are about, against slow loops over words."""

import math

import pytest
import torch

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.models.attribute_senses import add_attribute_senses
from backpack_rank.models.token_shift import TokenClasses, token_shift
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.senses import profiles
from backpack_rank.senses.attribution import attribute
from backpack_rank.senses.profiles import (
    Vocabulary,
    nearest_words,
    one_token_words,
    sense_profiles,
    typical_words,
)
from backpack_rank.senses.views import View

LEXICON = Lexicon("toy", {"female": ("she", "her", "mother"), "male": ("he", "his", "father")})
PAIRS = [
    ("doctor in the ward", "she said that she would see her"),  # female 3
    ("doctor in the ward", "he said that she would see his father"),  # male 3, female 1
    ("bridge engineer", "A bridge over a river."),
    ("bridge engineer", "he and she"),  # one each
    ("bridge engineer", "She and he and he, for a hundred guests"),  # male 2
    ("soup for guests", ""),
]


@pytest.fixture
def ranker(make_backpack):
    return make_backpack()


@pytest.fixture
def vocabulary(pair_tokenizer):
    return one_token_words(pair_tokenizer)


def senses_of(backpack, vocabulary):
    """{word: [k][d]}"""
    with torch.no_grad():
        return {
            word: backpack.senses(torch.tensor(index)).double()
            for word, index in zip(vocabulary.words, vocabulary.ids.tolist(), strict=True)
        }


def cosine(a, b):
    return ((a @ b) / (math.sqrt(a @ a) * math.sqrt(b @ b))).item()


def check(words, expected, count):
    """Words in order and values; ``expected`` is every word's value."""
    order = sorted(expected, key=lambda word: -expected[word])[:count]
    assert [related.word for related in words] == order
    assert [related.value for related in words] == pytest.approx(
        [expected[word] for word in order], abs=1e-5
    )


def test_words_are_those_that_are_one_token_in_running_text(pair_tokenizer, vocabulary):
    assert {"he", "she", "doctor", "the"} <= set(vocabulary.words)
    assert "stepmother" not in vocabulary.words
    for word, index in zip(vocabulary.words, vocabulary.ids.tolist(), strict=True):
        assert word.isalpha()
        assert pair_tokenizer.encode([word])[0].tolist() == [index]
    folded = [word.lower() for word in vocabulary.words]
    assert len(set(folded)) == len(folded)


def test_lower_case_stands_for_a_word_of_several_cases(pair_tokenizer, vocabulary):
    both = [case for case in ("the", "The") if len(pair_tokenizer.encode([case])[0]) == 1]
    assert both == ["the", "The"]
    assert "the" in vocabulary.words
    assert "The" not in vocabulary.words


def test_words_of_texts_count_only_where_they_are_no_part_of_another_word(pair_tokenizer):
    assert pair_tokenizer.encode(["hex"])[0][0] == pair_tokenizer.encode(["he"])[0][0]
    words = one_token_words(pair_tokenizer, ["she hex the", "She, the man"])
    assert set(words.words) == {"she", "the", "man"}
    with pytest.raises(ValueError, match="no word of the texts is one token"):
        one_token_words(pair_tokenizer, ["xyzzy"])


@pytest.mark.parametrize("chunk", [3, 1000])
def test_nearest_words_have_the_largest_cosines_of_a_sense(
    ranker, pair_tokenizer, vocabulary, monkeypatch, chunk
):
    monkeypatch.setattr(profiles, "CHUNK", chunk)
    table = senses_of(ranker.backpack, vocabulary)
    nearest = nearest_words(
        ranker.backpack, pair_tokenizer, vocabulary, ["he", "Doctor", "she"], count=4
    )
    assert len(nearest) == 8
    with torch.no_grad():
        (ids,) = pair_tokenizer.encode(["Doctor"])
        doctor = ranker.backpack.senses(torch.from_numpy(ids).long()).double().mean(dim=0)
    for sense in range(8):
        assert list(nearest[sense]) == ["he", "Doctor", "she"]
        for probe, vector in (("he", table["he"]), ("Doctor", doctor), ("she", table["she"])):
            expected = {
                word: cosine(other[sense], vector[sense])
                for word, other in table.items()
                if word != probe.lower()
            }
            check(nearest[sense][probe], expected, 4)


def test_a_small_vocabulary_gives_all_its_words(ranker, pair_tokenizer):
    ids = [int(pair_tokenizer.encode([word])[0][0]) for word in ("he", "she", "doctor")]
    small = Vocabulary(("he", "she", "doctor"), torch.tensor(ids))
    nearest = nearest_words(ranker.backpack, pair_tokenizer, small, ["he"], count=10)
    for words in nearest:
        assert {related.word for related in words["he"]} == {"she", "doctor"}


@pytest.mark.parametrize("chunk", [3, 1000])
def test_typical_words_have_the_largest_share_of_their_difference_in_a_sense(
    ranker, vocabulary, monkeypatch, chunk
):
    monkeypatch.setattr(profiles, "CHUNK", chunk)
    table = senses_of(ranker.backpack, vocabulary)
    mean = sum(table.values()) / len(table)
    norms = {
        word: [(vectors[s] - mean[s]).norm().item() for s in range(8)]
        for word, vectors in table.items()
    }
    typical = typical_words(ranker.backpack, vocabulary, count=5)
    for sense in range(8):
        check(typical[sense], {word: row[sense] / sum(row) for word, row in norms.items()}, 5)


def test_unknown_and_missing_probes_are_left_out(ranker, pair_tokenizer, vocabulary, caplog):
    assert nearest_words(ranker.backpack, pair_tokenizer, vocabulary, []) == [{}] * 8
    assert nearest_words(ranker.backpack, pair_tokenizer, vocabulary, [" "]) == [{}] * 8
    assert "does not know the probe word" in caplog.text


def profiles_of(ranker, pair_tokenizer, **options):
    return sense_profiles(ranker, pair_tokenizer, PAIRS, LEXICON, min_count=1, count=200, **options)


def test_documents_are_grouped_by_the_words_that_lead(ranker, pair_tokenizer):
    all_senses = profiles_of(ranker, pair_tokenizer)
    assert all_senses.documents == {"female": 1, "male": 2, "mixed": 1, "neutral": 2}
    rows = {"female": [0], "male": [1, 4], "mixed": [3], "neutral": [2, 5]}
    alone = [attribute(ranker, pair_tokenizer, *pair).per_sense for pair in PAIRS]
    for profile in all_senses.senses:
        assert list(profile.mean_contribution) == list(rows)
        for group, numbers in rows.items():
            expected = sum(alone[row][profile.index].item() for row in numbers) / len(numbers)
            assert profile.mean_contribution[group] == pytest.approx(expected, abs=1e-5)


def occurrences(ranker, pair_tokenizer):
    """{token string as a word of a document: [contributions of its occurrences per sense]}"""
    places = {}
    for pair in PAIRS:
        explained = attribute(ranker, pair_tokenizer, *pair)
        for word in explained.words:
            if word.segment == "document" and word.end - word.start == 1:
                places.setdefault(word.text, []).append(
                    explained.contributions[:, word.start].tolist()
                )
    return places


@pytest.mark.parametrize("min_count", [1, 3])
def test_raising_and_lowering_words_have_the_largest_mean_contributions(
    ranker, pair_tokenizer, vocabulary, min_count
):
    all_senses = sense_profiles(
        ranker,
        pair_tokenizer,
        PAIRS,
        LEXICON,
        vocabulary=vocabulary,
        min_count=min_count,
        count=200,
        probes=(),
    )
    seen = {
        w: rows for w, rows in occurrences(ranker, pair_tokenizer).items() if len(rows) >= min_count
    }
    for profile in all_senses.senses:
        means = {}
        for word, rows in seen.items():
            if word in vocabulary.words:
                means[word] = sum(row[profile.index] for row in rows) / len(rows)
        check(profile.raising, {word: mean for word, mean in means.items() if mean > 0}, 200)
        lowering = {word: -mean for word, mean in means.items() if mean < 0}
        assert [related.word for related in profile.lowering] == sorted(
            lowering, key=lambda word: -lowering[word]
        )
        assert all(related.value < 0 for related in profile.lowering)
        assert means


def test_words_of_the_lexicon_have_their_mean_contribution_per_occurrence(ranker, pair_tokenizer):
    all_senses = profiles_of(ranker, pair_tokenizer, probes=())
    seen = occurrences(ranker, pair_tokenizer)
    for group, words in LEXICON.groups.items():
        rows = [row for word, rows in seen.items() if word.lower() in words for row in rows]
        assert rows
        for profile in all_senses.senses:
            expected = sum(row[profile.index] for row in rows) / len(rows)
            assert profile.word_contribution[group] == pytest.approx(expected, abs=1e-6)


def test_a_group_without_words_or_documents_has_no_mean(ranker, pair_tokenizer):
    all_senses = sense_profiles(
        ranker, pair_tokenizer, [("bridge engineer", "she said")], LEXICON, probes=()
    )
    assert all_senses.documents == {"female": 1}
    assert all(list(profile.mean_contribution) == ["female"] for profile in all_senses.senses)
    assert all(list(profile.word_contribution) == ["female"] for profile in all_senses.senses)


def test_weights_and_a_shift_of_tokens_take_part_in_the_contributions(ranker, pair_tokenizer):
    he, she = (int(pair_tokenizer.encode([word])[0][0]) for word in ("he", "she"))
    classes = TokenClasses((" he",), ((he, she),), WordBoundaries.of(pair_tokenizer.tokenizer))
    view = View(torch.tensor([0.0, *[1.0] * 7]), token_shift(ranker, classes, "both", 0.0))
    controlled, plain = (
        profiles_of(ranker, pair_tokenizer, view=view, probes=()) for view in (view, None)
    )
    assert set(controlled.senses[0].mean_contribution.values()) == {0.0}
    assert controlled.senses[0].raising == controlled.senses[0].lowering == ()
    alone = [attribute(ranker, pair_tokenizer, *pair, view).per_sense for pair in PAIRS]
    for profile in controlled.senses:
        expected = alone[3][profile.index].item()
        assert profile.mean_contribution["mixed"] == pytest.approx(expected, abs=1e-5)
    changes = [
        abs(profile.mean_contribution["mixed"] - other.mean_contribution["mixed"])
        for profile, other in zip(controlled.senses, plain.senses, strict=True)
    ]
    assert max(changes[1:]) > 1e-3


def test_words_come_from_the_documents_and_sensitivities_are_passed_on(ranker, pair_tokenizer):
    sensitivity = torch.linspace(-1, 1, 8)
    all_senses = profiles_of(ranker, pair_tokenizer, sensitivity=sensitivity)
    words = set()
    for _, document in PAIRS:
        words |= set(document.lower().replace(".", "").replace(",", "").split())
    for profile in all_senses.senses:
        assert profile.sensitivity == sensitivity[profile.index].item()
        lists = (
            profile.typical_words,
            profile.raising,
            profile.lowering,
            *profile.neighbours.values(),
        )
        for part in lists:
            assert {related.word.lower() for related in part} <= words
        assert set(profile.neighbours) == set(profiles.PROBES)


def test_profiles_do_not_depend_on_the_batches_or_on_dropout(
    make_backpack, pair_tokenizer, monkeypatch
):
    ranker = make_backpack(dropout=0.4)
    expected = profiles_of(ranker, pair_tokenizer)
    monkeypatch.setattr(profiles, "CPU_TOKENS", 1)
    ranker.train()
    in_one_batch = profiles_of(ranker, pair_tokenizer)
    assert ranker.training
    assert ranker.backpack.training
    for a, b in zip(in_one_batch.senses, expected.senses, strict=True):
        assert a.mean_contribution == pytest.approx(b.mean_contribution, abs=1e-5)
        assert [related.word for related in a.typical_words] == [
            related.word for related in b.typical_words
        ]


def test_bad_input_is_refused(ranker, make_gpt2, pair_tokenizer):
    with pytest.raises(ValueError, match="no \\(query, document\\) pair"):
        sense_profiles(ranker, pair_tokenizer, [], LEXICON)
    with pytest.raises(TypeError, match="the score of a GPT2ForRanking does not split"):
        sense_profiles(make_gpt2(), pair_tokenizer, PAIRS, LEXICON)


@pytest.fixture
def read(ranker, monkeypatch):
    """Numbers of words whose senses are computed, call by call."""
    sizes = []
    senses = type(ranker.backpack).senses
    monkeypatch.setattr(
        type(ranker.backpack),
        "senses",
        lambda self, ids: sizes.append(len(ids)) or senses(self, ids),
    )
    return sizes


def test_the_whole_vocabulary_is_never_held_at_once(ranker, vocabulary, monkeypatch, read):
    """50,000 words of 16 senses would be 2.5 GB."""
    monkeypatch.setattr(profiles, "CHUNK", 7)
    typical_words(ranker.backpack, vocabulary)
    assert max(read) == 7
    assert 1024 * 16 * 768 * 4 * 8 < 1e9, "eight copies of a full chunk stay below a gigabyte"


@pytest.mark.parametrize(("kept", "passes"), [(profiles.KEPT, 1), (0, 3)])
def test_senses_of_few_words_are_computed_once(
    ranker, pair_tokenizer, vocabulary, monkeypatch, read, kept, passes
):
    """By the two lists of every sense, one of which goes through the words twice; the lists are the
    same.
    """
    typical = typical_words(ranker.backpack, vocabulary)
    monkeypatch.setattr(profiles, "CHUNK", 7)
    monkeypatch.setattr(profiles, "KEPT", kept)
    read.clear()
    shared = profiles.WordSenses(ranker.backpack, vocabulary)
    near = nearest_words(ranker.backpack, pair_tokenizer, vocabulary, ["he"], 4, shared)
    probe = 1
    from_shared = typical_words(ranker.backpack, vocabulary, 8, shared)
    for row, expected_row in zip(from_shared, typical, strict=True):
        assert [word.word for word in row] == [word.word for word in expected_row]
    assert sum(read) == passes * len(vocabulary) + probe
    assert near == nearest_words(ranker.backpack, pair_tokenizer, vocabulary, ["he"], 4)


def test_what_sets_words_apart_is_in_the_profiles_of_attribute_senses_and_in_no_other(
    make_backpack, pair_tokenizer
):
    ranker = make_backpack()
    gender = Attribute.named("gender")
    add_attribute_senses(
        ranker.backpack,
        pair_tokenizer.tokenizer,
        gender,
        separator_id=pair_tokenizer.separator_id,
        read_as_one=False,
    )
    all_senses = profiles_of(ranker, pair_tokenizer, probes=("he", "his", "bridge"))
    *others, first, second = all_senses.senses
    groups = {profile.name.removeprefix("gender: "): profile for profile in (first, second)}
    assert [profile.name for profile in others] == [str(number) for number in range(8)]
    assert groups.keys() == {"female", "male"}
    typical = {
        group: {related.word.lower() for related in profile.typical_words}
        for group, profile in groups.items()
    }
    assert typical == {"female": {"she", "her"}, "male": {"he", "his"}}
    neighbours = groups["male"].neighbours
    assert [related.word for related in neighbours["he"]] == ["his"]
    assert [related.word for related in neighbours["his"]] == ["he"]
    apart = {
        word: ranker.backpack.word_senses([int(pair_tokenizer.encode([word])[0][0])])[1]
        for word in ("he", "his")
    }
    row = int(apart["he"].any(dim=1).nonzero())
    expected = cosine(apart["he"][row].double(), apart["his"][row].double())
    assert groups["male"].neighbours["he"][0].value == pytest.approx(expected, abs=1e-5)
    assert not groups["female"].neighbours["he"]
    assert not groups["male"].neighbours["bridge"]
    # In the other senses he and she are one word.
    assert all(profile.neighbours["he"][0].word == "she" for profile in others)
    assert all(
        profile.neighbours["he"][0].value == pytest.approx(1, abs=1e-6) for profile in others
    )
    assert groups["male"].word_contribution.keys() == {"female", "male"}
    assert groups["male"].word_contribution["female"] == 0
    assert abs(groups["male"].word_contribution["male"]) > 1e-4
