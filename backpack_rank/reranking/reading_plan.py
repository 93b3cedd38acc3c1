"""Which texts a ranker reads, and under which shift, to score pairs under policies.

Each text is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from backpack_rank.models.pooled_map import PooledMap
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.reranking.scorer import once
from backpack_rank.senses.views import IDENTITY, View

TextPair = tuple[str, str]
Rewriting = Callable[[str, str], TextPair]
LeftOut = Callable[[str], bool] | None


class ReadingPlan:
    """Scores N pairs under A policies in few passes of a ranker over texts.

    The score of a pair is a sum over the views of a policy, and each view may read another text,
    move tokens, and weigh senses:

        score[a, n] = sum over views v of policy a:
                      coefficient[v] * s(text[v, n], shift[v], weights[v])

    One pass over N texts for each view would read most texts several times. The plan reads less, by
    four rules:

    1. A text that several views, policies or pairs ask for is read once.
    2. Weights per sense and maps of the pooled vector come behind the network, so one pass serves
       all of them under the same shift.
    3. A text without a token that moves is the same under every shift, so one pass without a shift
       serves them all.
    4. A text whose coefficients are all 0 is not read, such as the pair itself at alpha = 0 of
       renditions.

    The pairs of a query that a view leaves out have the score of the unchanged ranker in its place.

    Which pairs are equal, and which texts have no token that moves, only token ids tell: both wait
    for :meth:`share`. A collection is scored without it, and row by row.

    Texts are known by number: text n < N is the pair of row n, :attr:`new_texts` follow. Scores of
    texts are a table [C, T] with a column for each distinct (shift, weights, map). The caller fills
    it, in any order, and asks for the sums::

        plan = ReadingPlan(policies, len(pairs), lambda: pairs)
        plan.share(tokenise([*pairs, *plan.new_texts]))  # optional
        scores = plan.empty_scores()
        for text_pass in plan.passes():
            for column, view in zip(text_pass.columns, text_pass.views()):
                scores[column, text_pass.texts] = ...  # the scores of these texts under this view
        return plan.sums(scores)

    Two promises: a pair that no view rewrites, and that no other pair is rewritten to, has its very
    score in the sum, bit for bit; and a pair that another one is rewritten to shares its score with
    it, bit for bit.

    Attributes:
        rows: N.
        new_texts: rewritten pairs that are the pair of no row, each once; none once they are
            shared. [T - N]
        views: what each column of the scores asks of the ranker. [C]
    """

    def __init__(
        self,
        policies: Sequence[Sequence[View]],
        rows: int,
        texts: Callable[[], Iterable[TextPair]] | None = None,
        reading: Callable[[TextPair], Hashable] = lambda pair: pair,
    ) -> None:
        """
        Args:
            policies: the views of each policy, such as those of one policy at A alphas.
            rows: N.
            texts: gives the N pairs, as often as it is asked; None: no view rewrites them, or
                leaves out queries.
            reading: equal for two pairs of which the ranker reads the same tokens.
        """
        self.rows = rows
        self.new_texts: list[TextPair] = []
        self.views: list[View] = []
        self._columns: dict[Hashable, int] = {}
        # Of each text, the first one that is known to be equal.
        self._first_equal = np.arange(rows)

        # Equal rewritings of several policies have one place.
        place_of_rewriting: dict[tuple[Rewriting, LeftOut], int] = {}
        left_out: dict[LeftOut, np.ndarray] = {None: np.zeros(rows, dtype=bool)}
        for views in policies:
            for view in views:
                if view.leaves_out not in left_out:
                    left_out[view.leaves_out] = _rows_left_out(view.leaves_out, rows, texts)
                if view.coefficient and view.rewrite is not None:
                    key = view.rewrite, view.leaves_out
                    place_of_rewriting.setdefault(key, len(place_of_rewriting))
        rewritten = np.empty((0, rows), dtype=np.int64)
        if place_of_rewriting:
            assert texts is not None
            kept = [left_out[leaves_out] for _, leaves_out in place_of_rewriting]
            rewritings = [rewriting for rewriting, _ in place_of_rewriting]
            rewritten = self._number_texts(rewritings, kept, texts, reading)

        self._terms_by_policy: list[list[_Term]] = []
        for views in policies:
            terms = []
            for view in views:
                if not view.coefficient:
                    continue
                # The same column for all rows, until share() gives rows that nothing moves another.
                column = np.broadcast_to(self._column(view), rows)
                is_left_out = left_out[view.leaves_out]
                if is_left_out.any():
                    column = np.where(is_left_out, self._column(IDENTITY[0]), column)
                numbers = np.arange(rows)
                if view.rewrite is not None:
                    numbers = rewritten[place_of_rewriting[view.rewrite, view.leaves_out]]
                terms.append(_Term(view, column, numbers))
            self._terms_by_policy.append(terms)

    def share(self, sequences: Sequence[np.ndarray]) -> None:
        """Read less, once the token ids of all texts are known.

        Texts that are equal in their tokens are then read once, and texts that nothing moves once
        for all shifts. From here on texts are token ids, and :attr:`new_texts` are no longer held.

        Args:
            sequences: token ids of the pairs and of the new texts. [T]
        """
        self.new_texts = []
        # The first text of each distinct row of tokens, and which of these each text equals.
        first_texts, places = once(ids.tobytes() for ids in sequences)
        self._first_equal = np.array(first_texts, dtype=np.int64)[places]
        terms = self._all_terms()
        for term in terms:
            term.texts = self._first_equal[term.texts]
        # One shift alone saves no pass. Its texts then stay in one pass, and so in the batches of a
        # call with one alpha: a score depends on its batch in the last bits.
        if len({_key_of(view.token_shift) for view in self.views}) == 1:
            return
        is_moved: dict[str, np.ndarray] = {}
        for term in terms:
            shift = term.view.token_shift
            if shift is None:
                continue
            # Shifts of the same classes differ in how far they move tokens, not in which.
            classes = shift.classes.key
            if classes not in is_moved:
                moved = [shift.moves(ids) for ids in sequences]
                is_moved[classes] = np.array(moved, dtype=bool)
            stays = ~is_moved[classes][term.texts]
            # Those that are left out have the column of an unchanged ranker already.
            stays &= term.columns == self._column(term.view)
            if stays.any():
                unshifted = self._column(replace(term.view, token_shift=None))
                term.columns = np.where(stays, unshifted, term.columns)

    def empty_scores(self) -> np.ndarray:
        """The table to fill; what nobody reads stays NaN. [C, T] float32"""
        return np.full((len(self.views), len(self._first_equal)), np.nan, dtype=np.float32)

    def needed(self) -> np.ndarray:
        """Which scores the sums are made of. [C, T] bool"""
        needed = np.zeros((len(self.views), len(self._first_equal)), dtype=bool)
        for term in self._all_terms():
            needed[term.columns, term.texts] = True
        return needed

    def passes(self) -> list[Pass]:
        """One for each shift, with every text and all weights that some sum needs under it."""
        needed = self.needed()
        columns_by_shift: dict[str | None, list[int]] = {}
        for column, view in enumerate(self.views):
            if needed[column].any():
                columns_by_shift.setdefault(_key_of(view.token_shift), []).append(column)
        passes = []
        for columns in columns_by_shift.values():
            passes.append(
                Pass(
                    shift=self.views[columns[0]].token_shift,
                    texts=np.flatnonzero(needed[columns].any(axis=0)),
                    weights=[self.views[column].sense_weights for column in columns],
                    maps=[self.views[column].pooled_map for column in columns],
                    columns=columns,
                )
            )
        return passes

    def sums(self, scores: np.ndarray) -> np.ndarray:
        """The scores of the pairs under the policies, from those of the texts.

        Args:
            scores: the filled table. [C, T]

        Returns:
            float32 [A, N]
        """
        sums = np.zeros((len(self._terms_by_policy), self.rows), dtype=np.float32)
        for total, terms in zip(sums, self._terms_by_policy, strict=True):
            for term, factors in zip(terms, self._factors(terms), strict=True):
                # Not all rows: a score with factor 0 may be NaN, because nobody read its text.
                rows = np.flatnonzero(factors)
                values = scores[term.columns[rows], term.texts[rows]]
                total[rows] += factors[rows].astype(np.float32) * values
        return sums

    def _factors(self, terms: Sequence[_Term]) -> list[np.ndarray]:
        """What the score of each term is multiplied by; 0 where it is that of an earlier term.

        Coefficients of the same score are added before they are multiplied with it:
        .3 + .35 + .35 is 1, and 1 * s is s, but .3 s + .35 s + .35 s is not s in float32.

        Returns:
            float64 [N] for each term.
        """
        all_factors: list[np.ndarray] = []
        for term in terms:
            factors = np.full(self.rows, term.view.coefficient, dtype=np.float64)
            texts = self._first_equal[term.texts]
            # The shorter list ends the loop: it has the terms before this one.
            for earlier, earlier_factors in zip(terms, all_factors, strict=False):
                same_column = earlier.columns == term.columns
                same_text = self._first_equal[earlier.texts] == texts
                is_same = same_column & same_text
                earlier_factors[is_same] += factors[is_same]
                factors[is_same] = 0.0
            all_factors.append(factors)
        return all_factors

    def _all_terms(self) -> list[_Term]:
        all_terms = []
        for terms in self._terms_by_policy:
            all_terms += terms
        return all_terms

    def _column(self, view: View) -> int:
        """The column of a view's shift, weights and map, a new one where there is none yet."""
        weights = None if view.sense_weights is None else tuple(view.sense_weights.tolist())
        pooled_map = None if view.pooled_map is None else view.pooled_map.key
        key = _key_of(view.token_shift), weights, pooled_map
        if key not in self._columns:
            self._columns[key] = len(self.views)
            # A column is asked of the rows that it is for: none of them is left out.
            self.views.append(replace(view, rewrite=None, coefficient=1.0, leaves_out=None))
        return self._columns[key]

    def _number_texts(
        self,
        rewritings: Sequence[Rewriting],
        kept: Sequence[np.ndarray],
        texts: Callable[[], Iterable[TextPair]],
        reading: Callable[[TextPair], Hashable],
    ) -> np.ndarray:
        """The number of what each of R rewritings makes of each pair; sets the new texts. [R, N]

        ``kept`` says which pairs each of them leaves as they are. bool [R] of [N]

        Pairs are read twice and never held, because a collection may be larger than memory: the
        first time to write the other texts, the second time to see which of them are pairs.
        """
        # Distinct written texts have a place until they have a number.
        written: list[TextPair] = []
        place_by_reading: dict[Hashable, int] = {}
        changed_rows: list[int] = []
        places_of_changed: list[list[int]] = []
        for row, pair in enumerate(texts()):
            rewritten_pairs = []
            for rewrite, is_kept in zip(rewritings, kept, strict=True):
                rewritten_pairs.append(pair if is_kept[row] else rewrite(*pair))
            if all(rewritten == pair for rewritten in rewritten_pairs):
                continue
            places = []
            for rewritten in rewritten_pairs:
                place = place_by_reading.setdefault(reading(rewritten), len(written))
                if place == len(written):  # it was not there: the text is new
                    written.append(rewritten)
                places.append(place)
            changed_rows.append(row)
            places_of_changed.append(places)

        numbers = np.tile(np.arange(self.rows), (len(rewritings), 1))
        first_equal = np.arange(self.rows)
        number_of_place = np.full(len(written), -1)
        is_changed = np.zeros(self.rows, dtype=bool)
        is_changed[changed_rows] = True
        if not written:
            return numbers
        for row, pair in enumerate(texts()):
            place = place_by_reading.get(reading(pair), -1)
            if place == -1:
                continue
            if number_of_place[place] == -1:
                number_of_place[place] = row
            first_equal[row] = number_of_place[place]
            # Later rows with this text read the first one's score: theirs comes from another place
            # in a batch.
            if not is_changed[row]:
                numbers[:, row] = number_of_place[place]

        for place in np.flatnonzero(number_of_place == -1).tolist():
            number_of_place[place] = self.rows + len(self.new_texts)
            self.new_texts.append(written[place])
        numbers[:, changed_rows] = number_of_place[np.array(places_of_changed)].T
        new_numbers = np.arange(self.rows, self.rows + len(self.new_texts))
        self._first_equal = np.concatenate([first_equal, new_numbers])
        return numbers


