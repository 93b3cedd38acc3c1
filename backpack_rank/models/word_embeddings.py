"""First word vectors of a vocabulary: random, from a file, or from a pretrained model."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel

from backpack_rank.data.pretrained import from_pretrained
from backpack_rank.data.text_files import fail, numbered_bytes
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer

log = logging.getLogger(__name__)

RANDOM = "random"
RANDOM_SIZE = 300
_FILES = (".txt", ".vec", ".gz")


def word_vectors(
    words: Sequence[str], embeddings: str = RANDOM, size: int | None = None, *, others: int = 0
) -> Tensor:
    """Start the embeddings of a ranker over words: a vector for each word.

    Words that the source lacks get random vectors with the source's mean and deviation::

        vectors = word_vectors(["nurse", "doctor"], "glove.6B.300d.txt")  # [2, 300]

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
    read = read_vectors if is_file else pretrained_vectors
    rows, vectors = read(embeddings, words)
    if size is not None and size != vectors.shape[1]:
        raise ValueError(
            f"model.ranker.embedding_size={size}, but {embeddings} has vectors of "
            f"{vectors.shape[1]} numbers: leave out embedding_size"
        )
    if not len(rows):
        raise ValueError(
            f"{embeddings} has a vector for none of the vocabulary's {len(words)} words"
        )
    log.info(
        "%s: vectors for %d of %d words, the others are random", embeddings, len(rows), len(words)
    )
    return with_random_others(len(words) + others, rows, vectors)


def with_random_others(count: int, rows: np.ndarray, vectors: np.ndarray) -> Tensor:
    """Fill a table with vectors for some of its rows and random ones for the others.

    In each dimension random vectors have the mean and the deviation of the given ones.

    Args:
        count: rows of the result.
        rows: of the result that get the ``vectors``. [n]
        vectors: float32 [n, e], n at least 1.

    Returns:
        [count, e]
    """
    given = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    mean, deviation = given.mean(0), given.std(0, correction=0)
    table = torch.randn(count, given.shape[1]) * deviation + mean
    table[torch.from_numpy(np.asarray(rows, dtype=np.int64))] = given
    return table


def read_vectors(path: str | Path, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read GloVe or word2vec text files: the vectors of some words.

    A line is ``word v1 ... ve``; a file whose name ends in ``.gz`` is unpacked. The file is read
    once, line by line, and only the lines of ``words`` are kept. A first line of two whole numbers
    is the header of word2vec's text format. A word may contain spaces, as in some published files;
    the first vector of a word counts. Words are looked up by their exact letters, so a vocabulary
    in lower case finds no capitalised word.

    Returns:
        Rows of the words found, ascending [n], and their vectors, float32 [n, e].

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has more or fewer numbers than the first, or that of a word in ``words``
            has something else than finite numbers (file and line are named); a damaged gzip file;
            no vectors at all.
    """
    rows = {word.encode(): row for row, word in enumerate(words)}
    vectors: dict[int, np.ndarray] = {}
    size = 0
    for number, line in numbered_bytes(path):
        line = line.rstrip()
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # the mark of UTF-8 at the head of a file
            size = _header(line)
            if size:
                continue
        if not line:
            continue
        spaces = line.count(b" ")
        size = size or spaces
        if not size or spaces < size:
            fail(
                path,
                number,
                f"expected a word and {size or 'at least 1'} numbers, got {spaces} numbers",
            )
        if spaces == size:
            word = line.split(b" ", 1)[0]
        else:
            word = line.rsplit(b" ", size)[0]
            # A number where a word with spaces would end: the line has a number too many.
            if _is_number(word.rsplit(b" ", 1)[1]):
                fail(path, number, f"expected a word and {size} numbers, got {spaces} numbers")
        row = rows.get(word)
        if row is not None and row not in vectors:
            vectors[row] = _numbers(path, number, line[len(word) + 1 :])
    if not size:
        raise ValueError(f"{path}: holds no word vectors")
    if not vectors:
        return np.zeros(0, np.int64), np.zeros((0, size), np.float32)
    known_rows = sorted(vectors)
    table = np.stack([vectors[row] for row in known_rows])
    return np.array(known_rows, dtype=np.int64), table


def pretrained_vectors(name: str, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Take vectors of words from the input embeddings of a pretrained model.

    The vector of a word is the mean over its pieces.

    Args:
        name: hub id or folder that ``AutoModel`` loads, with its tokenizer.
        words: those that the tokenizer cannot spell are left out.

    Returns:
        Rows of the words found, ascending [n], and their vectors, float32 [n, e].

    Raises:
        OSError: there is no such model.
    """
    tokenizer = load_tokenizer(name)
    model = from_pretrained(AutoModel, name, dtype=torch.float32)
    table = model.get_input_embeddings().weight.detach()
    pieces = PairTokenizer(tokenizer, 0).encode(words)
    unknown = tokenizer.unk_token_id
    # GPT-2's unknown token is its end of text, which a word is never spelled with.
    spelled = [row for row, ids in enumerate(pieces) if len(ids) and not (ids == unknown).any()]
    lengths = np.array([len(pieces[row]) for row in spelled])
    vectors = np.zeros((len(spelled), table.shape[1]), dtype=np.float32)
    for part in _parts(len(spelled)):
        ids = np.concatenate([pieces[row] for row in spelled[part]]).astype(np.int64)
        ends = np.cumsum(lengths[part])
        starts = np.concatenate([[0], ends[:-1]])
        means = torch.nn.functional.embedding_bag(
            torch.from_numpy(ids), table, torch.from_numpy(starts), mode="mean"
        )
        vectors[part] = means.numpy()
    return np.array(spelled, dtype=np.int64), vectors


def _header(line: bytes) -> int:
    """Numbers per word by the header of word2vec's text format, 0 for any other line."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return 0
    return int(fields[1])


def _numbers(path: str | Path, number: int, text: bytes) -> np.ndarray:
    try:
        values = np.array(text.split(b" "), dtype=np.float32)
    except ValueError:
        values = np.array([np.nan])  # refused below, with the same sentence
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
    """Slices of ``count`` rows, so that not all of them are in memory at once."""
    for start in range(0, count, size):
        yield slice(start, start + size)


def _unit(vectors: Tensor) -> Tensor:
    """Numbers with a deviation of 1 / sqrt(e), so that vectors have a length of about 1."""
    return vectors / vectors.shape[1] ** 0.5
