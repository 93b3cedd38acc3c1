"""Batches of lists and of dev candidates."""

from itertools import chain

import numpy as np
import pytest
import torch

from backpack_rank.data.batching import Pairs
from backpack_rank.data.datamodule import (
    EncodedList,
    EpochSampler,
    ListDataset,
    RankingData,
    collate_lists,
)
from backpack_rank.data.training_lists import TrainingLists

CANDIDATES = {query_id: {f"d{i}": -float(i) for i in range(7)} for query_id in ("q1", "q2", "q3")}


@pytest.fixture
def lists(tiny_collection):
    return TrainingLists(tiny_collection, CANDIDATES, size=4, seed=5)


@pytest.fixture
def new_data(tiny_collection, pair_tokenizer):
    """A function that makes data of training lists."""
    dev = Pairs.from_run(CANDIDATES, tiny_collection)

    def new_data(lists, **options):
        return RankingData(
            lists, tiny_collection, dev, pair_tokenizer, lists_per_batch=2, **options
        )

    return new_data


@pytest.fixture
def data(lists, new_data):
    return new_data(lists, tokens_per_batch=120)


def at_epoch(data, epoch):
    """What the trainer says when it asks for this epoch's batches."""
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return [batch.texts.input_ids.tolist() for batch in loader]


def test_short_lists_are_masked():
    items = [
        EncodedList([np.array([1, 2]), np.array([3])], (2, 0)),
        EncodedList([np.array([4, 4, 4])], (1,)),
    ]
    batch = collate_lists(items)
    assert batch.labels.tolist() == [[2.0, 0.0], [1.0, 0.0]]
    assert batch.mask.tolist() == [[True, True], [True, False]]
    assert batch.texts.input_ids.tolist() == [1, 2, 3, 4, 4, 4]
    assert batch.texts.lengths == [2, 1, 3]


def test_a_list_is_encoded_in_its_order_with_its_labels(tiny_collection, pair_tokenizer, lists):
    entry = lists.sample("q1", 3)
    encoded = ListDataset(tiny_collection, lists, pair_tokenizer)[3, "q1"]
    texts = dict(tiny_collection.documents)
    documents = [texts[doc_id] for doc_id in entry.doc_ids]
    expected = pair_tokenizer.pairs("doctor in the ward", documents)
    assert [ids.tolist() for ids in encoded.sequences] == [ids.tolist() for ids in expected]
    assert encoded.labels == entry.labels


def test_a_teacher_scores_the_documents_of_a_list_and_shorter_lists_are_filled_with_nan():
    first = EncodedList([np.array([1]), np.array([2])], (1, 0), np.array([0.5, -2.0]))
    batch = collate_lists([first, EncodedList([np.array([3])], (1,), np.array([7.0]))])
    assert batch.teacher is not None
    assert batch.teacher.nan_to_num(99.0).tolist() == [[0.5, -2.0], [7.0, 99.0]]
    assert batch.to("cpu").teacher is not None


def test_batches_are_the_epochs_lists_in_order(data, tiny_collection, pair_tokenizer):
    batches = list(data.train_dataloader())
    assert [len(batch.labels) for batch in batches] == [2, 1]
    entries = data.lists.epoch(0)
    labels = torch.cat([batch.labels for batch in batches]).int().tolist()
    assert labels == [list(entry.labels) for entry in entries]
    texts = dict(tiny_collection.documents)
    tokens = []
    for entry in entries:
        documents = [texts[doc_id] for doc_id in entry.doc_ids]
        tokens += pair_tokenizer.pairs(tiny_collection.queries[entry.query_id], documents)
    tokens_of_batches = [batch.texts.input_ids.tolist() for batch in batches]
    assert list(chain.from_iterable(tokens_of_batches)) == np.concatenate(tokens).tolist()


def test_a_resumed_epoch_gives_the_lists_it_would_have_given(data, new_data, tiny_collection):
    first = [at_epoch(data, epoch) for epoch in range(4)]
    resumed = new_data(TrainingLists(tiny_collection, CANDIDATES, size=4, seed=5))
    assert at_epoch(resumed, 3) == first[3]
    assert at_epoch(resumed, 1) == first[1]
    assert len({str(epoch) for epoch in first}) == 4


def test_worker_processes_give_the_same_batches(data, new_data):
    assert at_epoch(new_data(data.lists, workers=1), 2) == at_epoch(data, 2)


def test_dev_candidates_come_once_each(data):
    rows = [int(row) for chunk in data.val_dataloader() for numbers, _ in chunk for row in numbers]
    assert sorted(rows) == list(range(21))


def test_batches_move_to_a_device(data):
    (chunk,) = data.val_dataloader()
    moved = data.transfer_batch_to_device(chunk, torch.device("meta"), 0)
    assert all(texts.input_ids.device.type == "meta" for _, texts in moved)
    first = next(iter(data.train_dataloader()))
    batch = data.transfer_batch_to_device(first, torch.device("meta"), 0)
    texts = batch.texts
    tensors = (batch.labels, batch.mask, texts.input_ids, texts.offsets, texts.text_ids)
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_an_empty_query_and_a_missing_document_are_named(tiny_collection, pair_tokenizer):
    tiny_collection.queries["q3"] = ""
    lists = TrainingLists(tiny_collection, CANDIDATES, size=4)
    with pytest.raises(ValueError, match="query q3 of tiny: the query is empty"):
        ListDataset(tiny_collection, lists, pair_tokenizer)[0, "q3"]
    lists = TrainingLists(tiny_collection, {"q1": {"d99": 1.0}}, size=4)
    with pytest.raises(KeyError, match="d99"):
        ListDataset(tiny_collection, lists, pair_tokenizer)[0, "q1"]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_processes_share_an_epoch_in_equal_parts(lists, world_size):
    samplers = [EpochSampler(lists, rank, world_size) for rank in range(world_size)]
    for sampler in samplers:
        sampler.set_epoch(2)
    parts = [list(sampler) for sampler in samplers]
    assert {len(part) for part in parts} == {len(samplers[0])} == {-(-3 // world_size)}
    assert set(chain.from_iterable(parts)) == {(2, "q1"), (2, "q2"), (2, "q3")}
