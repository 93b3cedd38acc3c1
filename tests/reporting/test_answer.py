"""What the dial does, in words, and which setting a person would choose."""

from __future__ import annotations

from backpack_rank.evaluation.results import Estimate, Summary, SystemResult
from backpack_rank.reporting.answer import SWAP, least_bias, sentence


def row(
    alpha: float, quality: float, bias: float, low: float | None = None, swap: float | None = None
) -> SystemResult:
    ends = (low, bias + 0.05) if low is not None else (None, None)
    further = (
        {}
        if swap is None
        else {"swapped documents": Summary({SWAP: Estimate(swap, swap, swap - 0.01, swap)}, 9)}
    )
    blocks = (
        Summary({"nDCG@10": Estimate(quality, quality)}, 9),
        Summary({"ARaB(tf)@10": Estimate(bias, 1, *ends)}, 9),
    )
    return SystemResult(f"alpha={alpha:g}", alpha, *blocks, further)


def test_a_sentence_has_bias_swap_change_and_effectiveness():
    written = sentence(
        "paired",
        row(1, 0.7, 0.2, 0.1, 0.06),
        row(0, 0.697, -0.02, -0.06, 0.003),
        lambda name: "RaB" in name,
    )
    assert written == (
        "The dial at alpha 0 (alpha 1 is the ranker as it is), policy paired, over 9 queries: "
        "swapping the words of one group for the other's in a document changes its score by 0.003 "
        "standard deviations, 0.060 at alpha 1 (-95%, not significant); rankings lean to the words "
        "of one group (|ARaB(tf)@10|, 0 is even) by 0.020 [0.000, 0.060], 0.200 [0.100, 0.250] at "
        "alpha 1 (-90%, significant); the quality of the rankings (nDCG@10, 1 is perfect) is "
        "0.697, 0.700 at alpha 1 (not significant)."
    )


def test_no_percentage_of_what_may_be_zero():
    written = sentence(
        "paired", row(1, 0.7, 0.02, -0.06), row(0.5, 0.7, 0.01, -0.06), lambda _: None
    )
    bias = "(|ARaB(tf)@10|, 0 is even) by 0.010 [0.000, 0.060], 0.020 [0.000, 0.070] at alpha 1;"
    assert bias in written
    assert written.endswith("(nDCG@10, 1 is perfect) is 0.700, 0.700 at alpha 1.")


def test_the_choice_has_the_smallest_bias_of_those_that_keep_the_effectiveness():
    base, kept, lost = row(1, 0.7, 0.2), row(0.5, 0.695, -0.1), row(0, 0.6, 0.01)
    assert least_bias(base, [kept, lost]) is kept
    assert least_bias(base, [lost]) is None
