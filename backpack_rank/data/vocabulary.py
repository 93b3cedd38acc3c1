"""Word vocabularies of a collection, for rankers that compare words and not parts of words."""

from __future__ import annotations

import logging
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Annotated

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from backpack_rank.constructors import Count, CountOrZero, OneOf, checked
from backpack_rank.data.tokenisation import PairTokenizer

log = logging.getLogger(__name__)

PADDING, UNKNOWN, SEPARATOR = "[PAD]", "[UNK]", "[SEP]"
SPECIAL = (PADDING, UNKNOWN, SEPARATOR)
HANDLING = ("hash", "drop")
_BUCKETS = "unknown_buckets"
_CHUNK = 1000
"""Documents that are read together."""

_WORD = re.compile(r"(?u)\b\w+\b")
# The same words for a tokenizer's engine, whose \w takes in accents that stand alone and leaves out
# some numbers.
_SAME_WORD = r"[\p{L}\p{N}_]+"


def words(text: str) -> list[str]:
    r"""Split a text as the first stage BM25 does: lower-cased, ``(?u)\b\w+\b``.

    >>> words("Vitamin D, please")
    ['vitamin', 'd', 'please']
    """
    return _WORD.findall(text.lower())


@checked("model.tokenizer")
class WordVocabulary:
    """The frequent words of a collection as a vocabulary (``conf/model/knrm.yaml``).

    tokenizer = WordVocabulary(min_count=2).build(texts)
    """

    def __init__(
        self,
        min_count: Count = 2,
        max_words: Count | None = 100_000,
        unknown: Annotated[str, OneOf(HANDLING)] = "hash",
        buckets: CountOrZero = 1000,
    ) -> None:
        """
        Args:
            min_count: occurrences that a word needs.
            max_words: the most frequent words are kept, of equally frequent ones the first by
                spelling; None keeps all.
            unknown: what becomes of words outside the vocabulary: ``hash`` gives each of them one
                of ``buckets`` further ids, always the same, so that a query's rare name still
                matches itself; ``drop`` leaves them out.
            buckets: number of ids for unknown words; two of them are mistaken for each other in one
                of so many cases.

        Raises:
            ValueError: an option out of its range, or ``hash`` without a bucket.
        """
        if unknown == "hash" and buckets < 1:
            raise ValueError(
                f"model.tokenizer.buckets={buckets} must be at least 1; or use unknown=drop"
            )
        self.min_count = min_count
        self.max_words = max_words
        self.unknown = unknown
        self.buckets = buckets

    def build(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        """Count the words of all texts and make a tokenizer of the frequent ones.

        The tokenizer remembers what becomes of unknown words, also when it is saved.

        Raises:
            ValueError: no word occurs ``min_count`` times.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(words(text))
        frequent = [word for word, count in counts.items() if count >= self.min_count]
        frequent.sort(key=lambda word: (-counts[word], word))
        kept = frequent[: self.max_words]
        if not kept:
            raise ValueError(
                f"no word occurs {self.min_count} times in the collection's {counts.total()} "
                "words: lower model.tokenizer.min_count"
            )
        outside = 1 - sum(counts[word] for word in kept) / counts.total()
        buckets = self.buckets if self.unknown == "hash" else 0
        log.info(
            "vocabulary: %d of %d distinct words; %.2f%% of %d running words are outside and %s",
            len(kept),
            len(counts),
            100 * outside,
            counts.total(),
            f"hashed into {buckets} buckets" if buckets else "dropped",
        )
        return word_tokenizer(kept, buckets)


def word_tokenizer(vocabulary: Sequence[str], unknown_buckets: int = 0) -> PreTrainedTokenizerFast:
    """A tokenizer of given words, numbered in their order behind the special tokens.

    >>> tokenizer = word_tokenizer(["nurse", "ward"])
    >>> tokenizer("The nurse")["input_ids"]
    [1, 3]

    Args:
        vocabulary: lower-cased words, each one once.
        unknown_buckets: ids that :class:`WordPairTokenizer` has for other words; 0 drops them.
    """
    ids = {word: number for number, word in enumerate((*SPECIAL, *vocabulary))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(_SAME_WORD), behavior="removed", invert=True
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        sep_token=SEPARATOR,
        **{_BUCKETS: unknown_buckets},
    )


def unknown_buckets(tokenizer: PreTrainedTokenizerBase) -> int:
    """How many ids a vocabulary of words has for unknown words; 0 drops them.

    >>> unknown_buckets(word_tokenizer(["nurse"], unknown_buckets=20))
    20

    Raises:
        ValueError: the tokenizer is no vocabulary of words.
    """
    if _BUCKETS not in tokenizer.init_kwargs:
        raise ValueError(
            f"{type(tokenizer).__name__} is no vocabulary of whole words, which this ranker needs: "
            "let model.tokenizer be a backpack_rank.data.vocabulary.WordVocabulary"
        )
    return int(tokenizer.init_kwargs[_BUCKETS])


class WordPairTokenizer(PairTokenizer):
    """A ranker that compares words: [query words, separator, document words].

        pair_tokenizer = WordPairTokenizer(WordVocabulary().build(texts), max_length=512)

    The document is cut to fit, and may be empty.

    Ids below ``len(tokenizer)`` are the vocabulary's; further ones are the buckets of unknown
    words. A query whose words are all unknown and dropped is left empty: its documents differ only
    in what does not depend on the query.
    """

    @cached_property
    def _ids(self) -> _Ids:
        return _Ids(self.tokenizer.get_vocab(), unknown_buckets(self.tokenizer))

    @property
    def fingerprint(self) -> str:
        """Digest of everything that turns a pair of texts into ids."""
        return f"words-{unknown_buckets(self.tokenizer)}-{super().fingerprint}"

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of the words of each text, nothing added and nothing cut."""
        return [self._encoded(words(text)) for text in texts]

    def encode_query(self, text: str) -> np.ndarray:
        """Ids of a query.

        Raises:
            ValueError: it is blank or leaves no room for a document.
        """
        if not text.strip():
            raise ValueError("the query is empty: a ranker needs at least one word of query text")
        ids, count = self._encoded_query(text)
        if len(ids) + 2 > self.max_length:
            raise ValueError(
                f"the query has {count} words and max_length={self.max_length} leaves no room for "
                f"a document; raise max_length or shorten the query: {text[:80]!r}"
            )
        return ids

    def room(self, query: np.ndarray) -> int:
        return self.max_length - len(query) - 1

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[query, separator, document], the document cut to fit ``max_length``."""
        separator = np.array([self.separator_id], dtype=np.int32)
        return np.concatenate([query, separator, document[: self.room(query)]])

    def _encoded(self, words_of_text: list[str]) -> np.ndarray:
        word_ids = map(self._ids.__getitem__, words_of_text)
        ids = np.fromiter(word_ids, dtype=np.int32, count=len(words_of_text))
        if self._ids.buckets:
            return ids
        return ids[ids >= 0]


def document_frequencies(
    texts: Iterable[str], pair_tokenizer: PairTokenizer, size: int
) -> tuple[np.ndarray, int]:
    """Document frequencies: in how many texts each word stands.

        frequencies, documents = document_frequencies(texts, pair_tokenizer, size)

    Returns:
        int64 [size], buckets of unknown words included, and the number of documents.
    """
    frequencies = np.zeros(size, dtype=np.int64)
    documents = 0
    remaining = iter(texts)
    while chunk := list(islice(remaining, _CHUNK)):
        for ids in pair_tokenizer.encode(chunk):
            frequencies[np.unique(ids)] += 1
        documents += len(chunk)
    return frequencies, documents


class _Ids(dict[str, int]):
    """Ids of words, of unknown words too: a bucket's, or -1 where there are no buckets."""

    def __init__(self, vocabulary: dict[str, int], buckets: int) -> None:
        super().__init__(vocabulary)
        self.buckets = buckets
        self._known = len(vocabulary)

    def __missing__(self, word: str) -> int:
        if not self.buckets:
            return -1
        # Python's own hash of a string changes from process to process.
        return self._known + zlib.crc32(word.encode()) % self.buckets
