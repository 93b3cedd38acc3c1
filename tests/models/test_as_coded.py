"""The linear head, the readout over all positions and the input form of the paper's code."""

import numpy as np
import pytest
import torch

from backpack_rank.data.batching import Pairs
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer, with_readout
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.attribution import attribute
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.views import View

TEXTS = [[5, 9, 7, 20], [8, 2], [40, 41, 5, 9, 9, 30, 12]]
WEIGHTS = torch.tensor([1.0, 0.0, 0.5, 1.0, 2.0, 1.0, 0.25, 1.0])


@pytest.fixture
def coded(make_backpack):
    """A Backpack with the head and the readout of the paper's code."""
    ranker = make_backpack(head="linear_sigmoid")
    ranker.config.readout = "mean_sigmoid"
    return ranker


def mean_of_sigmoids(ranker, ids, weights):
    """The same from eq. 1 and 5 written out: all senses of all tokens at all positions."""
    ids = torch.tensor([ids])
    backpack = ranker.backpack
    hidden = backpack.backbone(input_ids=ids, use_cache=False).last_hidden_state
    queries, keys = backpack.sense_weight_net.split(hidden)  # [1, n, k, d / k]
    logits = torch.einsum("bilc,bjlc->blij", queries, keys) / queries.shape[-1] ** 0.5
    later = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
    shares = logits.masked_fill(later, float("-inf")).softmax(dim=-1)
    mixed = torch.einsum("blij,bjld,l->bid", shares, backpack.senses(ids), weights)
    at_positions = torch.sigmoid(mixed @ ranker.head.out.weight[0])
    return at_positions.mean()


@pytest.mark.parametrize("weights", [torch.ones(8), WEIGHTS])
def test_the_readout_is_the_mean_of_sigmoids_over_all_positions(coded, weights):
    with torch.no_grad():
        batch = PackedBatch.from_sequences(TEXTS)
        scores = coded(batch, sense_weights=weights).scores
        expected = [mean_of_sigmoids(coded, ids, weights) for ids in TEXTS]
    torch.testing.assert_close(scores, torch.stack(expected), atol=1e-6, rtol=0)


def test_one_pass_serves_all_weights(coded):
    with torch.no_grad():
        batch = PackedBatch.from_sequences(TEXTS)
        parts = coded(batch, return_senses=True).senses
        from_one_pass = coded.score_senses(parts, WEIGHTS)
        anew = coded(batch, sense_weights=WEIGHTS).scores
    assert parts.shape == (3, 8, 7)
    assert torch.equal(parts[1, 0].isnan(), torch.tensor([False] * 2 + [True] * 5))
    assert torch.equal(from_one_pass, anew)


def test_a_text_is_scored_the_same_in_any_batch(coded):
    with torch.no_grad():
        together = coded(PackedBatch.from_sequences(TEXTS)).scores
        alone = [coded(PackedBatch.from_sequences([ids])).scores[0] for ids in TEXTS]
    torch.testing.assert_close(together, torch.stack(alone), atol=1e-6, rtol=0)


def test_senses_of_an_attribute_add_up_to_what_they_were_split_from(make_backpack, tokenizer):
    ranker = make_backpack(head="linear_sigmoid", attribute_senses="gender")
    ranker.config.readout = "mean_sigmoid"
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 64)
    texts = pair_tokenizer.pairs("a doctor", ["she saw her mother", "he was a man", "a house"])
    batch = PackedBatch.from_sequences(texts)
    with torch.no_grad():
        plain = ranker(batch)
        split = ranker(batch, return_senses=True)
        without_groups = torch.tensor([1.0] * 8 + [0.0] * 2)
        without = ranker(batch, sense_weights=without_groups).scores
    torch.testing.assert_close(split.scores, plain.scores, atol=1e-6, rtol=0)
    assert (without - plain.scores)[:2].abs().min() > 1e-5
    assert without[2] == pytest.approx(plain.scores[2].item(), abs=1e-6)  # no word of gender


