"""Six fits of a map that erases an attribute, against their definitions and other libraries."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from backpack_rank.models.pooled_map import PooledMap, kept_vectors, mapped_vectors
from backpack_rank.senses.erasure import FITS, fit_map, logistic_weights


def texts_of_groups(groups=2, texts=60, size=12, seed=0, rank=None):
    """Vectors of correlated numbers, in which groups differ by a shift and by noise. [N, G, d]"""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(rank or size, size))
    of_text = rng.normal(size=(texts, 1, len(mixing)))
    shift = 2 * rng.normal(size=(1, groups, len(mixing)))
    noise = 0.3 * rng.normal(size=(texts, groups, len(mixing)))
    return (of_text + shift + noise) @ mixing + 5


def erased(vectors, *options, alpha=0.0):
    fitted = fit_map(vectors, *options)
    at_alpha = PooledMap(fitted.mean, fitted.left, fitted.right, alpha)
    return at_alpha(torch.from_numpy(vectors)).numpy()


def covariance_with_group(vectors):
    """[d, G], by the definition: the mean of products of deviations."""
    rows = vectors.reshape(-1, vectors.shape[-1])
    labels = np.eye(vectors.shape[1])[np.arange(len(rows)) % vectors.shape[1]]
    return np.cov(rows.T, labels.T)[: rows.shape[1], rows.shape[1] :]


@pytest.mark.parametrize(
    ("fit", "method"), [("leace", "leace"), ("orthogonal", "orth")], ids=["leace", "orthogonal"]
)
@pytest.mark.parametrize(
    ("groups", "rank"), [(2, None), (3, None), (2, 7)], ids=["two", "three", "rank 7 of 12"]
)
def test_erasers_of_concept_erasure_give_the_same_vectors(fit, method, groups, rank):
    library = pytest.importorskip("concept_erasure")
    vectors = texts_of_groups(groups, rank=rank)
    rows = torch.from_numpy(vectors.reshape(-1, 12))
    labels = torch.eye(groups, dtype=torch.float64).repeat(len(vectors), 1)
    # The theorem alone: without the library's shrinkage and its bound on the trace.
    fitter = library.LeaceFitter(
        12,
        groups,
        method,
        dtype=torch.float64,
        shrinkage=False,
        constrain_cov_trace=False,
        svd_tol=1e-9,
    )
    expected = fitter.update(rows, labels).eraser(rows).numpy()
    np.testing.assert_allclose(erased(vectors, fit).reshape(-1, 12), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("fit", ["leace", "orthogonal"])
@pytest.mark.parametrize("groups", [2, 3])
def test_erased_vectors_do_not_covary_with_the_group(fit, groups):
    vectors = texts_of_groups(groups)
    assert np.abs(covariance_with_group(vectors)).max() > 0.5
    assert np.abs(covariance_with_group(erased(vectors, fit))).max() < 1e-12


def test_no_linear_classifier_beats_a_constant_after_leace():
    linear_model = pytest.importorskip("sklearn.linear_model")
    vectors = texts_of_groups()
    groups = np.tile([0, 1], len(vectors))

    def accuracy(vectors):
        rows = vectors.reshape(-1, 12)
        probe = linear_model.LogisticRegression(max_iter=2000).fit(rows, groups)
        return np.abs(probe.coef_).max(), probe.score(rows, groups)

    assert accuracy(vectors)[1] > 0.95
    weight, _ = accuracy(erased(vectors, "leace"))
    assert weight < 1e-3  # the best probe is the constant


def test_leace_changes_vectors_less_than_orthogonal_projection_where_numbers_scale_alike():
    vectors = texts_of_groups()
    rows = vectors.reshape(-1, 12)
    inverse = np.linalg.inv(np.cov(rows.T))

    def change(fit):
        difference = erased(vectors, fit).reshape(-1, 12) - rows
        return np.einsum("nd,de,ne->n", difference, inverse, difference).mean()

    # In every norm, as theorem 4.3 says: here in that of the whitened space, and in the plain one.
    assert change("leace") < change("orthogonal")
    plain = [((erased(vectors, fit) - vectors) ** 2).mean() for fit in ("leace", "orthogonal")]
    assert plain[0] < plain[1]


def test_orthogonal_projection_leaves_one_value_along_the_difference_of_means():
    vectors = texts_of_groups()
    direction = vectors[:, 1].mean(axis=0) - vectors[:, 0].mean(axis=0)
    direction /= np.linalg.norm(direction)
    along = erased(vectors, "orthogonal") @ direction
    assert np.ptp(along) < 1e-10
    assert along[0, 0] == pytest.approx(vectors.mean(axis=(0, 1)) @ direction)
    across = np.eye(12) - np.outer(direction, direction)
    np.testing.assert_allclose(erased(vectors, "orthogonal") @ across, vectors @ across)


@pytest.mark.parametrize("directions", [1, 3])
def test_sentdebias_takes_out_the_first_principal_components_of_differences(directions):
    decomposition = pytest.importorskip("sklearn.decomposition")
    vectors = texts_of_groups()
    differences = (vectors - vectors.mean(axis=1, keepdims=True)).reshape(-1, 12)
    components = decomposition.PCA(directions).fit(differences).components_
    left_over = erased(vectors, "sentdebias", directions)
    assert np.ptp(left_over @ components.T, axis=(0, 1)).max() < 1e-9
    others = np.eye(12) - components.T @ components
    np.testing.assert_allclose(left_over @ others, vectors @ others, atol=1e-9)


def test_classifiers_of_inlp_are_those_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows = texts_of_groups(3).reshape(-1, 12)
    groups = np.tile([0, 1, 2], 60)
    expected = linear_model.LogisticRegression(tol=1e-12, max_iter=10_000).fit(rows, groups)
    np.testing.assert_allclose(logistic_weights(rows, groups), expected.coef_, atol=1e-4)


def test_each_round_of_inlp_takes_out_the_classifier_of_what_the_earlier_ones_left():
    linear_model = pytest.importorskip("sklearn.linear_model")
    vectors = texts_of_groups()
    scale = vectors.reshape(-1, 12) - vectors.mean(axis=(0, 1))
    groups = np.tile([0, 1], 60)
    for rounds in (1, 2, 3):
        before = vectors if rounds == 1 else erased(vectors, "inlp", rounds - 1)
        rows = (before.reshape(-1, 12) - before.mean(axis=(0, 1))) / scale.std()
        # Two groups share one vector of weights. Each has half of it, so the penalty is half too.
        classifier = linear_model.LogisticRegression(C=2, tol=1e-12, max_iter=10_000)
        classifier.fit(rows, groups)
        along = erased(vectors, "inlp", rounds) @ classifier.coef_[0]
        before_along = before @ classifier.coef_[0]
        assert np.ptp(along) < 1e-3 * np.ptp(before_along)


def test_inlp_stops_where_nothing_is_left_to_classify():
    vectors = texts_of_groups(size=3)
    fitted = fit_map(vectors, "inlp", 50)
    assert fitted.left.shape[1] <= 3
    assert np.ptp(erased(vectors, "inlp", 50), axis=(0, 1)).max() < 1e-8


def test_a_random_direction_is_a_unit_vector_that_its_seed_decides():
    vectors = texts_of_groups()
    maps = [fit_map(vectors, "random", 2, seed) for seed in (0, 0, 1)]
    torch.testing.assert_close(maps[0].right @ maps[0].left, torch.eye(2, dtype=torch.float64))
    assert maps[0].key == maps[1].key != maps[2].key
    assert np.abs(covariance_with_group(erased(vectors, "random"))).max() > 0.5


def test_none_changes_no_vector():
    vectors = texts_of_groups()
    assert (erased(vectors, "none") == vectors).all()


@pytest.mark.parametrize("fit", FITS)
def test_between_0_and_1_vectors_lie_on_a_line_and_at_1_they_are_unchanged(fit):
    vectors = texts_of_groups()
    half = erased(vectors, fit, alpha=0.5)
    np.testing.assert_allclose(half, (vectors + erased(vectors, fit)) / 2, atol=1e-12)
    assert (erased(vectors, fit, alpha=1.0) == vectors).all()


def test_the_mean_of_vectors_stays():
    vectors = texts_of_groups()
    for fit in FITS:
        means = erased(vectors, fit).mean(axis=(0, 1))
        np.testing.assert_allclose(means, vectors.mean(axis=(0, 1)), atol=1e-10)


def test_more_numbers_than_texts_are_erased_on_the_image_of_the_covariance():
    vectors = texts_of_groups(texts=5, size=40)
    assert np.abs(covariance_with_group(erased(vectors, "leace"))).max() < 1e-10


def test_what_cannot_be_fitted_is_refused():
    vectors = texts_of_groups()
    with pytest.raises(ValueError, match="nothing to erase"):
        fit_map(np.repeat(vectors[:, :1], 2, axis=1))
    for too_few in (vectors[:1], vectors[:, :1], vectors[0]):
        with pytest.raises(ValueError, match="at least two texts, each written for two groups"):
            fit_map(too_few)


def test_a_head_scores_mapped_vectors_within_the_block_alone():
    torch.manual_seed(0)
    head = torch.nn.Linear(12, 1)
    ranker = SimpleNamespace(pooled_head=head)
    fitted = fit_map(texts_of_groups())
    vectors = torch.randn(3, 12)
    plain, expected = head(vectors), head(fitted(vectors))
    with mapped_vectors(ranker, fitted), kept_vectors(head) as kept:
        assert (head(vectors) == expected).all()
    assert (kept[0] == fitted(vectors)).all()
    assert (head(vectors) == plain).all()
    with mapped_vectors(ranker, None):
        assert (head(vectors) == plain).all()


def test_half_precision_is_mapped_in_float32():
    fitted = fit_map(texts_of_groups())
    vectors = torch.randn(3, 12).bfloat16()
    mapped = fitted(vectors)
    assert mapped.dtype == torch.bfloat16
    assert (mapped == fitted(vectors.float()).bfloat16()).all()
