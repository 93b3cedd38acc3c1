"""Shards: cut from a run, scored one by one, merged. Nothing is scored twice, damaged scores do not
count.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from saved_rankers import FIXTURES

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.trec import read_run, run_rows, write_run
from backpack_rank.models.loading import load_ranker
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.scale import shard_plan
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.scale.shard_plan import Candidates, Plan, Sharding, make_plan
from backpack_rank.scale.shards import (
    merge,
    open_shards,
    ranges,
    read_shard,
    score_shard,
    scores_path,
)
from backpack_rank.senses.policies import PairedTokens, Policy
from backpack_rank.senses.views import View

ALPHAS = (1.0, 0.5, 0.0)
SENSES_ALONE = PairedTokens.of(Attribute.named("gender"), scope="senses")
LABELS = ("alpha-1", "alpha-0.5", "alpha-0")


class WithoutShe(Policy):
    """alpha times the pair's score and 1 - alpha times that of the text without "she"."""

    name = "without she"

    def views(self, context, alpha):
        return View(coefficient=alpha), View(
            rewrite=lambda q, d: (q, d.replace("she ", "")), coefficient=1 - alpha
        )


class Counting(PairTokenizer):
    """Counts the characters that it is asked to encode."""

    characters = 0

    def encode(self, texts):
        Counting.characters += sum(map(len, texts))
        return super().encode(texts)


@pytest.fixture(scope="module")
def collection(sentences) -> Collection:
    """Twelve queries; documents of one to twelve sentences, one of them empty."""
    documents = {f"d{n:02d}": " ".join(sentences[(n + k) % 8] for k in range(n)) for n in range(13)}
    queries = {f"q{n:02d}": sentences[n % 8].split()[-2] + " doctor" for n in range(12)}
    return Collection("grown", MemoryStore(documents), queries, {})


@pytest.fixture(scope="module")
def run(collection: Collection) -> dict[str, dict[str, float]]:
    """Query n has n + 1 documents."""
    doc_ids = [doc_id for doc_id, _ in collection.documents]
    return {
        query_id: {doc_id: float(-place) for place, doc_id in enumerate(doc_ids[: number + 1])}
        for number, query_id in enumerate(collection.queries)
    }


@pytest.fixture(scope="module")
def sweep(make_backpack, pair_tokenizer) -> AlphaSweep:
    return AlphaSweep(
        PointwiseReranker(Scorer(make_backpack(), pair_tokenizer)), ALPHAS, "lowest_senses"
    )


def candidates(run: dict[str, dict[str, float]], digest: str = "one") -> Candidates:
    return Candidates(
        "my.trec", lambda: ((q, d) for q, documents in run.items() for d in documents), digest
    )


@pytest.fixture
def planned(tmp_path: Path, run, collection, sweep) -> Callable[..., Plan]:
    """A function that plans in a folder; arguments of :func:`make_plan` may be others."""

    def plan(
        folder: str = "one",
        run=run,
        collection=collection,
        sweep=sweep,
        digest: str = "one",
        shards: int = 5,
        rows: list[tuple[str, str]] | None = None,
    ) -> Plan:
        given = (
            candidates(run, digest)
            if rows is None
            else Candidates("my.trec", lambda: iter(rows), digest)
        )
        return make_plan(
            tmp_path / folder,
            given,
            collection,
            sweep.scorer.pair_tokenizer,
            sweep.fingerprint(collection),
            LABELS,
            sharding=Sharding(shards=shards),
        )

    return plan


def scored(plan: Plan, sweep: AlphaSweep, collection: Collection) -> list[int]:
    """Numbers of the shards that are scored now."""
    return [number for number in range(len(plan)) if score_shard(plan, number, sweep, collection)]


@pytest.mark.parametrize(
    "label", ["../..", "..", ".", "", "/any/path", "a/b", "a b", "a=b", 3, None, "alpha-1"]
)
def test_a_plan_names_no_folder_but_by_the_label_of_a_run(planned, label: object) -> None:
    plan = planned()
    file = plan.folder / "plan" / "plan.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "labels": ["alpha-1", label]}))
    with pytest.raises(
        ValueError, match=r"plan\.json: .*(is no label of a run|the same label): plan again"
    ):
        Plan.read(plan.folder)


# scores


