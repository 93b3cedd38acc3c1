"""Maps from scores to probabilities, against scikit-learn's own calibrated classifiers."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.score_calibration import (
    Calibration,
    CalibrationFile,
    IsotonicMap,
    PlattMap,
    fitted_map,
)
from backpack_rank.reranking.scorer import Scorer

QUERY = "doctor in the ward"
DOCUMENTS = ["he saw his mother", "she saw her mother", "a bridge", "bread and fish"]


def judged(number=400, seed=0):
    """Scores far from centred, with relevance that rises with them."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(7, 4, size=number).astype(np.float32)
    relevant = generator.random(number) < 1 / (1 + np.exp(-(0.8 * scores - 7)))
    return scores, relevant


@pytest.mark.parametrize("seed", [0, 1])
def test_platt_predicts_what_scikit_learn_does(seed):
    """Its calibrated classifier fits the smoothed targets of Platt by another solver."""
    sklearn = pytest.importorskip("sklearn")
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Scores(ClassifierMixin, BaseEstimator):
        """A classifier whose decision is its only column."""

        def fit(self, columns, labels):
            self.classes_ = np.unique(labels)
            return self

        def decision_function(self, columns):
            return columns[:, 0]

        def predict(self, columns):
            return self.classes_[(columns[:, 0] > 0).astype(int)]

    scores, relevant = judged(seed=seed)
    columns = scores.astype(np.float64)[:, None]
    ready = Scores().fit(columns, relevant)
    other = CalibratedClassifierCV(FrozenEstimator(ready), method="sigmoid", cv=2, ensemble=False)
    other.fit(columns, relevant)
    expected = other.predict_proba(columns)[:, 1]
    fitted = fitted_map("platt", scores, relevant)
    assert np.abs(fitted(scores) - expected).max() < 2e-4, sklearn.__version__
    assert np.ptp(expected) > 0.5
    plain = 1 / (1 + np.exp(-(fitted.slope * scores.astype(float) + fitted.intercept)))
    assert fitted(scores) == pytest.approx(plain, abs=1e-12)


def test_platt_is_the_minimum_of_its_own_loss():
    """Cross entropy to the smoothed targets, minimised by scipy from another start."""
    pytest.importorskip("sklearn")
    from scipy.optimize import minimize

    scores, relevant = judged(60)
    positive, negative = relevant.sum(), (~relevant).sum()
    targets = np.where(relevant, (positive + 1) / (positive + 2), 1 / (negative + 2))

    def loss(numbers):
        odds = numbers[0] * scores.astype(float) + numbers[1]
        return np.sum(np.logaddexp(0, odds) - targets * odds)

    expected = minimize(loss, [0.1, 0.0], method="BFGS", tol=1e-12).x
    fitted = fitted_map("platt", scores, relevant)
    assert [fitted.slope, fitted.intercept] == pytest.approx(expected.tolist(), rel=1e-4)


def test_isotonic_predicts_what_scikit_learn_does():
    pytest.importorskip("sklearn")
    from sklearn.isotonic import IsotonicRegression

    scores, relevant = judged()
    other = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    other.fit(scores.astype(np.float64), relevant.astype(float))
    asked = np.linspace(-20, 40, 500)
    fitted = fitted_map("isotonic", scores, relevant)
    assert fitted(asked) == pytest.approx(other.predict(asked), abs=1e-12)
    assert (np.diff(fitted(asked)) >= 0).all()


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_what_is_written_gives_the_same_probabilities_bit_for_bit(tmp_path, method):
    pytest.importorskip("sklearn")
    scores, relevant = judged()
    maps = {alpha: fitted_map(method, scores + alpha, relevant) for alpha in (0.0, 1.0, 0.5)}
    calibration = Calibration(maps, "renditions_keep", method, "small/dev")
    calibration.write(tmp_path / "calibration.json")
    read = Calibration.read(tmp_path / "calibration.json")
    assert list(read.maps) == [1.0, 0.5, 0.0]
    assert (read.policy, read.method, read.data) == ("renditions_keep", method, "small/dev")
    for alpha in maps:
        before = calibration.probabilities(scores, alpha, "renditions_keep")
        after = read.probabilities(scores, alpha, "renditions_keep")
        assert before.tolist() == after.tolist()


def test_mistakes_in_fitting_are_named():
    pytest.importorskip("sklearn")
    scores, relevant = judged()
    with pytest.raises(ValueError, match="needs relevant pairs and others, and there are 0 and 9"):
        fitted_map("platt", scores[:9], np.zeros(9, dtype=bool))
    with pytest.raises(ValueError, match="method=spline: use one of platt, isotonic"):
        fitted_map("spline", scores, relevant)
    with pytest.raises(ValueError, match="relevant pairs have no higher scores than others"):
        fitted_map("platt", -scores, relevant)
    with pytest.raises(ValueError, match="all pairs have one score"):
        fitted_map("platt", np.ones(9, dtype=np.float32), np.arange(9) < 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(format="other"), "its format is 'other'"),
        (lambda content: content.pop("maps"), "'maps'"),
        (lambda content: content.update(maps=[]), r"maps=\[\] must be a list"),
        (lambda content: content["maps"][0].update(slope=-1), "slope=-1 must be a number above 0"),
        (lambda content: content["maps"][0].pop("slope"), "slope"),
        (lambda content: content["maps"][0].update(slope="a"), "slope=a must be a number above 0"),
        (lambda content: content.update(method="isotonic"), "slope"),
    ],
)
def test_another_file_is_no_calibration(tmp_path, change, message):
    path = tmp_path / "calibration.json"
    Calibration({1.0: PlattMap(1, 0)}, "renditions", "platt", "dev").write(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as refused:
        Calibration.read(path)
    assert str(path) in str(refused.value)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ValueError, match="is damaged, copy it again"):
        Calibration.read(path)


