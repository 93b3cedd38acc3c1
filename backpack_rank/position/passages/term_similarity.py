r"""ATS and MATS: how much a term's vectors at two positions differ because the positions do.

For a term t at positions a1 and a2 of two different documents with vectors r, and C_{t,D} the pairs
with ``|a1 - a2| = D``::

    ATS(D) = 1 / |T_D| sum_t 1 / |C_{t,D}| sum_{(r1, r2) in C_{t,D}} cos(r1, r2)
    MATS   = 1 / max sum_{D = 1 .. max} ATS(0) - ATS(D)

(Hofstätter et al. 2021, eqs. 8 and 9; T_D are the terms that have such a pair. The paper divides by
max - 1, which is no mean of max differences.) ATS(0) > ATS(D) says that vectors carry the position.

A collection has far too many pairs, so occurrences are sampled while it is streamed: of every term
and position up to R occurrences are kept, each with the same probability (algorithm R), and all
pairs of what is kept are compared. Where c occurrences of a term stood at a position and k are
kept, a pair of two positions stands for c1 c2 / (k1 k2) pairs and one of the same position for c (c
- 1) / (k (k - 1)), so the means are those of all pairs but for chance. What is held in memory is at
most terms x positions x R vectors.
"""

from __future__ import annotations

import numpy as np

from backpack_rank.position.passages.term_similarity_report import AtDistance, SimilarityCurve

_BLOCK = 1024
"""Occurrences of a term that are compared with others at once."""


