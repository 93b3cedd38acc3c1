"""A ranker that scores one document at a time, under a policy at an alpha."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.checks import one_of
from backpack_rank.commands import program
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.progress import printable
from backpack_rank.reranking.given_texts import (
    Documents,
    Given,
    check_names,
    checked_documents,
    checked_pairs,
    checked_text,
)
from backpack_rank.reranking.left_out_words import AT_MOST, LeftOutWords, fits_one_chunk
from backpack_rank.reranking.planned_scores import (
    scores_of_pairs,
    scores_of_texts,
    scores_of_tokens,
)
from backpack_rank.reranking.rankings import (
    AlphaSweep,
    Ranking,
    check_threshold,
    log_below_threshold,
    reaches,
)
from backpack_rank.reranking.reading_plan import rewrites
from backpack_rank.reranking.rerankers import TextReranker
from backpack_rank.reranking.score_calibration import CalibrationFile
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import TextScorer
from backpack_rank.senses.attribution import Attribution, Explanation, attribute, explanation
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.hook import InferenceHook
from backpack_rank.senses.policies import Policy, PolicyContext
from backpack_rank.senses.policy_names import (
    POLICIES,
    DefaultPolicy,
    default_name,
    named_policy,
)
from backpack_rank.senses.sensitivity import Sensitivity
from backpack_rank.senses.views import IDENTITY

WAYS_TO_EXPLAIN = ("senses", "words")
LOGITS = "logits"
SIGMOID = "sigmoid"
CALIBRATED = "calibrated"
ACTIVATIONS = (LOGITS, SIGMOID, CALIBRATED)
"""What a score is shown as: raw, its sigmoid, or a probability of relevance."""


class PointwiseReranker(TextReranker):
    """Ranks with one ranker at any alpha; :func:`backpack_rank.load` makes it.

    >>> reranker = backpack_rank.load("outputs/train/DATE/ranker")  # doctest: +SKIP
    >>> reranker.rank("who can rewire a house?", documents, alpha=0.0)  # doctest: +SKIP
    [{'corpus_id': 3, 'score': 2.41}, {'corpus_id': 0, 'score': -0.73}]

    Attributes:
        scorer: the ranker with its tokenizer.
        hook: policy and alpha.
        attribute: whose words policies are about.
        cache: sense vectors on disk, shared by all alphas; None: every alpha is another pass of the
            network.
        activation: what :meth:`predict` and :meth:`rank` make of raw logits where they are not
            told.
    """

    # Scores of two wordings can be compared, so evaluate.py measures what a swap of words changes.
    compares_texts = True

    def __init__(
        self,
        scorer: TextScorer,
        hook: InferenceHook | None = None,
        *,
        attribute: Attribute | None = None,
        cache: SenseCache | None = None,
        activation: str | None = None,
        calibration: CalibrationFile | None = None,
        source: str = "",
    ) -> None:
        """
        Args:
            scorer: the ranker with its tokenizer.
            hook: policy and alpha; None leaves the ranker unchanged.
            attribute: whose words policies are about; None: gender.
            cache: sense vectors on disk; None: every alpha is another pass of the network.
            activation: of :meth:`predict` where it is given none, one of :data:`ACTIVATIONS`; None:
                raw logits.
            calibration: where that of the ranker is looked for; None: it has none.
            source: where it was loaded from.

        Raises:
            ValueError: there is no such activation, or ``calibrated`` without a calibration.
        """
        self.scorer = scorer
        self.source = source
        self.activation = LOGITS if activation is None else activation
        self._calibration = calibration or CalibrationFile(None, scorer.ranker.label)
        _check_activation(self.activation)
        if self.activation == CALIBRATED:
            self._calibration.calibration()  # raises ValueError where there is none
        self.cache = cache
        self.attribute = attribute or Attribute.named("gender")
        ranker = scorer.ranker
        if hook is None:
            hook = InferenceHook(PolicyContext.of(ranker, scorer.tokenizer, self.attribute))
        self.hook = hook
        # Tables show alpha where it can change a score; else they show the name of the ranker.
        has_alpha = ranker.has_senses
        if hook.policy is not None and not hook.policy.needs_senses():
            has_alpha = True
        self.alpha = hook.alpha if has_alpha else None
        self.name = f"alpha={hook.alpha:g}" if has_alpha else ranker.label

    def at(
        self, alpha: float | None = None, policy: Policy | str | None = None
    ) -> PointwiseReranker:
        """The reranker at an alpha; without arguments it returns this reranker.

        Args:
            alpha: None keeps the alpha of this reranker, which is 1 unless it was given.
            policy: None keeps the policy of this reranker. Where it has none, a ranker with senses
                gets ``lowest_senses``, the paper's rule, and any other ``renditions``.

        Raises:
            ValueError: as :meth:`with_policy`.
        """
        if alpha is None and policy is None:
            return self
        if alpha is None:
            alpha = self.hook.alpha
        return self.with_policy(policy or self.hook.policy or DefaultPolicy(self.attribute), alpha)

    def with_policy(self, policy: Policy | str, alpha: float) -> PointwiseReranker:
        """The ranker under a policy at an alpha; weights and cache are shared.

        >>> fair = reranker.with_policy("renditions", alpha=0.0)  # doctest: +SKIP

        Args:
            policy: a policy, or its name
                (:data:`backpack_rank.senses.policy_names.POLICIES`).
            alpha: 1 leaves the ranker unchanged, 0 is all that the policy can do.

        Raises:
            ValueError: there is no such policy, alpha is not a finite number >= 0, or the policy
                does not fit.
        """
        if not isinstance(policy, str | Policy):
            raise TypeError(_no_policy(policy))
        if isinstance(policy, str) and policy not in POLICIES:
            shown = printable(policy[:80])
            raise ValueError(
                f"policy={shown}: use one of {', '.join(self.policies)}, or a Policy of your own"
            )
        try:
            return self._with_policy(policy, alpha)
        except ValueError as error:
            if not isinstance(policy, str) or policy in self.policies:
                raise
            raise ValueError(
                f"{error}; policies of this ranker: {', '.join(self.policies)}"
            ) from None

    def _with_policy(self, policy: Policy | str, alpha: float) -> PointwiseReranker:
        if isinstance(policy, str):
            policy = named_policy(policy, self.attribute)
        if isinstance(policy, DefaultPolicy):
            policy = policy.of_ranker(self.scorer.ranker)
        hook = InferenceHook(self.hook.context, policy, alpha)
        # Views are computed at first use. Used here, they refuse a policy that does not fit before
        # any text is scored.
        _ = hook.views
        return self._with(self.scorer, hook)

    def policy_that_acts(self, query: str) -> str | None:
        """Name of the policy that scores of a query come from.

        None at alpha = 1, and where the query asks for a group.
        """
        policy = self.hook.policy
        if policy is None or self.hook.alpha == 1 or self.hook.leaves_out(query):
            return None
        return policy.name

    def reading(
        self,
        long_documents: str | None = None,
        max_chunks_per_doc: int | None = None,
        chunk_overlap: int | None = None,
    ) -> PointwiseReranker:
        """The reranker that reads long documents in another way; weights are shared.

        >>> thorough = reranker.reading("chunks", max_chunks_per_doc=8)  # doctest: +SKIP
        >>> thorough.sweep(query, documents, alphas=[1, 0.5, 0])  # doctest: +SKIP

        Args:
            long_documents: ``cut`` reads the beginning of a document that does not fit behind its
                query; ``chunks`` reads it in chunks of tokens, and its score is the best one's.
            max_chunks_per_doc: chunks of a document at most, from its beginning; unless it is
                given, all.
            chunk_overlap: tokens that a chunk shares with the one before it; unless it is given,
                none.

        Raises:
            ValueError: a value is wrong, or the ranker is behind a server, which cuts by itself.
        """
        long = self.scorer.long_documents.changed(long_documents, max_chunks_per_doc, chunk_overlap)
        if long == self.scorer.long_documents:
            return self
        scorer = self.scorer.with_long_documents(long)
        return self._with(scorer, self.hook)

    def _with(self, scorer: TextScorer, hook: InferenceHook) -> PointwiseReranker:
        """This reranker with another way to read, or under another policy."""
        return PointwiseReranker(
            scorer,
            hook,
            attribute=self.attribute,
            cache=self.cache,
            activation=self.activation,
            calibration=self._calibration,
            source=self.source,
        )

    def __repr__(self) -> str:
        ranker = self.scorer.ranker
        policy = self.hook.policy
        name = f"{default_name(ranker)} (default)" if policy is None else policy.name
        parts = [
            repr(self.source or self.name),
            ranker.label,
            f"attribute={self.attribute.name}",
            f"policy={name}",
            f"alpha={self.hook.alpha:g}",
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    def rerank(self, run: Run, collection: Collection) -> Run:
        """Re-rank a first-stage run: raw logits replace its scores.

        Raises:
            ValueError: a query is not in the collection, empty or too long, or a score is not
                finite.
            KeyError: documents that the collection does not have.
        """
        pairs = Pairs.from_run(run, collection)
        (scores,) = scores_of_pairs([self.hook.views], self.scorer, pairs, self.cache)
        return pairs.to_run(scores)

    def predict(
        self,
        pairs: Sequence[Sequence[str]],
        *,
        alpha: float | None = None,
        policy: Policy | str | None = None,
        activation: str | None = None,
        long_documents: str | None = None,
        max_chunks_per_doc: int | None = None,
        chunk_overlap: int | None = None,
    ) -> np.ndarray:
        """Raw logits of (query, document) texts, higher is better. [N] float32

        sentence-transformers puts a sigmoid on models with one label; here that is
        ``activation="sigmoid"``. Probabilities of relevance are ``activation="calibrated"``, of a
        ranker that ``backpack-rank calibrate`` has calibrated.

        >>> pairs = [("who can rewire a house?", "An electrician can.")]
        >>> reranker.predict(pairs, alpha=0.5)  # doctest: +SKIP
        array([2.41], dtype=float32)

        Args:
            pairs: the texts, as tuples or lists; of one pair alone, its score is a number.
            alpha, policy: see :meth:`at`.
            long_documents, max_chunks_per_doc, chunk_overlap: see :meth:`reading`; None: as the
                reranker reads. How many documents are cut is logged.
            activation: ``logits``; ``sigmoid`` puts them into [0, 1], in float64; ``calibrated``
                gives probabilities of relevance, in float64; None: that of the reranker, ``logits``
                unless it was loaded with another one.

        Raises:
            ValueError: a query is empty or too long, a score is not finite, or an option is wrong.
            TypeError: an entry is no pair of texts; its place is named.
        """
        given, is_one = checked_pairs(pairs)
        activation = self.checked_activation(activation)
        reranker = self.at(alpha, policy)
        reranker = reranker.reading(long_documents, max_chunks_per_doc, chunk_overlap)
        (scores,) = scores_of_texts([reranker.hook.views], reranker.scorer, given)
        shown = reranker.activated(scores, activation)
        return shown[0] if is_one else shown

    def activated(self, scores: np.ndarray, activation: str | None = None) -> np.ndarray:
        """Raw logits as this reranker shows them, at its alpha and under its policy. [N]

        >>> reranker.activated(np.array([0.0]), "sigmoid")  # doctest: +SKIP
        array([0.5])

        Args:
            scores: raw logits. [N]
            activation: as of :meth:`predict`.

        Raises:
            ValueError: there is no such activation, or no calibration.
        """
        activation = self.checked_activation(activation)
        if activation == LOGITS:
            return scores
        if activation == SIGMOID:
            return sigmoid(scores)
        policy = None if self.hook.policy is None else self.hook.policy.name
        calibration = self._calibration.calibration()
        return calibration.probabilities(scores, self.hook.alpha, policy)

    def checked_activation(self, activation: str | None) -> str:
        """The activation that is asked for, or else that of this reranker.

        Raises:
            ValueError: there is no such activation, or no calibration.
        """
        chosen = self.activation if activation is None else activation
        _check_activation(chosen)
        if chosen == CALIBRATED:
            self._calibration.calibration()  # raises ValueError where there is none
        return chosen

    def rank(
        self,
        query: str,
        documents: Given,
        top_k: int | None = None,
        return_documents: bool = False,
        score_threshold: float | None = None,
        rank_fields: Sequence[str] | None = None,
        **options: Any,
    ) -> Ranking:
        """Documents from best to worst, in the form of sentence-transformers.

        >>> reranker.rank("who can rewire a house?", documents, alpha=0.0)  # doctest: +SKIP
        [{'corpus_id': 3, 'score': 2.41}, {'corpus_id': 0, 'score': -0.73}]

        Args:
            query: its text.
            documents: their texts, or objects with a ``text``.
            top_k: at most this many documents; None: all.
            return_documents: add the text of each document, as ``text``, and an object as a whole,
                as ``document``.
            score_threshold: leave out documents with lower scores, after ``activation``; how many
                they are says ``below_threshold`` of the ranking. None: keep all.
            rank_fields: which fields of objects are read, one below the other; None: ``text``.
            options: ``alpha``, ``policy``, ``activation``, ``long_documents`` and its two further
                options of :meth:`predict`.
        """
        check_names(options, self.predict, "rank")
        (ranking,) = self.rank_many(
            [checked_text(query, "query")],
            [documents],
            top_k,
            return_documents,
            score_threshold,
            rank_fields,
            **options,
        )
        return ranking

    def rank_many(
        self,
        queries: Sequence[str],
        documents: Sequence[Given],
        top_k: int | None = None,
        return_documents: bool = False,
        score_threshold: float | None = None,
        rank_fields: Sequence[str] | None = None,
        **options: Any,
    ) -> list[Ranking]:
        """:meth:`rank` for several queries, which are scored together.

        >>> queries = ["who can rewire a house?", "who can cook?"]
        >>> documents = [["An electrician can."], ["A cook can.", "A guest eats."]]
        >>> reranker.rank_many(queries, documents)  # doctest: +SKIP

        Args:
            queries: their texts.
            documents: of each query, its documents.
            top_k, return_documents, score_threshold, rank_fields, options: as of :meth:`rank`.

        Raises:
            ValueError: not one list of documents for each query, or as :meth:`predict`.
        """
        if isinstance(queries, str) or len(queries) != len(documents):
            raise ValueError(
                f"{len(documents)} lists of documents for {len(queries)} queries: give one for each"
            )
        check_names(options, self.predict, "rank_many")
        queries = [checked_text(query, f"queries[{row}]") for row, query in enumerate(queries)]
        checked = [checked_documents(texts, rank_fields) for texts in documents]
        pairs = []
        for query, texts in zip(queries, checked, strict=True):
            pairs += [(query, text) for text in texts]
        check_threshold(score_threshold)
        # Ranked by logits: a calibration has steps, and a sigmoid runs out of digits.
        activation = self.checked_activation(options.pop("activation", None))
        reranker = self.at(options.pop("alpha", None), options.pop("policy", None))
        scores = reranker.predict(pairs, activation=LOGITS, **options)
        shown = reranker.activated(scores, activation)
        rankings: list[Ranking] = []
        start = 0
        for query, texts in zip(queries, checked, strict=True):
            of_query = slice(start, start + len(texts))
            start += len(texts)
            shown_scores = shown[of_query]
            is_kept = reaches(shown_scores, score_threshold)
            rows = []
            for row in ranked_rows(scores[of_query], texts, top_k, return_documents):
                place = row["corpus_id"]
                row["score"] = float(shown_scores[place])
                if is_kept[place]:
                    rows.append(row)
            below_threshold = int((~is_kept).sum())
            acting = reranker.policy_that_acts(query)
            rankings.append(Ranking(rows, query, texts, below_threshold, acting))
        below = sum(ranking.below_threshold for ranking in rankings)
        log_below_threshold(below, len(pairs), score_threshold)
        return rankings

    def sweep(
        self,
        query: str,
        documents: Sequence[str],
        alphas: Sequence[float],
        policy: Policy | str | None = None,
    ) -> np.ndarray:
        """Compare alphas: raw logits of m documents at each alpha. [A, m] float32

        A notebook shows the array with its texts, and ``.plot()`` draws it.

        The network reads the texts once where the policy weighs senses. Texts with a token that
        moves are read twice where it moves in the senses alone, and once for each alpha where it
        moves in what the contextual network reads.

        >>> reranker.sweep("who can rewire a house?", documents, alphas=[1, 0])  # doctest: +SKIP
        array([[-0.73, 2.41], [-0.70, 2.39]], dtype=float32)

        Args:
            query, documents: their texts.
            alphas: A values of alpha.
            policy: see :meth:`at`.
        """
        query = checked_text(query, "query")
        texts = checked_documents(documents)
        policies = [self.at(alpha, policy).hook.views for alpha in alphas]
        if not texts or not policies:
            return np.empty((len(policies), len(texts)), dtype=np.float32)
        # A policy that rewrites a text reads several texts for it. These are read in portions, and
        # their sense vectors are not kept in memory.
        pairs = [(query, text) for text in texts]
        if rewrites(policies) or not isinstance(self.scorer, Scorer):
            scores = np.asarray(scores_of_texts(policies, self.scorer, pairs))
        else:
            joined = self.scorer.join(query, texts)
            scores = scores_of_tokens(policies, self.scorer, joined, pairs)
        return AlphaSweep.of(scores, query, texts, alphas)

    def explain(
        self,
        query: str,
        document: str,
        lexicon: Lexicon | None = None,
        *,
        by: str | None = None,
        at_most: int = AT_MOST,
    ) -> Explanation:
        """What words and senses add to a score, and what alpha changes about it.

        >>> explanation = reranker.explain(query, document)  # doctest: +SKIP
        >>> [(word.text, word.contribution) for word in explanation.words]  # doctest: +SKIP

        Args:
            query, document: their texts.
            lexicon: its words are marked with their group; None: those of the attribute.
            by: ``senses`` splits the score of a ranker with senses; ``words`` scores the pair
                without each word, for every ranker and policy. None: by senses where the score
                splits into them, else by words; also where the best of several chunks is the score
                (senses are those of the first one).
            at_most: words that are left out by themselves; of longer texts, neighbours are left out
                together.

        Raises:
            ValueError: the score does not split into senses and ``by`` asks for them, or the query
                is empty or too long.
        """
        query, document = checked_text(query, "query"), checked_text(document, "document")
        if by is not None:
            one_of("by", by, WAYS_TO_EXPLAIN)
        if self.hook.leaves_out(query):
            # As the pair is scored: a word that is left out of the query does not bring the dial
            # back.
            unchanged = self.at(1.0)
            return unchanged.explain(query, document, lexicon, by=by, at_most=at_most)
        if by is None:
            by = "senses" if self._has_senses_of(query, document) else "words"
        if by == "words":
            return self._explained_by_words(query, document, lexicon, at_most)

        ranker, tokenizer = self.local_scorer.ranker, self.local_scorer.pair_tokenizer
        policy = self.hook.policy
        if self.sensitivity is None or not isinstance(ranker, BackpackForRanking):
            raise ValueError(
                f"the score of a {ranker.label} does not split into senses: explain by words"
            )
        if not self.hook.reads_one_text:
            assert policy is not None
            raise ValueError(
                f"policy {policy.name} reads several texts for one score, which does not split "
                "into senses: explain by words, or explain alpha=1, or another policy"
            )
        view = self.hook.view
        if view.pooled_map is not None:
            assert policy is not None
            raise ValueError(
                f"policy {policy.name} maps the sum of all senses, which does not split into "
                "senses: explain by words, or explain alpha=1, or another policy"
            )
        before: Attribution | None = None
        contributions = attribute(ranker, tokenizer, query, document)
        if view.sense_weights is not None or view.token_shift is not None:
            before = contributions
            contributions = attribute(ranker, tokenizer, query, document, view)
        return explanation(
            contributions,
            title=self.explanation_title(before is not None),
            lexicon=lexicon or self.attribute.lexicon(),
            sensitivity=self.sensitivity.values,
            weights=view.sense_weights,
            before=before,
        )

    def _has_senses_of(self, query: str, document: str) -> bool:
        """Whether the score of this very pair splits into senses."""
        if not self.splits_into_senses:
            return False
        tokenizer = self.local_scorer.pair_tokenizer
        return fits_one_chunk(tokenizer, query, document, self.scorer.long_documents)

    def _explained_by_words(
        self, query: str, document: str, lexicon: Lexicon | None, at_most: int
    ) -> Explanation:
        # A server's tokenizer is out of reach, and with it how much of the text is read.
        pair_tokenizer = None
        if isinstance(self.scorer, Scorer):
            pair_tokenizer = self.scorer.pair_tokenizer
        words = LeftOutWords(
            query,
            document,
            self.attribute,
            lexicon=lexicon,
            pair_tokenizer=pair_tokenizer,
            long_documents=self.scorer.long_documents,
            at_most=at_most,
        )
        policies = [self.hook.views]
        if self.hook.policy is not None and self.hook.alpha != 1:
            policies.append(IDENTITY)
        # The unchanged ranker comes last; texts that both ask for are read once.
        scores = scores_of_texts(policies, self.scorer, words.pairs)
        before = scores[1] if len(policies) > 1 else None
        return words.explanation(scores[0], before, self.explanation_title(before is not None))

    def explanation_title(self, is_controlled: bool) -> str:
        """What stands over an explanation, such as "alpha=0.5, renditions_keep"."""
        if is_controlled and self.hook.policy is not None:
            return f"{self.name}, {self.hook.policy.name}"
        return self.name

    @property
    def splits_into_senses(self) -> bool:
        """Whether a score is a sum over senses, and can be explained by them."""
        ranker = self.scorer.ranker
        if not isinstance(ranker, BackpackForRanking) or ranker.reads_all_positions:
            return False
        if self.sensitivity is None or not self.hook.reads_one_text:
            return False
        return self.hook.view.pooled_map is None

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies that fit this ranker; found when first asked for.

        They are of :data:`backpack_rank.senses.policy_names.POLICIES`.

        >>> backpack_rank.load("cross-encoder/ms-marco-MiniLM-L6-v2").policies  # doctest: +SKIP
        ('paired_tokens', 'renditions')
        """
        fitting = []
        for name in POLICIES:
            try:
                # At alpha = 1 every policy fits.
                self._with_policy(name, 0.5)
            except (ValueError, FileNotFoundError):
                continue
            fitting.append(name)
        return tuple(fitting)

    @property
    def sensitivity(self) -> Sensitivity | None:
        """s_l of every sense (Afzali et al., eq. 4); None for a ranker without senses.

        >>> reranker.sensitivity.values  # doctest: +SKIP
        tensor([0.91, 0.13, 0.87, 0.90])
        """
        return self.hook.context.sensitivity

    @property
    def local_scorer(self) -> Scorer:
        """The scorer of a ranker whose weights are on this machine.

        Raises:
            ValueError: the ranker is behind a server.
        """
        if not isinstance(self.scorer, Scorer):
            raise ValueError(
                f"{self.scorer.ranker.label} is behind a server: its weights are out of reach; "
                f"{program('evaluate')} and backpack_rank.load in Python rank by its scores"
            )
        return self.scorer


