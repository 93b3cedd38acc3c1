"""Expected calibration error, against a count by hand and against torchmetrics."""

import numpy as np
import pytest
import torch
from torchmetrics.classification import BinaryCalibrationError

from backpack_rank.evaluation.calibration_error import calibration_error, change_of_error


def by_hand(probabilities, relevant, bins):
    """Guo et al. 2017, eq. 3, bin by bin."""
    total = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        inside = (probabilities >= low) & (probabilities < high)
        if number == bins - 1:
            inside |= probabilities == 1
        if inside.any():
            gap = abs(relevant[inside].mean() - probabilities[inside].mean())
            total += inside.sum() / len(probabilities) * gap
    return total


def predictions(seed, number=500):
    generator = np.random.default_rng(seed)
    probabilities = generator.beta(0.4, 1.2, size=number)
    relevant = generator.random(number) < probabilities**2
    return probabilities, relevant


@pytest.mark.parametrize("bins", [1, 2, 15, 100])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_error_is_that_of_a_count_by_hand_and_of_torchmetrics(seed, bins):
    probabilities, relevant = predictions(seed)
    error = calibration_error(probabilities, relevant, bins)
    assert error == pytest.approx(by_hand(probabilities, relevant, bins), abs=1e-12)
    metric = BinaryCalibrationError(n_bins=bins, norm="l1")
    other = metric(torch.tensor(probabilities), torch.tensor(relevant).int())
    assert error == pytest.approx(float(other), abs=1e-6)
    assert error > 0.01


def test_the_ends_of_the_scale_belong_to_bins_and_a_perfect_prediction_has_no_error():
    probabilities = np.array([0.0, 0.0, 1.0, 1.0])
    assert calibration_error(probabilities, np.array([0, 0, 1, 1])) == 0
    assert calibration_error(probabilities, np.array([1, 1, 0, 0])) == 1
    with pytest.raises(ValueError, match="at least one prediction"):
        calibration_error(np.array([]), np.array([]))
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"predictions lie outside \[0, 1\]"):
            calibration_error(np.array([wrong]), np.array([1]))


def test_a_change_comes_with_an_interval_over_queries():
    probabilities, relevant = predictions(3, 2000)
    queries = [f"q{row // 20}" for row in range(2000)]
    truth = probabilities**2
    change, low, high = change_of_error(truth, probabilities, relevant, queries)
    expected = calibration_error(probabilities, relevant) - calibration_error(truth, relevant)
    assert change == pytest.approx(expected, abs=1e-12)
    assert 0 < low < change < high
    assert change_of_error(truth, truth, relevant, queries) == (0, 0, 0)
    again = change_of_error(truth, probabilities, relevant, queries)
    assert again == (change, low, high)


def test_the_interval_is_that_of_drawing_queries_one_by_one():
    """The same draws, with whole queries put together and the error counted by hand."""
    probabilities, relevant = predictions(4, 60)
    queries = np.repeat(np.arange(6), 10)
    after = np.clip(probabilities + 0.2, 0, 1)
    _, low, high = change_of_error(
        probabilities, after, relevant, queries.astype(str), resamples=50
    )
    drawn = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6), size=50)
    changes = []
    for times in drawn:
        rows = np.concatenate(
            [np.tile(np.flatnonzero(queries == query), count) for query, count in enumerate(times)]
        )
        errors = [by_hand(values[rows], relevant[rows], 15) for values in (probabilities, after)]
        changes.append(errors[1] - errors[0])
    assert [low, high] == pytest.approx(np.percentile(changes, [2.5, 97.5]).tolist(), abs=1e-12)