class TermSample:
    """Samples the vectors of some terms, at most R of each term at each position::

        sample = TermSample(terms, positions=512, per_position=4, seed=0)
        sample.add(documents, terms_of_tokens, positions, vectors)
        term_similarity(sample, max_distance=100).mats

    Args:
        terms: token ids of the terms, ascending. [m]
        positions: number of positions; those of occurrences are below it.
        per_position: R.
        seed: of what is kept. Samples with one seed that see the same occurrences keep the same.

    Raises:
        ValueError: R is below 2, so that no two vectors of one position could be compared.
    """

    def __init__(self, terms: np.ndarray, positions: int, per_position: int, seed: int) -> None:
        if per_position < 2:
            raise ValueError(
                f"per_position={per_position} must be at least 2: ATS(0) compares two of one "
                "position"
            )
        self.terms = terms
        self.positions = positions
        self.per_position = per_position
        self.without_vector = 0
        self.pairs_inside: dict[int, int] = {}
        """Pairs of equal terms of one document, by distance; they are never compared."""
        self.seen = np.zeros(len(terms) * positions, dtype=np.int64)
        self._row = np.full(len(terms) * positions * per_position, -1, dtype=np.int64)
        self._documents = np.zeros(0, dtype=np.int64)
        self._vectors = np.zeros((0, 0), dtype=np.float32)
        self._count = 0
        self._random = np.random.default_rng(seed)

    def __len__(self) -> int:
        """Vectors kept."""
        return self._count

    def add(
        self, documents: np.ndarray, terms: np.ndarray, positions: np.ndarray, vectors: np.ndarray
    ) -> None:
        """Take notice of occurrences. All occurrences of a document come in one call.

        Args:
            documents: number of the document of each. [n]
            terms: index into ``terms`` of each. [n]
            positions: [n]
            vectors: of any length above 0; those of length 0 are counted and left out. [n, d]

        Raises:
            ValueError: a vector is not finite, or a position is not below ``positions``.
        """
        if len(positions) and positions.max() >= self.positions:
            raise ValueError(f"position {positions.max()} is not below positions={self.positions}")
        vectors = np.asarray(vectors, dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1)
        if not np.isfinite(lengths).all():
            raise ValueError(
                "a token's vector is not finite; the ranker's weights may have diverged in training"
            )
        # The random numbers are drawn for all, so that what is kept does not depend on the kind of
        # vector.
        draws = self._random.random(len(terms))
        real = lengths > 0
        self.without_vector += int((~real).sum())
        documents = documents[real]
        terms = terms[real]
        positions = positions[real]
        self._count_inside(documents, terms, positions)
        chosen, cells = self._keep(terms * self.positions + positions, draws[real])
        units = vectors[real][chosen] / lengths[real][chosen, None]
        self._store(cells, documents[chosen], units)

    def kept(self, term: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is kept of a term, by position.

        Returns:
            Positions [n], documents [n] and unit vectors [n, d].
        """
        width = self.positions * self.per_position
        rows = self._row[term * width : (term + 1) * width]
        places = np.flatnonzero(rows >= 0)
        rows = rows[places]
        return places // self.per_position, self._documents[rows], self._vectors[rows]

    def pairs_in_documents(self, max_distance: int) -> np.ndarray:
        """Pairs of equal terms in different documents, by distance. [max_distance + 1]"""
        seen = self.seen.reshape(len(self.terms), self.positions)
        pairs = np.zeros(max_distance + 1, dtype=np.int64)
        # No document has two terms at one position.
        pairs[0] = (seen * (seen - 1) // 2).sum()
        for distance in range(1, min(max_distance, self.positions - 1) + 1):
            of_all = (seen[:, distance:] * seen[:, :-distance]).sum()
            pairs[distance] = of_all - self.pairs_inside.get(distance, 0)
        return pairs

    def _keep(self, keys: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which occurrences are kept, and in which cell: algorithm R.

        It runs for all terms and positions at once: occurrence number n of a term and position,
        from 1, goes into slot n - 1 while n <= R, and then into a slot drawn from 0 to n - 1, if
        that is below R.
        """
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        draws = draws[order]
        # Occurrences with the same key stand together: how many of them stand before each.
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        earlier = np.arange(len(keys)) - np.repeat(first, np.diff(first, append=len(keys)))
        number = self.seen[keys] + earlier + 1
        np.add.at(self.seen, keys, 1)
        drawn = (draws * number).astype(np.int64)
        slots = np.where(number <= self.per_position, number - 1, drawn)
        inside = np.flatnonzero(slots < self.per_position)
        cells = keys[inside] * self.per_position + slots[inside]
        # The last one that goes into a cell stays there.
        _, last = np.unique(cells[::-1], return_index=True)
        last = len(cells) - 1 - last
        return order[inside[last]], cells[last]

    def _store(self, cells: np.ndarray, documents: np.ndarray, units: np.ndarray) -> None:
        """Put unit vectors into their cells, in place of those that stand there."""
        if not len(cells):
            return
        rows = self._row[cells]
        new = rows < 0
        rows[new] = np.arange(self._count, self._count + new.sum())
        self._row[cells] = rows
        self._count += int(new.sum())
        if self._count > len(self._documents):
            # Doubled, so that copying costs no more than filling.
            size = max(self._count, 2 * len(self._documents))
            larger = np.empty((size, units.shape[1]), dtype=np.float32)
            larger[: len(self._vectors)] = self._vectors if len(self._vectors) else 0
            self._vectors, self._documents = larger, np.resize(self._documents, size)
        self._vectors[rows] = units
        self._documents[rows] = documents

    def _count_inside(
        self, documents: np.ndarray, terms: np.ndarray, positions: np.ndarray
    ) -> None:
        """Count pairs of equal terms of one document, by distance."""
        # Sorted, an occurrence is followed by those of its term and document: neighbours first,
        # then those two places apart, until no two of any term are so far apart.
        order = np.lexsort((positions, terms, documents))
        documents = documents[order]
        terms = terms[order]
        positions = positions[order]
        for step in range(1, len(order)):
            same = (documents[step:] == documents[:-step]) & (terms[step:] == terms[:-step])
            if not same.any():
                return
            for distance in (positions[step:] - positions[:-step])[same].tolist():
                self.pairs_inside[distance] = self.pairs_inside.get(distance, 0) + 1


def term_similarity(
    sample: TermSample, max_distance: int, representation: str = ""
) -> SimilarityCurve:
    """Whether the vectors of a sample know their position.

    It gives ATS for every distance up to ``max_distance``, and MATS.

    Raises:
        ValueError: ``max_distance`` is below 1; no term has a pair of equal positions or one of
            different positions.
    """
    if max_distance < 1:
        raise ValueError(f"max_distance={max_distance} must be at least 1")
    sums = _sums(sample, max_distance)
    has_pairs = sums.weights > 0
    terms = has_pairs.sum(axis=0)
    if not terms[0] or not terms[1:].any():
        where = "the same position" if not terms[0] else f"positions up to {max_distance} apart"
        raise ValueError(
            f"no term stands at {where} in two documents; read more documents or more terms"
        )
    # A term without pairs at a distance gives 0 / 0, which nansum leaves out.
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums.cosines / sums.weights
        ats = np.nansum(means, axis=0) / terms
        squares = np.nansum(sums.squares / sums.weights, axis=0) / terms
        std = np.sqrt(np.maximum(squares - ats**2, 0))  # rounding may give less than 0
    differences = ats[0] - ats[1:][terms[1:] > 0]
    possible = sample.pairs_in_documents(max_distance)
    distances = []
    for distance in range(max_distance + 1):
        distances.append(
            AtDistance(
                distance,
                float(ats[distance]),
                float(std[distance]),
                int(terms[distance]),
                int(sums.pairs[:, distance].sum()),
                int(possible[distance]),
            )
        )
    return SimilarityCurve(
        representation=representation,
        mats=float(differences.mean()),
        mats_std=float(differences.std()),
        mats_within_terms=_within_terms(means, has_pairs),
        distances=tuple(distances),
        occurrences=len(sample),
        occurrences_in_documents=int(sample.seen.sum()),
        without_vector=sample.without_vector,
    )


def choose_terms(eligible: np.ndarray, number: int | None, seed: int) -> np.ndarray:
    """Draw some of the term ids, each with the same probability; they ascend.

    >>> choose_terms(np.array([30, 10, 20]), number=None, seed=0).tolist()
    [10, 20, 30]

    They are all where ``number`` is None or at least as many as there are.
    """
    if number is None or number >= len(eligible):
        return np.sort(eligible)
    return np.sort(np.random.default_rng(seed).choice(eligible, size=number, replace=False))


def _within_terms(means: np.ndarray, has_pairs: np.ndarray) -> float:
    """Mean over distances D of the mean difference of a term between 0 and D.

    Only terms with pairs at both count, so that it compares each term with itself.
    """
    differences = []
    for distance in range(1, means.shape[1]):
        both = has_pairs[:, 0] & has_pairs[:, distance]
        if both.any():
            differences.append((means[both, 0] - means[both, distance]).mean())
    return float(np.mean(differences)) if differences else float("nan")


class _Sums:
    """Sums over the pairs of each term at each distance. [m, max_distance + 1] each"""

    def __init__(self, terms: int, max_distance: int) -> None:
        size = (terms, max_distance + 1)
        self.weights = np.zeros(size)
        self.cosines = np.zeros(size)
        self.squares = np.zeros(size)
        self.pairs = np.zeros(size, dtype=np.int64)

    def add(
        self, term: int, distances: np.ndarray, weights: np.ndarray, cosines: np.ndarray
    ) -> None:
        """Count pairs of a term, each with its distance, weight and cosine. [n]"""
        size = self.weights.shape[1]
        self.weights[term] += np.bincount(distances, weights, minlength=size)
        self.cosines[term] += np.bincount(distances, weights * cosines, minlength=size)
        self.squares[term] += np.bincount(distances, weights * cosines**2, minlength=size)
        self.pairs[term] += np.bincount(distances, minlength=size)


def _sums(sample: TermSample, max_distance: int) -> _Sums:
    """All pairs of what is kept, each with the number of pairs that it stands for."""
    sums = _Sums(len(sample.terms), max_distance)
    seen = sample.seen.reshape(len(sample.terms), sample.positions)
    for term in range(len(sample.terms)):
        positions, documents, vectors = sample.kept(term)
        counts = seen[term, positions]
        held = np.minimum(counts, sample.per_position)
        elsewhere = counts / held
        # A position with one occurrence has no pair of its own.
        here = counts * (counts - 1) / np.maximum(held * (held - 1), 1)
        for start in range(0, len(positions), _BLOCK):
            block = slice(start, start + _BLOCK)
            # Occurrences are sorted by position, so those in reach of the block follow it.
            end = np.searchsorted(positions, positions[block][-1] + max_distance, side="right")
            reach = slice(start, end)
            distances = positions[reach][None] - positions[block][:, None]
            is_pair = np.triu(np.ones(distances.shape, dtype=bool), 1)  # each pair once
            is_pair &= distances <= max_distance
            is_pair &= documents[reach][None] != documents[block][:, None]
            of_two_positions = elsewhere[block][:, None] * elsewhere[reach][None]
            weights = np.where(distances == 0, here[block][:, None], of_two_positions)
            cosines = (vectors[block] @ vectors[reach].T)[is_pair].astype(np.float64)
            sums.add(term, distances[is_pair], weights[is_pair], cosines)
    return sums
