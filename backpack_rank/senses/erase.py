"""The policy ``erase``: an attribute is taken out of the vector that a ranker's head scores.

    x_alpha = x - (1 - alpha) B A (x - mu)

It acts on every ranker that makes its score of one vector for each text, with senses or without,
and one pass serves all alphas. It certifies nothing: after ``leace`` no linear probe finds the
attribute in the vectors of the texts that the map was fitted on, which says nothing about the score
of one text (:mod:`backpack_rank.senses.erasure`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
from backpack_rank.checks import decimal, integer, located
from backpack_rank.constructors import Count, FilePath, OneOf, Range, checked, made
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.files import atomic_path
from backpack_rank.models.pooled_map import MAP_FILE, PooledMap
from backpack_rank.models.rankers import Ranker
from backpack_rank.senses.erasure import DIRECTIONS, FITS, fit_map
from backpack_rank.senses.policies import Policy, PolicyContext
from backpack_rank.senses.renditions import MeanOfRenditions
from backpack_rank.senses.views import View

_PARTS = ("mean", "left", "right")
_WIDEST = 65_536
"""Numbers of a vector."""
_PORTION = 1000
"""Candidates whose texts are looked through at a time."""


@checked("policy")
@dataclass(frozen=True)
class Erase(Policy):
    """Erasure, to compare with: LEACE and its like, on the pooled vector of any ranker.

    >>> policy = Erase.of(Attribute.named("gender"))
    >>> policy.name
    'erase_leace'

    A map is fitted on candidates: each text with words of the attribute is written for every group
    (:class:`~backpack_rank.senses.renditions.MeanOfRenditions`). ``evaluate.py`` does so on dev; in
    Python::

        policy = policy.fitted(reranker, Pairs.from_run(candidates, collection))
        fair = reranker.with_policy(policy, alpha=0.0)

    Attributes:
        attribute: what is erased.
        fit: how, one of :data:`~backpack_rank.senses.erasure.FITS`.
        directions: how many are taken out, of ``sentdebias`` and ``random``, or rounds of ``inlp``;
            None: 1, 1 and 10.
        texts: how many are fitted on, at most; drawn by ``seed``.
        seed: of this draw and of ``random``.
        file: a map that was fitted before, to use in place of fitting one; None: there is none.
        fitted_map: at alpha = 0; None: not yet fitted.
        fitted_on: how many texts it was fitted on.
        score_of_mean: what the ranker's head makes of the mean vector: tells it from other rankers.
    """

    in_words = "Takes out of a text's summary what a simple test could tell the group by."

    attribute: Attribute
    fit: Annotated[str, OneOf(FITS)] = "leace"
    directions: Count | None = None
    texts: Annotated[int, Range(least=2)] = 2000
    seed: Annotated[int, Range(least=0, most=2**63 - 1)] = 0
    file: FilePath | None = None
    fitted_map: PooledMap | None = None
    fitted_on: int = 0
    score_of_mean: float = 0.0

    def __post_init__(self) -> None:
        if self.directions is not None and self.fit not in DIRECTIONS:
            raise ValueError(
                f"policy.directions={self.directions} does nothing to policy.fit={self.fit}: it is "
                f"of {', '.join(DIRECTIONS)}"
            )

    @classmethod
    def of(
        cls,
        attribute: Attribute | Mapping[str, Any],
        fit: Annotated[str, OneOf(FITS)] = "leace",
        directions: Count | None = None,
        texts: Annotated[int, Range(least=2)] = 2000,
        seed: Annotated[int, Range(least=0, most=2**63 - 1)] = 0,
        file: FilePath | None = None,
        queries: Annotated[str, OneOf(QUERIES)] = QUERIES[0],
    ) -> Erase:
        """An attribute, or for the options of a file of ``conf/attribute/``."""
        if not isinstance(attribute, Attribute):
            attribute = made(Attribute, attribute, "policy.attribute")
        return cls(attribute, fit, directions, texts, seed, file, queries=queries)

    @classmethod
    def is_control_under(cls, options: Sequence[str]) -> bool:
        """Also where nothing about the attribute decides what is taken out."""
        return not {"fit=random", "fit=none"}.isdisjoint(options)

    @property
    def name(self) -> str:
        parts = ["erase", self.fit]
        if self.directions is not None:
            parts.append(str(self.directions))
        if self.fit == "random":
            parts += ["seed", str(self.seed)]
        return self.named(*parts)

    def needs_senses(self) -> bool:
        return False

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        """One view with the map.

        Raises:
            TypeError: the ranker makes its score of no single vector.
            ValueError: no map is fitted, or it is of another ranker.
        """
        ranker = context.ranker
        if not isinstance(ranker, Ranker):
            raise TypeError(f"{ranker.label} is behind a server: its vectors are out of reach")
        _ = ranker.pooled_head  # raises TypeError where there is none
        fitted = self.with_map_for(ranker)
        assert fitted.fitted_map is not None
        _check_head(ranker, fitted.fitted_map, fitted.score_of_mean, self.name)
        return (View(pooled_map=replace(fitted.fitted_map, alpha=alpha)),)

    def with_map_for(self, ranker: Ranker) -> Erase:
        """The policy with its map: this one, or from the file, or from beside the ranker's weights.

        Raises:
            ValueError: there is none; or the file cannot be read, or is of other options.
        """
        if self.fitted_map is not None:
            return self
        if self.file is not None:
            with located("policy.file"):
                return self._read(Path(self.file))
        if ranker.folder is not None and (ranker.folder / MAP_FILE).is_file():
            return self._read(ranker.folder / MAP_FILE)
        raise ValueError(
            f"policy {self.name} has no map yet: evaluate.py fits one on the dev candidates and "
            f"writes {MAP_FILE}; copy it beside the ranker's weights, where a server finds it too, "
            "or give it as policy.file=..."
        )

    def fitted(self, reranker: Any, pairs: Pairs) -> Erase:
        """Fit the map to a ranker, on pairs of queries and candidates.

        Args:
            reranker: a :class:`~backpack_rank.reranking.pointwise.PointwiseReranker`.
            pairs: of any split but the one that is measured.

        Returns:
            The policy with its map.

        Raises:
            TypeError: the ranker makes its score of no single vector.
            ValueError: fewer than two pairs have a word of the attribute, or their vectors do not
                depend on it.
        """
        scorer = reranker.local_scorer
        written = []
        for texts in self._written_for_groups(pairs, scorer.cut):
            written.append(texts)
            if len(written) == self.texts:
                break
        if len(written) < 2:
            raise ValueError(
                f"policy {self.name} is fitted on texts with words of {self.attribute.name}, and "
                f"{len(written)} of {len(pairs)} candidates of {pairs.collection.name} have some"
            )
        groups = len(written[0])
        # Each text is a query and a document of its own, and both have the same id.
        documents: dict[str, str] = {}
        queries: dict[str, str] = {}
        for row, texts in enumerate(written):
            for group, (query, document) in enumerate(texts):
                text_id = f"{row}-{group}"
                queries[text_id] = query
                documents[text_id] = document
        name = f"{pairs.collection.name} (written for each group)"
        collection = Collection(name, MemoryStore(documents), queries, {})
        text_ids = tuple(queries)
        vectors = scorer.pooled_vectors(Pairs(collection, text_ids, text_ids), reranker.cache)
        with located(f"policy {self.name}"):
            fitted_map = fit_map(
                vectors.reshape(len(written), groups, -1), self.fit, self.directions, self.seed
            )
        return replace(
            self,
            file=None,
            fitted_map=fitted_map,
            fitted_on=len(written),
            score_of_mean=_score_of_mean(scorer.ranker, fitted_map),
        )

    def _written_for_groups(self, pairs: Pairs, cut: Any) -> Iterator[Sequence[tuple[str, str]]]:
        """Each pair that a rendition changes, written for each group, in an order by the seed."""
        rewritings = MeanOfRenditions.of(self.attribute).rewritings
        order = np.random.default_rng(self.seed).permutation(len(pairs))
        for start in range(0, len(order), _PORTION):
            rows = order[start : start + _PORTION]
            portion = Pairs(
                pairs.collection,
                tuple(pairs.query_ids[row] for row in rows),
                tuple(pairs.doc_ids[row] for row in rows),
            )
            for query, document in portion.texts():
                # A word behind the cut is not read, so it has no part in the vector.
                query, document = cut(query), cut(document)
                texts = [rewrite(query, document) for rewrite in rewritings]
                if any(text != texts[0] for text in texts):
                    yield texts

    def save(self, path: str | Path) -> None:
        """Write the map in the format of safetensors, with what it was fitted by.

        Raises:
            ValueError: it is not fitted yet.
        """
        if self.fitted_map is None:
            raise ValueError(f"policy {self.name} has no map yet: fit it first")
        about = {
            "format": "backpack_rank erase 1",
            "policy": self.name,
            "attribute": self.attribute.name,
            "texts": str(self.fitted_on),
            "score of mean": repr(self.score_of_mean),
        }
        tensors = {part: getattr(self.fitted_map, part).numpy() for part in _PARTS}
        with atomic_path(path) as temporary:
            temporary.write_bytes(save(tensors, about))

    def _read(self, path: Path) -> Erase:
        about, fitted_map, texts, score = _read_map(path)
        for what, asked_for in (("policy", self.name), ("attribute", self.attribute.name)):
            if about.get(what) != asked_for:
                raise ValueError(
                    f"{path} was fitted with {what} {about.get(what)}, and {asked_for} is asked "
                    "for: give the options that it was fitted with (policy.fit, policy.directions, "
                    "policy.seed, attribute)"
                )
        return replace(self, fitted_map=fitted_map, fitted_on=texts, score_of_mean=score)


def saved_map(ranker: Ranker) -> tuple[dict[str, str], PooledMap] | None:
    """The map beside a ranker's weights, however it was fitted.

    Returns:
        What the file says of itself (``policy`` and ``attribute``), and the map; None where there
        is no such file.

    Raises:
        ValueError: the file cannot be read, or is of another ranker.
    """
    if ranker.folder is None or not (ranker.folder / MAP_FILE).is_file():
        return None
    about, fitted_map, _, score = _read_map(ranker.folder / MAP_FILE)
    _check_head(ranker, fitted_map, score, about["policy"])
    return about, fitted_map


def _read_map(path: Path) -> tuple[dict[str, str], PooledMap, int, float]:
    """What a file says of itself, its map, the number of texts, and the score of the mean."""
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            # Shapes stand in the file's head: nothing is read that does not fit together.
            _check_shapes({part: tuple(file.get_slice(part).get_shape()) for part in _PARTS})
            tensors = {part: file.get_tensor(part) for part in _PARTS}
        for part, values in tensors.items():
            if not values.is_floating_point() or not bool(torch.isfinite(values).all()):
                raise ValueError(f"{part} must hold finite decimal numbers")
        return about, PooledMap(**tensors), integer(about["texts"]), decimal(about["score of mean"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: no map of the policy erase can be read: {error}") from error


def _check_shapes(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """A map of vectors of d numbers takes out r <= d directions: [d], [d, r] and [r, d]."""
    mean, left, right = (shapes[part] for part in _PARTS)
    fits = len(mean) == 1 and len(left) == 2 and 1 <= left[1] <= left[0] == mean[0]
    if not fits or right != left[::-1] or mean[0] > _WIDEST:
        raise ValueError(f"mean, left and right have the shapes {mean}, {left} and {right}")


def _check_head(ranker: Ranker, fitted_map: PooledMap, expected: float, name: str) -> None:
    """Refuse a map of another ranker: its head gives the mean vector another score."""
    try:
        score = _score_of_mean(ranker, fitted_map)
    except RuntimeError:  # vectors of another length
        score = np.inf
    # Wide enough for other number formats; heads of two rankers differ by more.
    if not np.isclose(score, expected, rtol=0.05, atol=0.05):
        raise ValueError(
            f"policy {name}: the map was fitted to another ranker, because the head of this "
            f"{ranker.label} does not give the mean vector the score that it had there"
        )


@torch.inference_mode()
def _score_of_mean(ranker: Ranker, pooled_map: PooledMap) -> float:
    mean = pooled_map.mean[None].to(ranker.device, ranker.dtype)
    return float(ranker.score_vectors(mean))
