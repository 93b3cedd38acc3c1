"""Groups of documents from files, from fields of a collection, and from words."""

from __future__ import annotations

import gzip
import json

import ir_datasets
import pytest
import scipy.spatial

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.sources.inline import load_inline
from backpack_rank.data.sources.union import load_union
from backpack_rank.evaluation.document_groups import DocumentGroups
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.group_files import GroupSource

EMPTY = Collection("empty", MemoryStore({}), {}, {})


def shares(source: str, doc_ids, collection: Collection = EMPTY) -> dict[str, dict]:
    shares_by_document = {}
    for attribute, groups in GroupSource(source).groups(collection, doc_ids).items():
        rows = groups.shares_of(doc_ids).tolist()
        shares_by_document[attribute] = {
            "names": groups.names,
            **dict(zip(doc_ids, rows, strict=True)),
        }
    return shares_by_document


def test_a_tsv_has_a_group_for_each_document_and_is_named_by_its_file(tmp_path):
    path = tmp_path / "gender.tsv"
    path.write_text("d1\tfemale\nd2\tmale\nd3\tUnknown\nd9\tother\n")
    assert shares(str(path), ["d1", "d2", "d3", "d4"]) == {
        "gender": {
            # A group of a document that nobody ranks is a group all the same.
            "names": ("female", "male", "other"),
            "d1": [1, 0, 0],
            "d2": [0, 1, 0],
            "d3": [0, 0, 0],
            "d4": [0, 0, 0],
        }
    }


def test_a_tsv_may_have_a_header_shares_and_several_lines_of_a_document(tmp_path):
    path = tmp_path / "anything.tsv.gz"
    text = "doc_id\tregion\tshare\nd1\tasia\t1\nd1\teurope\t3\nd2\tasia\t0.4\n"
    path.write_bytes(gzip.compress(text.encode()))
    assert shares(str(path), ["d1", "d2"]) == {
        "region": {"names": ("asia", "europe"), "d1": [0.25, 0.75], "d2": [1, 0]}
    }


def test_a_first_line_of_an_unknown_document_is_data_if_its_group_recurs(tmp_path):
    path = tmp_path / "gender.tsv"
    path.write_text("elsewhere\tfemale\nd1\tmale\nd2\tfemale\n")
    known = Collection("mine", MemoryStore({"d1": "", "d2": ""}), {}, {})
    assert shares(str(path), ["d1"], known)["gender"]["d1"] == [0, 1]
    path.write_text("elsewhere\tfemale\nd1\tmale\nd2\tmale\n")
    with pytest.raises(ValueError, match="no other line has 'female'"):
        shares(str(path), ["d1"], known)


