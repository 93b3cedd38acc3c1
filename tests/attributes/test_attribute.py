"""Attributes by name and by value: which files they read."""

from pathlib import Path

import pytest

from backpack_rank.attributes.attribute import Attribute

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (ROOT / "conf" / "attribute").glob("*.yaml"))
)
def test_every_attribute_reads_its_lists_and_swaps_its_pairs_both_ways(name):
    attribute = Attribute.named(name)
    lexicon, pairs = attribute.lexicon(), attribute.pairs()
    assert attribute.name == name
    assert set(attribute.sign) <= set(lexicon.group_names)
    assert pairs.sides == attribute.sides
    assert attribute.classes().words < attribute.classes(wide=True).words
    swap = attribute.swap()
    assert swap("unrelated").text == "unrelated"
    assert (
        swap(swap("jesus the young african nephew").text).text == "jesus the young african nephew"
    )


def test_words_of_a_third_group_are_paired_with_those_of_the_two_sides():
    religion = Attribute.named("religion")
    pairs = religion.all_pairs()
    assert {("christian", "jewish"), ("muslim", "jewish"), ("church", "synagogue")} <= set(pairs)
    # A pair begins with a word of a side.
    assert ("jewish", "christian") not in pairs
    gender = Attribute.named("gender")
    assert gender.all_pairs() == gender.pairs().pairs


def test_gender_swaps_pronouns_titles_and_leaves_names_alone():
    gender = Attribute.named("gender")
    assert (gender.sides, gender.sign) == (("female", "male"), ("male", "female"))
    swapped = gender.swap()("Ms Smith and Mary saw her father")
    assert (swapped.text, swapped.names) == ("Mr Smith and Mary saw his mother", 1)
    assert {"john", "mary"} <= gender.classes(names=True).words - gender.classes(wide=True).words


def test_an_attribute_of_own_files(tmp_path):
    (tmp_path / "size.csv").write_text("word,group\nbig,large\ntiny,small\n")
    (tmp_path / "pairs.csv").write_text("large,small\nbig,tiny\n")
    values = f"name: size\nlexicon: {tmp_path}/size.csv\nsign: large_minus_small\npairs: {tmp_path}/pairs.csv\n"
    path = tmp_path / "size.yaml"
    path.write_text(values + "sides: [large, small]\n")
    size = Attribute.named(str(path))
    assert size.lexicon().groups == {"large": ("big",), "small": ("tiny",)}
    assert size.swap()("Big house").text == "Tiny house"
    nameless = Attribute(
        "age", lexicon="", sign="a_minus_b", pairs="", sides=["a", "b"], classes=["age_classes"]
    )
    with pytest.raises(ValueError, match="the attribute age has no list of first names"):
        nameless.classes(names=True)
    for line, sentence in (
        ("", "size.yaml: .* missing 1 required keyword-only argument: 'sides'"),
        ("sides: [large]\n", r"size.yaml: attribute.sides=\['large'\]: give the two columns"),
        (
            "sides: [large, small]\ncolour: red\n",
            "size.yaml: .* unexpected keyword argument 'colour'",
        ),
        (
            "sides: [large, small]\nsign: large\n",
            "size.yaml: attribute.sign=large: give two groups",
        ),
    ):
        path.write_text(values + line)
        with pytest.raises(ValueError, match=sentence):
            Attribute.named(str(path))
    with pytest.raises(
        FileNotFoundError, match="no attribute 'sex': use one of age, ethnicity, gender, religion"
    ):
        Attribute.named("sex")
