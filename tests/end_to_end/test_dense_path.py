"""The dual encoder and its dense first stage through training and evaluation, on little text."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import TEST_SPLIT, evaluated, trained_in
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from workplace import Workplace

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import read_run
from backpack_rank.models.dual_encoder import DualEncoderForRanking
from backpack_rank.models.loading import load_ranker
from backpack_rank.reranking.load import load

SMALL = [
    "lists.size=4",
    "lists.per_epoch=8",
    "training.epochs=1",
    "max_length=96",
    "training.loss=pairwise_hinge",
    "trainer.accelerator=cpu",
    "+data.train.train_queries=12",
    "+data.train.documents=80",
    "+data.dev.dev_queries=4",
    "+data.dev.documents=40",
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="module")
def bert(workplace: Workplace, tokenizer) -> Path:
    """A small random BERT."""
    folder = workplace.folder / "bert"
    special = {
        "cls_token": "<|endoftext|>",
        "sep_token": "<|separator|>",
        "pad_token": "<|endoftext|>",
    }
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, **special
    )
    torch.manual_seed(0)
    shape = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    BertModel(
        BertConfig(vocab_size=len(fast_tokenizer), initializer_range=0.3, **shape)
    ).save_pretrained(folder)
    fast_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def dual_encoder_run(workplace: Workplace, bert: Path) -> Path:
    """The run of a small dual encoder over the BERT."""
    return trained_in(workplace, "dual", "model=bert_dot", f"model.ranker.name={bert}", *SMALL)


@pytest.fixture(scope="module")
def backpack_encoder_run(workplace: Workplace, bert: Path) -> Path:
    """The run of a small Backpack that gives vectors, over the same."""
    options = [
        "model=backpack_encoder",
        f"model.ranker.name={bert}",
        "model.ranker.senses=4",
        "reconstruct.steps=60",
        *SMALL,
    ]
    # So long that no document is cut: a swap may move the end of what is read.
    return trained_in(workplace, "vectors", *options, "training.epochs=0", "max_length=500")


@pytest.mark.slow
def test_senses_learn_the_vectors_of_an_encoder_that_stays_as_it_is(
    backpack_encoder_run: Path, bert: Path
) -> None:
    ranker, pair_tokenizer = load_ranker(backpack_encoder_run / "ranker")
    texts = [text for _, text in load_synthetic("test", 0, test_queries=12, documents=80).documents]
    batch = PackedBatch.from_sequences(pair_tokenizer.documents(texts))
    with torch.no_grad():
        vectors, targets = ranker.eval().vectors_and_targets(batch)
    # Random weights give 0 on average.
    assert (vectors * targets).sum(dim=-1).mean() > 0.5
    weights = BertModel.from_pretrained(bert).state_dict()
    for name, value in ranker.backpack.backbone.state_dict().items():
        assert torch.equal(value, weights[name]), name


def systems(folder: Path) -> dict[str, dict]:
    return {
        system["label"]: system
        for system in json.loads((folder / "measures.json").read_text())["systems"]
    }


@pytest.mark.slow
def test_a_dual_encoder_is_a_first_stage_whose_scores_are_its_own(
    workplace: Workplace, dual_encoder_run: Path, tmp_path: Path
) -> None:
    stage = [
        "first_stage=dense",
        f"first_stage.checkpoint={dual_encoder_run}",
        "first_stage.depth=30",
    ]
    for name in ("one", "two"):
        evaluated(workplace, tmp_path / name, *TEST_SPLIT, *stage, f"checkpoint={dual_encoder_run}")
    assert list(systems(tmp_path / "one")) == ["dense", "alpha=1"]
    runs = tmp_path / "one" / "runs"
    first = read_run(runs / "dense__synthetic-test.run")
    again = read_run(runs / "alpha-1__synthetic-test.run")
    assert len(first) == 12
    for query_id, scores in first.items():
        assert len(scores) == 30
        assert scores == pytest.approx(
            again[query_id], abs=0.03, rel=2e-3
        )  # vectors are in half precision
    (vectors,) = (workplace.folder / "cache" / "dense").glob("*/vectors.npy")
    assert np.load(vectors, mmap_mode="r").shape == (80, 16)
    assert read_run(tmp_path / "two" / "runs" / "dense__synthetic-test.run") == first
    assert isinstance(load_ranker(dual_encoder_run / "ranker")[0], DualEncoderForRanking)


def place(doc_id: str, scores: dict[str, float]) -> int:
    better = [other for other in scores if (-scores[other], other) < (-scores[doc_id], doc_id)]
    return len(better) + 1


def moved_and_lost(folder: Path, first: float, second: float) -> tuple[float, int]:
    """By hand: each candidate is swapped alone, and both stages rank again."""
    reranker = load(folder)
    attribute = Attribute.named("gender")
    swap = attribute.swap()
    collection = load_synthetic("test", 0, test_queries=12, documents=80)
    texts = {doc_id: reranker.scorer.cut(text) for doc_id, text in collection.documents}
    swapped = {doc_id: swap(text).text for doc_id, text in texts.items()}
    moves: list[int] = []
    lost = 0
    for query in collection.queries.values():
        if attribute.group_queries(query):
            continue
        scores: dict[tuple[float, bool], dict[str, float]] = {}
        for alpha in {first, second}:
            for is_swapped, of_texts in ((False, texts), (True, swapped)):
                pairs = [(query, text) for text in of_texts.values()]
                found = reranker.predict(pairs, alpha=alpha).tolist()
                scores[alpha, is_swapped] = dict(zip(texts, found, strict=True))
        of_stage, of_reranker = scores[first, False], scores[second, False]
        candidates = sorted(texts, key=lambda doc_id: (-of_stage[doc_id], doc_id))[:10]
        for doc_id in candidates:
            if swapped[doc_id] == texts[doc_id]:
                continue
            before = place(doc_id, {other: of_reranker[other] for other in candidates})
            stays = place(doc_id, {**of_stage, doc_id: scores[first, True][doc_id]}) <= 10
            after = 11
            if stays:
                final = {other: of_reranker[other] for other in candidates}
                after = place(doc_id, {**final, doc_id: scores[second, True][doc_id]})
            lost += not stays
            moves.append(abs(after - before))
    return float(np.mean(moves)), lost


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0)])
@pytest.mark.parametrize(
    ("run", "policy"),
    [("dual_encoder_run", "renditions"), ("backpack_encoder_run", "lowest_senses")],
)
def test_two_stages_with_a_dial_are_one_table(
    workplace: Workplace,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    run: str,
    policy: str,
    first: float,
    second: float,
) -> None:
    """Swapped one at a time: the same as a search of the corpus with that document swapped."""
    checkpoint = request.getfixturevalue(run)
    options = [
        "experiment=stages",
        "first_stage=dense",
        f"first_stage.checkpoint={checkpoint}",
        f"first_stage.policy={policy}",
        "first_stage.depth=10",
        f"checkpoint={checkpoint}",
        f"task.first=[{first}]",
        f"task.second=[{second}]",
    ]
    evaluated(workplace, tmp_path, *TEST_SPLIT, *options)
    with open(tmp_path / "stages.csv", newline="") as file:
        means = {record["measure"]: float(record["mean"]) for record in csv.DictReader(file)}
    moved, lost = moved_and_lost(checkpoint / "ranker", first, second)
    # Vectors of the first stage are in half precision: a place or two may differ.
    assert means["places moved"] == pytest.approx(moved, abs=0.1)
    assert means["lost"] * 12 == pytest.approx(lost, abs=5)
    assert (moved > 0.5) == (second == 1)
    assert (lost > 10) == (first == 1)
    if second == 0:
        assert means["places moved"] == 0
        # The last bits of a score depend on what is read beside it.
        assert means["swap change/std"] == pytest.approx(0, abs=1e-5)
    assert f"reranker at {second:g}" in (tmp_path / "stages.svg").read_text()


def test_two_stages_need_a_first_stage_with_a_dial(
    workplace: Workplace, dual_encoder_run: Path, tmp_path: Path
) -> None:
    options = ["experiment=stages", "first_stage=bm25", f"checkpoint={dual_encoder_run}"]
    with pytest.raises(ValueError, match="experiment=stages: the first stage BM25 has no dial"):
        evaluated(workplace, tmp_path, *TEST_SPLIT, *options)


@pytest.mark.slow
def test_a_certificate_says_what_is_promised_of_the_first_stage(
    workplace: Workplace, dual_encoder_run: Path, tmp_path: Path
) -> None:
    options = [
        "first_stage=dense",
        f"first_stage.checkpoint={dual_encoder_run}",
        "first_stage.depth=10",
        f"checkpoint={dual_encoder_run}",
        "alpha=0",
        "certificate=true",
        "swap=false",
    ]
    sentences = {}
    for alpha in (0, 0.5):
        folder = tmp_path / str(alpha)
        evaluated(workplace, folder, *TEST_SPLIT, *options, f"first_stage.alpha={alpha}")
        sentences[alpha] = json.loads((folder / "certificate.json").read_text())["pipeline"]
    with open(tmp_path / "0" / "certificate.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with_words = [row for row in rows if row["kind"] != "without class words"]
    covered = [row for row in with_words if row["kind"] == row["candidacy"] == "covered"]
    assert covered
    assert f"Of {len(covered)} of {len(with_words)} candidates" in sentences[0]
    assert "re-ranking alone is covered. The first stage dense is at alpha 0.5" in sentences[0.5]


@pytest.mark.slow
def test_one_backpack_at_both_stages_is_certified(
    workplace: Workplace, backpack_encoder_run: Path, tmp_path: Path
) -> None:
    """Every candidate with class words, of candidacy and of final place."""
    options = [
        "first_stage=dense",
        f"first_stage.checkpoint={backpack_encoder_run}",
        "first_stage.policy=lowest_senses",
        "first_stage.alpha=0",
        "first_stage.depth=10",
        f"checkpoint={backpack_encoder_run}",
        "alpha=0",
        "certificate=true",
    ]
    evaluated(workplace, tmp_path, *TEST_SPLIT, *options, quiet=False)
    certificate = json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))
    covered = next(part for part in certificate["parts"] if part["kind"] == "covered")
    with_words = sum(part["candidates"] for part in certificate["parts"][1:])
    assert covered["candidates"] == with_words > 0
    assert covered["largest"] < 1e-5
    sentence = f"Of {with_words} of {with_words} candidates neither candidacy nor final place"
    assert sentence in certificate["pipeline"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "does not split into senses and tokens" in page
