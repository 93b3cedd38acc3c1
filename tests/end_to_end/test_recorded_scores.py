"""Saved rankers of every kind give the scores that are recorded beside them
(tests/fixtures/rankers).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from listwise_example import composed

from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.token_shift import TokenClasses
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.lists.calibration import ContentFreeCalibration
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.saved import load_listwise
from backpack_rank.position.lists.settings import ListwiseSettings, RankerFactory
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.policies import PairedTokens

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "rankers"
RECORD = json.loads((FOLDER / "scores.json").read_text(encoding="utf-8"))
TEXTS, LISTS = RECORD["texts"], RECORD["lists"]
ROUNDING = {"dual_encoder": 2e-5, "tk": 2e-5, "pacrr": 5e-6}
"""Where sums of large terms cancel: the recorded scores lie 5e-6, 7e-6 and 1e-6 from those in
float64, so another
processor may give others as good. All other rankers: 1e-6."""


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """As the scores were computed: the number of threads decides in which order sums are taken."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def settings_of(options: str) -> EvaluationSettings:
    """What options of evaluate.py ask for."""
    return EvaluationSettings.of(composed(*shlex.split(options)))


def assert_close(actual: Any, expected: list, what: object = None, tolerance: float = 1e-6) -> None:
    """Equal up to ``tolerance``, relative to max(1, abs(expected)), as float32."""
    actual, expected = np.asarray(actual, dtype=np.float32), np.asarray(expected, dtype=np.float32)
    assert actual.shape == expected.shape, what
    assert (np.abs(actual - expected) <= tolerance * np.maximum(1, np.abs(expected))).all(), (
        what,
        actual,
        expected,
    )


def assert_scores(
    name: str, reranker: PointwiseReranker, expected: list[list[float]], what: object = None
) -> None:
    """The recorded scores of all texts, asked for in both ways."""
    tolerance = ROUNDING.get(name, 1e-6)
    for texts, scores in zip(TEXTS, expected, strict=True):
        query, documents = texts["query"], texts["documents"]
        assert_close(
            reranker.scorer.score(query, documents, reranker.hook.view), scores, what, tolerance
        )
        assert_close(
            reranker.predict([(query, document) for document in documents]), scores, what, tolerance
        )


@pytest.mark.parametrize("name", RECORD["rankers"])
def test_a_ranker_reads_the_same_tokens_and_gives_the_same_scores(name: str) -> None:
    recorded = RECORD["rankers"][name]
    reranker = load(FOLDER / name, device="cpu", split_attribute=False)
    assert isinstance(reranker, PointwiseReranker)
    scorer = reranker.scorer
    assert type(scorer.ranker).__name__ == recorded["class"]
    assert scorer.pair_tokenizer.max_length == recorded["max_length"]
    for texts, ids in zip(TEXTS, recorded["token_ids"], strict=True):
        assert [
            ids_of_pair.tolist()
            for ids_of_pair in scorer.pair_tokenizer.pairs(texts["query"], texts["documents"])
        ] == ids
    assert_scores(name, reranker, recorded["scores"])
    split = load(FOLDER / name, device="cpu").scorer.ranker
    assert (getattr(split.config, "attribute_senses", None) is not None) == split.has_senses


@pytest.mark.parametrize("name", RECORD["rankers"])
def test_a_ranker_gives_the_same_scores_under_every_policy_at_every_alpha(name: str) -> None:
    scorer = Scorer(*load_ranker(FOLDER / name))
    entries = RECORD["rankers"][name]["policies"]
    assert entries
    by_attribute: dict[str, PointwiseReranker] = {}
    for entry in entries:
        settings = settings_of(entry["overrides"])
        policy = settings.policy
        assert policy.name == entry["name"]
        attribute = settings.attribute
        plain = by_attribute.setdefault(
            attribute.name, PointwiseReranker(scorer, attribute=attribute)
        )
        assert (plain.sensitivity is None) == (entry["sensitivity"] is None)
        if plain.sensitivity is not None:
            assert_close(plain.sensitivity.values, entry["sensitivity"], entry["overrides"])
        if isinstance(policy, PairedTokens):
            members = TokenClasses.of(scorer.pair_tokenizer.tokenizer, policy.words()).members
            assert [list(ids) for ids in members] == entry["moved_classes"], entry["overrides"]
        for at in entry["alphas"]:
            reranker = plain.with_policy(policy, at["alpha"])
            weights, what = reranker.hook.view.sense_weights, (entry["overrides"], at["alpha"])
            assert (weights is None) == (at["weights"] is None), what
            if weights is not None:
                assert_close(weights, at["weights"], what, ROUNDING.get(name, 1e-6))
            assert_scores(name, reranker, at["scores"], what)


