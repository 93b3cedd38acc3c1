"""ATS and MATS against loops over all pairs; what is kept of a stream, and what it stands for."""

import itertools
import math

import numpy as np
import pytest

from backpack_rank.position.passages.term_similarity import (
    TermSample,
    choose_terms,
    term_similarity,
)

TERMS, POSITIONS, SIZE = 4, 7, 5


def random_occurrences(documents=30, seed=0, size=SIZE):
    """(document, term, position, vector) of random documents, in which a term may stand twice.

    Vectors depend on term, position and chance, so that similarity falls with distance.
    """
    rng = np.random.default_rng(seed)
    base, drift = rng.normal(size=(TERMS, size)), rng.normal(size=size)
    drawn = []
    for document in range(documents):
        for position in range(rng.integers(2, POSITIONS + 1)):
            term = int(rng.integers(TERMS))
            vector = base[term] + 0.3 * position * drift + rng.normal(size=size)
            drawn.append((document, term, position, vector * rng.uniform(0.1, 9)))
    return drawn


def sampled(all_occurrences, per_position, seed=0, parts=1):
    """A sample that these occurrences were added to, in ``parts`` parts of whole documents."""
    sample = TermSample(np.arange(TERMS) + 10, POSITIONS, per_position, seed)
    document_numbers = {document for document, *_ in all_occurrences}
    for part in np.array_split(sorted(document_numbers), parts):
        rows = [row for row in all_occurrences if row[0] in part]
        documents, terms, positions, vectors = map(np.array, zip(*rows, strict=True))
        sample.add(documents, terms, positions, vectors)
    return sample


def cosine(a, b):
    return float(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b))


def by_hand(all_occurrences, max_distance):
    """ATS, its deviation, terms and pairs of each distance; loops over all pairs of occurrences."""
    cosines = {}
    for term, distance in itertools.product(range(TERMS), range(max_distance + 1)):
        cosines[term, distance] = []
    for first, second in itertools.combinations(all_occurrences, 2):
        document, term, position, vector = first
        other_document, other_term, other_position, other_vector = second
        distance = abs(position - other_position)
        if term == other_term and document != other_document and distance <= max_distance:
            cosines[term, distance].append(cosine(vector, other_vector))
    rows = []
    for distance in range(max_distance + 1):
        cosines_by_term = []
        for term in range(TERMS):
            if cosines[term, distance]:
                cosines_by_term.append(np.array(cosines[term, distance]))
        if not cosines_by_term:
            rows.append((math.nan, math.nan, 0, 0))
            continue
        # Every term counts the same, however many pairs it has.
        ats = np.mean([values.mean() for values in cosines_by_term])
        variance = np.mean([((values - ats) ** 2).mean() for values in cosines_by_term])
        pairs = sum(map(len, cosines_by_term))
        rows.append((ats, math.sqrt(variance), len(cosines_by_term), pairs))
    return rows, cosines


@pytest.mark.parametrize("parts", [1, 7])
def test_all_pairs_give_the_figures_of_a_double_loop(parts):
    drawn = random_occurrences()
    curve = term_similarity(sampled(drawn, per_position=100, parts=parts), POSITIONS - 1)
    rows, _ = by_hand(drawn, POSITIONS - 1)
    for at, (ats, std, terms, pairs) in zip(curve.distances, rows, strict=True):
        assert at.ats == pytest.approx(ats, abs=1e-6)
        assert at.std == pytest.approx(std, abs=1e-6)
        assert (at.terms, at.pairs, at.pairs_in_documents) == (terms, pairs, pairs)
    differences = [rows[0][0] - row[0] for row in rows[1:]]
    assert curve.mats == pytest.approx(sum(differences) / len(differences), abs=1e-6)
    assert curve.mats_std == pytest.approx(np.std(differences), abs=1e-6)
    assert curve.mats > 0.05  # vectors drift with their position
    assert curve.occurrences == curve.occurrences_in_documents == len(drawn)


def test_blocks_of_occurrences_are_compared_with_each_other(monkeypatch):
    in_one_block = term_similarity(sampled(random_occurrences(), 100), 3)
    monkeypatch.setattr("backpack_rank.position.passages.term_similarity._BLOCK", 4)
    in_small_blocks = term_similarity(sampled(random_occurrences(), 100), 3)
    for expected, at in zip(in_one_block.distances, in_small_blocks.distances, strict=True):
        assert (expected.pairs, expected.terms) == (at.pairs, at.terms)
        assert expected.ats == pytest.approx(at.ats, abs=1e-7)


def test_differences_within_terms_leave_out_terms_without_both_distances():
    drawn = random_occurrences(documents=9, seed=3)
    curve = term_similarity(sampled(drawn, 100), POSITIONS - 1)
    _, cosines = by_hand(drawn, POSITIONS - 1)
    means = []
    for distance in range(1, POSITIONS):
        differences = []
        for term in range(TERMS):
            if cosines[term, 0] and cosines[term, distance]:
                difference = np.mean(cosines[term, 0]) - np.mean(cosines[term, distance])
                differences.append(difference)
        if differences:
            means.append(np.mean(differences))
    assert curve.mats_within_terms == pytest.approx(np.mean(means), abs=1e-6)
    assert curve.mats_within_terms != pytest.approx(curve.mats, abs=1e-3)