@pytest.mark.parametrize(
    "policy", ["lowest_senses", "paired_tokens", SENSES_ALONE, "renditions", WithoutShe()]
)
def test_merged_runs_are_those_of_the_ranker_at_each_alpha(
    policy, planned, run, collection, make_backpack, pair_tokenizer, tmp_path: Path
) -> None:
    reranker = PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))
    sweep = AlphaSweep(reranker, ALPHAS, policy)
    plan = planned(sweep=sweep)
    assert scored(plan, sweep, collection) == [0, 1, 2, 3, 4]
    paths = merge(plan)
    assert [path.relative_to(plan.folder).as_posix() for path in paths] == [
        f"runs/{label}/run.txt" for label in LABELS
    ]
    for alpha, path in zip(ALPHAS, paths, strict=True):
        expected, merged = (
            reranker.with_policy(policy, alpha).rerank(run, collection),
            read_run(path),
        )
        assert {q: set(d) for q, d in merged.items()} == {q: set(d) for q, d in expected.items()}
        for query_id, documents in expected.items():
            merged_scores = [merged[query_id][doc_id] for doc_id in documents]
            assert merged_scores == pytest.approx(list(documents.values()), abs=1e-5)


def test_a_merged_file_is_what_the_writer_of_runs_writes(
    planned, sweep, collection, tmp_path: Path
) -> None:
    plan = planned()
    scored(plan, sweep, collection)
    expected_run: dict[str, dict[str, float]] = {}
    for number in range(len(plan)):
        for (query_id, doc_id), score in zip(
            plan.pairs(number), read_shard(plan, number).scores[:, 1], strict=True
        ):
            expected_run.setdefault(query_id, {})[doc_id] = float(score)
    write_run(tmp_path / "whole.txt", expected_run, LABELS[1])
    assert merge(plan)[1].read_bytes() == (tmp_path / "whole.txt").read_bytes()


def test_a_ranker_without_senses_has_one_column(
    make_gpt2, pair_tokenizer, planned, collection, run, tmp_path: Path
) -> None:
    reranker = PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer))
    sweep = AlphaSweep(reranker, [1.0])
    assert (sweep.labels, sweep.policy) == (("alpha=1",), "")
    scores = sweep.scores(pairs := Pairs.from_run(run, collection))
    assert scores[:, 0] == pytest.approx(reranker.scorer.scores(pairs), abs=1e-5)
    assert sweep.scores(Pairs(collection, (), ())).shape == (0, 1)


def test_scores_do_not_depend_on_the_order_of_lines_nor_on_who_scores(
    planned, run, sweep, collection
) -> None:
    other = {query_id: dict(reversed(run[query_id].items())) for query_id in reversed(run)}
    plans = planned("one"), planned("two", other)
    assert plans[0].shards == plans[1].shards
    scored(plans[0], sweep, collection)
    for number in (4, 2, 0, 3, 1):
        score_shard(plans[1], number, sweep, collection)
    for first, second in zip(*map(merge, plans), strict=True):
        assert first.read_bytes() == second.read_bytes()


# plans


def test_shards_hold_whole_queries_and_about_equally_many_tokens(planned, collection) -> None:
    lengths = np.random.default_rng(0).integers(0, 13, 300)
    queries = {f"q{number:03d}": "doctor" for number in range(300)}
    # Two documents each, and later queries have longer ones.
    run = {
        q: {"d01": 1.0, f"d{length:02d}": 0.0}
        for q, length in zip(queries, sorted(lengths), strict=True)
    }
    plan = planned(run=run, collection=replace(collection, queries=queries), shards=10)
    pairs = [list(plan.pairs(number)) for number in range(10)]
    expected_pairs = []
    for query_id, documents in run.items():
        expected_pairs += [(query_id, doc_id) for doc_id in documents]
    assert sorted(itertools.chain.from_iterable(pairs)) == sorted(expected_pairs)
    queries_in_shards = 0
    for pairs_of_shard in pairs:
        queries_in_shards += len({query_id for query_id, _ in pairs_of_shard})
    assert queries_in_shards == sum(len(documents) > 0 for documents in run.values())
    assert [len(pairs_of_shard) for pairs_of_shard in pairs] == [
        shard.pairs for shard in plan.shards
    ]
    tokens = [shard.tokens for shard in plan.shards]
    assert max(tokens) < 1.1 * min(tokens)
    assert len(pairs[0]) > 1.5 * len(pairs[-1]), "not balanced by pairs"


def test_neighbouring_queries_go_where_their_middle_falls() -> None:
    tokens = {"a": 10.0, "b": 10.0, "c": 60.0, "d": 20.0}  # middles 5, 15, 50, 90 of 100
    assert shard_plan._balanced(tokens, 2) == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert shard_plan._balanced(tokens, 4) == {
        "a": 0,
        "b": 0,
        "c": 1,
        "d": 2,
    }  # 0, 0, 2, 3 of 4: one is empty
    assert shard_plan._balanced(tokens, 1) == dict.fromkeys(tokens, 0)