def ids_of(count: int) -> tuple[str, ...]:
    return tuple(f"d{number}" for number in range(count))


def nonzero(usage: Any) -> dict[str, float]:
    return {name: count for name, count in usage.as_dict().items() if count}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORD["listwise"])
def test_a_listwise_ranker_gives_the_same_order_with_every_strategy(name: str) -> None:
    rankers = RankerFactory()
    for entry in RECORD["listwise"][name]["strategies"]:
        options = settings_of(entry["overrides"].replace("FOLDER", str(FOLDER / name)))
        settings = ListwiseSettings.of(options.saved.values)
        assert settings is not None
        for key, expected in entry["lists"].items():
            ranker, texts, what = rankers.build(settings), LISTS[key], (entry["overrides"], key)
            passages = tuple(texts["passages"])
            (ranking,) = ranker.rank(
                [PassageList(texts["query"], passages, ids_of(len(passages)), "q")]
            )
            assert ranker.name == entry["name"], what
            assert ranking.order.tolist() == expected["order"], what
            assert ranking.num_ranked == expected["named"], what
            assert nonzero(ranker.usage) == expected["usage"], what
            assert (ranking.scores is None) == (expected["scores"] is None), what
            if ranking.scores is not None:
                assert_close(ranking.scores, expected["scores"], what)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORD["listwise"])
def test_a_listwise_ranker_reads_the_same_prompt_and_ranks_the_same_by_itself(name: str) -> None:
    for entry in RECORD["listwise"][name]["direct"]:
        calibration = (
            None if entry["calibration"] is None else ContentFreeCalibration(**entry["calibration"])
        )
        for key, expected in entry["lists"].items():
            ranker = load_listwise(
                FOLDER / name, device="cpu", calibration=calibration, **entry["load_listwise"]
            )
            texts, what = LISTS[key], (entry["load_listwise"], entry["calibration"], key)
            passages = PassageList(texts["query"], tuple(texts["passages"]))
            (ranking,) = ranker.rank([passages])
            assert ranking.order.tolist() == expected["order"], what
            assert nonzero(ranker.usage) == expected["usage"], what
            assert (ranking.scores is None) == (expected["scores"] is None), what
            if ranking.scores is not None:
                assert_close(ranking.scores, expected["scores"], what)
            if expected["prompt_ids"] is not None:
                assert (
                    ranker.pair_tokenizer.encode(passages).ids.tolist() == expected["prompt_ids"]
                ), what


@pytest.mark.parametrize("name", RECORD["language_models"])
def test_a_language_model_gives_the_same_logits(name: str) -> None:
    recorded = RECORD["language_models"][name]
    model = BackpackLMHeadModel.from_pretrained(FOLDER / name).eval()
    ids = recorded["input_ids"]
    with torch.no_grad():
        output = model(torch.tensor([ids]), labels=torch.tensor([ids]))
    assert_close(output.logits[0, -1], recorded["logits_last_position"], tolerance=1e-5)
    if "loss" in recorded:
        assert_close([output.loss.item()], [recorded["loss"]], tolerance=1e-5)


def test_the_tokenizer_of_a_language_model_gives_the_same_tokens() -> None:
    ids = load_tokenizer(FOLDER / "language_model")(" " + RECORD["sources"][0])["input_ids"]
    assert ids[:20] == RECORD["language_models"]["language_model"]["input_ids"]