def ranked_rows(
    scores: np.ndarray,
    documents: Sequence[str],
    top_k: int | None,
    return_documents: bool,
    score_threshold: float | None = None,
) -> list[dict[str, Any]]:
    """Give scores [m] as rows from best to worst, equal ones in the documents' order.

    >>> ranked_rows(np.array([0.5, 2.0]), ["a", "b"], top_k=1, return_documents=True)
    [{'corpus_id': 1, 'score': 2.0, 'text': 'b'}]

    Rows with a score below ``score_threshold`` are left out.

    Raises:
        ValueError: ``top_k`` is not a whole number of at least 1, or the threshold no number.
    """
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k={top_k!r} must be a whole number of at least 1, or None for all")
    rows = []
    order = np.argsort(-scores, kind="stable")
    order = order[reaches(scores[order], score_threshold)]
    for place in order[:top_k]:
        row: dict[str, Any] = {"corpus_id": int(place), "score": float(scores[place])}
        if return_documents:
            row["text"] = documents[place]
            if isinstance(documents, Documents) and documents.given[place] is not row["text"]:
                row["document"] = documents.given[place]
        rows.append(row)
    return rows


def _no_policy(policy: object) -> str:
    """What is wrong with a policy that is neither a name nor an object."""
    if not isinstance(policy, type):
        return f"policy={policy!r:.80} is no policy: use one of {', '.join(POLICIES)}, or a Policy"
    make = ".of(attribute)" if hasattr(policy, "of") else "()"
    return f"policy={policy.__name__} is a class: give an object of it, {policy.__name__}{make}"


def _check_activation(activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation={activation!r}: use one of {', '.join(ACTIVATIONS)}, or None")


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) in float64, in which two large scores still differ.

    >>> sigmoid(np.array([0.0], dtype=np.float32))
    array([0.5])
    """
    # Here, because it takes long to import and rank() does not need it.
    from scipy.special import expit

    return expit(logits.astype(np.float64))
