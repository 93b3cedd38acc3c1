"""The index behind :class:`backpack_rank.data.first_stage.Bm25`: built with bm25s, kept on disk, searched."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from filelock import FileLock

from backpack_rank.data.collection import DocumentStore, Queries, Run
from backpack_rank.files import atomic_path, cache_dir
from backpack_rank.progress import Progress

# bm25l and bm25+ score documents without any word of the query, so "above zero" would not mean a match.
METHODS = ("lucene", "robertson", "atire")
_SHOW_PROGRESS_FROM = 50_000
_FORMAT = 1
_IDS_FILE = "doc_ids.npy"
_SETTINGS_FILE = "settings.json"


@dataclass(frozen=True)
class Bm25Settings:
    """Everything that decides what an index holds; see :class:`backpack_rank.data.first_stage.Bm25`."""

    k1: float
    b: float
    stemmer: str | None
    stopwords: bool | str
    token_pattern: str
    method: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.k1) and self.k1 >= 0):
            raise ValueError(f"k1 must be a number of at least 0, got {self.k1}")
        if not 0 <= self.b <= 1:
            raise ValueError(f"b must be between 0 and 1, got {self.b}")
        if self.method not in METHODS:
            raise ValueError(f"unknown BM25 method {self.method!r}; choose one of {', '.join(METHODS)}")
        if self.stemmer is not None and self.stemmer not in Stemmer.algorithms():
            raise ValueError(f"unknown stemmer {self.stemmer!r}; choose one of {', '.join(Stemmer.algorithms())}")
        # An unknown list of stop words or a broken pattern must fail now, not after the corpus was read.
        self.tokenize(["a"])

    def tokenize(self, texts: Iterable[str], show_progress: bool = False) -> bm25s.tokenization.Tokenized:
        """Token ids of each text and the vocabulary, with bm25s's tokenizer."""
        return bm25s.tokenize(
            texts,
            lower=True,
            token_pattern=self.token_pattern,
            stopwords=self.stopwords,
            stemmer=Stemmer.Stemmer(self.stemmer) if self.stemmer else None,
            show_progress=show_progress,
        )


class Bm25Index:
    """A searchable index. Documents are never held: only their ids and the scores of their words."""

    def __init__(self, settings: Bm25Settings, model: bm25s.BM25, doc_ids: np.ndarray) -> None:
        self._settings = settings
        self._model = model
        self._doc_ids = doc_ids

    @classmethod
    def of(cls, documents: DocumentStore, settings: Bm25Settings, *, cache: bool) -> Bm25Index:
        """The index of these documents, from the cache if it is there.

        With ``cache``, the index lies in ``bm25/`` of the cache folder under a key of documents, settings
        and version of bm25s; jobs that need it at the same time wait for the one that builds it, and it is
        read memory-mapped.

        Raises:
            ValueError: no document has a word.
        """
        if not cache:
            return cls._build(documents, settings)
        folder = cache_dir() / "bm25" / _key(documents, settings)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                cls._build(documents, settings)._save(folder)
        model = bm25s.BM25.load(folder, mmap=True)
        return cls(settings, model, np.load(folder / _IDS_FILE, mmap_mode="r"))

    def search(self, queries: Queries, depth: int, threads: int = 1) -> Run:
        """Each query's ``depth`` best documents with a score above zero, ties by ascending document id."""
        if not queries:
            return {}
        tokens = self._settings.tokenize(queries.values())
        words = {token_id: word for word, token_id in tokens.vocab.items()}
        known = self._model.vocab_dict
        ids = [[known[words[token]] for token in query if words[token] in known] for query in tokens.ids]
        with ThreadPoolExecutor(max_workers=threads) as pool:
            found = pool.map(lambda query_ids: self._best(query_ids, depth), ids)
            few = max(len(self._doc_ids), len(ids)) < _SHOW_PROGRESS_FROM
            shown = Progress(found, desc="BM25", total=len(ids), unit="query", disable=few)
            return dict(zip(queries, shown, strict=True))

    def _best(self, query_ids: list[int], depth: int) -> dict[str, float]:
        if not query_ids:
            return {}
        scores = self._model.get_scores_from_ids(query_ids)
        matches = np.flatnonzero(scores > 0)
        if len(matches) > depth:
            # Everything that ties with the last place takes part, so that ids and not chance decide about it.
            values = scores[matches]
            last = np.partition(values, len(values) - depth)[len(values) - depth]
            matches = matches[values >= last]
        found = [(-float(scores[match]), self._doc_ids[match].decode("utf-8")) for match in matches]
        return {doc_id: -negative for negative, doc_id in sorted(found)[:depth]}

    @classmethod
    def _build(cls, documents: DocumentStore, settings: Bm25Settings) -> Bm25Index:
        show = len(documents) >= _SHOW_PROGRESS_FROM
        doc_ids: list[bytes] = []

        def texts() -> Iterable[str]:
            for doc_id, text in documents:
                doc_ids.append(doc_id.encode("utf-8"))
                yield text

        tokens = settings.tokenize(texts(), show_progress=show)
        if not tokens.vocab:
            raise ValueError(
                f"none of the {len(doc_ids)} documents has a word that BM25 could index; check their texts, "
                f"token_pattern ({settings.token_pattern}) and stopwords ({settings.stopwords})"
            )
        model = bm25s.BM25(k1=settings.k1, b=settings.b, method=settings.method)
        # Only bm25s's own retrieve needs an empty token.
        model.index(tokens, create_empty_token=False, show_progress=show)
        return cls(settings, model, np.array(doc_ids, dtype=np.bytes_))

    def _save(self, folder: Path) -> None:
        with atomic_path(folder) as temporary:
            temporary.mkdir()
            self._model.save(temporary)
            np.save(temporary / _IDS_FILE, self._doc_ids)
            settings = json.dumps(asdict(self._settings), indent=2)
            (temporary / _SETTINGS_FILE).write_text(settings, encoding="utf-8")


def _key(documents: DocumentStore, settings: Bm25Settings) -> str:
    parts = [_FORMAT, bm25s.__version__, documents.fingerprint, asdict(settings)]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()
