"""What the dial does, in words, and which setting a person would choose."""

from __future__ import annotations

from backpack_rank.evaluation.results import Estimate, Summary, SystemResult
from backpack_rank.reporting.answer import SWAP, answer, best_setting


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


def test_an_answer_has_swap_change_bias_and_effectiveness():
    written = answer(
        "paired",
        row(1, 0.7, 0.2, 0.1, 0.06),
        row(0, 0.697, -0.02, -0.06, 0.003),
        lambda name: "RaB" in name,
    )
    assert written.policy == "paired"
    assert written.setting == (
        "At alpha 0 of paired, beside the ranker as it is (alpha 1), over 9 queries:"
    )
    assert written.changes == (
        "Swapping the words of one group for the other's in a document changes its score by 0.003 "
        "instead of 0.060 standard deviations (-95%, not significant).",
        "Rankings lean to the words of one group (|ARaB(tf)@10|, 0 is even) by "
        "0.020 [0.000, 0.060] instead of 0.200 [0.100, 0.250] (-90%, significant).",
        "The quality of the rankings (nDCG@10, 1 is perfect) is 0.697 instead of 0.700 "
        "(not significant).",
    )


def test_no_percentage_of_what_may_be_zero():
    written = answer("paired", row(1, 0.7, 0.02, -0.06), row(0.5, 0.7, 0.01, -0.06), lambda _: None)
    bias, quality = written.changes
    assert bias.endswith("by 0.010 [0.000, 0.060] instead of 0.020 [0.000, 0.070].")
    assert quality.endswith("(nDCG@10, 1 is perfect) is 0.700 instead of 0.700.")


def test_without_swaps_the_choice_has_the_smallest_bias_of_those_that_keep_the_effectiveness():
    base, kept, lost = row(1, 0.7, 0.2), row(0.5, 0.695, -0.1), row(0, 0.6, 0.01)
    assert best_setting(base, [kept, lost]) is kept
    assert best_setting(base, [lost]) is None


def test_the_choice_keeps_the_promise_best_and_takes_the_smaller_alpha_of_equal_ones():
    base = row(1, 0.7, 0.2, swap=0.02)
    half = row(0.5, 0.7, 0.01, swap=0.01)
    tenth, none = row(0.1, 0.7, 0.02, swap=0.00002), row(0, 0.7, 0.03, swap=0.00004)
    assert best_setting(base, [half, tenth, none]) is none, "bias of rankings does not decide"
    lost = row(0, 0.69, 0.0, swap=0.0)
    assert best_setting(base, [half, tenth, lost]) is tenth, "a loss above 1% forbids alpha 0"
