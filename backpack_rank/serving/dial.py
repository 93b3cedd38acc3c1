"""What all served rankers with a dial have: policies, and what a request is answered under."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.long_documents import LongDocuments
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.reranking.left_out_words import LeftOutWords, fits_one_chunk
from backpack_rank.reranking.pointwise import CALIBRATED, LOGITS, PointwiseReranker
from backpack_rank.senses.attribution import Explanation
from backpack_rank.senses.policies import Policy
from backpack_rank.senses.policy_names import POLICIES, default_name
from backpack_rank.senses.views import IDENTITY, View
from backpack_rank.serving.bodies import RequestError
from backpack_rank.serving.jobs import Job, RequestOptions, Served

_LEFT_OUT = 64
"""Words that are left out by themselves where a score is explained by words."""


class ServedWithDial(Served):
    """Serves a pointwise ranker under policies.

    Subclasses say how its texts become work (:meth:`job_of_pairs`) and scores (:meth:`score`).

    Attributes:
        default_policy: of requests that name none.
    """

    def __init__(self, name: str, reranker: PointwiseReranker) -> None:
        self.name = name
        self.policies = reranker.policies
        self.default_policy = default_name(reranker.scorer.ranker)
        self._reranker = reranker
        # Around policies and explanations: they use the ranker's tokenizer, which one thread at a
        # time may.
        self._lock = threading.Lock()
        self._cached_views = lru_cache(maxsize=1024)(self._views)
        # A policy reads its word lists once: a request of 201 alphas would read them 201 times.
        self._policies: dict[str | None, Policy] = {}

    def job(self, query: str, documents: list[str], options: RequestOptions) -> Job:
        """The pairs of the query with each document."""
        return self.job_of_pairs([(query, document) for document in documents], options)

    def views_of(self, options: RequestOptions) -> list[tuple[View, ...]]:
        """The views of every alpha of a request.

        Raises:
            ValueError: the policy does not fit.
        """
        with self._lock:
            return [self._cached_views(options.policy, alpha) for alpha in options.alphas]

    def policy_that_acts(
        self, queries: Iterable[str], policy: str | None, alphas: Sequence[float]
    ) -> str | None:
        """The policy that was asked for, or that of the ranker.

        None at alpha = 1, and for queries that ask for a group.
        """
        turned = [alpha for alpha in alphas if alpha != 1]
        if not turned:
            return None
        for query in queries:
            if self.alpha_for(query, policy, turned[0]) != 1:
                return policy or self.default_policy
        return None

    @property
    def attribute(self) -> Attribute:
        """Whose words policies are about."""
        return self._reranker.attribute

    def check_activation(self, activation: str | None) -> None:
        try:
            self._reranker.checked_activation(activation)
        except ValueError:
            raise RequestError(400, f"model {self.name} has no calibration") from None

    def shown(
        self, logits: np.ndarray, alpha: float, policy: str | None, activation: str | None
    ) -> np.ndarray | None:
        # Where neither says anything, a server shows a sigmoid, and Python logits.
        if activation is None and self._reranker.activation != LOGITS:
            activation = self._reranker.activation
        if activation != CALIBRATED:
            return None
        with self._lock:
            return self._reranker_at(policy, alpha).activated(logits, activation)

    def alpha_for(self, query: str, policy: str | None, alpha: float) -> float:
        """The alpha at which a query is scored: 1 where it asks for a group.

        Raises:
            ValueError: the policy does not fit.
        """
        with self._lock:
            return 1.0 if self._reranker_at(policy, alpha).hook.leaves_out(query) else alpha

    def explanation_title(self, policy: str | None, alpha: float) -> str:
        """What stands over an explanation, as in Python."""
        with self._lock:
            return self._reranker_at(policy, alpha).explanation_title(alpha != 1)

    def reads_once(self, policy: str) -> bool:
        """Whether all alphas take the same passes over the texts.

        A fine grid then costs no more than one alpha.
        """
        # Two alphas strictly between 0 and 1 stand for all: at the ends, views are left out.
        readings = []
        with self._lock:
            for alpha in (0.25, 0.5):
                reading = set()
                for view in self._cached_views(policy, alpha):
                    shift_key = None if view.token_shift is None else view.token_shift.key
                    reading.add((shift_key, view.rewrite))
                readings.append(reading)
        return readings[0] == readings[1]

    def splits_into_senses(
        self,
        query: str,
        document: str,
        policy: str | None,
        alpha: float,
        long_documents: LongDocuments,
    ) -> bool:
        """Whether a score is a sum over senses; else it is explained by leaving out words.

        Raises:
            ValueError: the policy or the query does not fit.
        """
        with self._lock:
            splits = self._reranker_at(policy, alpha).splits_into_senses
        tokenizer = self._tokenizer_of_thread()
        if not splits or tokenizer is None:
            return False
        return fits_one_chunk(tokenizer, query, document, long_documents)

    def left_out_words(
        self, query: str, document: str, long_documents: LongDocuments
    ) -> LeftOutWords:
        """Texts with words left out, and the explanation that their scores give.

        Raises:
            ValueError: the query does not fit.
        """
        return LeftOutWords(
            query,
            document,
            self.attribute,
            pair_tokenizer=self._tokenizer_of_thread(),
            long_documents=long_documents,
            at_most=_LEFT_OUT,
        )

    def explain(self, query: str, document: str, policy: str | None, alpha: float) -> Explanation:
        """Contributions of senses and words to a score; called in the thread of the model.

        Raises:
            ValueError: the score does not split into senses, or the policy or the query does not
                fit.
        """
        with self._lock:
            return self._reranker_at(policy, alpha).explain(query, document, by="senses")

    def _reranker_at(self, policy: str | None, alpha: float) -> PointwiseReranker:
        """The ranker under a policy.

        Raises:
            ValueError: the policy does not fit; those that do are named.
        """
        if alpha == 1 and (policy is None or policy in POLICIES):
            return self._reranker
        if policy not in self._policies:
            # Under its name, so that the sentence on one that does not fit says which do.
            turned = self._reranker.at(alpha, policy)
            assert turned.hook.policy is not None
            self._policies[policy] = turned.hook.policy
            return turned
        return self._reranker.at(alpha, self._policies[policy])

    def _tokenizer_of_thread(self) -> PairTokenizer | None:
        """The ranker's tokenizer, a copy for each thread; None where it is out of reach."""
        return None

    def _views(self, policy: str | None, alpha: float) -> tuple[View, ...]:
        reranker = self._reranker_at(policy, alpha)
        return IDENTITY if alpha == 1 else reranker.hook.views
