r"""Scores as probabilities of relevance: maps that are fitted on judged pairs and kept as JSON.

A raw score orders the documents of one query, and means nothing beside that of another. A monotone
map from scores to probabilities, fitted on pairs with judgements, makes it comparable:

- ``platt``: p = 1 / (1 + exp(-(slope s + intercept))), fitted to the targets
  (N+ + 1) / (N+ + 2) of relevant pairs and 1 / (N- + 2) of others (Platt 1999, eq. 1 and below);
- ``isotonic``: steps that never fall, by pool-adjacent-violators (Zadrozny and Elkan 2002),
  straight lines between them, constant beyond the scores that were seen.

The dial moves scores, so there is a map for each alpha that one is fitted for.
"""

from __future__ import annotations

import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backpack_rank.checks import UsageError, one_of
from backpack_rank.commands import install
from backpack_rank.data.model_files import CalibrationSettings, read_settings
from backpack_rank.files import write_text

log = logging.getLogger(__name__)
CALIBRATION = "calibration.json"
"""File beside a ranker."""
FORMAT = "backpack_rank calibration 1"
METHODS = ("platt", "isotonic")


class CalibrationMap(ABC):
    """A monotone map from raw scores to probabilities of relevance; call it with scores."""

    @abstractmethod
    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities of scores [n]. [n] float64"""

    @abstractmethod
    def numbers(self) -> dict[str, Any]:
        """What makes it, for the file."""


class PlattMap(CalibrationMap):
    """Where judgements are few: a sigmoid with two numbers.

    >>> PlattMap(slope=2.0, intercept=-1.0)(np.array([0.5]))
    array([0.5])
    """

    def __init__(self, slope: float, intercept: float) -> None:
        """
        Args:
            slope: above 0.
            intercept: of the log odds.

        Raises:
            ValueError: a number is not finite, or the slope is not above 0.
        """
        if not (math.isfinite(slope) and math.isfinite(intercept) and slope > 0):
            raise ValueError(f"slope={slope} must be above 0, and intercept={intercept} finite")
        self.slope = float(slope)
        self.intercept = float(intercept)

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        # Here, because it takes long to import.
        from scipy.special import expit

        values: np.ndarray = expit(self.slope * scores.astype(np.float64) + self.intercept)
        return values

    def numbers(self) -> dict[str, Any]:
        return {"slope": self.slope, "intercept": self.intercept}


class IsotonicMap(CalibrationMap):
    """Where there are thousands of judgements: any shape that never falls.

    >>> IsotonicMap([0.0, 1.0], [0.2, 0.8])(np.array([-3.0, 0.5, 9.0]))
    array([0.2, 0.5, 0.8])
    """

    def __init__(self, scores: Sequence[float], probabilities: Sequence[float]) -> None:
        """
        Args:
            scores: where the probability is known, rising. [t]
            probabilities: never falling, in [0, 1]. [t]

        Raises:
            ValueError: they are not as said.
        """
        at = np.asarray(scores, dtype=np.float64)
        values = np.asarray(probabilities, dtype=np.float64)
        if at.ndim != 1 or at.shape != values.shape or not at.size:
            raise ValueError("an isotonic map needs as many probabilities as scores")
        if not np.isfinite(at).all() or (np.diff(at) <= 0).any():
            raise ValueError("scores of an isotonic map must rise")
        if not ((values >= 0) & (values <= 1)).all() or (np.diff(values) < 0).any():
            raise ValueError("probabilities of an isotonic map lie in [0, 1] and never fall")
        self.scores = at
        self.probabilities = values

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.interp(scores.astype(np.float64), self.scores, self.probabilities)
        return values

    def numbers(self) -> dict[str, Any]:
        return {"scores": self.scores.tolist(), "probabilities": self.probabilities.tolist()}


def check_can_fit() -> None:
    """Before minutes of scoring: fitting needs scikit-learn, and nothing else does.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(f"a calibration needs scikit-learn: {install('calibrate')}") from error


