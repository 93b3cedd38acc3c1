"""First stages: BM25 against the formula, its index on disk, run files and given candidates."""

import inspect
import math
import random
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import Stemmer
from omegaconf import OmegaConf

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.first_stage import Bm25, GivenCandidates, RunFile
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.files import resource_folder

AS_THEY_ARE = {"stemmer": None, "stopwords": False}
VOCABULARY = [
    "a",
    "nurse",
    "nurses",
    "nursing",
    "engine",
    "engines",
    "the",
    "of",
    "vitamin",
    "d",
    "salary",
    "x1",
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make(texts: dict[str, str], queries: dict[str, str], **rest) -> Collection:
    return Collection("tiny", MemoryStore(texts), queries, {}, **rest)


def random_collection(documents: int = 60, queries: int = 12) -> Collection:
    rng = random.Random(3)

    def words(least: int, most: int) -> str:
        return " ".join(rng.choices(VOCABULARY, k=rng.randrange(least, most)))

    texts = {f"d{number}": words(0, 25) for number in range(documents)}
    return make(texts, {f"q{number}": words(1, 5) for number in range(queries)})


def slow_bm25(texts, query, tokenize, k1=0.9, b=0.4):
    """Lucene's BM25 without its constant factor (k1 + 1), document by document."""
    documents = {doc_id: tokenize(text) for doc_id, text in texts.items()}
    mean = sum(map(len, documents.values())) / len(documents)
    scores = {}
    for doc_id, tokens in documents.items():
        frequency, score = Counter(tokens), 0.0
        for word in tokenize(query):
            holders = sum(word in other for other in documents.values())
            idf = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
            length = 1 - b + b * len(tokens) / mean
            score += idf * frequency[word] / (frequency[word] + k1 * length)
        if score > 0:
            scores[doc_id] = score
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))


def plain(text):
    return re.findall(r"\w+", text.lower())


def analysis(stem, left_out):
    """Splits a text into the stems of its words but for those that are left out."""
    return lambda text: [stem(word) for word in plain(text) if word not in left_out]


def check_against(run, collection, tokenize, depth=100, **options):
    for query_id, query in collection.queries.items():
        expected = slow_bm25(dict(collection.documents), query, tokenize, **options)
        assert len(run[query_id]) == min(depth, len(expected))
        best = sorted(expected.values(), reverse=True)[: len(run[query_id])]
        assert list(run[query_id].values()) == pytest.approx(best, rel=1e-5)
        for doc_id, score in run[query_id].items():
            assert score == pytest.approx(expected[doc_id], rel=1e-5)


@pytest.mark.parametrize("cached", [True, False])
def test_bm25_scores_follow_the_formula(cached):
    collection = random_collection()
    check_against(Bm25(cache=cached, **AS_THEY_ARE).candidates(collection), collection, plain)


def test_bm25_options_reach_the_formula():
    collection = random_collection()
    run = Bm25(k1=1.7, b=0.9, depth=7, **AS_THEY_ARE).candidates(collection)
    check_against(run, collection, plain, depth=7, k1=1.7, b=0.9)


def test_stemming_joins_the_forms_of_a_word():
    collection = random_collection()
    stem = Stemmer.Stemmer("english").stemWord
    run = Bm25(stemmer="english", stopwords=False).candidates(collection)
    check_against(run, collection, analysis(stem, ()))
    forms = make({"d1": "two nurses", "d2": "an engine"}, {"q": "nurse"})
    assert Bm25(stemmer=None).candidates(forms) == {"q": {}}
    assert list(Bm25(stemmer="english").candidates(forms)["q"]) == ["d1"]


def test_stop_words_neither_match_nor_lengthen():
    collection = random_collection()
    run = Bm25(stemmer=None, stopwords=True).candidates(collection)
    check_against(run, collection, analysis(str, ("a", "the", "of")))
    only_stop_words = make({"d1": "the cost of the car"}, {"q": "the of"})
    assert list(Bm25(stopwords=False).candidates(only_stop_words)["q"]) == ["d1"]
    assert Bm25(stopwords=True).candidates(only_stop_words) == {"q": {}}


