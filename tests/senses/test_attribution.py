"""Contributions of senses and tokens: they add up, and they are those of a slow formula."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.token_shift import SCOPES, TokenClasses, token_shift
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.senses.attribution import ExplainedSense, attribute, attribute_batch, explanation
from backpack_rank.senses.views import View

QUERY = "doctor in the ward"
DOCUMENT = "The doctor said he would see the patient, and he did: he said so."
WEIGHTS = torch.tensor([1.0, 0.0, 0.5, 2.0, 1.0, 0.3, 1.0, 0.7])
WEIGHTED = View(WEIGHTS)


@pytest.fixture
def ranker(make_backpack):
    return make_backpack(dtype=torch.float64)


def mixing_weights(ranker, ids):
    """a[l, j] of the last token by plain attention, a softmax over tokens. [k][n]"""
    hidden = ranker.backpack(torch.tensor([ids])).hidden
    queries, keys = ranker.backpack.sense_weight_net.split(hidden[0])
    k = ranker.config.num_senses
    weights = []
    for sense in range(k):
        logits = []
        for token in range(len(ids)):
            logits.append((queries[-1, sense] @ keys[token, sense]).item() / math.sqrt(32 / k))
        exponentials = [math.exp(logit - max(logits)) for logit in logits]
        weights.append([value / sum(exponentials) for value in exponentials])
    return weights


def gelu(x):
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


@torch.no_grad()
def slow(ranker, ids, weights):
    """Contributions token by token; the path integral of a head with one hidden layer in closed
    form.

    Along t o, the input of hidden unit h is b + t z, so the mean slope of its gelu is (gelu(b + z)
    - gelu(b)) / z.
    """
    a = mixing_weights(ranker, ids)
    # What sense l of token j adds to the mix. [k, n, d]
    parts = torch.empty(len(a), len(ids), ranker.config.hidden_size, dtype=torch.float64)
    for token, token_id in enumerate(ids):
        senses = ranker.backpack.senses(torch.tensor(token_id))
        for sense in range(len(a)):
            parts[sense, token] = weights[sense] * a[sense][token] * senses[sense]
    mix = parts.sum(dim=(0, 1))
    inner, bias = ranker.head.dense.weight, ranker.head.dense.bias
    slopes = []
    for b, z in zip(bias.tolist(), (inner @ mix).tolist(), strict=True):
        slopes.append((gelu(b + z) - gelu(b)) / z)
    gradient = (ranker.head.out.weight[0] * torch.tensor(slopes, dtype=torch.float64)) @ inner
    return parts @ gradient


def score_of(ranker, pair_tokenizer, query=QUERY, document=DOCUMENT, **options):
    with torch.no_grad():
        return ranker(
            PackedBatch.from_sequences(pair_tokenizer.pairs(query, [document])), **options
        ).scores.item()


def test_contributions_are_those_of_a_slow_formula(ranker, pair_tokenizer):
    attribution = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT)
    assert len(set(attribution.alignment.ids)) < len(attribution.alignment.ids), (
        "tokens must repeat"
    )
    torch.testing.assert_close(
        attribution.contributions,
        slow(ranker, attribution.alignment.ids, [1.0] * 8),
        rtol=1e-7,
        atol=1e-9,
    )


def test_weights_scale_the_senses_before_the_head(ranker, pair_tokenizer):
    attribution = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, WEIGHTED)
    expected = slow(ranker, attribution.alignment.ids, WEIGHTS.tolist())
    torch.testing.assert_close(attribution.contributions, expected, rtol=1e-6, atol=1e-7)
    assert attribution.contributions[1].abs().max() == 0
    plain = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT)
    scaled = plain.contributions * WEIGHTS.double()[:, None]
    assert (attribution.contributions - scaled).abs().max() > 1e-3, "the head is not linear"
    assert attribution.score == pytest.approx(
        score_of(ranker, pair_tokenizer, sense_weights=WEIGHTS), abs=1e-9
    )


WORDS = ["he", "she", "doctor", "ward", "the", "his", "stepmother", ",", ".", "漢"]
words = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
# A longer query may leave no room for a document: one word has up to eight tokens.
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


@settings(max_examples=25, deadline=None)
@given(
    queries,
    words,
    st.integers(0, 3),
    st.lists(st.floats(0, 3), min_size=8, max_size=8),
)
def test_contributions_add_up_to_the_score_less_that_of_the_empty_mix(
    make_backpack, pair_tokenizer, query, document, seed, weights
):
    ranker = make_backpack(seed, torch.float64)
    view = View(torch.tensor(weights))
    expected = score_of(ranker, pair_tokenizer, query, document, sense_weights=view.sense_weights)
    empty = ranker.head(torch.zeros(32, dtype=torch.float64)).item()
    attribution = attribute(ranker, pair_tokenizer, query, document, view)
    assert attribution.score == pytest.approx(expected, abs=1e-8)
    assert attribution.empty_score == pytest.approx(empty, abs=1e-12)
    for sums in (
        attribution.contributions,
        attribution.per_sense,
        attribution.per_token,
        attribution.per_word,
    ):
        assert sums.sum().item() == pytest.approx(
            expected - empty, abs=1e-5 * max(1e-2, abs(expected - empty))
        )
    assert attribution.residual == pytest.approx(
        expected - empty - attribution.contributions.sum().item(), abs=1e-8
    )


@pytest.mark.parametrize("sharpness", [20, 300])
def test_a_head_with_sharp_bends_is_followed_closely(ranker, pair_tokenizer, sharpness):
    with torch.no_grad():
        ranker.head.dense.weight.mul_(sharpness)
    attribution = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT)
    difference = attribution.score - attribution.empty_score
    assert attribution.contributions.sum().item() == pytest.approx(difference, rel=1e-5)
    assert abs(attribution.residual) < 1e-4 * abs(difference)
    expected = slow(ranker, attribution.alignment.ids, [1.0] * 8)
    torch.testing.assert_close(
        attribution.contributions, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_contributions_add_up_in_every_number_format(make_backpack, pair_tokenizer, dtype):
    ranker = make_backpack(dtype=dtype)
    attribution = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT)
    assert abs(attribution.residual) < 1e-8
    assert attribution.score == pytest.approx(
        score_of(ranker, pair_tokenizer), rel=1e-4 if dtype == torch.float32 else 0.1
    )
    assert ranker.dtype == dtype
    assert next(ranker.head.parameters()).dtype == dtype


def test_a_linear_head_gives_what_the_score_loses_without_a_part(ranker, pair_tokenizer):
    with torch.no_grad():
        ranker.head.dense.bias.fill_(1000.0)  # up there gelu(x) is x
    attribution = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, WEIGHTED)
    ids = attribution.alignment.ids
    a, readout = mixing_weights(ranker, ids), ranker.head.out.weight[0] @ ranker.head.dense.weight
    senses = ranker.backpack.senses(torch.tensor(ids))
    for sense, token in ((0, 0), (2, 5), (3, len(ids) - 1), (7, 9)):
        lost = WEIGHTS[sense].item() * a[sense][token] * (senses[token, sense] @ readout).item()
        assert attribution.contributions[sense, token].item() == pytest.approx(lost, rel=1e-8)
    empty = 1000.0 * ranker.head.out.weight.sum() + ranker.head.out.bias
    assert attribution.empty_score == pytest.approx(empty.item())
    assert abs(attribution.residual) < 1e-9


def test_a_batch_gives_each_text_what_it_gets_alone(ranker, pair_tokenizer):
    texts = pair_tokenizer.pairs(QUERY, [DOCUMENT, "", "she said"])
    attributions = attribute_batch(ranker, PackedBatch.from_sequences(texts), WEIGHTED)
    for row, document in enumerate([DOCUMENT, "", "she said"]):
        alone = attribute(ranker, pair_tokenizer, QUERY, document, WEIGHTED)
        n = len(texts[row])
        torch.testing.assert_close(
            attributions.contributions[row, :, :n], alone.contributions, rtol=1e-7, atol=1e-9
        )
        assert not attributions.contributions[row, :, n:].any()
        assert attributions.scores[row].item() == pytest.approx(alone.score, abs=1e-9)


def test_a_cut_document_is_explained_as_it_was_scored(ranker, tokenizer):
    short = PairTokenizer(tokenizer, 16)
    attribution = attribute(ranker, short, QUERY, DOCUMENT)
    assert len(attribution.tokens) == 16
    assert attribution.alignment.cut > 0
    assert attribution.score == pytest.approx(score_of(ranker, short), abs=1e-9)
    assert attribution.contributions.sum().item() == pytest.approx(
        attribution.score - attribution.empty_score, abs=1e-9
    )


def test_an_empty_document_leaves_query_separator_and_end(ranker, pair_tokenizer):
    attribution = attribute(ranker, pair_tokenizer, QUERY, "")
    assert set(attribution.segments) == {"query", "separator", "end"}
    assert attribution.score == pytest.approx(
        score_of(ranker, pair_tokenizer, document=""), abs=1e-9
    )


def test_words_have_the_sum_of_their_tokens(ranker, pair_tokenizer):
    attribution = attribute(ranker, pair_tokenizer, QUERY, "stepmother said")
    index = [word.text for word in attribution.words].index("stepmother")
    word = attribution.words[index]
    assert word.end - word.start > 1
    positions = range(word.start, word.end)
    of_tokens = attribution.contributions[:, list(positions)]
    assert attribution.per_word[index].item() == pytest.approx(of_tokens.sum().item())


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_shifted_tokens_are_explained_as_they_are_scored(ranker, pair_tokenizer, scope, alpha):
    he, she = (int(pair_tokenizer.encode([word])[0][0]) for word in ("he", "she"))
    classes = TokenClasses((" he",), ((he, she),), WordBoundaries.of(pair_tokenizer.tokenizer))
    shift = token_shift(ranker, classes, scope, alpha)
    plain = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT)
    expected = score_of(ranker, pair_tokenizer, token_shift=shift, sense_weights=WEIGHTS)
    shifted = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, View(WEIGHTS, shift))
    assert (
        abs(shifted.score - attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, WEIGHTED).score)
        > 1e-6
    )
    assert shifted.score == pytest.approx(expected, abs=1e-9)
    row = explanation(shifted, before=plain)
    assert row.score_before == plain.score
    for parts in (row.senses, row.words):
        assert sum(part.change for part in parts) == pytest.approx(
            shifted.score - plain.score, abs=1e-8
        )


def test_alpha_at_zero_takes_a_sense_out_of_the_change(ranker, pair_tokenizer):
    before = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT)
    row = explanation(attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, WEIGHTED), before=before)
    assert row.senses[1].change == pytest.approx(-before.per_sense[1].item(), abs=1e-8)


def test_changes_of_different_texts_are_refused(ranker, pair_tokenizer):
    before, after = (
        attribute(ranker, pair_tokenizer, QUERY, document) for document in ("he said", "she said")
    )
    with pytest.raises(ValueError, match="different texts"):
        explanation(after, before=before)


def test_the_ranker_is_left_as_it_was(make_backpack, pair_tokenizer):
    ranker = make_backpack(dropout=0.3).train()
    state = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    first = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, WEIGHTED)
    assert ranker.training
    assert all(parameter.grad is None for parameter in ranker.parameters())
    assert all(torch.equal(tensor, state[name]) for name, tensor in ranker.state_dict().items())
    again = attribute(ranker.eval(), pair_tokenizer, QUERY, DOCUMENT, WEIGHTED)
    assert torch.equal(first.contributions, again.contributions), "dropout plays no part"


def test_it_works_inside_blocks_without_gradients(ranker, pair_tokenizer):
    expected = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, WEIGHTED).contributions
    for block in (torch.no_grad(), torch.inference_mode()):
        with block:
            attribution = attribute(
                ranker, pair_tokenizer, QUERY, DOCUMENT, View(WEIGHTS * 1.0)
            ).contributions
        assert torch.equal(attribution, expected)


def test_wrong_weights_and_empty_queries_are_refused(ranker, pair_tokenizer):
    with pytest.raises(ValueError, match="need 8 finite weights"):
        attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, View(torch.ones(3)))
    with pytest.raises(ValueError, match="query is empty"):
        attribute(ranker, pair_tokenizer, "", DOCUMENT, WEIGHTED)


def test_a_ranker_without_senses_is_refused(make_gpt2, pair_tokenizer):
    with pytest.raises(
        TypeError, match=r"the score of a GPT2ForRanking does not split.*use a Backpack"
    ):
        attribute(make_gpt2(), pair_tokenizer, QUERY, DOCUMENT)


def test_rows_for_the_report_carry_the_numbers_and_mark_the_lexicon(ranker, pair_tokenizer):
    lexicon = Lexicon("toy", {"female": ("she", "her"), "male": ("he", "his")})
    before = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT)
    attribution = attribute(ranker, pair_tokenizer, QUERY, DOCUMENT, WEIGHTED)
    sensitivity = torch.linspace(0, 1, 8)
    row = explanation(
        attribution,
        title="d1",
        lexicon=lexicon,
        sensitivity=sensitivity,
        weights=WEIGHTS,
        before=before,
    )
    assert [word.text for word in row.words if word.group] == ["he", "he", "he"]
    assert {word.group for word in row.words} == {"", "male"}
    assert [word.contribution for word in row.words] == attribution.per_word.tolist()
    assert [sense.weight for sense in row.senses] == WEIGHTS.tolist()
    assert [sense.sensitivity for sense in row.senses] == sensitivity.tolist()
    assert [sense.contribution for sense in row.senses] == attribution.per_sense.tolist()
    assert sum(word.change for word in row.words) == pytest.approx(
        attribution.score - before.score, abs=1e-9
    )
    assert sum(sense.change for sense in row.senses) == pytest.approx(
        row.score - row.score_before, abs=1e-9
    )
    plain = explanation(before)
    assert {word.change for word in plain.words} == {None}
    assert {sense.weight for sense in plain.senses} == {1.0}
    assert plain.score_before is None


def test_a_sense_without_a_name_is_called_by_its_number():
    assert ExplainedSense(3, 0.5).name == "3"
    assert ExplainedSense(3, 0.5, name="gender: female").name == "gender: female"