def fitted_map(method: str, scores: np.ndarray, relevant: np.ndarray) -> CalibrationMap:
    """Fit a map on judged pairs, with scikit-learn.

    Args:
        method: one of :data:`METHODS`.
        scores: raw scores. [n]
        relevant: whether each pair is. bool [n]

    Raises:
        UsageError: scikit-learn is not installed.
        ValueError: all pairs are relevant or none is, or relevant ones have no higher scores.
    """
    one_of("method", method, METHODS)
    positive = int(relevant.sum())
    negative = len(relevant) - positive
    if not positive or not negative:
        raise ValueError(
            f"a calibration needs relevant pairs and others, and there are {positive} and "
            f"{negative}"
        )
    check_can_fit()
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    values = scores.astype(np.float64)
    if method == "isotonic":
        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        model.fit(values, relevant.astype(np.float64))
        return IsotonicMap(model.X_thresholds_, model.y_thresholds_)

    # A target t between 0 and 1 is a relevant pair of weight t and another one of weight 1 - t.
    targets = np.where(relevant, (positive + 1) / (positive + 2), 1 / (negative + 2))
    # Scores are centred and scaled, which the solver needs and which is undone behind it.
    centre, scale = values.mean(), values.std()
    if not scale > 0:
        raise ValueError("all pairs have one score: there is nothing to calibrate")
    column = ((values - centre) / scale)[:, None]
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    model.fit(
        np.concatenate([column, column]),
        np.repeat([1, 0], len(values)),
        sample_weight=np.concatenate([targets, 1 - targets]),
    )
    slope = float(model.coef_[0, 0]) / scale
    if slope <= 0:
        raise ValueError(
            "relevant pairs have no higher scores than others, so no probability can follow the "
            "scores"
        )
    return PlattMap(slope, float(model.intercept_[0]) - slope * centre)


class Calibration:
    """Probabilities of relevance from raw scores at an alpha.

        calibration = Calibration.read("ranker/calibration.json")
        calibration.probabilities(scores, alpha=0.5, policy="renditions_keep")

    Attributes:
        maps: for each alpha, from the largest.
        policy: name of the policy that the alphas are of.
        method: how the maps were fitted.
        data: on what.
    """

    def __init__(
        self, maps: Mapping[float, CalibrationMap], policy: str, method: str, data: str
    ) -> None:
        self.maps = dict(sorted(maps.items(), reverse=True))
        self.policy = policy
        self.method = method
        self.data = data
        self._has_warned = False

    def probabilities(self, scores: np.ndarray, alpha: float, policy: str | None) -> np.ndarray:
        """Probabilities of relevance; without a map of this alpha, by that of the nearest one.

        Says so once, as it does of alphas of another policy. [n] float64

        Args:
            scores: raw scores. [n]
            alpha: that they were computed at.
            policy: name of the policy that was turned; at alpha = 1 any.
        """
        nearest = min(self.maps, key=lambda fitted: abs(fitted - alpha))
        fits = math.isclose(nearest, alpha, abs_tol=1e-9)
        fits = fits and (math.isclose(alpha, 1) or policy == self.policy)
        if not fits and not self._has_warned:
            self._has_warned = True
            log.warning(
                "probabilities at alpha=%g of policy %s are by a map that was fitted at alpha=%g "
                "of policy %s (fitted: %s): they may be off; fit it with backpack-rank calibrate "
                "alphas=[...]",
                alpha,
                policy,
                nearest,
                self.policy,
                ", ".join(f"{fitted:g}" for fitted in self.maps),
            )
        return self.maps[nearest](scores)

    def write(self, path: str | Path) -> None:
        """Keep it as a small JSON file, complete or not at all."""
        rows = []
        for alpha, of_alpha in self.maps.items():
            rows.append({"alpha": alpha, **of_alpha.numbers()})
        content = {
            "format": FORMAT,
            "method": self.method,
            "policy": self.policy,
            "data": self.data,
            "maps": rows,
        }
        write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Calibration:
        """What :meth:`write` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is another file, or damaged.
        """
        content = read_settings(Path(path), CalibrationSettings)
        try:
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
            maps: dict[float, CalibrationMap] = {}
            kind = PlattMap if content["method"] == "platt" else IsotonicMap
            for row in content["maps"]:
                alpha = float(row["alpha"])
                if alpha in maps:
                    raise ValueError(f"it has two maps for alpha={alpha:g}")
                numbers = {name: value for name, value in row.items() if name != "alpha"}
                maps[alpha] = kind(**numbers)
            names = (content[name] for name in ("policy", "method", "data"))
            return cls(maps, *names)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is no calibration of a ranker: {error}") from error


class CalibrationFile:
    """Where the calibration of a ranker is looked for; it is read when it is asked for.

    Args:
        path: of the file; None: nobody knows of one.
        owner: whose it is, for the sentence that it is missing.
    """

    def __init__(self, path: Path | None, owner: str) -> None:
        self.path = path
        self._owner = owner
        self._read: Calibration | None = None

    def calibration(self) -> Calibration:
        """The calibration.

        Raises:
            ValueError: there is no file, or it is damaged.
        """
        if self._read is None:
            if self.path is None or not self.path.is_file():
                raise ValueError(
                    f"activation=calibrated: {self._owner} has no {CALIBRATION}: make it with "
                    "backpack-rank calibrate checkpoint=FOLDER data=..."
                )
            self._read = Calibration.read(self.path)
        return self._read
