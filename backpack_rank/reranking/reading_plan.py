"""Which texts a ranker reads, and under which shift, so that pairs have their scores under
policies: each text once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from backpack_rank.models.token_shift import TokenShift
from backpack_rank.reranking.scorer import once
from backpack_rank.senses.views import View

TextPair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Pass:
    """Texts that the network reads once, all of them in the same way.

    Attributes:
        shift: tokens that are moved while it reads, or None.
        texts: numbers of the texts in the plan, ascending. [n]
        weights: weights per sense to score each text under; None: the senses as they are. [W]
        columns: which column of the plan's scores each of the weights fills. [W]
    """

    shift: TokenShift | None
    texts: np.ndarray
    weights: list[Tensor | None]
    columns: list[int]

    def views(self) -> list[View]:
        """What to ask the ranker for, one view for each of the weights."""
        return [View(sense_weights=weights, token_shift=self.shift) for weights in self.weights]


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


class ReadingPlan:
    """The passes of a ranker over texts that give the scores of N pairs under A policies.

    The score of a pair is a sum over the views of a policy, and each view may read another text,
    move tokens, and weigh senses:

        score[a, n] = sum over views v of policy a: coefficient[v] * s(text[v, n], shift[v],
        weights[v])

    One pass over N texts for each view would read most texts several times. The plan reads less, by
    four rules:

    1. A text that several views, policies or pairs ask for is read once.
    2. Weights per sense come behind the network, so one pass serves all weights under the same
       shift.
    3. A text without a token that moves is the same under every shift, so one pass without a shift
       serves them all.
    4. A text whose coefficients are all 0 is not read, such as the pair itself at alpha = 0 of
       renditions.

    Of pairs as they come, equal ones are known by their token ids alone, and so are texts without a
    token that moves: both rules wait for :meth:`share`. A collection is scored without it, and row
    by row.

    Texts are known by number: text n < N is the pair of row n, :attr:`new_texts` follow. Scores of
    texts are a table [C, T] with a column for each distinct (shift, weights). The caller fills it,
    in any order, and asks for the sums::

        plan = ReadingPlan(policies, len(pairs), lambda: pairs)
        plan.share(tokenise([*pairs, *plan.new_texts]))  # optional
        scores = plan.empty_scores()
        for one in plan.passes():
            for column, view in zip(one.columns, one.views()):
                scores[column, one.texts] = ...  # the ranker's scores of these texts under this
                view
        return plan.sums(scores)

    Two promises: a pair that no view rewrites, and that no other one is rewritten to, has its very
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
            texts: gives the N pairs, each of the two times that it is asked; None: no view rewrites
                them.
            reading: equal for two pairs that are read alike.
        """
        self.rows = rows
        self.new_texts: list[TextPair] = []
        self.views: list[View] = []
        self._columns: dict[Hashable, int] = {}
        with_weight = [[view for view in views if view.coefficient] for views in policies]
        every_view = [view for views in with_weight for view in views]
        rewritings = list(
            dict.fromkeys(view.rewrite for view in every_view if view.rewrite is not None)
        )
        numbers = np.arange(rows)[None]
        # Of each text the first one that is known to be equal.
        self._first_alike = np.arange(rows)
        if rewritings:
            assert texts is not None
            numbers = self._numbers(rewritings, texts, reading)
        self._texts = len(self._first_alike)
        self._sums: list[list[_Term]] = []
        for views in with_weight:
            terms = []
            for view in views:
                column = np.broadcast_to(self._column(view), rows)
                # Without a rewriting it is the pair itself, whose numbers stand behind those of all
                # rewritings.
                place = -1 if view.rewrite is None else rewritings.index(view.rewrite)
                terms.append(_Term(view, column, numbers[place]))
            self._sums.append(terms)

    def share(self, sequences: Sequence[np.ndarray]) -> None:
        """Read less, now that the token ids of all texts are known [T]: texts that are equal, or
        that nothing moves.

        From here on texts are token ids, and :attr:`new_texts` are no longer held.
        """
        self.new_texts = []
        first, places = once(ids.tobytes() for ids in sequences)
        self._first_alike = np.array(first, dtype=np.int64)[places]
        terms = [term for terms in self._sums for term in terms]
        for term in terms:
            term.texts = self._first_alike[term.texts]
        # One shift alone saves no pass. Its texts then stay in one pass, and so in the batches of a
        # call with one alpha: a score hangs on its batch in the last bits.
        if len({_key_of(view.token_shift) for view in self.views}) == 1:
            return
        moved: dict[str, np.ndarray] = {}
        for term in terms:
            shift = term.view.token_shift
            if shift is None:
                continue
            # Shifts of the same classes differ in how far they move tokens, not in which.
            if shift.classes.key not in moved:
                moved[shift.classes.key] = np.array(
                    [shift.moves(ids) for ids in sequences], dtype=bool
                )
            stays = ~moved[shift.classes.key][term.texts]
            if stays.any():
                unshifted = self._column(replace(term.view, token_shift=None))
                term.columns = np.where(stays, unshifted, term.columns)

    def empty_scores(self) -> np.ndarray:
        """The table to fill; what nobody read stays NaN. [C, T] float32"""
        return np.full((len(self.views), self._texts), np.nan, dtype=np.float32)

    def needed(self) -> np.ndarray:
        """Which scores the sums are made of. [C, T] bool"""
        needed = np.zeros((len(self.views), self._texts), dtype=bool)
        for terms in self._sums:
            for term in terms:
                needed[term.columns, term.texts] = True
        return needed

    def passes(self) -> list[Pass]:
        """One for each shift, with every text and all weights that some sum needs under it."""
        needed = self.needed()
        by_shift: dict[str | None, list[int]] = {}
        for column, view in enumerate(self.views):
            if needed[column].any():
                by_shift.setdefault(_key_of(view.token_shift), []).append(column)
        passes = []
        for columns in by_shift.values():
            texts = np.flatnonzero(needed[columns].any(axis=0))
            weights = [self.views[column].sense_weights for column in columns]
            passes.append(Pass(self.views[columns[0]].token_shift, texts, weights, columns))
        return passes

    def sums(self, scores: np.ndarray) -> np.ndarray:
        """The scores of the pairs under the policies, from those of the texts [C, T]. [A, N]
        float32
        """
        sums = np.zeros((len(self._sums), self.rows), dtype=np.float32)
        for total, terms in zip(sums, self._sums, strict=True):
            for term, factors in zip(terms, self._factors(terms), strict=True):
                rows = np.flatnonzero(factors)
                total[rows] += (
                    factors[rows].astype(np.float32) * scores[term.columns[rows], term.texts[rows]]
                )
        return sums

    def _factors(self, terms: Sequence[_Term]) -> list[np.ndarray]:
        """What the score of each term is multiplied by; 0 where it is that of an earlier term.
        float64 [N] each

        Coefficients of one score are added before they meet it: .3 + .35 + .35 is 1, and 1 * s is
        s, but .3 s + .35 s + .35 s is not s in float32.
        """
        factors: list[np.ndarray] = []
        alike = [self._first_alike[term.texts] for term in terms]
        for number, term in enumerate(terms):
            own = np.full(self.rows, term.view.coefficient, dtype=np.float64)
            for earlier, factor in enumerate(factors):
                is_same = (terms[earlier].columns == term.columns) & (
                    alike[earlier] == alike[number]
                )
                factor[is_same] += own[is_same]
                own[is_same] = 0.0
            factors.append(own)
        return factors

    def _column(self, view: View) -> int:
        """The column of a view's shift and weights, a new one where there is none yet."""
        weights = None if view.sense_weights is None else tuple(view.sense_weights.tolist())
        key = _key_of(view.token_shift), weights
        if key not in self._columns:
            self._columns[key] = len(self.views)
            self.views.append(replace(view, rewrite=None, coefficient=1.0))
        return self._columns[key]

    def _numbers(
        self,
        rewritings: Sequence[Callable[[str, str], TextPair]],
        texts: Callable[[], Iterable[TextPair]],
        reading: Callable[[TextPair], Hashable],
    ) -> np.ndarray:
        """The number of what each rewriting makes of each pair, in the last row that of the pair.
        [R + 1, N]

        Pairs are gone through twice and never held: a collection may be larger than memory.
        """
        written: dict[Hashable, int] = {}
        pairs: list[TextPair] = []
        changed: list[int] = []
        made: list[list[int]] = []
        for row, pair in enumerate(texts()):
            own = [rewrite(*pair) for rewrite in rewritings]
            if all(one == pair for one in own):
                continue
            changed.append(row)
            made.append([])
            for one in own:
                place = written.setdefault(reading(one), len(pairs))
                if place == len(pairs):
                    pairs.append(one)
                made[-1].append(place)

        numbers = np.tile(np.arange(self.rows), (len(rewritings) + 1, 1))
        number_of = np.full(len(pairs), -1)
        first_alike = np.arange(self.rows)
        is_changed = np.zeros(self.rows, dtype=bool)
        is_changed[changed] = True
        for row, pair in enumerate(texts() if written else ()):
            place = written.get(reading(pair), -1)
            if place == -1:
                continue
            if number_of[place] == -1:
                number_of[place] = row
            first_alike[row] = number_of[place]
            # Later rows with this text read the first one's score: their own comes from another
            # place in a batch.
            if not is_changed[row]:
                numbers[:-1, row] = number_of[place]

        for place in np.flatnonzero(number_of == -1).tolist():
            number_of[place] = self.rows + len(self.new_texts)
            self.new_texts.append(pairs[place])
        if changed:
            numbers[:-1, changed] = number_of[np.array(made)].T
        new = np.arange(self.rows, self.rows + len(self.new_texts))
        self._first_alike = np.concatenate([first_alike, new])
        return numbers


def rewrites(policies: Sequence[Sequence[View]]) -> bool:
    """Whether a view reads other texts than those of the pair."""
    return any(view.rewrite is not None for views in policies for view in views)


def _key_of(shift: TokenShift | None) -> str | None:
    return None if shift is None else shift.key