@pytest.mark.parametrize(
    ("cut", "pairs", "number"),
    [(Sharding(), 45_001, 5), (Sharding(shards=7), 10, 7), (Sharding(pairs_per_shard=50), 101, 3)],
)
def test_how_many_shards_there_are(cut: Sharding, pairs: int, number: int) -> None:
    assert cut.number(pairs, queries=1) == number


@pytest.mark.parametrize(
    "options", [{"shards": 0}, {"pairs_per_shard": 2.5}, {"shards": 2, "pairs_per_shard": 3}]
)
def test_a_wrong_number_of_shards_is_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=r"shards=|pairs_per_shard="):
        Sharding(**options)


def test_a_small_run_gets_a_shard_for_each_query_by_itself(
    tmp_path: Path, run, collection, sweep
) -> None:
    tokenizer, fingerprint = sweep.scorer.pair_tokenizer, sweep.fingerprint(collection)
    assert len(make_plan(tmp_path, candidates(run), collection, tokenizer, fingerprint, LABELS)) > 8


def test_what_nobody_reads_of_a_long_document_is_not_tokenised_for_a_plan(
    tmp_path: Path, tokenizer
) -> None:
    documents = {f"d{number:02d}": "the nurse " * 10 for number in range(12)} | {
        "d12": "the nurse " * 300_000
    }
    long = Collection("long", MemoryStore(documents), {"q11": "doctor"}, {})
    counting = Counting(tokenizer, max_length=16)
    make_plan(
        tmp_path, candidates({"q11": dict.fromkeys(documents, 1.0)}), long, counting, {}, LABELS
    )
    assert Counting.characters < 10_000


def test_rows_that_come_in_any_order_are_gathered_in_small_parts(planned, run, monkeypatch) -> None:
    in_one_part = planned("one")
    monkeypatch.setattr(shard_plan, "_ROWS", 5)
    rows = [(q, d) for q, documents in run.items() for d in documents]
    mixed = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    plan = planned("two", rows=mixed)
    assert [shard.digest for shard in plan.shards] == [shard.digest for shard in in_one_part.shards]


def test_a_plan_is_made_once(planned) -> None:
    plan = planned()
    before = (plan.folder / "plan" / "plan.json").stat().st_mtime_ns
    assert planned(shards=5) == plan
    assert (plan.folder / "plan" / "plan.json").stat().st_mtime_ns == before
    assert planned(shards=9) == plan


def test_what_a_killed_planner_left_goes(planned, tmp_path: Path) -> None:
    (tmp_path / "one" / ".plan.xyz" / "plan").mkdir(parents=True)
    (tmp_path / "one" / "notes.txt").write_text("my own")
    for _ in range(2):  # killed while it planned, and right after the plan had its name
        planned()
        assert {path.name for path in (tmp_path / "one").iterdir()} == {
            "plan",
            "locks",
            "notes.txt",
        }
        (tmp_path / "one" / ".plan.xyz").mkdir()


@pytest.mark.slow
def test_the_plan_of_another_re_ranking_is_refused_and_the_difference_is_named(
    planned, run, collection, sweep, make_backpack, pair_tokenizer
) -> None:
    planned()
    reranker = PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))

    def refused(message: str, **options) -> None:
        with pytest.raises(
            ValueError,
            match=rf"(?=holds the plan of another re-ranking; it differs in ).*{message}",
        ):
            planned(**options)

    other = PointwiseReranker(Scorer(make_backpack(seed=1), pair_tokenizer))
    refused("weights", sweep=AlphaSweep(other, ALPHAS, "lowest_senses"))
    refused(
        r"alpha \(\[1.0, 0.5, 0.0\] was planned, now",
        sweep=AlphaSweep(reranker, [1.0, 0.4, 0.0], "lowest_senses"),
    )
    refused(
        # The digest of what the policy does differs as well, and is left out.
        r"re-ranking; it differs in alpha \([^()]*\)\. Give the options",
        sweep=AlphaSweep(reranker, [1.0, 0.4, 0.0], "lowest_senses"),
    )
    refused("policy", sweep=AlphaSweep(reranker, ALPHAS, "uniform"))
    shorter = PointwiseReranker(Scorer(make_backpack(), replace(pair_tokenizer, max_length=40)))
    refused("tokenizer", sweep=AlphaSweep(shorter, ALPHAS, "lowest_senses"))
    half = PointwiseReranker(
        Scorer(make_backpack(), pair_tokenizer, ScoringSettings(dtype="bfloat16"))
    )
    refused(
        r"number format \(float32 on cpu was planned, now it is bfloat16 on cpu\)",
        sweep=AlphaSweep(half, ALPHAS, "lowest_senses"),
    )
    small = PointwiseReranker(
        Scorer(make_backpack(), pair_tokenizer, ScoringSettings(tokens_per_batch=100))
    )
    refused("tokens per batch", sweep=AlphaSweep(small, ALPHAS, "lowest_senses"))
    changed = dict(collection.documents) | {"d03": "another text"}
    refused("documents", collection=replace(collection, documents=MemoryStore(changed)))
    refused(
        "queries",
        collection=replace(collection, queries=collection.queries | {"q03": "another doctor"}),
    )
    refused("candidates", digest="two")