def test_a_swap_changes_nothing_without_the_senses_of_its_attribute(make_backpack, tokenizer):
    ranker = make_backpack(head="linear_sigmoid", attribute_senses="gender")
    ranker.config.readout = "mean_sigmoid"
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 64)
    texts = pair_tokenizer.pairs("a doctor", ["she is here", "he is here"])
    without_groups = torch.tensor([1.0] * 8 + [0.0] * 2)
    with torch.no_grad():
        batch = PackedBatch.from_sequences(texts)
        as_read = ranker(batch).scores
        without = ranker(batch, sense_weights=without_groups).scores
    assert (as_read[0] - as_read[1]).abs() > 1e-5
    assert without[0] == without[1]


def test_a_scorer_gives_the_same_from_a_cache(coded, tokenizer, tiny_collection, tmp_path):
    scorer = Scorer(coded, make_pair_tokenizer(tokenizer, coded, 64))
    documents = [doc_id for doc_id, _ in tiny_collection.documents]
    candidates = {query_id: dict.fromkeys(documents, 0.0) for query_id in tiny_collection.queries}
    pairs = Pairs.from_run(candidates, tiny_collection)
    view = View(sense_weights=WEIGHTS)
    direct = scorer.scores(pairs, view)
    cached = scorer.scores(pairs, view, SenseCache(tmp_path))
    np.testing.assert_allclose(cached, direct, atol=1e-6)


def test_input_as_coded_has_a_separator_or_an_end(make_backpack, tokenizer):
    ranker = make_backpack(head="linear_sigmoid", input_form="as_coded")
    at_one_token = make_pair_tokenizer(tokenizer, ranker, 12)
    query, document = at_one_token.encode(["wires"])[0], at_one_token.encode(["a house"])[0]
    (ids,) = at_one_token.pairs("wires", ["a house"])
    assert ids.tolist() == [*query, *document, at_one_token.end_id]

    at_all_positions = with_readout(ranker, at_one_token, "mean_sigmoid")
    (ids,) = at_all_positions.pairs("wires", ["a house"])
    assert ids.tolist() == [*query, at_one_token.separator_id, *document]

    (ids,) = at_all_positions.pairs("wires", ["a house " * 20])
    assert len(ids) == 12


def test_a_ranker_as_coded_is_saved_and_loaded(make_backpack, tokenizer, tmp_path):
    ranker = make_backpack(head="linear_sigmoid", input_form="as_coded")
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 32)
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    loaded, loaded_tokenizer = load_ranker(tmp_path / "ranker")
    texts = pair_tokenizer.pairs("wires", ["a house"])
    assert loaded_tokenizer.pairs("wires", ["a house"])[0].tolist() == texts[0].tolist()
    with torch.no_grad():
        batch = PackedBatch.from_sequences(texts)
        torch.testing.assert_close(loaded.eval()(batch).scores, ranker(batch).scores)


def test_an_attribution_of_the_linear_head_adds_up(make_backpack, tokenizer):
    ranker = make_backpack(head="linear_sigmoid")
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 64)
    parts = attribute(ranker, pair_tokenizer, "a doctor", "she rewires houses")
    assert abs(parts.residual) < 1e-9
    assert parts.contributions.abs().max() > 1e-6


def test_a_mean_over_positions_needs_the_linear_head(make_backpack, tokenizer):
    ranker = make_backpack()
    with pytest.raises(ValueError, match=r"train one with model\.ranker\.head=linear_sigmoid"):
        with_readout(ranker, make_pair_tokenizer(tokenizer, ranker, 32), "mean_sigmoid")


def test_attribute_senses_need_to_know_where_a_document_begins(make_backpack):
    with pytest.raises(ValueError, match="input_form=as_coded"):
        make_backpack(input_form="as_coded", attribute_senses="gender")