# From the source of Lucene 9.11, EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
LUCENE_STOP_WORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with"""


def test_the_default_is_the_analysis_of_lucene():
    words = LUCENE_STOP_WORDS.split()
    assert len(words) == 33
    # Porter's own examples (Porter 1980), of which the second stemmer, Snowball's "english", treats
    # "ties" otherwise.
    forms = {"ponies": "poni", "ties": "ti", "relational": "relat"}
    forms |= {"hopefulness": "hope", "nurses": "nurs"}
    settings = Bm25().settings
    assert settings.tokenize([" ".join(words)]).ids == [[]]
    for form, stem in forms.items():
        assert set(settings.tokenize([form]).vocab) == {stem}
    # "my" and "he" are no stop words of Lucene's.
    assert len(settings.tokenize(["he said my name"]).ids[0]) == 4


def test_the_default_reaches_the_formula():
    collection = random_collection()
    stem = Stemmer.Stemmer("porter").stemWord
    tokenize = analysis(stem, LUCENE_STOP_WORDS.split())
    check_against(Bm25().candidates(collection), collection, tokenize)


def test_the_configuration_says_what_the_class_does_without_it():
    written = OmegaConf.load(resource_folder("conf") / "first_stage" / "bm25.yaml")
    parameters = inspect.signature(Bm25).parameters
    for name in set(written) - {"_target_"}:
        assert written[name] == parameters[name].default, name


@pytest.mark.slow
def test_the_default_has_the_published_figure_on_nfcorpus(real_data):
    collection = load_beir(real_data / "nfcorpus", "test")
    run = Bm25(cache=False).candidates(collection)
    values = effectiveness(run, collection.qrels, ["nDCG@10", "R@100"])
    # Anserini, BM25 over title and text in one field: its tokenizer keeps "patient's" and "1.5"
    # together.
    assert values.mean("nDCG@10") == pytest.approx(0.3218, abs=0.002)
    assert values.mean("R@100") == pytest.approx(0.2457, abs=0.002)


def test_one_letter_words_count():
    collection = make({"d1": "vitamin c", "d2": "vitamin d"}, {"q": "d"})
    assert list(Bm25().candidates(collection)["q"]) == ["d2"]
    assert Bm25(token_pattern=r"(?u)\b\w\w+\b").candidates(collection) == {"q": {}}


def test_equal_scores_are_ordered_by_id_also_at_the_cut():
    ids = [f"d{i}" for i in range(40)]
    random.Random(1).shuffle(ids)
    texts = dict.fromkeys(ids, "same words") | {"z": "same same"}
    run = Bm25(depth=5).candidates(make(texts, {"q": "same"}))
    assert list(run["q"]) == ["z", *sorted(ids)[:4]]


def test_depth_beyond_the_corpus_gives_what_there_is():
    run = Bm25(depth=100).candidates(make({"d1": "x y", "d2": "x"}, {"q": "x"}))
    assert list(run["q"]) == ["d2", "d1"]


def test_every_query_is_a_key_and_unknown_words_give_no_candidates():
    queries = {"q2": "zebra", "q1": "x", "q3": "?!", "q4": "zebra y"}
    run = Bm25().candidates(make({"d1": "x y"}, queries))
    assert list(run) == ["q2", "q1", "q3", "q4"]
    assert [list(scores) for scores in run.values()] == [[], ["d1"], [], ["d1"]]


@pytest.mark.parametrize("cached", [True, False])
def test_documents_without_words_are_harmless(cached):
    run = Bm25(cache=cached).candidates(make({"d1": "", "d2": "x"}, {"q": "x"}))
    assert list(run["q"]) == ["d2"]


def test_a_corpus_without_any_word_is_refused():
    with pytest.raises(ValueError, match=r"none of the 2 documents has a word"):
        Bm25().candidates(make({"d1": "", "d2": "..."}, {"q": "x"}))


def test_no_queries_give_an_empty_run_and_no_documents_an_error():
    assert Bm25().candidates(make({"d1": "x"}, {})) == {}
    with pytest.raises(ValueError, match="'tiny' has no documents"):
        Bm25().candidates(make({}, {"q": "a"}))


def test_ids_of_any_script_come_back_unchanged():
    run = Bm25().candidates(make({"d\u00e9/1": "x", "\u65e5": "x x"}, {"q": "x"}))
    assert set(run["q"]) == {"d\u00e9/1", "\u65e5"}


def test_threads_do_not_change_the_run():
    collection = random_collection(queries=40)
    assert Bm25(threads=4).candidates(collection) == Bm25(threads=1).candidates(collection)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k1": -0.1}, "BM25: k1="),
        ({"k1": math.nan}, "BM25: k1="),
        ({"b": 1.5}, "BM25: b=1.5 must lie in"),
        ({"depth": 0}, "depth=0 must be at least 1"),
        ({"depth": 2.5}, "depth=.* must be a whole number"),
        ({"threads": 0}, "threads=0 must be"),
        ({"method": "bm25l"}, "BM25: method=bm25l: use one of lucene"),
        ({"stemmer": "klingon"}, "BM25: stemmer=klingon: use one of .*english"),
        ({"stopwords": "klingon"}, "klingon"),
    ],
)
def test_bad_options_fail_when_the_stage_is_made(options, message):
    with pytest.raises(ValueError, match=message):
        Bm25(**options)


class CountingStore(MemoryStore):
    """Counts how often the corpus is read, slowly enough for jobs to meet."""

    def __init__(self, texts, fail_after=None):
        super().__init__(texts)
        self.reads = 0
        self.fail_after = fail_after
        self.lock = threading.Lock()

    def __iter__(self):
        with self.lock:
            self.reads += 1
        for index, item in enumerate(super().__iter__()):
            if index == self.fail_after:
                raise OSError("disk gone")
            time.sleep(0.002)
            yield item


def counting(fail_after=None) -> Collection:
    base = random_collection()
    return Collection("tiny", CountingStore(dict(base.documents), fail_after), base.queries, {})


def indexes(cache):
    return [path for path in cache.glob("bm25/*") if path.is_dir()]


def test_the_index_is_built_once_even_when_jobs_run_in_parallel(cache):
    collection = counting()
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: Bm25().candidates(collection), range(4)))
    assert collection.documents.reads == 1
    assert len(indexes(cache)) == 1
    assert all(run == runs[0] for run in runs)
    assert runs[0] == Bm25(cache=False).candidates(collection)


def test_other_settings_or_documents_get_another_index(cache):
    collection = random_collection()
    for stage in (Bm25(), Bm25(k1=2.0), Bm25(b=0.1), Bm25(stemmer=None), Bm25(stopwords=False)):
        stage.candidates(collection)
    Bm25(depth=3).candidates(collection)  # the depth is of the search, not of the index
    assert len(indexes(cache)) == 5
    changed = make({**dict(collection.documents), "new": "vitamin"}, collection.queries)
    check_against(Bm25(**AS_THEY_ARE).candidates(changed), changed, plain)
    assert len(indexes(cache)) == 6


def test_without_cache_nothing_is_written(cache):
    Bm25(cache=False).candidates(random_collection())
    assert not list(cache.glob("**/*"))


def test_a_build_that_breaks_off_leaves_no_index_and_the_next_one_works(cache):
    with pytest.raises(OSError, match="disk gone"):
        Bm25().candidates(counting(fail_after=30))
    assert not indexes(cache)
    collection = counting()
    check_against(Bm25(**AS_THEY_ARE).candidates(collection), random_collection(), plain)
    assert len(indexes(cache)) == 1


RUN = "q1 Q0 d2 1 3.5 x\nq1 Q0 d1 2 3.5 x\nq1 Q0 d3 3 4.5 x\nq2 Q0 d1 1 1 x\n"


@pytest.fixture
def run_path(tmp_path):
    path = tmp_path / "given.trec"
    path.write_text(RUN, encoding="utf-8")
    return path


def three(queries=("q1", "q2", "q3"), **rest) -> Collection:
    return make({"d1": "a", "d2": "b", "d3": "c"}, dict.fromkeys(queries, "a"), **rest)


def test_a_run_file_is_ordered_cut_and_covers_every_query(run_path):
    stage = RunFile(run_path, depth=2, name="SPLADE")
    assert stage.name == "SPLADE"
    run = stage.candidates(three(("q3", "q2", "q1")))
    assert list(run) == ["q3", "q2", "q1"]
    assert run == {"q3": {}, "q2": {"d1": 1.0}, "q1": {"d3": 4.5, "d1": 3.5}}
    assert list(run["q1"]) == ["d3", "d1"]


def test_a_run_with_other_queries_is_refused_unless_allowed(run_path):
    message = r"given\.trec: query 'q2' is not in collection 'tiny' .*other_queries=true"
    with pytest.raises(ValueError, match=message):
        RunFile(run_path).candidates(three(("q1",)))
    assert list(RunFile(run_path, other_queries=True).candidates(three(("q1",)))) == ["q1"]


def test_a_run_without_a_common_query_is_refused_in_any_case(run_path):
    with pytest.raises(ValueError, match=r"given\.trec: no query of the file"):
        RunFile(run_path, other_queries=True).candidates(three(("other",)))


def test_a_run_with_an_unknown_document_is_refused(run_path):
    run_path.write_text(RUN + "q2 Q0 d77 2 0.5 x\n", encoding="utf-8")
    message = r"given\.trec: 1 document ids are not in the collection: 'd77'"
    with pytest.raises(ValueError, match=message):
        RunFile(run_path).candidates(three())


def test_a_missing_run_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.trec"):
        RunFile(tmp_path / "none.trec").candidates(three())


def test_given_candidates_are_ordered_and_cut():
    given = {"q1": {"d2": 1.0, "d3": 1.0, "d1": 0.5}, "q2": {"d1": -1.0}}
    run = GivenCandidates(depth=2).candidates(three(candidates=given))
    assert [list(run[query_id]) for query_id in ("q1", "q2", "q3")] == [["d2", "d3"], ["d1"], []]
    equal = three(candidates={"q1": {"b": 1.0, "a": 1.0}})
    assert GivenCandidates(depth=1).candidates(equal)["q1"] == {"a": 1.0}


def test_given_candidates_without_any_name_the_alternatives():
    with pytest.raises(ValueError, match=r"'tiny' comes without candidates; use Bm25 or RunFile"):
        GivenCandidates().candidates(three())
