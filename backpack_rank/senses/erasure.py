"""Erasure of an attribute from pooled vectors: six ways to fit one map.

    x_alpha = x - (1 - alpha) B A (x - mu)

A map is fitted on N texts that were written once for each of G groups, such as female and male, so
that nothing but the attribute differs. x are their G N pooled vectors, mu is their mean, and z says
as which group a text is written. What a fit promises, it promises at alpha = 0, of the texts that
it was fitted on, and of *linear* probes alone: the head behind the map is not linear, so no score
is certain to stay.

======================  ==========================================================================
``leace``               no linear probe finds the group: Belrose et al. 2023, theorem 4.3
``orthogonal``          the differences between the groups' means are projected out
``sentdebias``          first principal directions of a text's differences: Liang et al. 2020
``inlp``                linear classifiers, one after the other: Ravfogel et al. 2020
``random``              a control: as many directions, drawn
``none``                a control: nothing is taken out
======================  ==========================================================================

Each is a function of vectors [N, G, d], a number of directions and a seed, and gives B and A. All
are called in one way, so they take a number and a seed also where they need none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch

from backpack_rank.models.pooled_map import PooledMap

Matrices: TypeAlias = tuple[np.ndarray, np.ndarray]
"""B [d, r] and A [r, d]."""
_ROUNDING = 1e-9
"""Share of the largest singular value below which a direction is rounding."""


def leace(vectors: np.ndarray, directions: int, seed: int) -> Matrices:
    """LEACE: the smallest change after which no linear probe does better than a constant.

    With W = Sigma_xx^(-1/2) (a pseudo-inverse on the image of Sigma_xx) and P the orthogonal
    projection onto the column space of W Sigma_xz,

        r(x) = x - W^+ P W (x - mu)

    has covariance 0 with z, and of all affine maps that do it changes x the least in mean square.

    Source: Belrose et al., LEACE: Perfect linear concept erasure in closed form, NeurIPS 2023,
    theorem 4.3.
    """
    x, z = _centred(vectors)
    variances, basis = np.linalg.eigh(x.T @ x / (len(x) - 1))
    # Smaller ones are rounding, of this computation or of the vectors: the texts do not vary in
    # these directions, such as the sum of what a layer norm gives. W would blow them up.
    size = len(variances)
    # Of vectors: ten units of their last digit, squared as variances are.
    of_vectors = (10 * np.finfo(vectors.dtype).eps) ** 2 * np.mean(_rows(vectors) ** 2)
    of_computation = variances[-1] * np.finfo(np.float64).eps
    in_image = variances > size * max(of_vectors, of_computation)
    basis = basis[:, in_image]
    deviations = np.sqrt(variances[in_image])
    whiten = (basis / deviations) @ basis.T  # W
    unwhiten = (basis * deviations) @ basis.T  # W^+
    u = _column_space(whiten @ (x.T @ z / (len(x) - 1)))  # P = u u^T
    return unwhiten @ u, u.T @ whiten


def orthogonal(vectors: np.ndarray, directions: int, seed: int) -> Matrices:
    """Orthogonal projection: the differences between the groups' means are taken out.

    It is LEACE with W = 1: the covariance with z is 0 as well, and x changes more than it must.
    """
    x, z = _centred(vectors)
    u = _column_space(x.T @ z)
    return u, u.T


def sentdebias(vectors: np.ndarray, directions: int, seed: int) -> Matrices:
    """SentDebias: the first principal directions of what a text's vectors differ in are taken out.

    Principal components of x(text, group) minus its mean over groups. The authors project without
    a mean; ours moves all vectors by the same constant beside theirs.

    Source: Liang et al., Towards Debiasing Sentence Representations, ACL 2020, algorithm 1.
    """
    vectors = vectors.astype(np.float64)
    differences = vectors - vectors.mean(axis=1, keepdims=True)
    _, _, components = np.linalg.svd(_rows(differences), full_matrices=False)
    u = components[:directions].T
    return u, u.T


def inlp(vectors: np.ndarray, directions: int, seed: int) -> Matrices:
    """Iterative null-space projection: fit a linear classifier, take its weights out, and again.

    ``directions`` is the number of rounds; with more than two groups each round takes out several.
    Classifiers are softmax regressions with the L2 penalty of scikit-learn's default, C = 1; of two
    groups, whose weights are each other's negative, that is C = 2 of a logistic regression.

    Source: Ravfogel et al., Null It Out: Guarding Protected Attributes by Iterative Nullspace
    Projection, ACL 2020, algorithm 1.
    """
    x, _ = _centred(vectors)
    # The penalty is relative to a scale: that of one standard deviation, for all directions alike.
    x /= x.std()
    groups = _groups(vectors)
    taken_out = np.zeros((x.shape[1], 0))
    for _ in range(directions):
        left_over = x - x @ taken_out @ taken_out.T
        if np.abs(left_over).max() < _ROUNDING:
            break
        weights = logistic_weights(left_over, groups)
        # Weights lie in the span of what is left over, so they are orthogonal to earlier ones; in
        # floating point only nearly, so the basis is made anew.
        taken_out = _column_space(np.concatenate([taken_out, _column_space(weights.T)], axis=1))
    return taken_out, taken_out.T


def random(vectors: np.ndarray, directions: int, seed: int) -> Matrices:
    """A control: an orthogonal projection along directions that are drawn with a seed."""
    drawn = np.random.default_rng(seed).standard_normal((vectors.shape[-1], directions))
    u, _ = np.linalg.qr(drawn)
    return u, u.T


def none(vectors: np.ndarray, directions: int, seed: int) -> Matrices:
    """A control: nothing is taken out, so scores stay up to rounding."""
    size = vectors.shape[-1]
    return np.zeros((size, 0)), np.zeros((0, size))


FITS: Mapping[str, Callable[[np.ndarray, int, int], Matrices]] = {
    "leace": leace,
    "orthogonal": orthogonal,
    "sentdebias": sentdebias,
    "inlp": inlp,
    "random": random,
    "none": none,
}
"""Values of ``policy.fit``: functions of vectors [N, G, d], a number of directions, and a seed."""
DIRECTIONS = {"sentdebias": 1, "inlp": 10, "random": 1}
"""The fits that are told how many directions (rounds of ``inlp``) they take out, and by default."""


def fit_map(
    vectors: np.ndarray, fit: str = "leace", directions: int | None = None, seed: int = 0
) -> PooledMap:
    """Fit a map to vectors of your own; the policy ``erase`` fits it to a ranker's.

    >>> vectors = np.random.default_rng(0).normal(size=(50, 2, 4))
    >>> vectors[:, 1] += [3, 0, 0, 0]  # the second group differs in the first number
    >>> erased = fit_map(vectors, "leace")(torch.from_numpy(vectors)).mean(dim=0)
    >>> torch.allclose(erased[0], erased[1])
    True

    Args:
        vectors: of N texts, each written for G groups. [N, G, d] float32 or float64
        fit: one of :data:`FITS`.
        directions: how many are taken out, of the fits in :data:`DIRECTIONS`.
        seed: of ``random``.

    Returns:
        The map at alpha = 0, in float64.

    Raises:
        ValueError: fewer than two texts or groups, or vectors that are the same for all groups.
    """
    if vectors.ndim != 3 or vectors.shape[0] < 2 or vectors.shape[1] < 2:
        raise ValueError(
            f"vectors of the shape {vectors.shape}: need those of at least two texts, each written "
            "for two groups or more"
        )
    if not np.ptp(vectors, axis=1).any():
        raise ValueError("no vector depends on the group, so there is nothing to erase")
    number = directions or DIRECTIONS.get(fit, 1)
    left, right = FITS[fit](vectors, min(number, vectors.shape[-1]), seed)
    mean = vectors.mean(axis=(0, 1), dtype=np.float64)
    return PooledMap(
        mean=torch.from_numpy(mean),
        left=torch.from_numpy(np.ascontiguousarray(left)),
        right=torch.from_numpy(np.ascontiguousarray(right)),
    )


def logistic_weights(x: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Weights [G, d] of a softmax classifier of vectors x [n, d] with their groups [n].

    The mean cross-entropy plus |weights|^2 / (2 n) is least, the intercepts being free.
    """
    # Here, because importing it takes long, and other fits do not need it.
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    number, size = x.shape
    one_hot = np.eye(groups.max() + 1)[groups]

    def loss_and_gradient(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights = parameters.reshape(-1, size + 1)
        logits = log_softmax(x @ weights[:, :-1].T + weights[:, -1], axis=1)
        loss = -(one_hot * logits).sum() / number + (weights[:, :-1] ** 2).sum() / (2 * number)
        errors = (np.exp(logits) - one_hot) / number
        gradient = np.empty_like(weights)
        gradient[:, :-1] = errors.T @ x + weights[:, :-1] / number
        gradient[:, -1] = errors.sum(axis=0)
        return loss, gradient.ravel()

    start = np.zeros(one_hot.shape[1] * (size + 1))
    options = {"maxiter": 1000, "gtol": 1e-9, "ftol": 1e-15}
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    weights: np.ndarray = found.x.reshape(-1, size + 1)[:, :-1]
    return weights


def _rows(vectors: np.ndarray) -> np.ndarray:
    """[N, G, d] -> [N G, d]"""
    return vectors.reshape(-1, vectors.shape[-1])


def _groups(vectors: np.ndarray) -> np.ndarray:
    """The group of each row. [N G]"""
    texts, groups, _ = vectors.shape
    return np.tile(np.arange(groups), texts)


def _centred(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors x [N G, d] and groups z [N G, G], one-hot, both minus their means."""
    x = _rows(vectors).astype(np.float64)
    z = np.eye(vectors.shape[1])[_groups(vectors)]
    return x - x.mean(axis=0), z - z.mean(axis=0)


def _column_space(matrix: np.ndarray) -> np.ndarray:
    """An orthonormal basis. [d, n] -> [d, r]"""
    u, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
    # z of G groups adds up to 0, so one direction less than groups is left.
    return u[:, sizes > sizes.max(initial=0.0) * _ROUNDING]
