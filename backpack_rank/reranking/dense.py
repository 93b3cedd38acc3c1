"""A first stage that compares vectors, with a dial.

It gives the documents whose vectors have the highest dot product with the query's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
from backpack_rank.checks import one_of
from backpack_rank.constructors import Count, FilePath, Name, Note, OneOf
from backpack_rank.data.collection import Collection, DocumentStore, Run
from backpack_rank.data.first_stage import checked_depth
from backpack_rank.data.wordings import wordings_of
from backpack_rank.files import cache_dir, kept_or_rebuilt
from backpack_rank.models.backpack_encoder import BackpackEncoderForRanking
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.number_formats import FORMATS
from backpack_rank.models.pooled_map import PooledMap
from backpack_rank.models.text_encoder import POOLINGS
from backpack_rank.reranking.dense_search import BLOCK, TurnedVectors, kept_on, top_k
from backpack_rank.reranking.dense_vectors import (
    DocumentVectors,
    Encoding,
    NeutralVectors,
    means_of_wordings,
)
from backpack_rank.reranking.load import local_folder
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.erase import Erase
from backpack_rank.senses.policies import LowestSenses, Policy, check_alpha
from backpack_rank.senses.policy_names import named_policy
from backpack_rank.senses.renditions import MeanOfRenditions

POLICIES = ("renditions", "erase", "lowest_senses")
"""What alpha can act by on vectors of a whole corpus; the last, on those of a Backpack."""
Vectors = TypeVar("Vectors")


class Dense:
    """An encoder of texts over the whole corpus, exactly.

    No document is left out by an approximate index.

    Documents are encoded once and their vectors kept on disk in half precision; alpha acts on them
    when they are searched. Scores are those of the encoder up to that rounding, and under the dial
    those that it gives as a ranker. Every document has a score, so every query has ``depth``
    candidates, and ties are broken by ascending document id. A query that asks for a group of the
    attribute is searched for without the dial. A
    :class:`~backpack_rank.data.first_stage.FirstStage`.
    """

    def __init__(
        self,
        checkpoint: FilePath,
        depth: Count = 100,
        device: Name = "auto",
        dtype: Annotated[str, OneOf(FORMATS)] = "float32",
        tokens_per_batch: Count | None = None,
        folder: FilePath | None = None,
        name: Name = "dense",
        alpha: float = 1.0,
        policy: Annotated[str, OneOf(POLICIES)] | Policy = POLICIES[0],
        queries: Annotated[str, OneOf(QUERIES)] = QUERIES[0],
        attribute: Name | Attribute = "gender",
        map: FilePath | None = None,
        pooling: Annotated[str, OneOf(tuple(POOLINGS))]
        | Annotated[None, Note("as its folder says")] = None,
    ) -> None:
        """
        Args:
            checkpoint: an encoder: folder of a run or of a saved one, or an id of the hub.
            depth: candidates per query; a smaller corpus gives fewer.
            device, dtype, tokens_per_batch: as in
                :class:`~backpack_rank.reranking.text_scorer.ScoringSettings`.
            folder: where vectors are kept; None is ``dense/`` in the cache folder.
            name: row label in reports.
            alpha: the dial: 1 leaves the encoder unchanged.
            policy: what alpha acts by, one of :data:`POLICIES`, or such a policy with options.
            queries: ``neutral_only``: a query that asks for a group is searched for as if there
                were no dial; ``all``: no query is.
            attribute: whose words the policy is about.
            map: of ``policy=erase``; None: the one beside the encoder's weights.
            pooling: see :func:`~backpack_rank.models.loading.load_ranker`.

        Raises:
            ValueError: an option is out of its range or unknown.
            FileNotFoundError: the folder has no saved ranker.
        """
        self.depth = checked_depth(depth)
        self.alpha = check_alpha(alpha)
        self.name = name
        self.folder = Path(folder).expanduser() if folder else cache_dir() / "dense"
        self.checkpoint = local_folder(checkpoint, "first_stage.checkpoint")
        self.pooling = pooling
        if isinstance(attribute, str):
            attribute = Attribute.named(attribute)
        self.attribute = attribute
        if isinstance(policy, str):
            one_of("first_stage.policy", policy, POLICIES)
            policy = replace(named_policy(policy, attribute), queries=queries)
        if map is not None:
            if not isinstance(policy, Erase):
                raise ValueError(f"first_stage.map={map} is of first_stage.policy=erase")
            policy = replace(policy, file=str(map))
        self.policy = _of_documents(policy)
        try:
            self.settings = ScoringSettings(device, dtype, tokens_per_batch)
        except ValueError as error:
            raise ValueError(str(error).replace("scoring.", "first_stage.")) from error

    def candidates(self, collection: Collection) -> Run:
        """Search every query; the documents are encoded, or their vectors taken from the folder.

        Raises:
            ValueError: the collection has no documents, the ranker compares no vectors, or a query
                is empty.
        """
        (run,) = self.candidates_at(collection, [self.alpha])
        return run

    def scores_of_texts(
        self, pairs: Sequence[tuple[str, str]], alphas: Sequence[float]
    ) -> np.ndarray:
        """Scores of (query, document) texts as if each document were one of the corpus.

        Vectors are rounded as those of the corpus are, and equal texts have equal scores.

        Returns:
            float32 [A, N]
        """
        query_texts = list(dict.fromkeys(query for query, _ in pairs))
        row_of_query = {query: row for row, query in enumerate(query_texts)}
        queries = self.encoding.queries({query: query for query in query_texts})
        cut = [self.encoding.pair_tokenizer.cut(text) for _, text in pairs]
        texts = list(dict.fromkeys(cut))
        row_of_text = {text: row for row, text in enumerate(texts)}
        rounded = self.encoding.documents(texts).astype(np.float16)
        vectors = rounded.astype(np.float32)
        neutral = vectors.copy()
        if isinstance(self.policy, MeanOfRenditions):
            wordings = [self.policy.wordings(text) for text in texts]
            changed = [row for row, text in enumerate(texts) if wordings[row] != text]
            neutral[changed] = means_of_wordings(
                [wordings_of(wordings[row]) for row in changed],
                dict(zip(texts, rounded, strict=True)),
                self.encoding,
            ).astype(np.float16)
        scores = np.empty((len(alphas), len(pairs)), dtype=np.float32)
        is_turned = self.is_turned([query for query, _ in pairs])
        for place, (query, _) in enumerate(pairs):
            of_query = queries[row_of_query[query]]
            row = row_of_text[cut[place]]
            for number, alpha in enumerate(alphas):
                position = alpha if is_turned[place] else 1.0
                if not isinstance(self.policy, MeanOfRenditions) and position != 1:
                    turned_query, constant = self._turned_queries(of_query[None], position)
                    scores[number, place] = turned_query[0] @ vectors[row] + constant[0]
                else:
                    turned = neutral[row] + position * (vectors[row] - neutral[row])
                    scores[number, place] = of_query @ turned
        return scores

    def candidates_at(
        self, collection: Collection, alphas: Sequence[float], depth: int | None = None
    ) -> list[Run]:
        """The candidates at several alphas, from vectors that are made once.

        Args:
            collection: what is searched, and what for.
            alphas: positions of the dial.
            depth: candidates per query; None: those of the first stage.

        Raises:
            ValueError: as :meth:`candidates`.
        """
        if len(collection.documents) == 0:
            raise ValueError(f"collection {collection.name!r} has no documents to search")
        queries = self.encoding.queries(collection.queries)
        known, neutral = self._searched(collection.documents, alphas)
        is_turned = self.is_turned(list(collection.queries.values()))
        order = np.argsort(known.doc_ids, kind="stable")  # UTF-8 bytes sort as their characters do
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        runs = []
        for alpha in alphas:
            most = min(depth or self.depth, len(order))
            best_ranks = np.empty((len(is_turned), most), dtype=np.int64)
            scores = np.empty((len(is_turned), most), dtype=np.float32)
            # A query that asks for a group is searched for as if there were no dial.
            for places, position in (
                (np.flatnonzero(is_turned), check_alpha(alpha)),
                (np.flatnonzero(~is_turned), 1.0),
            ):
                if len(places):
                    found = self._search(queries[places], known, neutral, ranks, position, most)
                    best_ranks[places], scores[places] = found
            run: Run = {}
            for query_id, query_ranks, query_scores in zip(
                collection.queries, best_ranks, scores, strict=True
            ):
                candidates: dict[str, float] = {}
                for rank, score in zip(query_ranks, query_scores, strict=True):
                    candidates[known.doc_ids[order[rank]].decode("utf-8")] = float(score)
                run[query_id] = candidates
            runs.append(run)
        return runs

    def _searched(
        self, documents: DocumentStore, alphas: Sequence[float]
    ) -> tuple[DocumentVectors, NeutralVectors | None]:
        """Vectors to search at some alphas, in a GPU's memory where it has room for them."""
        device = self.encoding.device
        known = self.vectors(documents)
        known = replace(known, vectors=kept_on(device, known.vectors))
        if not isinstance(self.policy, MeanOfRenditions) or all(alpha == 1 for alpha in alphas):
            return known, None
        neutral = self.neutral_vectors(documents)
        return known, replace(neutral, vectors=kept_on(device, neutral.vectors))

    def is_turned(self, queries: Sequence[str]) -> np.ndarray:
        """Which queries the dial acts on: those that ask for a group are searched for without it.

        bool [Q]
        """
        if self.policy.queries == "all":
            return np.ones(len(queries), dtype=bool)
        return np.array([not self.attribute.group_queries(query) for query in queries], dtype=bool)

    def _search(
        self,
        queries: np.ndarray,
        known: DocumentVectors,
        neutral: NeutralVectors | None,
        ranks: np.ndarray,
        alpha: float,
        depth: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ranks and scores of the best documents of some queries at an alpha. [Q, k] of both"""
        turned = None
        constants = np.zeros(len(queries), dtype=np.float32)
        if alpha != 1 and neutral is not None:
            turned = TurnedVectors(neutral.rows, neutral.vectors, alpha)
        elif alpha != 1:
            queries, constants = self._turned_queries(queries, alpha)
        best_ranks, scores = top_k(
            torch.from_numpy(queries),
            known.vectors,
            ranks,
            depth,
            self.encoding.device,
            turned=turned,
        )
        return best_ranks, scores + constants[:, None]

    def _turned_queries(self, queries: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """Queries that give documents as they are the scores at an alpha, up to a constant of each.

        Vectors of a Backpack are [e_0 ; e - e_0], and its queries [q ; alpha q].
        """
        if isinstance(self.policy, Erase):
            return _mapped_queries(queries, replace(self._map, alpha=alpha))
        whole, part = np.split(queries, 2, axis=1)
        turned = np.concatenate([whole, np.float32(alpha) * part], axis=1)
        return turned, np.zeros(len(queries), dtype=np.float32)

    @cached_property
    def encoding(self) -> Encoding:
        """Makes vectors of texts. Raises ``ValueError`` for a ranker that compares none."""
        return self._encoding(Encoding)

    def _encoding(self, kind: type[Encoding]) -> Encoding:
        ranker, pair_tokenizer = load_ranker(self.checkpoint, pooling=self.pooling)
        if isinstance(self.policy, LowestSenses):
            self._check_senses(ranker)
        try:
            return kind(Scorer(ranker, pair_tokenizer, self.settings))
        except ValueError as error:
            raise ValueError(f"first_stage.checkpoint={self.checkpoint}: {error}") from error

    def _check_senses(self, ranker: Any) -> None:
        """Raise ``ValueError`` unless its vectors have a part of the attribute."""
        groups: tuple[tuple[str, str], ...] = ()
        if isinstance(ranker, BackpackEncoderForRanking):
            groups = ranker.config.groups
        if self.attribute.name not in {name for name, _ in groups}:
            raise ValueError(
                f"first_stage.checkpoint={self.checkpoint}: first_stage.policy={self.policy.name} "
                f"is for vectors that have a part of {self.attribute.name}, those of "
                "model=backpack_encoder; first_stage.policy=renditions is for all encoders"
            )

    @property
    def dimensions(self) -> int:
        """D, numbers of e."""
        if isinstance(self.policy, LowestSenses):
            return self.encoding.size // 2
        return self.encoding.size

    @cached_property
    def _map(self) -> PooledMap:
        assert isinstance(self.policy, Erase)
        fitted = self.policy.with_map_for(self.encoding.ranker).fitted_map
        assert fitted is not None
        return fitted

    def vectors(self, documents: DocumentStore) -> DocumentVectors:
        """Vectors of documents as the encoder makes them: e."""
        return self._kept(
            lambda folder: DocumentVectors.of(documents, self.encoding, folder),
            "vectors of documents",
        )

    def neutral_vectors(self, documents: DocumentStore) -> NeutralVectors:
        """Those at alpha = 0 of the documents that the policy ``renditions`` rewrites: e_0."""
        policy = self.policy
        assert isinstance(policy, MeanOfRenditions)
        known = self.vectors(documents)
        return self._kept(
            lambda folder: NeutralVectors.of(documents, self.encoding, known, policy, folder),
            "vectors of renditions",
        )

    @property
    def not_promised(self) -> str | None:
        """Why a swap may change the candidates; None: :meth:`same_score` says where it cannot."""
        if isinstance(self.policy, Erase):
            return f"acts by {self.policy.name}, which promises nothing about single texts"
        if self.alpha != 0:
            return f"is at alpha {self.alpha:g}, not 0"
        return None

    def same_score(self, query: str, document: str, other: str) -> bool:
        """Whether two texts of a document have one score here, at alpha = 0.

        They have the same renditions, whose vectors are rounded alike; or a Backpack reads the
        same in both.
        """
        (is_turned,) = self.is_turned([query])
        if not is_turned or isinstance(self.policy, Erase):
            return False
        tokenizer = self.encoding.pair_tokenizer
        if isinstance(self.policy, MeanOfRenditions):
            wordings = self.policy.wordings
            return wordings(tokenizer.cut(document)) == wordings(tokenizer.cut(other))
        read = self.encoding.ranker.backpack.attribute_senses.with_classes
        first, second = tokenizer.documents([document, other])
        return np.array_equal(read(first), read(second))

    def pairs_of_vectors(
        self, documents: DocumentStore, block: int = BLOCK
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """e and e_0 of the documents in their order, such that e_alpha = e_0 + alpha (e - e_0).

        A vector database that holds them answers at every alpha.

        Args:
            documents: they are encoded where they are not yet.
            block: documents at a time.

        Yields:
            e and e_0 of n documents. float32 [n, d] of both
        """
        known = self.vectors(documents)
        of_renditions = None
        if isinstance(self.policy, MeanOfRenditions):
            neutral = self.neutral_vectors(documents)
            of_renditions = TurnedVectors(neutral.rows, neutral.vectors, alpha=0.0)
        for start in range(0, len(known.vectors), block):
            vectors = known.vectors[start : start + block].astype(np.float32)
            if isinstance(self.policy, LowestSenses):
                own_neutral, part = np.split(vectors, 2, axis=1)
                yield own_neutral + part, own_neutral
                continue
            if of_renditions is None:
                with torch.inference_mode():
                    at_zero = replace(self._map, alpha=0.0)(torch.from_numpy(vectors))
            else:
                at_zero = torch.from_numpy(vectors.copy())
                of_renditions.turn(at_zero, start)
            yield vectors, at_zero.float().numpy()

    def _kept(self, made: Callable[[Path], Vectors], what: str) -> Vectors:
        def made_anew() -> Vectors:
            # Mapped files stay readable after they are removed, where the system removes them.
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                return made(Path(folder))

        return kept_or_rebuilt(lambda: made(self.folder), made_anew, what)


def _of_documents(policy: Policy) -> MeanOfRenditions | Erase | LowestSenses:
    """The policy, which must act on documents whatever the query."""
    if not isinstance(policy, MeanOfRenditions | Erase | LowestSenses):
        raise ValueError(
            f"policy {policy.name} does not act on vectors of documents: use one of "
            f"{', '.join(POLICIES)}"
        )
    if isinstance(policy, MeanOfRenditions) and policy.names:
        raise ValueError(
            f"policy {policy.name} writes first names by the query, and documents are encoded "
            "before there is one: leave policy.names out for a first stage"
        )
    return policy


def _mapped_queries(queries: np.ndarray, pooled_map: PooledMap) -> tuple[np.ndarray, np.ndarray]:
    """Queries that give documents as they are the scores of mapped ones, up to a constant.

        q . (x - (1 - alpha) B A (x - mu)) = (q - t) . x + t . mu,   t = (1 - alpha) (B A)^T q

    Args:
        queries: [Q, d]
        pooled_map: of the vectors of documents.

    Returns:
        The queries [Q, d], and the constant of each [Q].
    """
    wide = torch.from_numpy(queries).double()
    left, right = pooled_map.left.double(), pooled_map.right.double()
    taken: Tensor = (1 - pooled_map.alpha) * (wide @ left @ right)
    constants = taken @ pooled_map.mean.double()
    return (wide - taken).float().numpy(), constants.float().numpy()