@pytest.mark.slow
def test_a_sample_is_right_on_average():
    """Positions in which many occurrences stood must not count as little as rare ones."""
    drawn = random_occurrences(documents=60, seed=1)
    rows, _ = by_hand(drawn, 2)
    curves = [term_similarity(sampled(drawn, 2, seed, parts=3), 2) for seed in range(150)]
    for distance in range(3):
        estimates = np.array([curve.distances[distance].ats for curve in curves])
        error = estimates.std() / math.sqrt(len(estimates))
        assert abs(estimates.mean() - rows[distance][0]) < 4 * error + 0.004
        at = curves[0].distances[distance]
        assert at.pairs < at.pairs_in_documents == rows[distance][3]


@pytest.mark.slow
def test_every_occurrence_is_kept_with_the_same_probability():
    kept = np.zeros(12)
    for seed in range(1000):
        sample = TermSample(np.array([5]), 1, 3, seed)
        for part in np.split(np.arange(12), [5, 6]):
            zeros = np.zeros(len(part), dtype=int)
            sample.add(part, zeros, zeros, np.eye(12)[part] + 1)
        _, documents, _ = sample.kept(0)
        assert len(documents) == 3
        kept[documents] += 1
    # Binomial with p = 1/4: the deviation of a share is 0.014.
    np.testing.assert_allclose(kept / 1000, 0.25, atol=0.06)


def test_a_sample_keeps_vectors_with_their_documents_and_positions():
    drawn = random_occurrences(documents=50, seed=2)
    sample = sampled(drawn, 3, parts=9)
    by_place = {}
    for document, term, position, vector in drawn:
        by_place[document, position] = (term, vector)
    total = 0
    for term in range(TERMS):
        positions, documents, vectors = sample.kept(term)
        assert (np.diff(positions) >= 0).all()
        assert max(np.bincount(positions)) <= 3
        places = list(zip(documents.tolist(), positions.tolist(), strict=True))
        assert len(set(places)) == len(places)
        for place, vector in zip(places, vectors, strict=True):
            original_term, original = by_place[place]
            assert original_term == term
            np.testing.assert_allclose(vector, original / np.linalg.norm(original), rtol=1e-5)
        total += len(positions)
    assert total == len(sample) < len(drawn)


def test_samples_of_one_seed_keep_the_same_occurrences_of_other_vectors():
    def documents_kept(sample):
        return [sample.kept(term)[1].tolist() for term in range(TERMS)]

    drawn = random_occurrences(50, 2)
    other_vectors = []
    for document, term, position, vector in drawn:
        other_vectors.append((document, term, position, -2 * vector))
    sample = sampled(drawn, 2, seed=4)
    changed = sampled(other_vectors, 2, seed=4)
    assert len(sample) == len(changed)
    assert documents_kept(sample) == documents_kept(changed)
    assert documents_kept(sample) != documents_kept(sampled(drawn, 2, seed=5))
    # Vectors of another size are drawn with other occurrences; they can be sampled too.
    assert len(sampled(random_occurrences(50, 2, size=3), 2, seed=4))


def test_vectors_without_direction_are_counted_and_left_out():
    all_occurrences = []
    for document, position in itertools.product(range(4), range(2)):
        vector = np.zeros(SIZE) if document == 3 else np.ones(SIZE)
        all_occurrences.append((document, 0, position, vector))
    curve = term_similarity(sampled(all_occurrences, 10), 1)
    assert curve.without_vector == 2
    assert [at.pairs for at in curve.distances] == [6, 6]
    assert curve.mats == pytest.approx(0, abs=1e-7)


def test_distances_without_a_pair_count_for_nothing():
    all_occurrences = []
    for document, position in itertools.product(range(3), (0, 2)):
        all_occurrences.append((document, 0, position, np.array([1.0, position])))
    curve = term_similarity(sampled(all_occurrences, 10), 5)
    assert [at.pairs for at in curve.distances] == [6, 0, 6, 0, 0, 0]
    assert math.isnan(curve.distances[1].ats)
    assert curve.mats == pytest.approx(1 - 1 / math.sqrt(5), abs=1e-6)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="per_position=1 must be at least 2"):
        TermSample(np.arange(2), 3, 1, 0)
    with pytest.raises(ValueError, match="max_distance=0"):
        term_similarity(sampled(random_occurrences(), 3), 0)
    alone = [(0, 0, p, np.ones(SIZE)) for p in range(4)]
    with pytest.raises(ValueError, match="no term stands at the same position in two documents"):
        term_similarity(sampled(alone, 3), 2)
    same = [(d, 0, 1, np.ones(SIZE)) for d in range(4)]
    with pytest.raises(ValueError, match="positions up to 2 apart in two documents"):
        term_similarity(sampled(same, 3), 2)
    with pytest.raises(ValueError, match="not finite"):
        sampled([(0, 0, 0, np.full(SIZE, np.nan))], 3)
    with pytest.raises(ValueError, match="position 7 is not below positions=7"):
        sampled([(0, 0, 7, np.ones(SIZE))], 3)


def test_terms_are_drawn_by_the_seed():
    eligible = np.arange(100, 200)
    assert np.array_equal(choose_terms(eligible, None, 0), eligible)
    assert np.array_equal(choose_terms(eligible, 500, 0), eligible)
    drawn = choose_terms(eligible, 10, 0)
    assert len(set(drawn.tolist())) == 10
    assert (np.diff(drawn) > 0).all()
    assert np.array_equal(drawn, choose_terms(eligible, 10, 0))
    assert not np.array_equal(drawn, choose_terms(eligible, 10, 1))