def test_json_lines_have_an_attribute_under_every_key(tmp_path):
    path = tmp_path / "groups.jsonl"
    records = [
        {"id": "d1", "gender": "female", "region": ["asia", "@UNKNOWN", "europe"]},
        {"id": "d2", "gender": {"male": 2, "female": 6}},
        {"id": "d3", "gender": None, "region": "asia"},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    shares_by_document = shares(str(path), ["d1", "d2", "d3"])
    assert shares_by_document["gender"]["names"] == ("female", "male")
    assert [shares_by_document["gender"][d] for d in ("d1", "d2", "d3")] == [
        [1, 0],
        [0.75, 0.25],
        [0, 0],
    ]
    assert [shares_by_document["region"][d] for d in ("d1", "d2", "d3")] == [
        [0.5, 0.5],
        [0, 0],
        [1, 0],
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("g.tsv", "d1\tf\nd2\n", "g.tsv, line 2: expected document id, group"),
        ("g.tsv", "d1\tf\nd1\tf\n", "line 2: document 'd1' has the group 'f' twice"),
        ("g.tsv", "d1\tf\t-1\n", "line 1: the share of 'f' is -1.0"),
        ("g.tsv", "d1\tf\tmuch\n", "line 1: 'much' is no number"),
        ("g.tsv", "", "holds no documents"),
        ("g(1).tsv", "d1\tf\n", r"'g\(1\)' cannot be the name of an attribute"),
        ("g.jsonl", '{"id": "d1"}\n', "an id and no group"),
        ("g.jsonl", '{"id": "d1", "a": "x"}\n{"id": "d2", "b": "x"}\n', "line 2: the key 'b'"),
        (
            "g.jsonl",
            '{"id": "d1", "a": "x"}\n{"id": "d1", "a": "x"}\n',
            "line 2: document 'd1' stands",
        ),
        ("g.jsonl", '{"id": "d1", "a": {"x": "1"}}\n', "line 1: expected a number as the share"),
        ("g.jsonl", '{"id": 1, "a": "x"}\n', "line 1: expected a document id as a text"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        GroupSource(str(tmp_path / name)).groups(EMPTY, ["d1"])


def test_fields_of_a_folder_in_beirs_layout(tmp_path):
    corpus = [
        {"_id": "d1", "title": "", "text": "one", "metadata": {"region": "asia"}},
        {"_id": "d2", "title": "", "text": "two", "metadata": {"region": ["asia", "europe"]}},
        {"_id": "d3", "title": "", "text": "three", "language": "de"},
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(r) + "\n" for r in corpus))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "number"}\n')
    collection = load_beir(tmp_path, "test")
    assert shares("field:region", ["d1", "d2", "d3"], collection) == {
        "region": {"names": ("asia", "europe"), "d1": [1, 0], "d2": [0.5, 0.5], "d3": [0, 0]}
    }
    assert collection.field_values("language", ["d1", "d3"]) == {"d3": "de"}
    with pytest.raises(ValueError, match="no field 'text'; fields there: language, region"):
        collection.field_values("text", ["d1"])


def test_the_groups_that_a_collection_knows_are_its_field_group_also_in_a_union():
    first = load_inline("first", {"q": "x"}, {"d1": "x", "d2": "y"}, groups={"d1": "a"})
    second = load_inline("second", {"q": "x"}, {"d1": "x"}, groups={"d1": "b"})
    union = load_union({"one": first, "two": second})
    assert first.field_values("group", ["d1", "d2"]) == {"d1": "a"}
    assert union.field_values("group", ["one/d1", "two/d1"]) == {"one/d1": "a", "two/d1": "b"}
    with pytest.raises(ValueError, match="first has no field 'region'; fields there: group"):
        union.field_values("region", ["one/d1"])


def test_fields_of_the_collections_of_trec_fair_ranking(monkeypatch):
    from backpack_rank.data.sources.irds import IrDatasetsStore

    # The texts are 10 GB to download; the documents' type is the library's own.
    document_type = ir_datasets.load("trec-fair/2022").docs_cls()
    values = dict.fromkeys(document_type._fields)
    document = document_type(
        **values
        | {"doc_id": "d1", "gender": ["female"], "source_subcont_regions": {"Asia": 3, "UNK": 1}}
    )

    class Documents:
        def get_many(self, doc_ids):
            return {doc_id: document for doc_id in doc_ids if doc_id == "d1"}

    store = IrDatasetsStore("trec-fair/2022")
    monkeypatch.setattr(store, "_store", Documents)
    collection = Collection("2022", MemoryStore({}), {}, {}, fields=store.field_values)
    assert shares("field:gender", ["d1", "d2"], collection) == {
        "gender": {"names": ("female",), "d1": [1], "d2": [0]}
    }
    shares_by_document = shares("field:source_subcont_regions", ["d1"], collection)
    assert shares_by_document["source_subcont_regions"] == {
        "names": ("Asia", "UNK"),
        "d1": [0.75, 0.25],
    }
    with pytest.raises(ValueError, match=r"no field 'sex'; fields there:.* gender, occupations"):
        collection.field_values("sex", ["d1"])


def test_a_measure_without_an_attribute_is_taken_of_each(tmp_path):
    for name in ("gender", "region"):
        (tmp_path / f"{name}.tsv").write_text("d1\ta\n")
    bias = FairnessMeasures(
        groups=[str(tmp_path / "gender.tsv"), str(tmp_path / "region.tsv"), "words"],
        families=["RaB"],
        kinds=["tf"],
        cutoffs=[5],
        extra=["NDKL@9", "EE-L(gender x region)@9"],
    )
    assert list(bias.measures) == [
        "RaB(tf)@5",
        "NDKL(gender)@9",
        "NDKL(region)@9",
        "NDKL(words)@9",
        "EE-L(gender x region)@9",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": "nowhere.tsv"}, "bias.groups: there is no file nowhere.tsv"),
        ({"groups": ["words", "words"]}, "words and words both have groups of 'words'"),
        ({"extra": ["AWRF_JS(age)@5"]}, "bias.groups has no attribute 'age'; choose from words"),
        ({"target": "fair"}, "bias.target=fair.*uniform, relevant"),
    ],
)
def test_wrong_groups_and_targets_are_refused_at_once(options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        FairnessMeasures(**options)


def test_a_group_that_no_document_belongs_to_may_have_a_share_of_the_target():
    bias = FairnessMeasures(groups="field:group", target={"a": 1, "b": 1}, extra=["AWRF_JS@5"])
    collection = load_inline("c", {"q": "x"}, {"d1": "x"}, groups={"d1": "a"})
    magnitudes = bias.magnitudes(["d1"], collection.documents)
    groups = bias.document_groups(["d1"], collection, magnitudes)
    assert groups["group"].names == ("a", "b")
    context = bias.context(magnitudes, groups=groups)
    values = context.measure({"q": {"d1": 1.0}}, bias.group_measures)
    assert values.values["AWRF_JS@5"]["q"] < 1


def test_each_attribute_has_a_target_of_its_own_and_uniform_where_none_is_given(tmp_path):
    (tmp_path / "gender.tsv").write_text("d1\tfemale\nd2\tmale\n")
    (tmp_path / "region.tsv").write_text("d1\tasia\nd2\teurope\n")
    bias = FairnessMeasures(
        groups=[str(tmp_path / "gender.tsv"), str(tmp_path / "region.tsv")],
        target={"region": {"asia": 3, "europe": 1}},
        extra=["AWRF_JS(gender)@1", "AWRF_JS(region)@1"],
    )
    collection = load_inline("c", {"q": "x"}, {"d1": "x", "d2": "x"})
    magnitudes = bias.magnitudes(["d1", "d2"], collection.documents)
    groups = bias.document_groups(["d1", "d2"], collection, magnitudes)
    context = bias.context(magnitudes, groups=groups)
    values = context.measure({"q": {"d1": 1.0}}, bias.group_measures).values
    # All attention goes to the first group of both.
    for attribute, target in (("gender", [0.5, 0.5]), ("region", [0.75, 0.25])):
        expected = 1 - scipy.spatial.distance.jensenshannon([1, 0], target) ** 2
        assert values[f"AWRF_JS({attribute})@1"]["q"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sign", "value"), [(None, 1), ("male_minus_female", 1), ("female_minus_male", -1)]
)
def test_the_sign_that_is_chosen_is_that_of_the_values(sign, value):
    bias = FairnessMeasures(families=["RaB"], kinds=["bool"], cutoffs=[1], sign=sign)
    magnitudes = bias.magnitudes(["d"], MemoryStore({"d": "he paints"}))
    assert bias.measure({"q": {"d": 1.0}}, magnitudes).values["RaB(bool)@1"]["q"] == value


def test_amounts_of_groups_are_checked():
    with pytest.raises(ValueError, match="document 'd': -1 is no share of 'a'"):
        DocumentGroups.of({"d": {"a": -1}})
    with pytest.raises(ValueError, match="unknown group 'b'; there are: a"):
        DocumentGroups.of({"d": "b"}, ["a"])
