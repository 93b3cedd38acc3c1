"""Word classes: what is shipped, how lists are merged, what is counted, and what the loader
refuses.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from backpack_rank.attributes.first_names import clear_names
from backpack_rank.attributes.lexicon import (
    Lexicon,
    WordPairs,
    load_lexicon,
    load_one_way,
    load_pairs,
)
from backpack_rank.attributes.word_classes import (
    WordClass,
    WordClasses,
    class_of_names,
    count_class_words,
    load_all_classes,
    load_classes,
)
from backpack_rank.data.words import word_tokens

REPOSITORY = Path(__file__).resolve().parents[2]
CLASS_FILES = sorted(path.stem for path in (REPOSITORY / "lexicons").glob("*_classes*.csv"))
ATTRIBUTES = sorted(path.stem for path in (REPOSITORY / "conf" / "attribute").glob("*.yaml"))


def classes(**named: str) -> WordClasses:
    return WordClasses(
        "mine", tuple(WordClass(name, tuple(words.split())) for name, words in named.items())
    )


def test_a_file_is_read_in_its_order_and_lower_cased(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("word,class\nHe,he\nman,man\nshe,he\nwoman,man\n", encoding="utf-8")
    expected = WordClasses(
        "list", (WordClass("he", ("he", "she")), WordClass("man", ("man", "woman"))), path
    )
    assert load_classes(path) == expected
    assert expected.words == {"he", "she", "man", "woman"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "class,word\nhe,he\nhe,she\nman,She\n",
            r"line 4: 'she' is in two classes, 'he' and 'man' \(first on line 3\)",
        ),
        ("class,word\nhe,he\nhe,HE\n", r"line 3: 'he' occurs twice \(first on line 2\)"),
        ("class,word\nhe,he\nman,man\nman,woman\n", r"line 2: class 'he' has one word only, 'he'"),
        ("class,word\nhe,old man\n", r"line 2: 'old man' is no single word"),
        ("class,word\nhe,\n", r"line 2: the cell of column 'word' is empty"),
        ("word,group\nhe,m\n", r"line 1: .*missing: class"),
        ("class,word\n", r"there is no row below the header"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        load_classes(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="no_such_classes"):
        load_classes("no_such_classes")
    with pytest.raises(ValueError, match="no file of word classes"):
        load_all_classes([])


def test_classes_made_in_memory_are_checked_too() -> None:
    with pytest.raises(ValueError, match="'he' needs at least two words"):
        WordClass("he", ("he",))
    with pytest.raises(ValueError, match="'She' is not lower-cased"):
        WordClass("he", ("he", "She"))
    with pytest.raises(ValueError, match="'she' is in 'he' and again in 'man'"):
        classes(he="he she", man="she woman")
    with pytest.raises(ValueError, match="there is no class"):
        WordClasses("mine", ())


def test_merging_joins_classes_that_share_a_word_under_the_first_name() -> None:
    first = classes(he="he she", boy="boy girl", guy="guy gal", man="man woman")
    second = classes(youth="girl guy lad", sir="sir madam", man="chap lass")
    merged = first.merged(second)
    assert [(word_class.name, word_class.words) for word_class in merged.classes] == [
        ("he", ("he", "she")),
        ("boy", ("boy", "girl", "guy", "gal", "lad")),
        ("man", ("man", "woman", "chap", "lass")),
        ("sir", ("sir", "madam")),
    ]
    assert merged.name == "mine+mine"


def test_names_are_one_class_over_all_groups() -> None:
    names = Lexicon("names", {"female": ("mary", "ann"), "male": ("john",)})
    assert class_of_names(names).classes == (WordClass("names", ("mary", "ann", "john")),)


def test_words_and_classes_are_counted_on_whole_lower_cased_words() -> None:
    mine = classes(he="he she", man="man woman")
    texts = ["He met a Man. The man's hat; mankind", "SHE", ""]
    assert count_class_words(texts, mine) == {"he": 1, "she": 1, "man": 2, "woman": 0}


def test_a_word_that_could_never_be_counted_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mine: \"ma'am\" is split into \['ma', 'am'\]"):
        count_class_words(["x"], classes(sir="sir ma'am"))


# what is shipped


@pytest.mark.parametrize("name", CLASS_FILES)
def test_every_shipped_word_is_one_word_for_the_tokenizer(name: str) -> None:
    assert all(word_tokens(word) == [word] for word in load_classes(name).words)


def class_of_words(classes: WordClasses) -> dict[str, str]:
    """Name of the class that each word is in."""
    owner = {}
    for word_class in classes.classes:
        owner |= dict.fromkeys(word_class.words, word_class.name)
    return owner


def test_the_base_classes_of_gender_are_those_of_the_pairs_and_some_more() -> None:
    owner = class_of_words(load_classes("gender_classes"))
    assert all(owner[first] == owner[second] for first, second in load_pairs("gender_pairs").pairs)
    assert owner["her"] == owner["his"] == owner["him"] == owner["hers"] != owner["she"]
    assert len({owner[word] for word in ("man", "men", "boy", "guy", "father", "dad")}) == 6


def test_wide_classes_reach_titles_occupations_and_joins_but_no_names() -> None:
    wide = load_all_classes(["gender_classes", "gender_classes_wide"])
    owner = class_of_words(wide)
    for words in (
        "mr mrs ms miss",
        "sir madam",
        "actor actress",
        "businessman businesswoman",
        "boy girl guy gal",
    ):
        assert len({owner[word] for word in words.split()}) == 1, words
    assert owner["policeman"] != owner["policemen"]
    assert not {"mary", "john", "michael"} & wide.words
    clear = clear_names("gender_names")
    assert all(len(words) > 350 for words in clear.groups.values())
    assert not clear.words & wide.words


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_the_files_of_an_attribute_exist_and_agree_with_each_other(name: str) -> None:
    node = OmegaConf.to_container(
        OmegaConf.load(REPOSITORY / "conf" / "attribute" / f"{name}.yaml")
    )
    assert node["name"] == name
    lexicon = load_lexicon(node["lexicon"])
    plus, minus = node["sign"].split("_minus_")
    assert {plus, minus} <= set(lexicon.group_names)
    assert set(node["sides"]) == {plus, minus}
    wide = load_all_classes([*node["classes"], *node["wide_classes"]])
    owner = class_of_words(wide)
    group = {word: name for name, words in lexicon.groups.items() for word in words}
    swap = load_pairs(node["swap_pairs"], sides=tuple(node["sides"]))
    for pairs in (load_pairs(node["pairs"], sides=tuple(node["sides"])), swap):
        for pair in pairs.pairs:
            if name != "gender" or "his" not in pair:
                assert owner[pair[0]] == owner[pair[1]]
            for side, word in zip(node["sides"], pair, strict=True):
                assert group.get(word, side) == side
    one_way = load_one_way(node["one_way"])
    swap_words = {word for pair in swap.pairs for word in pair}
    assert not one_way.keys() & swap_words
    for word, partner in one_way.items():
        if word in owner and partner in owner:
            assert owner[word] == owner[partner]
    if node["names"] is not None:
        assert clear_names(node["names"]).group_names


def test_every_attribute_is_there() -> None:
    assert ATTRIBUTES == ["age", "ethnicity", "gender", "religion"]


@pytest.mark.parametrize(
    ("files", "least"),
    [(["gender_classes"], 0.75), (["gender_classes", "gender_classes_wide"], 0.85)],
)
def test_male_and_female_wordings_of_real_documents_are_equal_up_to_the_classes(
    real_data: Path, files: list[str], least: float
) -> None:
    owner = class_of_words(load_all_classes(files))
    lines = (real_data / "grep_biasir" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    equal = 0
    pairs = 0
    for start in range(0, len(records), 3):
        by = {record["metadata"]["content_gender"]: record for record in records[start : start + 3]}
        if not {"M", "F"} <= by.keys():
            continue
        pairs += 1

        def up_to_classes(record: dict) -> list[str]:
            tokens = word_tokens(f"{record['title']} {record['text']}")
            return [owner.get(token, token) for token in tokens]

        equal += up_to_classes(by["M"]) == up_to_classes(by["F"])
    assert pairs == 232
    assert equal / pairs >= least


# pairs and one-way words


def test_pairs_can_take_their_sides_from_the_header(tmp_path: Path) -> None:
    path = tmp_path / "ages.csv"
    path.write_text("young,old\nkid,elder\n", encoding="utf-8")
    assert load_pairs(path, sides=None) == WordPairs(
        "ages", ("young", "old"), (("kid", "elder"),), path
    )
    path.write_text("young\nkid\n", encoding="utf-8")
    with pytest.raises(
        ValueError,
        match=r"line 1: two columns with different names are expected, found \['young'\]",
    ):
        load_pairs(path, sides=None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,partner\nms,mr\nMs,mr\n", r"line 3: 'ms' occurs twice \(first on line 2\)"),
        ("word,partner\nms,Ms\n", r"line 2: 'ms' is its own partner"),
        ("word,partner\nms,mr x\n", r"line 2: 'mr x' is no single word"),
        ("word,partner\n", r"there is no row below the header"),
        ("female,male\nshe,he\n", r"line 1: .*missing: word, partner"),
    ],
)
def test_bad_one_way_words_are_refused_with_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "one.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_one_way(path)


def test_one_way_words_may_share_a_partner(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("word,partner\nMs,mr\nmiss,Mr\n", encoding="utf-8")
    assert load_one_way(path) == {"ms": "mr", "miss": "mr"}
