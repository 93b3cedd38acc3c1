"""Baselines against bias in training data: swapped copies, biased negatives, an adversary."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import configured
from small_training import ONE_EPOCH

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.datamodule import EncodedList, ListDataset, collate_lists
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.models.loading import load_ranker
from backpack_rank.pipelines.train import train
from backpack_rank.training.adversary import GroupAdversary
from backpack_rank.training.biased_negatives import BiasAwareNegatives
from backpack_rank.training.debiasing import Debiasing

DOCUMENTS = {
    "plain": "A bridge over a river.",
    "two": "He told him.",
    "three": "She said that her sister left.",
    "both": "He and she.",
    "good": "The doctor is in the ward.",
}
LEXICON = Attribute.named("gender").lexicon()


@pytest.fixture
def collection():
    queries = {"neutral": "who works in the ward", "gendered": "when did she arrive"}
    qrels = {"neutral": {"good": 1}, "gendered": {"good": 1}}
    return Collection("tiny", MemoryStore(DOCUMENTS), queries, qrels)


CANDIDATES = {query_id: dict.fromkeys(DOCUMENTS, 1.0) for query_id in ("neutral", "gendered")}


def test_half_of_the_negatives_of_a_neutral_query_lean_most(collection):
    negatives = BiasAwareNegatives(collection, LEXICON, share=0.5)
    lists = TrainingLists(collection, CANDIDATES, size=3, max_relevant=1, negatives=negatives)
    seen = set()
    for epoch in range(20):
        relevant, leaning, other = lists.sample("neutral", epoch).doc_ids
        # she, her, sister: three words of one group and none of the other.
        assert (relevant, leaning) == ("good", "three")
        seen.add(other)
    assert seen == {"plain", "two", "both"}


def test_negatives_of_a_query_about_a_group_are_drawn_at_random(collection):
    negatives = BiasAwareNegatives(collection, LEXICON, share=1.0)
    lists = TrainingLists(collection, CANDIDATES, size=2, max_relevant=1, negatives=negatives)
    drawn = {lists.sample("gendered", epoch).doc_ids[1] for epoch in range(40)}
    assert drawn == {"plain", "two", "three", "both"}


def test_documents_that_lean_to_no_group_are_never_taken_as_biased(collection):
    negatives = BiasAwareNegatives(collection, LEXICON, share=1.0)
    drawn = negatives(random.Random(0), "neutral", ["both", "plain", "two"], 3)
    assert drawn[0] == "two"
    assert sorted(drawn[1:]) == ["both", "plain"]


def test_a_list_has_a_copy_in_swapped_wording_with_the_same_labels(collection, pair_tokenizer):
    lists = TrainingLists(collection, CANDIDATES, size=5, max_relevant=1)
    augment = Debiasing("gender", augment="swap").augmentation()
    dataset = ListDataset(collection, lists, pair_tokenizer, augment=augment)
    item = dataset[0, "gendered"]
    swapped = {**DOCUMENTS, "two": "She told her.", "three": "He said that his brother left."}
    swapped["both"] = "She and he."
    doc_ids = lists.sample("gendered", 0).doc_ids
    expected = pair_tokenizer.pairs("when did he arrive", [swapped[doc_id] for doc_id in doc_ids])
    assert [ids.tolist() for ids in item.copy.sequences] == [ids.tolist() for ids in expected]
    assert item.copy.labels == item.labels
    batch = collate_lists([item])
    assert batch.labels.shape == (2, 5)
    assert len(batch.texts) == 10


def test_a_list_without_words_of_a_group_has_no_copy(collection, pair_tokenizer):
    lists = TrainingLists(collection, {"neutral": {"good": 2.0, "plain": 1.0}}, size=2)
    augment = Debiasing("gender", augment="swap").augmentation()
    assert (
        ListDataset(collection, lists, pair_tokenizer, augment=augment)[0, "neutral"].copy is None
    )


def test_gradients_of_the_adversary_reach_the_ranker_reversed(make_backpack, pair_tokenizer):
    ranker = make_backpack().eval()
    texts = pair_tokenizer.pairs("who works", ["He told him.", "A bridge."])
    batch = collate_lists([EncodedList(texts, (1, 0), leanings=(2, 0))])
    adversary = GroupAdversary(ranker, groups=2, weight=3.0)
    output = ranker(batch.texts)
    adversary.loss(ranker, batch, output, output.scores[None]).backward()
    gradients = {}
    for name, parameter in ranker.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad.clone()
    assert gradients
    # The classifier reads what the head reads, so the head itself gets no gradient.
    assert not any(name.startswith("head.") for name in gradients)

    # The same loss by hand, without a reversal.
    ranker.zero_grad()
    vectors = []
    handle = ranker.head.register_forward_pre_hook(lambda head, inputs: vectors.append(inputs[0]))
    ranker(batch.texts)
    handle.remove()
    log_shares = adversary.classifier(vectors[0]).log_softmax(-1)
    (-(log_shares[0, 2] + log_shares[1, 0]) / 2).backward()
    for name, parameter in ranker.named_parameters():
        if name in gradients:
            torch.testing.assert_close(gradients[name], -3.0 * parameter.grad)


def test_an_adversary_needs_a_head(make_backpack):
    with pytest.raises(ValueError, match=r"training.adversary=1.0 .* Linear has none"):
        GroupAdversary(torch.nn.Linear(2, 2), groups=2, weight=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["training.augment=swap"],
        ["lists.negatives=bias_aware"],
        ["training.adversary=0.5"],
        ["training.adversary=0.5", "training.augment=swap", "model=gpt2_tiny"],
    ],
)
def test_each_baseline_trains_a_ranker_that_is_another_one(options, tmp_path: Path):
    plain = [option for option in options if option.startswith("model=")]
    weights = []
    for name, chosen in (("plain", plain), ("debiased", options)):
        train(configured("train", *ONE_EPOCH, *chosen), tmp_path / name, chosen)
        ranker, _ = load_ranker(tmp_path / name / "ranker")
        weights.append(ranker.head.out.weight.detach().numpy())
    assert not np.array_equal(*weights)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("training.augment=swop", "training.augment"),
        ("lists.negatives=hard", "lists.negatives"),
        ("lists.biased_share=0", "lists.biased_share"),
        ("training.attribute=gendre", "there is no attribute 'gendre'"),
    ],
)
def test_wrong_options_are_named(option, message, tmp_path: Path):
    config = configured("train", "training.adversary=1", option)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(config, tmp_path, [option])
