"""First word vectors of a vocabulary: random, from a GloVe or word2vec text file, or from a
pretrained model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel

from backpack_rank.data.pretrained import from_pretrained
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer
from backpack_rank.data.trec import fail, numbered_bytes

log = logging.getLogger(__name__)

RANDOM = "random"
RANDOM_SIZE = 300
_FILES = (".txt", ".vec", ".gz")


def word_vectors(
    words: Sequence[str], embeddings: str = RANDOM, size: int | None = None, *, others: int = 0
) -> Tensor:
    """A vector for each word and further ones; what the source lacks is drawn from its normal
    distribution.

    Args:
        words: lower-cased words, each one once.
        embeddings: ``random``; a text file of vectors (:func:`read_vectors`); or the hub id or
            folder of a pretrained model (:func:`pretrained_vectors`).
        size: e; None is the source's, and 300 for random vectors.
        others: number of further vectors behind those of the words (buckets of unknown words).

    Returns:
        float32 [words + others, e], random parts from torch's generator.

    Raises:
        FileNotFoundError: a name that ends like a file of vectors is none.
        ValueError: a malformed file, vectors of another size than ``size``, or of none of the
            words.
    """
    if embeddings == RANDOM:
        return _unit(torch.randn(len(words) + others, size or RANDOM_SIZE))
    is_file = Path(embeddings).is_file() or embeddings.endswith(_FILES)
    found, vectors = (
        read_vectors(embeddings, words) if is_file else pretrained_vectors(embeddings, words)
    )
    if size is not None and size != vectors.shape[1]:
        raise ValueError(
            f"model.ranker.embedding_size={size}, but {embeddings} has vectors of "
            f"{vectors.shape[1]} numbers: leave out embedding_size"
        )
    if not len(found):
        raise ValueError(
            f"{embeddings} has a vector for none of the vocabulary's {len(words)} words"
        )
    log.info(
        "%s: vectors for %d of %d words, the others are random", embeddings, len(found), len(words)
    )
    return with_random_others(len(words) + others, found, vectors)


def with_random_others(count: int, found: np.ndarray, vectors: np.ndarray) -> Tensor:
    """Vectors in their rows, and in all others random ones with the same mean and deviation in each
    dimension.

    Args:
        count: rows of the result.
        found: rows of ``vectors``. [n]
        vectors: float32 [n, e], n at least 1.

    Returns:
        [count, e]
    """
    given = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    mean, deviation = given.mean(0), given.std(0, correction=0)
    every = torch.randn(count, given.shape[1]) * deviation + mean
    every[torch.from_numpy(np.asarray(found, dtype=np.int64))] = given
    return every


def read_vectors(path: str | Path, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of some words from a text file with ``word v1 ... ve`` in each line, ``.gz`` by name.

    The file is read once, line by line, and only the lines of ``words`` are kept. A first line of
    two whole numbers is the header of word2vec's text format. A word may contain spaces, as in some
    published files; the first vector of a word counts. Words are looked up as they are, so a
    vocabulary in lower case finds no capitalised one.

    Returns:
        Rows of the words found, ascending [n], and their vectors, float32 [n, e].

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has more or fewer numbers than the first, or that of a word in ``words``
            has something else than finite numbers (file and line are named); a damaged gzip file;
            no vectors at all.
    """
    rows = {word.encode(): row for row, word in enumerate(words)}
    kept: dict[int, np.ndarray] = {}
    size = 0
    for number, line in numbered_bytes(path):
        line = line.rstrip().removeprefix(b"\xef\xbb\xbf" if number == 1 else b"")
        if number == 1 and (header := _header(line)):
            size = header
            continue
        if not line:
            continue
        size = size or line.count(b" ")
        spaces = line.count(b" ")
        if not size or spaces < size:
            fail(
                path,
                number,
                f"expected a word and {size or 'at least 1'} numbers, got {spaces} numbers",
            )
        word = line.split(b" ", 1)[0] if spaces == size else line.rsplit(b" ", size)[0]
        if spaces > size and _is_number(word.rsplit(b" ", 1)[1]):
            fail(path, number, f"expected a word and {size} numbers, got {spaces} numbers")
        row = rows.get(word)
        if row is not None and row not in kept:
            kept[row] = _numbers(path, number, line[len(word) + 1 :])
    if not size:
        raise ValueError(f"{path}: holds no word vectors")
    found = np.array(sorted(kept), dtype=np.int64)
    return found, np.stack([kept[row] for row in found.tolist()]) if kept else np.zeros(
        (0, size), np.float32
    )


def pretrained_vectors(name: str, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of words from the input embeddings of a pretrained model: the mean over a word's
    pieces.

    Args:
        name: hub id or folder that ``AutoModel`` loads, with its tokenizer.
        words: those that the tokenizer cannot spell are left out.

    Returns:
        Rows of the words found, ascending [n], and their vectors, float32 [n, e].

    Raises:
        OSError: there is no such model.
    """
    tokenizer = load_tokenizer(name)
    table = (
        from_pretrained(AutoModel, name, dtype=torch.float32).get_input_embeddings().weight.detach()
    )
    pieces = PairTokenizer(tokenizer, 0).encode(words)
    unknown = tokenizer.unk_token_id
    # GPT-2's unknown token is its end of text, which a word is never spelled with.
    spelled = [row for row, ids in enumerate(pieces) if len(ids) and not (ids == unknown).any()]
    lengths = np.array([len(pieces[row]) for row in spelled])
    vectors = np.zeros((len(spelled), table.shape[1]), dtype=np.float32)
    for part in _parts(len(spelled)):
        ids = torch.from_numpy(
            np.concatenate([pieces[row] for row in spelled[part]]).astype(np.int64)
        )
        ends = np.cumsum(lengths[part])
        starts = torch.from_numpy(np.concatenate([[0], ends[:-1]]))
        vectors[part] = torch.nn.functional.embedding_bag(ids, table, starts, mode="mean").numpy()
    return np.array(spelled, dtype=np.int64), vectors


def _header(line: bytes) -> int:
    """Numbers per word by the header of word2vec's text format, 0 when the line is none."""
    fields = line.split()
    return int(fields[1]) if len(fields) == 2 and all(field.isdigit() for field in fields) else 0


def _numbers(path: str | Path, number: int, text: bytes) -> np.ndarray:
    try:
        values = np.array(text.split(b" "), dtype=np.float32)
    except ValueError:
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        fail(
            path,
            number,
            f"expected finite numbers behind the word, got {text[:60].decode(errors='replace')!r}",
        )
    return values


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parts(count: int, size: int = 10_000) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


def _unit(vectors: Tensor) -> Tensor:
    """Numbers with a deviation of 1 / sqrt(e), so that vectors have a length of about 1."""
    return vectors / vectors.shape[1] ** 0.5
