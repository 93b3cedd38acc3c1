"""Rankings that are drawn in place of the most probable one (sampling temperature; paper 003, section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from backpack_rank.data.passages import PassageList
from backpack_rank.listwise.base import list_rng

_PURPOSE = "sampling"


def check_temperature(temperature: float) -> float:
    """The temperature as a number. Raises ``ValueError`` unless it is finite and at least 0."""
    number = float(temperature)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"temperature={temperature} of a listwise ranker must be a finite number of at least 0")
    return number


def list_rngs(lists: Sequence[PassageList], temperature: float, seed: int) -> list[np.random.Generator | None]:
    """The chance of each list as it is shown: it depends on the seed, the query and the passages in their order.

    There is none at temperature 0, where nothing is drawn.

    Neither other lists nor batches change it, and the shuffles that permutation self-consistency draws with the same
    seed are independent of it.
    """
    return [list_rng(shown, seed, _PURPOSE) if temperature else None for shown in lists]


def add_gumbel(scores: np.ndarray, temperature: float, noise: np.random.Generator) -> np.ndarray:
    """Scores plus T times standard Gumbel noise, a number for each candidate. [m] -> [m]

    The largest of them is candidate i with probability exp(s_i / T) / sum_j exp(s_j / T) (the Gumbel-max trick).
    Sorted, they are a draw from the Plackett-Luce distribution with weights exp(s / T), in which every next place goes
    to one of the remaining candidates with just these probabilities, renormalised: which candidate is the largest says
    nothing about the order of the others.
    """
    return scores + temperature * noise.gumbel(size=scores.shape)


def log_scores(corrected: np.ndarray) -> np.ndarray:
    """Corrected probabilities (they sum to 1, some may be negative) as log-probabilities. [m] -> [m], -inf up to 0."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(corrected, 0.0))


def sample_scores(
    scores: np.ndarray, temperature: float, noise: np.random.Generator | None, *, corrected: bool = False
) -> np.ndarray:
    """Scores that sort into a random order; at temperature 0 those that were given.

    Args:
        scores: log-probabilities of the candidates; with ``corrected`` what a calibration made of their probabilities.
            float64 [m]
        temperature: T, 0 or above.
        noise: of the list; None at temperature 0.
        corrected: a candidate's weight is then its corrected probability to the power of 1 / T, as it is without a
            correction; those at or below 0 have no weight and stand behind all others, best first.

    Returns:
        Sorted from the largest, they are a draw as of :func:`perturbed`. Finite. float64 [m]
    """
    if noise is None or not temperature:
        return scores
    if not corrected:
        return add_gumbel(scores, temperature, noise)
    found = add_gumbel(log_scores(scores), temperature, noise)
    without = scores <= 0
    if without.all():
        return scores
    found[without] = found[~without].min() - 1 + scores[without]
    return found