@pytest.mark.parametrize(
    ("scores", "probabilities", "message"),
    [
        ([0, 1], [0.5], "as many probabilities as scores"),
        ([], [], "as many"),
        ([1, 1], [0, 1], "must rise"),
        ([0, 1], [0.5, 0.4], "never fall"),
        ([0, 1], [0.5, 1.4], r"lie in \[0, 1\]"),
        ([0, float("nan")], [0, 1], "must rise"),
    ],
)
def test_an_isotonic_map_must_rise(scores, probabilities, message):
    with pytest.raises(ValueError, match=message):
        IsotonicMap(scores, probabilities)


def test_an_alpha_that_no_map_was_fitted_for_warns_once(caplog):
    maps = {1.0: PlattMap(1, 0), 0.0: PlattMap(2, 0)}
    calibration = Calibration(maps, "renditions_keep", "platt", "dev")
    scores = np.array([1.0])
    with caplog.at_level(logging.WARNING):
        assert calibration.probabilities(scores, 1.0, None) == maps[1.0](scores)
        assert calibration.probabilities(scores, 1.0, "any other") == maps[1.0](scores)
        assert calibration.probabilities(scores, 0.0, "renditions_keep") == maps[0.0](scores)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        assert calibration.probabilities(scores, 0.4, "renditions_keep") == maps[0.0](scores)
        assert calibration.probabilities(scores, 0.0, "paired_tokens") == maps[0.0](scores)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "alpha=0.4 of policy renditions_keep" in warning
    assert "fitted: 1, 0" in warning


@pytest.fixture
def calibrated(make_gpt2, pair_tokenizer, tmp_path):
    """Makes a reranker whose map has steps: many scores have one probability."""
    raw = PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer))
    middle = float(np.median(raw.predict([(QUERY, document) for document in DOCUMENTS])))
    places = [middle - 100, middle - 1e-4, middle + 1e-4, middle + 100]
    steps = IsotonicMap(places, [0.25, 0.25, 0.75, 0.75])
    maps = {1.0: steps, 0.0: IsotonicMap([-100.0, 100.0], [0.0, 1.0])}
    path = tmp_path / "calibration.json"
    Calibration(maps, "renditions_keep", "isotonic", "dev").write(path)

    def make(activation):
        return PointwiseReranker(
            Scorer(make_gpt2(), pair_tokenizer),
            activation=activation,
            calibration=CalibrationFile(path, "tiny"),
        )

    return make


def test_documents_keep_the_order_of_their_logits_where_probabilities_are_equal(calibrated):
    reranker = calibrated("calibrated")
    raw = reranker.rank(QUERY, DOCUMENTS, activation="logits")
    shown = reranker.rank(QUERY, DOCUMENTS)
    assert [row["corpus_id"] for row in shown] == [row["corpus_id"] for row in raw]
    assert [row["score"] for row in shown] == [0.75, 0.75, 0.25, 0.25]


def test_a_threshold_is_of_probabilities(calibrated):
    ranking = calibrated("calibrated").rank(QUERY, DOCUMENTS, score_threshold=0.5)
    everything = calibrated("calibrated").rank(QUERY, DOCUMENTS)
    assert list(ranking) == [row for row in everything if row["score"] >= 0.5]
    assert ranking.below_threshold == len(DOCUMENTS) - len(ranking)
    assert len(ranking) == 2


def test_an_activation_is_of_the_reranker_or_of_the_call(calibrated):
    pairs = [(QUERY, document) for document in DOCUMENTS]
    plain, ready = calibrated(None), calibrated("calibrated")
    logits = plain.predict(pairs)
    assert logits.dtype == np.float32
    assert ready.predict(pairs, activation="logits").tolist() == logits.tolist()
    at_zero = ready.at(0.0, "renditions")
    expected = np.clip((plain.predict(pairs, alpha=0.0).astype(float) + 100) / 200, 0, 1)
    assert at_zero.predict(pairs) == pytest.approx(expected, abs=1e-9)
    assert plain.predict(pairs, alpha=0.0, activation="calibrated") == pytest.approx(expected)
    sigmoid = 1 / (1 + np.exp(-logits.astype(float)))
    assert ready.predict(pairs, activation="sigmoid") == pytest.approx(sigmoid)
    with pytest.raises(ValueError, match="activation='softmax': use one of logits, sigmoid, cal"):
        plain.predict(pairs, activation="softmax")


def test_without_a_calibration_that_is_said_at_once(make_gpt2, pair_tokenizer):
    scorer = Scorer(make_gpt2(), pair_tokenizer)
    reranker = PointwiseReranker(scorer)
    message = r"activation=calibrated: GPT2ForRanking has no calibration.json: make it with"
    with pytest.raises(ValueError, match=message):
        reranker.predict([(" ", "an empty query would be refused later")], activation="calibrated")
    with pytest.raises(ValueError, match=message):
        PointwiseReranker(scorer, activation="calibrated")
    with pytest.raises(ValueError, match=r"http://localhost:1 has no calibration.json"):
        load("http://localhost:1", activation="calibrated")