@dataclass(frozen=True, eq=False)
class Pass:
    """Texts that the network reads once, all of them in the same way.

    Attributes:
        shift: tokens that are moved while it reads, or None.
        texts: numbers of the texts in the plan, ascending. [n]
        weights: weights per sense to score each text under; None: senses are mixed unchanged. [W]
        maps: of the pooled vector, beside each of the weights; None: it stays. [W]
        columns: which column of the plan's scores each of the weights fills. [W]
    """

    shift: TokenShift | None
    texts: np.ndarray
    weights: list[Tensor | None]
    maps: list[PooledMap | None]
    columns: list[int]

    def views(self) -> list[View]:
        """What to ask the ranker for, one view for each of the weights."""
        views = []
        for weights, pooled_map in zip(self.weights, self.maps, strict=True):
            views.append(View(weights, self.shift, pooled_map=pooled_map))
        return views


@dataclass(eq=False)
class _Term:
    """A summand of the scores of N pairs: a coefficient times a score of each.

    Attributes:
        view: that gives the coefficient.
        columns, texts: where in the plan's scores those are that it takes. [N]
    """

    view: View
    columns: np.ndarray
    texts: np.ndarray


def _rows_left_out(
    leaves_out: LeftOut, rows: int, texts: Callable[[], Iterable[TextPair]] | None
) -> np.ndarray:
    """Which pairs have a query that is left out. bool [N]"""
    assert leaves_out is not None
    if texts is None:
        raise ValueError("a policy that looks at queries needs the texts of the pairs")
    is_left_out: dict[str, bool] = {}
    found = np.zeros(rows, dtype=bool)
    for row, (query, _) in enumerate(texts()):
        if query not in is_left_out:
            is_left_out[query] = leaves_out(query)
        found[row] = is_left_out[query]
    return found


def rewrites(policies: Sequence[Sequence[View]]) -> bool:
    """Whether a view of the policies reads other texts than those of the pair."""
    return any(view.rewrite is not None for views in policies for view in views)


def _key_of(shift: TokenShift | None) -> str | None:
    return None if shift is None else shift.key
