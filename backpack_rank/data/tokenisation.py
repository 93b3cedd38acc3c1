"""From (query, document) texts to token ids: query, separator, document, end."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    GPT2Tokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from backpack_rank.checks import whole_number
from backpack_rank.constructors import Count, PathText, Range
from backpack_rank.data.beginnings import before_last_word, beginning
from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.pretrained import from_pretrained, no_panic
from backpack_rank.data.shared_tokenizer import with_original_rules
from backpack_rank.digests import digest
from backpack_rank.files import hub_or_folder

END = "<|endoftext|>"
SEPARATOR = "<|separator|>"
_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
)
_FIRST_LOOK = 32
"""Characters for each wanted token in the first look at a long text; each further look takes four
times more.
"""
_SPARE = 4
"""Tokens that a beginning has for each one that is read, as its words may be replaced by others
with fewer.
"""
_MOST_CHARACTERS = 2**18
"""Characters that are looked at, unless as many of the vocabulary's longest pieces as tokens are
read have more.
"""


@dataclass(frozen=True)
class Beginning:
    """What of a long text can be read, and more: the tokenizer gives it.

        (beginning,) = pair_tokenizer.beginnings([text])
        beginning.ids[: pair_tokenizer.max_length]

    Attributes:
        text: its beginning, or all of it.
        ids: the token ids of that.
        is_complete: whether nothing of the text was left out but blanks.
    """

    text: str
    ids: np.ndarray
    is_complete: bool


@dataclass(frozen=True)
class PairTokenizer:
    """Turns a query and its documents into what a ranker reads.

        pair_tokenizer = PairTokenizer(load_tokenizer("gpt2"), max_length=512)
        sequences = pair_tokenizer.pairs("electrician", ["She rewires houses.", "He cooks."])

    Queries and documents are encoded apart and joined, and only the document is cut. Every text is
    encoded with a leading space, so that its first word is the token it would be inside a sentence
    and equal words of query and document are equal tokens. The text ends with an end token, where
    the ranker reads its score; it sees all of the document also when that is empty or cut.

    Attributes:
        tokenizer: any fast tokenizer of transformers.
        max_length: limit of a joined text in tokens, all added tokens included.
        start_id: token before the query ([CLS] of an encoder), or None.
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int
    start_id: int | None = None

    @property
    def separator_id(self) -> int:
        """Token between query and document: the separator, or the end of text (GPT-2)."""
        return _first_id(self.tokenizer, "sep_token_id", "eos_token_id")

    @property
    def end_id(self) -> int:
        """Token behind the document: the end of text, or the separator (BERT)."""
        return _first_id(self.tokenizer, "eos_token_id", "sep_token_id")

    @property
    def start(self) -> np.ndarray:
        """The token before the query, none for decoders. [0 or 1]"""
        return np.array([] if self.start_id is None else [self.start_id], dtype=np.int32)

    @property
    def between(self) -> tuple[int, ...]:
        """Tokens between query and document."""
        return (self.separator_id,)

    @property
    def fingerprint(self) -> str:
        """Digest of everything that turns a pair of texts into token ids."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            words = sorted(self.tokenizer.get_vocab().items())
            rules = repr(words)
        else:
            rules = backend.to_str()
        start = "" if self.start_id is None else f"{self.start_id} "
        between = " ".join(map(str, self.between))
        return digest(f"{start}{self.max_length} {between} {self.end_id} {rules}")

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, nothing added and nothing cut."""
        if not texts:
            return []
        # Whitespace around a text carries nothing; an empty text stays empty instead of becoming a
        # space.
        prepared: list[str] = []
        for text in texts:
            stripped = text.strip()
            prepared.append(f" {stripped}" if stripped else "")
        # A text that spells a special token does not get one: no document can set a separator or
        # an end.
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        with no_panic(self.tokenizer.name_or_path):
            encoded = self.tokenizer(prepared, **options)["input_ids"]
        return [np.asarray(ids, dtype=np.int32) for ids in encoded]

    def beginnings(
        self, texts: Sequence[str], long_documents: LongDocuments = CUT
    ) -> list[Beginning]:
        """The beginnings of texts, with more tokens than are ever read.

        The work grows with what is read and not with the lengths of the texts. The ids that are
        read are those of the complete text. Of a text that has fewer tokens in its first 262,144
        characters, such as one word of a megabyte, no more than those characters are read.

        Args:
            texts: documents, or queries.
            long_documents: how much is read of them.
        """
        tokens = long_documents.most_tokens(self.max_length)
        if tokens is None:
            # All of a document is read, so it is tokenised to its end, however long it is.
            encoded = self.encode(texts)
            return [Beginning(text, ids, True) for text, ids in zip(texts, encoded, strict=True)]
        beginning_by_number: dict[int, Beginning] = {}
        characters = _FIRST_LOOK * tokens
        longest_text = self._longest_piece * tokens
        most_characters = max(_MOST_CHARACTERS, 2 * longest_text)
        # Nobody knows before tokenising how many characters the tokens need, so texts with too few
        # tokens are looked at again, four times as far.
        while len(beginning_by_number) < len(texts):
            is_last_look = characters >= most_characters
            looks: list[tuple[int, str, bool]] = []
            for number, text in enumerate(texts):
                if number in beginning_by_number:
                    continue
                look = _look(text, characters, longest_text, is_last_look)
                if look is not None:
                    looks.append((number, *look))
            encoded = self.encode([text for _, text, _ in looks])
            for (number, text, is_complete), ids in zip(looks, encoded, strict=True):
                enough = len(ids) >= _SPARE * tokens
                if is_complete or is_last_look or enough:
                    beginning_by_number[number] = Beginning(text, ids, is_complete)
            characters = min(4 * characters, most_characters)
        return [beginning_by_number[number] for number in range(len(texts))]

    def cut(self, text: str, long_documents: LongDocuments = CUT) -> str:
        """All of a text that a score can hang on, and more.

        A text of usual length is not even looked at.
        """
        tokens = long_documents.most_tokens(self.max_length)
        if tokens is None or len(text) <= _FIRST_LOOK * tokens:
            return text
        return self.beginnings([text], long_documents)[0].text

    def first_tokens(self, text: str, tokens: int) -> str:
        """A text up to the end of so many of its tokens; that of a query is read as it is."""
        stripped = self.cut(text).strip()
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        with no_panic(self.tokenizer.name_or_path):
            # As encode() has it, with a blank in front, which moves the places by 1.
            found = self.tokenizer(f" {stripped}", return_offsets_mapping=True, **options)
        ends = [end for _, end in found["offset_mapping"]]
        return text if len(ends) <= tokens else stripped[: max(0, ends[tokens - 1] - 1)]

    def reading(self, text: str, long_documents: LongDocuments = CUT) -> Hashable:
        """A key that is equal for two texts that a ranker reads as the same.

        It is the text, or the tokens of a long one that can be read.
        """
        tokens = long_documents.most_tokens(self.max_length)
        # Half: what was cut is longer than half of the first look, so it is keyed by its tokens,
        # as is the text that it was cut from.
        if tokens is None or len(text) <= _FIRST_LOOK * tokens // 2:
            return text
        return self.beginnings([text], long_documents)[0].ids[:tokens].tobytes()

    @cached_property
    def _longest_piece(self) -> int:
        """Characters of the longest token.

        That of a vocabulary of bytes has a sign for each byte.
        """
        return max(map(len, self.tokenizer.get_vocab()), default=1)

    def _encoded_query(self, text: str) -> tuple[np.ndarray, str]:
        """Token ids of a query, and their number in words for an error."""
        (query,) = self.beginnings([text])
        count = f"{len(query.ids)}"
        return query.ids, count if query.is_complete else f"more than {count}"

    def encode_query(self, text: str) -> np.ndarray:
        """Token ids of a query.

        Raises ``ValueError`` when it is empty or leaves no room for a document.
        """
        ids, count = self._encoded_query(text)
        if not len(ids):
            raise ValueError("the query is empty: a ranker needs at least one token of query text")
        if self.room(ids) < 1:
            raise ValueError(
                f"the query has {count} tokens and max_length={self.max_length} leaves no room for "
                f"a document; raise max_length or shorten the query: {text[:80]!r}"
            )
        return ids

    def room(self, query: np.ndarray) -> int:
        """Tokens of a document that fit behind the query, whose ids are given."""
        added = len(self.start) + len(self.between) + 1
        return self.max_length - added - len(query)

    def query_tokens_read(self, query: np.ndarray, document: np.ndarray) -> int:
        """Tokens of a query that stand in the joined texts: all, of those that are not refused."""
        return len(query)

    def may_be_cut(self, query: str) -> bool:
        """Whether a query is read in part beside a document that is long."""
        return False

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[start, query, between, document, end], the document cut to fit ``max_length``."""
        between = np.array(self.between, dtype=np.int32)
        end = np.array([self.end_id], dtype=np.int32)
        return np.concatenate([self.start, query, between, document[: self.room(query)], end])

    def chunks(
        self,
        beginning: Beginning,
        room: int,
        long_documents: LongDocuments = CUT,
        most: int | None = None,
    ) -> tuple[list[np.ndarray], bool]:
        """What is read of a document, chunk by chunk, and whether that is a part of it alone.

        Args:
            beginning: of the document.
            room: tokens that fit behind the query.
            long_documents: what is read of a document that does not fit.
            most: tokens of a document at most; None: as many as it has.
        """
        chunks, is_part = self.chunks_of_one(beginning.ids, room, long_documents, most)
        # A document can be cut at three places: by the tokenizer, which takes the beginning of a
        # very long text; by ``most``; and where it does not fit behind the query.
        return chunks, is_part or not beginning.is_complete

    def chunks_of_one(
        self, ids: np.ndarray, room: int, long_documents: LongDocuments, most: int | None
    ) -> tuple[list[np.ndarray], bool]:
        """As :meth:`chunks`, of the token ids of one text."""
        kept = ids[:most]
        is_part = len(kept[: long_documents.tokens(room)]) < len(ids)
        return long_documents.chunks(kept, room), is_part

    def pairs(self, query: str, documents: Sequence[str]) -> list[np.ndarray]:
        """The joined texts of one query with each of its documents."""
        encoded = self.encode_query(query)
        return [self.join(encoded, document.ids) for document in self.beginnings(documents)]


def train_bpe(
    texts: Iterable[str], vocab_size: int = 4096, max_length: int = 256
) -> PreTrainedTokenizerFast:
    """Train a vocabulary on a collection: a byte-level BPE (GPT-2's kind).

        tokenizer = train_bpe(["She rewires houses.", "He cooks."], vocab_size=300)

    It has an end-of-text and a separator token.

    Raises:
        ValueError: ``vocab_size`` leaves no room beside the 256 bytes and the special tokens.
    """
    whole_number("vocab_size", vocab_size, 300, " for a byte-level vocabulary")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, SEPARATOR],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The leading space of PairTokenizer.encode.
    tokenizer.train_from_iterator((f" {text.strip()}" for text in texts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        bos_token=END,
        pad_token=END,
        sep_token=SEPARATOR,
        model_max_length=max_length,
    )


class TrainedTokenizer:
    """A tokenizer trained on the collection (``conf/model/backpack_tiny.yaml``).

    tokenizer = TrainedTokenizer(vocab_size=4096).build(texts)
    """

    def __init__(
        self,
        vocab_size: Annotated[int, Range(least=300, most=10_000_000)] = 4096,
        max_texts: Count = 200_000,
    ) -> None:
        """
        Args:
            vocab_size: tokens of the vocabulary.
            max_texts: of the collection that it is trained on.
        """
        self.vocab_size = vocab_size
        self.max_texts = max_texts

    def build(self, texts: Iterable[str]) -> PreTrainedTokenizerBase:
        """Train on the first ``max_texts`` texts."""
        return train_bpe(islice(texts, self.max_texts), self.vocab_size)


class PretrainedTokenizer:
    """A tokenizer from a hub id or a folder (``conf/model/backpack_gpt2.yaml``).

    tokenizer = PretrainedTokenizer("gpt2").build()
    """

    def __init__(self, name: PathText) -> None:
        """Args: name: hub id or folder."""
        self.name = name

    def build(self, texts: Iterable[str] = ()) -> PreTrainedTokenizerBase:
        """Load the tokenizer; the texts are not looked at."""
        return load_tokenizer(self.name)


def load_tokenizer(name: str | Path, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load a fast tokenizer from a hub id or a folder.

        tokenizer = load_tokenizer("gpt2")

    GPT-2's may be the two files of its first release alone.

    Args:
        name: hub id or folder.
        revision: of the hub, a branch, tag or commit.

    Raises:
        OSError: there is none under that name.
        ValueError: it has neither an end nor a separator token.
    """
    source = _with_tokenizer(hub_or_folder(name))
    tokenizer_class = GPT2Tokenizer if _is_bare_gpt2(Path(source)) else AutoTokenizer
    try:
        tokenizer = with_original_rules(
            from_pretrained(tokenizer_class, source, revision=revision or "main")
        )
    except OSError as error:  # the library's own words may leave out the name
        raise OSError(f"no tokenizer of {name}: {error}") from error
    except ValueError as error:
        if "backend tokenizer" not in str(error):
            raise
        raise ValueError(
            f"{name} has no rules of its tokenizer that can be read (tokenizer.json, or vocab.txt "
            "or the like): put the tokenizer.json of the model into it, which save_pretrained of "
            "its tokenizer writes"
        ) from error
    _first_id(tokenizer, "eos_token_id", "sep_token_id")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _look(text: str, characters: int, longest_run: int, last: bool) -> tuple[str, bool] | None:
    """A beginning that ends with a word, and whether it is the complete text.

    None: the beginning is inside one long word, so more of the text has to be looked at.
    """
    if len(text) <= characters:
        return text, True
    seen, is_complete = beginning(text, characters, longest_run)
    if is_complete:
        return seen, True
    cut = before_last_word(seen)
    if cut is None and last:  # a word of a megabyte is cut somewhere
        cut = seen
    return None if cut is None else (cut, False)


def _is_bare_gpt2(folder: Path) -> bool:
    """Whether the folder has GPT-2's first files, and nothing that tells Auto classes its kind."""
    if not (folder / "vocab.json").is_file() or not (folder / "merges.txt").is_file():
        return False
    others = ("tokenizer.json", "tokenizer_config.json", "config.json")
    return not any((folder / other).is_file() for other in others)


def _with_tokenizer(source: str) -> str:
    """The source, which must have a tokenizer.

    A folder without one is refused: for some kinds of models the library would make an empty one.
    """
    folder = Path(source)
    if folder.is_dir() and not any((folder / file).is_file() for file in _FILES):
        below = sorted(path.parent for path in folder.glob("*/tokenizer.json"))
        hint = "save the one that belongs to the model into it"
        if below:
            hint = f"give {below[0]}, which has one"
        raise FileNotFoundError(f"{source} has no tokenizer: {hint}")
    return source


def _first_id(tokenizer: PreTrainedTokenizerBase, *names: str) -> int:
    for name in names:
        token_id = getattr(tokenizer, name)
        if token_id is not None:
            return int(token_id)
    raise ValueError(
        f"the tokenizer has none of {', '.join(names)}; add one with add_special_tokens"
    )