@pytest.mark.parametrize("name", ["backpack", "knrm", "cross_encoder"])
def test_a_ranker_may_be_moved(name: str, collection, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "elsewhere")
    before, moved = (
        AlphaSweep(PointwiseReranker(Scorer(*load_ranker(folder))), [1.0]).fingerprint(collection)
        for folder in (FIXTURES / name, tmp_path / "elsewhere")
    )
    assert before == moved


def test_alphas_are_given_once_and_at_all(sweep, make_backpack, pair_tokenizer) -> None:
    reranker = PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))
    with pytest.raises(ValueError, match=r"alpha=0\.5 is given twice"):
        AlphaSweep(reranker, [1, 0.5, 0.5], "uniform")
    with pytest.raises(ValueError, match=r"alpha=\[\] names no position"):
        AlphaSweep(reranker, [])


def test_mistakes_in_the_run_are_named_and_leave_nothing(
    planned, run, collection, tmp_path: Path
) -> None:
    def refused(message: str, **options) -> None:
        with pytest.raises(ValueError, match=message):
            planned("bad", **options)
        assert {path.name for path in (tmp_path / "bad").iterdir()} <= {"locks"}

    refused(r"my\.trec: none of its 1 queries is in grown", run={"x": {"d01": 1.0}})
    refused(
        r"my\.trec: 1 document ids are not in the collection: 'gone' grown",
        run={**run, "q00": {"gone": 1.0}},
    )
    refused(
        "query q05 of grown: the query is empty",
        collection=replace(collection, queries=collection.queries | {"q05": ""}),
    )
    twice = [("q00", "d01"), ("q01", "d01"), ("q00", "d01")]
    refused(r"my\.trec: document 'd01' stands twice in the list of query 'q00'", rows=twice)


def test_queries_of_other_sets_are_left_out(planned, run, caplog: pytest.LogCaptureFixture) -> None:
    plan = planned(run={**run, "x": {"d01": 1.0}, "y": {"d01": 1.0}})
    assert "2 queries" in caplog.text
    assert sum(shard.queries for shard in plan.shards) == len(run)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "shards": [{"pairs": 3}]}']
)
def test_a_damaged_plan_is_named(planned, text: str) -> None:
    path = planned().folder / "plan" / "plan.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"plan\.json is damaged"):
        Plan.read(path.parent.parent)


def test_plans_of_other_versions_and_folders_without_one_are_refused(
    planned, tmp_path: Path
) -> None:
    path = planned().folder / "plan" / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))
    with pytest.raises(ValueError, match="is of format 1, this version of backpack-rank reads 2"):
        Plan.read(tmp_path / "one")
    with pytest.raises(FileNotFoundError, match="nothing is planned there; begin with action=plan"):
        Plan.read(tmp_path)


@pytest.mark.parametrize("change", ["last", "first", "twice", "pairs"])
def test_a_plan_with_other_shards_gives_no_runs(planned, change: str) -> None:
    path = planned().folder / "plan" / "plan.json"
    content = json.loads(path.read_text())
    shards = content["shards"]
    if change == "last":
        shards.pop()
    elif change == "first":
        shards.pop(0)
    elif change == "twice":
        shards.append(shards[0])
    else:
        shards[0]["pairs"] += 1
    path.write_text(json.dumps(content, indent=1))
    with pytest.raises(ValueError, match=r"plan\.json is damaged: its list of shards"):
        Plan.read(path.parent.parent)


def test_damaged_pairs_are_not_scored(planned, sweep, collection) -> None:
    plan = planned()
    path = plan.folder / "plan" / "00003.tsv"
    path.write_bytes(path.read_bytes().replace(b"d01", b"d02", 1))
    with pytest.raises(ValueError, match=r"00003\.tsv is damaged"):
        score_shard(plan, 3, sweep, collection)


# files of scores


def times(plan: Plan) -> list[int]:
    return [scores_path(plan, number).stat().st_mtime_ns for number in range(len(plan))]


