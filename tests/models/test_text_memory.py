"""What a ranker remembers of texts is by the weights that it has, however they came to change."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from foreign_rankers import bert
from torch import nn
from whole_words import SHAPE, save_backbone

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models import factory
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.text_encoder import load_text_encoder
from backpack_rank.models.utils import input_embeddings

QUERY, DOCUMENTS = "the doctor saw", ["he saw a nurse", "she saw a nurse", "bread and fish"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    _, tokenizer = bert()
    return save_backbone(tmp_path_factory.mktemp("bert"), tokenizer, "bert", **SHAPE)


def of_two_vectors(folder):
    _, tokenizer = bert()
    ranker = factory.dual_encoder(tokenizer, name=str(folder)).eval()
    return ranker, make_pair_tokenizer(tokenizer, ranker, 32)


def of_an_encoder(folder):
    return load_text_encoder(folder, pooling="mean")


def in_place(ranker):
    with torch.no_grad():
        input_embeddings(ranker).weight.mul_(-1)


def by_an_optimizer(ranker):
    weight = input_embeddings(ranker).weight
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.grad = torch.ones_like(weight).tril()
    optimizer.step()


def by_a_state(ranker):
    ranker.load_state_dict({name: 1.5 * value for name, value in ranker.state_dict().items()})


def by_an_assigned_state(ranker):
    state = {name: 1.5 * value for name, value in ranker.state_dict().items()}
    ranker.load_state_dict(state, assign=True)


def by_other_data(ranker):
    weight = input_embeddings(ranker).weight
    weight.data = -weight.data


def by_another_parameter(ranker):
    table = input_embeddings(ranker)
    table.weight = nn.Parameter(-table.weight.detach())


CHANGES = [
    in_place,
    by_an_optimizer,
    by_a_state,
    by_an_assigned_state,
    by_other_data,
    by_another_parameter,
]


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [of_two_vectors, of_an_encoder])
def test_scores_are_by_the_weights_of_now(folder, kind, change):
    ranker, pair_tokenizer = kind(folder)
    batch = PackedBatch.from_sequences(pair_tokenizer.pairs(QUERY, DOCUMENTS))
    before = ranker(batch).scores
    assert torch.equal(ranker(batch).scores, before)
    for changed in (copy.deepcopy(ranker), ranker):
        change(changed)
        found = changed(batch).scores
        fresh, _ = kind(folder)
        fresh.load_state_dict(changed.state_dict())
        torch.testing.assert_close(found, fresh(batch).scores)
        assert (found - before).abs().max() > 1e-3


@torch.no_grad()
def test_vectors_do_not_travel_with_a_copy(folder):
    ranker, pair_tokenizer = of_an_encoder(folder)
    sizes = []
    for number in (1, 3):
        ranker(PackedBatch.from_sequences(pair_tokenizer.pairs(QUERY, DOCUMENTS[:number])))
        sizes.append(len(pickle.dumps(ranker)))
    assert sizes[0] == sizes[1]
