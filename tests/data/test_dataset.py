"""A dataset loads its splits once, rotates those that it should, and searches the passages as they
are.
"""

from pathlib import Path

import pytest

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import Bm25, GivenCandidates
from backpack_rank.data.rotation import Rotation
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.sources.inline import load_inline
from backpack_rank.data.sources.irds import load_irds
from backpack_rank.data.sources.trec import load_trec

DOCUMENTS = {"a": "red fox jumps high", "b": "the grey goose sleeps", "c": "red goose in the rain"}
QUERIES = {"1": "red goose", "2": "fox"}


def collection(name="animals", candidates=None):
    return Collection(name, MemoryStore(DOCUMENTS), QUERIES, {"1": {"c": 1}}, candidates)


def dataset(**options):
    """A dataset of all four splits, and the list of those that were loaded."""
    loaded = []

    def loader(split):
        def load():
            loaded.append(split)
            return collection(f"animals/{split}")

        return load

    splits = {split: loader(split) for split in ("train", "dev", "test", "bias")}
    stage = Bm25(depth=2, cache=False, stemmer=None, stopwords=False)
    return Dataset("animals", splits, {"": lambda: stage}, **options), loaded


def test_a_split_is_loaded_when_it_is_asked_for_and_once():
    zoo, loaded = dataset()
    assert loaded == []
    assert zoo.split("dev") is zoo.split("dev")
    assert zoo.with_rotation("both").split("dev").queries == QUERIES
    assert loaded == ["dev"]
    assert zoo.has("bias")
    assert not zoo.has("validation")


@pytest.mark.parametrize(
    ("rotated", "splits"),
    [
        ("none", []),
        ("train", ["train", "dev"]),
        ("test", ["test", "bias"]),
        ("both", ["train", "dev", "test", "bias"]),
    ],
)
def test_rotated_says_which_splits_have_their_passages_rotated(rotated, splits):
    zoo, _ = dataset(rotated=rotated, rotation=Rotation(seed=1))
    texts = {split: dict(zoo.split(split).documents) for split in ("train", "dev", "test", "bias")}
    rotated_texts = {
        key: Rotation(seed=1).rotate(key, text).text for key, text in DOCUMENTS.items()
    }
    assert rotated_texts != DOCUMENTS
    assert {split: text == rotated_texts for split, text in texts.items()} == {
        split: split in splits for split in texts
    }
    assert {split: text == DOCUMENTS for split, text in texts.items()} == {
        s: s not in splits for s in texts
    }


def test_a_first_stage_reads_the_passages_as_they_are_and_each_split_may_have_its_own():
    class Recorder:
        name = "recorder"

        def candidates(self, given):
            seen.append(dict(given.documents))
            return {query_id: {} for query_id in given.queries}

    seen = []
    zoo, _ = dataset(rotated="both", rotation=Rotation(seed=1))
    zoo.first_stages["dev"] = Recorder
    assert zoo.candidates("dev") == ("recorder", {"1": {}, "2": {}})
    assert seen == [DOCUMENTS]
    name, run = zoo.candidates("test")
    assert (name, list(run["1"]), list(run["2"])) == ("BM25", ["c", "a"], ["a"])
    assert zoo.candidates("test", zoo.split("test").select_queries(["2"]))[1] == {"2": run["2"]}


def test_one_collection_is_a_dataset_with_its_own_candidates_or_bm25():
    given = collection(candidates={"1": {"b": 1.0, "a": 2.0}})
    assert Dataset.of(given).candidates("test") == (
        "first stage",
        {"1": {"a": 2.0, "b": 1.0}, "2": {}},
    )
    assert Dataset.of(collection()).candidates("test")[0] == "BM25"
    chosen = Dataset.of(collection(), GivenCandidates(name="mine"), name="zoo", measures=("RR",))
    assert (chosen.name, chosen.measures) == ("zoo", ("RR",))
    assert chosen.first_stage("test").name == "mine"


def test_what_a_dataset_lacks_is_named():
    zoo = Dataset("zoo", {"test": collection}, rotation=Rotation())
    message = r"data=zoo has no dev split \(it has test\); set data\.dev in conf/data"
    with pytest.raises(ValueError, match=message):
        zoo.split("dev")
    message = r"data=zoo has no first stage for its test split; set data\.first_stage"
    with pytest.raises(ValueError, match=message):
        zoo.candidates("test")
    with pytest.raises(ValueError, match=r"data\.rotation=all: use one of none, train, test, both"):
        zoo.with_rotation("all")


def test_a_collection_is_the_same_from_a_folder_from_files_and_from_texts(tmp_path: Path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "title": "T", "text": "a b"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a"}\n')
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    beir = load_beir(tmp_path, "dev", title=False)
    files = [tmp_path / name for name in ("corpus.jsonl", "queries.jsonl", "qrels/dev.tsv")]
    trec = load_trec("files", *files)
    texts = load_inline("texts", {"q": "a"}, {"d": "T a b"}, {"q": {"d": 1}})
    assert (beir.name, trec.name, texts.name) == (f"{tmp_path.name}/dev", "files", "texts")
    assert beir.qrels == trec.qrels == texts.qrels == {"q": {"d": 1}}
    assert dict(beir.documents) == {"d": "a b"}
    assert dict(trec.documents) == dict(texts.documents) == {"d": "T a b"}
    with pytest.raises(ValueError, match="ir_datasets knows no dataset 'beir/nfcorpsu'"):
        load_irds("beir/nfcorpsu")