def test_what_is_scored_is_not_scored_again(planned, sweep, collection) -> None:
    plan = planned()
    assert open_shards(plan) == [0, 1, 2, 3, 4]
    done: list[int] = []
    assert score_shard(plan, 2, sweep, collection, done.append)
    assert done == [plan.shards[2].pairs]
    assert scored(plan, sweep, collection) == [0, 1, 3, 4]
    before = times(plan)
    assert scored(plan, sweep, collection) == []
    assert times(plan) == before
    shard = read_shard(plan, 0)
    assert shard.scores.shape == (plan.shards[0].pairs, 3)
    assert shard.seconds > 0


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def last_byte(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def header(data: bytes) -> bytes:
    return data.replace(b'"checksum":"', b'"checksum":"0', 1)


DAMAGES = [
    cut_short,
    last_byte,
    header,
    lambda data: b"",
    lambda data: bytes(len(data)),
    lambda data: data + b"x",
]


@pytest.mark.parametrize(
    "damage", DAMAGES, ids=["cut", "bit", "header", "empty", "zeros", "longer"]
)
def test_damaged_scores_do_not_count_and_come_back_the_same(
    planned, sweep, collection, damage, caplog
) -> None:
    plan = planned()
    scored(plan, sweep, collection)
    runs = [path.read_bytes() for path in merge(plan)]
    path = scores_path(plan, 3)
    path.write_bytes(damage(path.read_bytes()))
    before = times(plan)
    with pytest.raises(
        ValueError, match=r"1 of 5 shards have no scores yet: 3\. Score them with action=score"
    ):
        merge(plan)
    assert scored(plan, sweep, collection) == [3]
    assert f"{path} is damaged: its {plan.shards[3].pairs} pairs are scored again" in caplog.text
    assert [
        number
        for number, (earlier, later) in enumerate(zip(before, times(plan), strict=True))
        if earlier != later
    ] == [3]
    assert [path.read_bytes() for path in merge(plan)] == runs


def test_scores_of_another_shard_or_plan_do_not_count(planned, sweep, collection) -> None:
    plan, other = planned("one"), planned("two", digest="two")
    scored(plan, sweep, collection)
    shutil.copy(scores_path(plan, 1), scores_path(plan, 2))
    assert open_shards(plan) == [2]
    shutil.copytree(plan.folder / "scores", other.folder / "scores")
    assert open_shards(other) == [0, 1, 2, 3, 4]


def test_a_shard_that_another_process_holds_is_left_alone(planned, sweep, collection) -> None:
    plan = planned()
    with FileLock(plan.folder / "locks" / "00001.lock"):
        assert scored(plan, sweep, collection) == [0, 2, 3, 4]
    assert scored(plan, sweep, collection) == [1]


def test_what_killed_workers_left_goes_with_the_shard(planned, sweep, collection) -> None:
    plan = planned()
    left = plan.folder / "scores" / ".00001.safetensors.abc"
    left.mkdir(parents=True)
    scored(plan, sweep, collection)
    assert {path.name for path in left.parent.iterdir()} == {
        f"{number:05d}.safetensors" for number in range(5)
    }
    merge(plan)
    assert {path.name for path in plan.folder.iterdir()} == {"plan", "scores", "runs", "locks"}


def test_scores_that_are_not_finite_are_no_scores(
    planned, collection, make_backpack, pair_tokenizer
) -> None:
    ranker = make_backpack()
    with torch.no_grad():
        ranker.backpack.get_input_embeddings().weight[:] = torch.nan
    plan = planned()
    sweep = AlphaSweep(PointwiseReranker(Scorer(ranker, pair_tokenizer)), [1.0])
    with pytest.raises(
        ValueError, match="scores are not finite, the first for query q00 and document d00"
    ):
        score_shard(plan, 0, sweep, collection)
    assert open_shards(plan) == [0, 1, 2, 3, 4]


def test_a_shard_that_is_not_there_is_refused(planned, sweep, collection) -> None:
    with pytest.raises(ValueError, match=r"shard=5: .* has 5 shards, 0 to 4"):
        score_shard(planned(), 5, sweep, collection)


def test_numbers_are_named_in_ranges() -> None:
    assert ranges([3, 7, 8, 9, 12]) == "3, 7-9, 12"
    assert ranges([]) == ""


def test_rows_of_a_run_come_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.trec").write_text("q1 Q0 d1 1 2.5 me\n\nq2 Q0 d9 1 -1e3 me\n")
    assert list(run_rows(tmp_path / "a.trec")) == [
        (1, "q1", "d1", "1", 2.5),
        (3, "q2", "d9", "1", -1000.0),
    ]
