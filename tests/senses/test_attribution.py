"""Contributions of senses and tokens: they add up, and they are those of a slow formula."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from backpack_rank.data.lexicon import Lexicon
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.word_edges import WordEdges
from backpack_rank.senses.attribution import attribute, attribute_batch, attribute_change, explanation
from backpack_rank.senses.control import attach
from backpack_rank.senses.tokens import TokenClasses, TokenMove, moved_tokens

QUERY = "doctor in the ward"
DOCUMENT = "The doctor said he would see the patient, and he did: he said so."
WEIGHTS = torch.tensor([1.0, 0.0, 0.5, 2.0, 1.0, 0.3, 1.0, 0.7])


@pytest.fixture
def ranker(make_backpack):
    return make_backpack(dtype=torch.float64)


class LinearHead(nn.Module):
    """[..., d] -> [...]"""

    def __init__(self, size):
        super().__init__()
        self.out = nn.Linear(size, 1)

    def forward(self, vectors):
        return self.out(vectors).squeeze(-1)


def mixing_weights(ranker, ids):
    """a[l, j] of the last token by plain attention. [k][n]"""
    hidden = ranker.backpack(torch.tensor([ids])).hidden
    queries, keys = ranker.backpack.sense_weight_net.split(hidden[0])
    k = ranker.config.num_senses
    logits = [[(queries[-1, s] @ keys[j, s]).item() / math.sqrt(32 / k) for j in range(len(ids))] for s in range(k)]
    exps = [[math.exp(x - max(row)) for x in row] for row in logits]
    return [[e / sum(row) for e in row] for row in exps]


def gelu(x):
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


@torch.no_grad()
def slow(ranker, ids, weights):
    """Contributions token by token; the path integral of a head with one hidden layer in closed form.

    Along t o, the input of hidden unit h is b + t z, so the mean slope of its gelu is (gelu(b + z) - gelu(b)) / z.
    """
    a = mixing_weights(ranker, ids)
    parts = [
        [weights[s] * a[s][j] * ranker.backpack.senses(torch.tensor(ids[j]))[s] for j in range(len(ids))]
        for s in range(len(a))
    ]
    mix = sum(part for row in parts for part in row)
    inner, bias = ranker.head.dense.weight, ranker.head.dense.bias
    slopes = [(gelu(b + z) - gelu(b)) / z for b, z in zip(bias.tolist(), (inner @ mix).tolist(), strict=True)]
    gradient = (ranker.head.out.weight[0] * torch.tensor(slopes, dtype=torch.float64)) @ inner
    return torch.stack([torch.stack([part @ gradient for part in row]) for row in parts])


def score_of(ranker, encoder, query=QUERY, document=DOCUMENT):
    with torch.no_grad():
        return ranker(PackedBatch.from_sequences(encoder.pairs(query, [document]))).scores.item()


def test_contributions_are_those_of_a_slow_formula(ranker, encoder):
    found = attribute(ranker, encoder, QUERY, DOCUMENT)
    assert len(set(found.pieces.ids)) < len(found.pieces.ids), "tokens must repeat"
    torch.testing.assert_close(found.contributions, slow(ranker, found.pieces.ids, [1.0] * 8), rtol=1e-7, atol=1e-9)


def test_weights_scale_the_senses_before_the_head(ranker, encoder):
    found = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS)
    expected = slow(ranker, found.pieces.ids, WEIGHTS.tolist())
    torch.testing.assert_close(found.contributions, expected, rtol=1e-6, atol=1e-7)
    assert found.contributions[1].abs().max() == 0
    plain = attribute(ranker, encoder, QUERY, DOCUMENT)
    scaled = plain.contributions * WEIGHTS.double()[:, None]
    assert (found.contributions - scaled).abs().max() > 1e-3, "the head is not linear"
    handle = attach(ranker, WEIGHTS)
    assert found.score == pytest.approx(score_of(ranker, encoder), abs=1e-9)
    handle.remove()


WORDS = ["he", "she", "doctor", "ward", "the", "his", "stepmother", ",", ".", "漢"]
words = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@settings(max_examples=25, deadline=None)
@given(words.filter(str.split), words, st.integers(0, 3), st.lists(st.floats(0, 3), min_size=8, max_size=8))
def test_contributions_add_up_to_the_score_less_that_of_the_empty_mix(
    make_backpack, encoder, query, document, seed, weights
):
    ranker = make_backpack(seed, torch.float64)
    handle = attach(ranker, torch.tensor(weights))
    expected = score_of(ranker, encoder, query, document)
    handle.remove()
    empty = ranker.head(torch.zeros(32, dtype=torch.float64)).item()
    found = attribute(ranker, encoder, query, document, torch.tensor(weights))
    assert found.score == pytest.approx(expected, abs=1e-8)
    assert found.empty_score == pytest.approx(empty, abs=1e-12)
    for sums in (found.contributions, found.per_sense, found.per_token, found.per_word):
        assert sums.sum().item() == pytest.approx(expected - empty, abs=1e-5 * max(1e-2, abs(expected - empty)))
    assert found.residual == pytest.approx(expected - empty - found.contributions.sum().item(), abs=1e-8)


@pytest.mark.parametrize("sharpness", [20, 300])
def test_a_head_with_sharp_bends_is_followed_closely(ranker, encoder, sharpness):
    with torch.no_grad():
        ranker.head.dense.weight.mul_(sharpness)
    found = attribute(ranker, encoder, QUERY, DOCUMENT)
    difference = found.score - found.empty_score
    assert found.contributions.sum().item() == pytest.approx(difference, rel=1e-5)
    assert abs(found.residual) < 1e-4 * abs(difference)
    expected = slow(ranker, found.pieces.ids, [1.0] * 8)
    torch.testing.assert_close(found.contributions, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_contributions_add_up_in_every_number_format(make_backpack, encoder, dtype):
    ranker = make_backpack(dtype=dtype)
    found = attribute(ranker, encoder, QUERY, DOCUMENT)
    assert abs(found.residual) < 1e-8
    assert found.score == pytest.approx(score_of(ranker, encoder), rel=1e-4 if dtype == torch.float32 else 0.1)
    assert ranker.dtype == dtype
    assert next(ranker.head.parameters()).dtype == dtype


def test_a_linear_head_gives_what_the_score_loses_without_a_part(ranker, encoder):
    torch.manual_seed(3)
    ranker.head = LinearHead(32).double()
    found = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS)
    ids = found.pieces.ids
    a, readout = mixing_weights(ranker, ids), ranker.head.out.weight[0]
    senses = ranker.backpack.senses(torch.tensor(ids))
    for sense, token in ((0, 0), (2, 5), (3, len(ids) - 1), (7, 9)):
        lost = WEIGHTS[sense].item() * a[sense][token] * (senses[token, sense] @ readout).item()
        assert found.contributions[sense, token].item() == pytest.approx(lost, rel=1e-8)
    assert found.empty_score == pytest.approx(ranker.head.out.bias.item())
    assert abs(found.residual) < 1e-12


def test_a_batch_gives_each_text_what_it_gets_alone(ranker, encoder):
    texts = encoder.pairs(QUERY, [DOCUMENT, "", "she said"])
    found = attribute_batch(ranker, PackedBatch.from_sequences(texts), WEIGHTS)
    for row, document in enumerate([DOCUMENT, "", "she said"]):
        alone = attribute(ranker, encoder, QUERY, document, WEIGHTS)
        n = len(texts[row])
        torch.testing.assert_close(found.contributions[row, :, :n], alone.contributions, rtol=1e-7, atol=1e-9)
        assert not found.contributions[row, :, n:].any()
        assert found.scores[row].item() == pytest.approx(alone.score, abs=1e-9)


def test_a_cut_document_is_explained_as_it_was_scored(ranker, tokenizer):
    short = PairEncoder(tokenizer, 16)
    found = attribute(ranker, short, QUERY, DOCUMENT)
    assert len(found.tokens) == 16
    assert found.pieces.cut > 0
    assert found.score == pytest.approx(score_of(ranker, short), abs=1e-9)
    assert found.contributions.sum().item() == pytest.approx(found.score - found.empty_score, abs=1e-9)


def test_an_empty_document_leaves_query_separator_and_end(ranker, encoder):
    found = attribute(ranker, encoder, QUERY, "")
    assert set(found.segments) == {"query", "separator", "end"}
    assert found.score == pytest.approx(score_of(ranker, encoder, document=""), abs=1e-9)


def test_words_have_the_sum_of_their_tokens(ranker, encoder):
    found = attribute(ranker, encoder, QUERY, "stepmother said")
    index = [word.text for word in found.words].index("stepmother")
    word = found.words[index]
    assert word.end - word.start > 1
    positions = range(word.start, word.end)
    assert found.per_word[index].item() == pytest.approx(
        sum(found.contributions[sense, j].item() for sense in range(8) for j in positions)
    )


def test_attached_weights_take_part_and_multiply_with_given_ones(ranker, encoder):
    once = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS)
    squared = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS * WEIGHTS)
    handle = attach(ranker, WEIGHTS)
    hooked = attribute(ranker, encoder, QUERY, DOCUMENT)
    twice = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS)
    handle.remove()
    torch.testing.assert_close(hooked.contributions, once.contributions)
    torch.testing.assert_close(twice.contributions, squared.contributions, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("where", ["senses", "weights", "both"])
def test_moved_tokens_are_explained_as_they_are_scored(ranker, encoder, where):
    he, she = (int(encoder.encode([word])[0][0]) for word in ("he", "she"))
    move = TokenMove(TokenClasses((" he",), ((he, she),), WordEdges.of(encoder.tokenizer)), where, 0.3)
    plain = attribute(ranker, encoder, QUERY, DOCUMENT)
    with moved_tokens(ranker, move):
        expected = score_of(ranker, encoder)
        moved = attribute(ranker, encoder, QUERY, DOCUMENT)
    assert abs(moved.score - plain.score) > 1e-6
    assert moved.score == pytest.approx(expected, abs=1e-9)
    change = attribute_change(plain, moved)
    assert change.score == pytest.approx(expected - plain.score)
    for sums in (change.contributions, change.per_sense, change.per_token, change.per_word):
        assert sums.sum().item() == pytest.approx(change.score, abs=1e-8)


def test_alpha_at_zero_takes_a_sense_out_of_the_change(ranker, encoder):
    before = attribute(ranker, encoder, QUERY, DOCUMENT)
    after = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS)
    change = attribute_change(before, after)
    torch.testing.assert_close(change.contributions[1], -before.contributions[1])


def test_changes_of_different_texts_are_refused(ranker, encoder):
    before, after = (attribute(ranker, encoder, QUERY, document) for document in ("he said", "she said"))
    with pytest.raises(ValueError, match="different texts"):
        attribute_change(before, after)


def test_the_ranker_is_left_as_it_was(make_backpack, encoder):
    ranker = make_backpack(dropout=0.3).train()
    state = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    first = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS)
    assert ranker.training
    assert not ranker.sense_sum._forward_pre_hooks
    assert all(parameter.grad is None for parameter in ranker.parameters())
    assert all(torch.equal(tensor, state[name]) for name, tensor in ranker.state_dict().items())
    again = attribute(ranker.eval(), encoder, QUERY, DOCUMENT, WEIGHTS)
    assert torch.equal(first.contributions, again.contributions), "dropout plays no part"


def test_it_works_inside_blocks_without_gradients(ranker, encoder):
    expected = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS).contributions
    for block in (torch.no_grad(), torch.inference_mode()):
        with block:
            weights = WEIGHTS * 1.0
            assert torch.equal(attribute(ranker, encoder, QUERY, DOCUMENT, weights).contributions, expected)
            handle = attach(ranker, weights)
            hooked = attribute(ranker, encoder, QUERY, DOCUMENT).contributions
            handle.remove()
        torch.testing.assert_close(hooked, expected)


def test_wrong_weights_leave_no_hook_behind(ranker, encoder):
    with pytest.raises(ValueError, match="need 8 finite weights"):
        attribute(ranker, encoder, QUERY, DOCUMENT, torch.ones(3))
    with pytest.raises(ValueError, match="query is empty"):
        attribute(ranker, encoder, "", DOCUMENT, WEIGHTS)
    assert not ranker.sense_sum._forward_pre_hooks


def test_a_ranker_without_senses_is_refused(make_gpt2, encoder):
    with pytest.raises(TypeError, match=r"GPT2ForRanking has no sense vectors.*use a Backpack ranker"):
        attribute(make_gpt2(), encoder, QUERY, DOCUMENT)


def test_rows_for_the_report_carry_the_numbers_and_mark_the_lexicon(ranker, encoder):
    lexicon = Lexicon("toy", {"female": ("she", "her"), "male": ("he", "his")})
    before = attribute(ranker, encoder, QUERY, DOCUMENT)
    found = attribute(ranker, encoder, QUERY, DOCUMENT, WEIGHTS)
    sensitivity = torch.linspace(0, 1, 8)
    row = explanation(found, title="d1", lexicon=lexicon, sensitivity=sensitivity, weights=WEIGHTS, before=before)
    assert [word.text for word in row.words if word.group] == ["he", "he", "he"]
    assert {word.group for word in row.words} == {"", "male"}
    assert [word.contribution for word in row.words] == found.per_word.tolist()
    assert [sense.weight for sense in row.senses] == WEIGHTS.tolist()
    assert [sense.sensitivity for sense in row.senses] == sensitivity.tolist()
    assert [sense.contribution for sense in row.senses] == found.per_sense.tolist()
    assert sum(word.change for word in row.words) == pytest.approx(found.score - before.score, abs=1e-9)
    assert sum(sense.change for sense in row.senses) == pytest.approx(row.score - row.score_before, abs=1e-9)
    plain = explanation(before)
    assert {word.change for word in plain.words} == {None}
    assert {sense.weight for sense in plain.senses} == {1.0}
    assert plain.score_before is None
