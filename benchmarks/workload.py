"""What is scored: model sizes, texts with lengths and word frequencies like those of MS MARCO
passages, collections.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hydra import compose, initialize_config_dir
from tokenizers import BertWordPieceTokenizer
from transformers import BertTokenizerFast

from backpack_rank.data.collection import Collection
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.tokenisation import Beginning, PairTokenizer
from backpack_rank.files import resource_folder
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.pipelines.settings import texts_of
from backpack_rank.pipelines.training_settings import TrainingSettings

SEED = 2024


@dataclass(frozen=True)
class Size:
    """Shape of trunk and sense network."""

    name: str
    layers: int
    hidden: int
    heads: int
    senses: int
    positions: int
    vocabulary: int

    @property
    def pad_id(self) -> int:
        """The last id of the vocabulary; texts never hold it."""
        return self.vocabulary - 1

    def config(self) -> BackpackConfig:
        """A new configuration, dropout off (models change theirs, so each gets its own)."""
        return BackpackConfig(
            num_senses=self.senses,
            vocab_size=self.vocabulary,
            n_positions=self.positions,
            n_embd=self.hidden,
            n_layer=self.layers,
            n_head=self.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            scale_attn_by_inverse_layer_idx=True,
            bos_token_id=self.pad_id,
            eos_token_id=self.pad_id,
            pad_token_id=self.pad_id,
        )


GPT2_SMALL = Size("GPT-2 small", 12, 768, 12, 16, 512, 50264)
QUICK = Size("quick", 2, 64, 2, 4, 512, 1000)
SIZES = {"gpt2-small": GPT2_SMALL, "quick": QUICK}


def token_sequences(count: int, size: Size, seed: int = SEED) -> list[np.ndarray]:
    """Texts as token ids. Lengths: gamma with mean 75 and deviation 30, cut to 10 ... 256.

    Ids follow Zipf's law (Mandelbrot's form, exponent 1, shift 2.7), because the ranker computes a
    token's hidden layer once per distinct id and uniform ids would hide that.
    """
    generator = np.random.default_rng(seed)
    lengths = np.clip(np.rint(generator.gamma(shape=6.25, scale=12.0, size=count)), 10, 256).astype(
        int
    )
    weights = 1.0 / (np.arange(size.vocabulary - 1) + 2.7)
    ids = generator.permutation(size.vocabulary - 1)
    draws = (generator.choice(ids, size=length, p=weights / weights.sum()) for length in lengths)
    return [draw.astype(np.int64) for draw in draws]


def dataset(name: str) -> Dataset:
    """One of conf/data, as ``train.py data=NAME`` reads it."""
    register_resolvers()
    with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
        return TrainingSettings(compose("train", [f"data={name}"])).dataset


def word_pieces(collection: Collection, size: int = 30522) -> BertTokenizerFast:
    """A WordPiece vocabulary of that size (BERT's) from a collection's own text."""
    words = BertWordPieceTokenizer()
    words.train_from_iterator(texts_of(collection), vocab_size=size, show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "words.json"
        words.save(str(file))
        return BertTokenizerFast(tokenizer_file=str(file))


def as_text(sequence: np.ndarray) -> str:
    """Token ids as a text that :class:`IdEncoder` reads."""
    return " ".join(map(str, sequence.tolist()))


@dataclass(frozen=True)
class IdEncoder(PairTokenizer):
    """Reads texts made of token ids, so that no tokenizer takes part in the times."""

    end: int = 0

    @property
    def separator_id(self) -> int:
        return self.end

    @property
    def end_id(self) -> int:
        return self.end

    @property
    def fingerprint(self) -> str:
        return f"token ids, {self.max_length}, {self.end}"

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text."""
        return [np.array(text.split(), dtype=np.int32) for text in texts]

    def beginnings(
        self, texts: Sequence[str], long_documents: LongDocuments = CUT
    ) -> list[Beginning]:
        """Whole texts: there is no vocabulary that would say how many characters a token can have."""
        return [
            Beginning(text, ids, True) for text, ids in zip(texts, self.encode(texts), strict=True)
        ]


def pair_tokenizer(size: Size) -> IdEncoder:
    """An encoder for the size's limit of positions."""
    return IdEncoder(tokenizer=None, max_length=size.positions, end=size.pad_id)  # type: ignore[arg-type]
