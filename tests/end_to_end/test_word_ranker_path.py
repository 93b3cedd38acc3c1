"""Word-embedding rankers through training and evaluation, on a small synthetic collection."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from in_process import TEST_SPLIT, configured, evaluated, trained_in
from workplace import Workplace

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import read_run
from backpack_rank.models.interactions import INTERACTIONS
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.word_ranker import InteractionForRanking
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings

SMALL = [
    "model=knrm",
    "model.ranker.embedding_size=16",
    "model.tokenizer.min_count=3",
    "lists.per_epoch=24",
    "+data.train.train_queries=24",
    "+data.train.documents=120",
    "+data.dev.dev_queries=6",
    "+data.dev.documents=60",
    "+data.test.test_queries=12",
    "+data.test.documents=80",
    "training.epochs=2",
]


def trained(workplace: Workplace, name: str, *options: str) -> Path:
    return trained_in(workplace, name, *SMALL, *options) / "ranker"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with a small KNRM."""
    workplace = Workplace(tmp_path_factory.mktemp("words"))
    trained(workplace, "knrm")
    return workplace


@pytest.mark.slow
def test_knrm_is_measured_beside_bm25_with_the_scores_of_its_saved_folder(
    workplace: Workplace, tmp_path: Path
) -> None:
    evaluated(workplace, tmp_path, *TEST_SPLIT)
    systems = json.loads((tmp_path / "measures.json").read_text())["systems"]
    assert [system["label"] for system in systems] == ["BM25", "alpha=1"]
    ranker, pair_tokenizer = load_ranker(workplace.output / "train" / "knrm" / "ranker")
    assert isinstance(ranker, InteractionForRanking)
    assert pair_tokenizer.max_length == ranker.config.n_positions == 231
    test = load_synthetic("test", test_queries=12, documents=80)
    run = read_run(tmp_path / "runs" / "alpha-1__synthetic-test.run")
    assert len(run) == 12
    query_id, scores = next(iter(run.items()))
    texts = test.documents.get_many(scores)
    direct = Scorer(ranker, pair_tokenizer, ScoringSettings(device="cpu")).score(
        test.queries[query_id], list(texts.values())
    )
    assert np.abs(direct - np.array(list(scores.values()))).max() < 1e-5
    assert np.ptp(direct) > 0
    with pytest.raises(ValueError, match="knrm has no sense vectors"):
        evaluated(workplace, tmp_path, *TEST_SPLIT, "alpha=0.5", "policy=lowest_senses")


@pytest.mark.slow
def test_word_vectors_of_a_file_can_stay_as_they_are(workplace: Workplace, tmp_path: Path) -> None:
    words = ["the", "work", "and", "experience"]
    path = tmp_path / "glove.txt"
    path.write_text(
        "".join(f"{word} {number} 1 -1 {number / 4}\n" for number, word in enumerate(words))
    )
    options = [
        "model.ranker.embedding_size=null",
        f"model.ranker.embeddings={path}",
        "training.frozen=[embeddings]",
    ]
    ranker, pair_tokenizer = load_ranker(
        trained(workplace, "frozen", *options, "training.loss=pairwise_hinge")
    )
    ids = pair_tokenizer.tokenizer.get_vocab()
    words_of_file = [(word, number) for number, word in enumerate(words) if word in ids]
    assert words_of_file
    for word, number in words_of_file:
        assert ranker.get_input_embeddings().weight[ids[word]].tolist() == [
            number,
            1,
            -1,
            number / 4,
        ]


@pytest.mark.parametrize("name", ["knrm", "conv_knrm", "match_pyramid", "pacrr", "tk"])
def test_every_word_model_is_made_of_its_configuration(name: str) -> None:
    config = configured("train", f"model={name}")
    tokenizer = instantiate(config.model.tokenizer).build(
        ["the electrician rewires the old house", "the old nurse"]
    )
    ranker = instantiate(config.model.ranker, tokenizer=tokenizer, _convert_="all")
    assert ranker.config.interaction == name
    assert ranker.config.embedding_size == 300
    assert ranker.config.vocab_size == len(tokenizer) == 5
    assert ranker.config.n_positions >= config.max_length
    # Every size that the module has is written out, at its default: the paper's.
    known = inspect.signature(INTERACTIONS[name]).parameters
    written = {
        size: list(value) if isinstance(value, tuple) else value
        for size, value in ranker.config.sizes.items()
    }
    defaults = {
        size: parameter.default
        for size, parameter in known.items()
        if parameter.default not in (parameter.empty, None)
    }
    if name == "pacrr":  # with the IDF of its words: those of the tokenizer and of its buckets
        assert written.pop("vocabulary_size") == len(tokenizer) + config.model.tokenizer.buckets
    assert written == {
        size: list(default) if isinstance(default, tuple) else default
        for size, default in defaults.items()
    }


@pytest.mark.slow
def test_what_does_not_fit_together_is_refused(workplace: Workplace) -> None:
    with pytest.raises(ValueError, match=r"use pretraining\.epochs=0"):
        trained(workplace, "warm", "pretraining.epochs=1")
    with pytest.raises(ValueError, match="use adapter=none"):
        trained(workplace, "lora", "adapter=lora")
    with pytest.raises(ValueError, match="max_length=300 exceeds the ranker's 231 positions"):
        trained(workplace, "long", "max_length=300")
