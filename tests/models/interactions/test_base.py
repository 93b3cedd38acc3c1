"""Gaussian kernels over a match matrix."""

import math

import pytest
import torch
from interaction_example import batch

from backpack_rank.models.interactions.base import KernelPooling, cosine_match


def test_the_exact_kernel_is_first_and_the_others_divide_the_interval():
    assert KernelPooling().means == pytest.approx(
        [1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9]
    )
    assert KernelPooling().widths == (0.001, *(0.1,) * 10)
    assert KernelPooling(5, 0.2, 0.01).means == pytest.approx([1.0, 0.75, 0.25, -0.25, -0.75])


def test_pooled_sums_are_those_of_loops_over_terms_and_kernels():
    torch.manual_seed(0)
    match = torch.rand(3, 4, 5) * 2 - 1
    match[0, 1, 2] = 1.0
    match[1, 0, 0] = 0.999
    query_mask = torch.arange(4)[None] < torch.tensor([4, 1, 0])[:, None]
    document_mask = torch.arange(5)[None] < torch.tensor([5, 3, 2])[:, None]
    pooled = KernelPooling()(match, query_mask, document_mask)
    means, widths = (
        [1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9],
        [0.001] + [0.1] * 10,
    )
    for text in range(3):
        for i in range(4):
            for k in range(11):
                total = 0.0
                for j in range(5):
                    if query_mask[text, i] and document_mask[text, j]:
                        difference = match[text, i, j].item() - means[k]
                        total += math.exp(-(difference**2) / (2 * widths[k] ** 2))
                assert pooled[text, i, k].item() == pytest.approx(total, abs=1e-5)


def test_gradients_of_the_pooling_are_those_of_finite_differences():
    torch.manual_seed(1)
    # Not the exact kernel, which is narrower than float32 can be differentiated at.
    pooling = KernelPooling(5, 0.3, 0.3)
    match = (torch.rand(2, 2, 3) * 1.6 - 0.8).requires_grad_()
    masks = (
        torch.tensor([[True, True], [True, False]]),
        torch.tensor([[True, True, False], [True, True, True]]),
    )
    weight = torch.randn(2, 2, 5)
    (pooling(match, *masks) * weight).sum().backward()
    assert match.grad is not None
    for place in range(match.numel()):
        moved = []
        for step in (1e-2, -1e-2):
            moved_match = match.detach().clone()
            moved_match.view(-1)[place] += step
            moved.append((pooling(moved_match, *masks).double() * weight).sum().item())
        expected = (moved[0] - moved[1]) / 2e-2
        assert match.grad.view(-1)[place].item() == pytest.approx(expected, abs=1e-2, rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_equal_words_match_exactly_in_every_number_format(dtype):
    query, query_mask, document, document_mask, query_ids, document_ids = batch([7, 5], [9, 6])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        match = cosine_match(query.to(dtype), document.to(dtype))
        exact = KernelPooling()(match, query_mask, document_mask)[..., 0]
    assert match.dtype == exact.dtype == torch.float32
    equal = (
        (query_ids[:, :, None] == document_ids[:, None])
        & query_mask[:, :, None]
        & document_mask[:, None]
    )
    assert equal.any()
    assert (exact - equal.sum(-1)).abs().max() < 1e-3


def test_cosines_are_those_of_the_definition():
    query, _, document, _, _, _ = batch([3], [4])
    query[0, 1] = 0
    match = cosine_match(query, document)[0]
    for i in range(3):
        for j in range(4):
            a, b = query[0, i].double(), document[0, j].double()
            norm = math.sqrt((a @ a).item() * (b @ b).item())
            assert match[i, j].item() == pytest.approx(
                (a @ b).item() / norm if norm else 0, abs=1e-6
            )


def test_a_zero_vector_spoils_no_gradient():
    query, _, document, _, _, _ = batch([3], [4])
    query[0, 1] = document[0, 0] = 0
    query.requires_grad_()
    cosine_match(query, document).square().sum().backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()
    assert (query.grad[0, 1] == 0).all()
    assert (query.grad[0, 0] != 0).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernels": 1}, "kernels=1 must be at least 2"),
        ({"sigma": 0.0}, "^sigma=0.0 must be above 0"),
        ({"exact_sigma": -1.0}, "exact_sigma=-1.0 must be above 0, or null"),
    ],
)
def test_impossible_kernels_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        KernelPooling(**options)
