"""What all interaction models promise: padding, empty and short texts, gradients, half precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interaction_example import EMBEDDING, VOCABULARY, alone, batch, random_weights

from backpack_rank.models.interactions.knrm import ConvKnrm
from backpack_rank.models.interactions.match_pyramid import MatchPyramid
from backpack_rank.models.interactions.pacrr import Pacrr
from backpack_rank.models.interactions.tk import Tk

SIZES = {
    "conv_knrm": (ConvKnrm, {"filters": 8}),
    "match_pyramid": (MatchPyramid, {}),
    "match_pyramid_dot": (MatchPyramid, {"match": "dot"}),
    "pacrr": (Pacrr, {"query_length": 5}),
    "pacrr_idf": (Pacrr, {"query_length": 5, "vocabulary_size": VOCABULARY}),
    "tk": (Tk, {"heads": 4, "head_size": 8}),
}


def made(name, scale=0.2):
    kind, sizes = SIZES[name]
    model = random_weights(kind(EMBEDDING, **sizes), scale=scale)
    if name == "pacrr_idf":
        model.set_idf(torch.rand(VOCABULARY, generator=torch.Generator().manual_seed(2)))
    return model


@pytest.mark.parametrize("name", SIZES)
@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 12)), min_size=1, max_size=4),
    wider=st.tuples(st.integers(0, 5), st.integers(0, 9)),
    seed=st.integers(0, 1000),
)
@torch.no_grad()
def test_a_padded_batch_has_the_scores_of_each_text_alone(name, lengths, wider, seed):
    model = made(name)
    queries, documents = [q for q, _ in lengths], [d for _, d in lengths]
    widths = max(queries) + wider[0], max(documents) + wider[1]
    arguments = batch(queries, documents, seed, *widths)
    scores = model(*arguments)
    assert scores.shape == (len(lengths),)
    expected = torch.cat([model(*alone(arguments, row)) for row in range(len(lengths))])
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SIZES)
@torch.no_grad()
def test_what_stands_at_padding_is_not_looked_at(name):
    model = made(name)
    arguments = list(batch([3, 1], [6, 0], query_width=5, document_width=8))
    expected = model(*arguments)
    for values, mask in ((0, 1), (2, 3)):
        arguments[values] = arguments[values].masked_fill(~arguments[mask][..., None], float("nan"))
    for ids, mask in ((4, 1), (5, 3)):
        arguments[ids] = arguments[ids].masked_fill(~arguments[mask], 0)
    assert torch.equal(model(*arguments), expected)


@pytest.mark.parametrize("name", SIZES)
@torch.no_grad()
def test_scores_depend_on_the_document(name):
    model = made(name)
    query, query_mask, document, mask, query_ids, document_ids = batch([3, 3], [6, 6])
    matching = torch.cat([query[:1], document[:1, 3:]], dim=1)
    scores, other = (
        model(query[:1], query_mask[:1], d, mask[:1], query_ids[:1], document_ids[:1])
        for d in (document[:1], matching)
    )
    assert (scores - other).abs().item() > 1e-4


@pytest.mark.parametrize("name", SIZES)
def test_every_parameter_and_word_vector_gets_a_gradient(name):
    kind, sizes = SIZES[name]
    torch.manual_seed(0)
    model = kind(EMBEDDING, **sizes)
    arguments = list(batch([5, 2, 4], [12, 3, 0], seed=1))
    for place in (0, 2):
        arguments[place] = arguments[place].requires_grad_()
    model(*arguments).sum().backward()
    for parameter_name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert torch.isfinite(gradient).all(), parameter_name
        if parameter_name.endswith("projections.bias"):
            # A key bias adds the same to all logits of a query, which the softmax takes away again.
            queries, _, values = gradient.chunk(3)
            gradient = torch.cat([queries, values])
        assert gradient.abs().max() > 0, parameter_name
    for place in (0, 2):
        gradient = arguments[place].grad
        assert torch.isfinite(gradient).all()
        assert (gradient[~arguments[place + 1]] == 0).all()
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_half_precision_scores_are_near(name, dtype):
    model = made(name)
    arguments = batch([4, 2], [9, 0], seed=3)
    expected = model(*arguments)
    model.to(dtype)
    scores = model(arguments[0].to(dtype), arguments[1], arguments[2].to(dtype), *arguments[3:])
    assert scores.dtype == dtype
    assert (scores.float() - expected).abs().max() < 0.1 * expected.abs().max() + 0.05


@pytest.mark.parametrize("name", SIZES)
@torch.no_grad()
def test_autocast_gives_finite_scores(name):
    model = made(name)
    arguments = batch([4, 2], [9, 0], seed=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast_scores = model(*arguments)
    assert (autocast_scores.float() - model(*arguments)).abs().max() < 0.1 * model(
        *arguments
    ).abs().max() + 0.05
