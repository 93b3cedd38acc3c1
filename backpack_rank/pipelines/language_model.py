"""``train.py task=language_model``: texts, tokenizer, rows, training, perplexity, a folder for ``from_pretrained``."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from transformers import PreTrainedTokenizerBase

from backpack_rank.data.text_data import TextData
from backpack_rank.data.texts import NamedTexts, is_held_out, text_sources
from backpack_rank.data.token_rows import TokenCorpus, read_corpus, write_corpus
from backpack_rank.data.tokenisation import PairEncoder, load_tokenizer
from backpack_rank.files import atomic_path
from backpack_rank.models.language_model import language_model_of, save_language_model
from backpack_rank.pipelines.common import LAST, check_whole, load_split, refuse_options
from backpack_rank.pipelines.fitting import fit
from backpack_rank.training.language_model import PERPLEXITY, TextModule
from backpack_rank.training.module import Optimisation

log = logging.getLogger(__name__)
LANGUAGE_MODEL = "language_model"
OPTIONS = ("task", "data", "model", "trainer", "logger", "loader", "seed", "output", "resume", "hydra")
FORMAT = "backpack_rank language model 1"


@dataclass(frozen=True)
class LanguageModelTraining:
    """The task and its settings (``conf/task/language_model.yaml``).

    Attributes:
        texts: see :func:`~backpack_rank.data.texts.text_sources`; likewise ``field``.
        held_out: share of the documents on which perplexity is measured.
        sequence_length: tokens of a row.
        epochs: passes over the rows, or over ``rows_per_epoch`` of them.
        max_steps: a number of steps in place of epochs.
        rows_per_epoch: rows between two measurements of perplexity.
        batch_size: rows of a step.
        learning_rate: highest learning rate; likewise ``warmup_share``, ``weight_decay`` and ``gradient_clip``.
    """

    texts: Sequence[str | Mapping[str, str]]
    held_out: float
    sequence_length: int
    epochs: int
    batch_size: int
    learning_rate: float
    field: str = "text"
    max_steps: int | None = None
    rows_per_epoch: int | None = None
    warmup_share: float = 0.05
    weight_decay: float = 0.01
    gradient_clip: float | None = 1.0

    def __post_init__(self) -> None:
        optional = ("max_steps", "rows_per_epoch")
        check_whole(self, ("sequence_length", "epochs", "batch_size", *optional), null=optional)
        if not 0 < self.held_out < 1:
            raise ValueError(f"task.held_out={self.held_out} must be above 0 and below 1")
        if not self.learning_rate > 0 or not 0 <= self.warmup_share < 1:
            raise ValueError(
                f"task.learning_rate={self.learning_rate} must be > 0 and "
                f"task.warmup_share={self.warmup_share} in [0, 1)"
            )

    def run(self, config: DictConfig, folder: Path, changed: Sequence[str] = (), resumed: bool = False) -> float:
        """Train a Backpack on text and save it to ``folder/language_model``.

        Args:
            config: as composed from ``conf/train.yaml``.
            folder: of the run.
            changed: options of the command line, to refuse those that would be ignored.
            resumed: continue from the last checkpoint of the folder.

        Returns:
            The lowest perplexity on the held-out documents.
        """
        refuse_options(
            changed,
            OPTIONS,
            "options of ranking, which task=language_model does not read; its own are task.epochs, task.learning_rate "
            "and the others of conf/task/language_model.yaml",
        )
        sources = text_sources(self.texts, self.field, lambda: load_split(config.data, "train"))
        tokenizer = self._tokenizer(config, folder, sources)
        model = language_model_of(instantiate(config.model.ranker, tokenizer=tokenizer, _convert_="all"))
        if self.sequence_length > model.config.n_positions:
            raise ValueError(
                f"task.sequence_length={self.sequence_length} exceeds the model's {model.config.n_positions} "
                "positions; shorten it"
            )
        corpus = self._corpus(config, folder, sources, tokenizer)
        data = TextData(
            corpus,
            self.sequence_length,
            batch_size=self.batch_size,
            rows_per_epoch=self.rows_per_epoch,
            seed=config.seed,
            workers=config.loader.workers,
        )
        optimisation = Optimisation(self.learning_rate, self.weight_decay, self.warmup_share)
        trainer, perplexity = fit(
            config,
            folder,
            TextModule(model, optimisation, config.seed, self.max_steps),
            data,
            monitor=PERPLEXITY,
            mode="min",
            epochs=self.max_steps or self.epochs,  # an epoch has a step at least
            gradient_clip=self.gradient_clip,
            resumed=resumed,
        )
        if trainer.is_global_zero:
            summary = {
                "format": FORMAT,
                "perplexity": perplexity,
                **_sizes(corpus),
                "steps": trainer.global_step,
                "tokens_per_step": self.batch_size * self.sequence_length * trainer.world_size,
                "parameters": model.num_parameters(),
                "vocabulary": len(tokenizer),
                "texts": [source.name for source in sources],
                "settings": _settings(config),
            }
            save_language_model(folder / LANGUAGE_MODEL, model, tokenizer, summary)
            log.info("lowest perplexity %.3f; language model saved to %s", perplexity, folder / LANGUAGE_MODEL)
            _tidy(folder)
        return perplexity

    def _tokenizer(self, config: DictConfig, folder: Path, sources: Sequence[NamedTexts]) -> PreTrainedTokenizerBase:
        """The tokenizer, kept in the run's folder until the run is complete: a resumed run trains none again."""
        kept = folder / "tokenizer"
        if kept.is_dir():
            return load_tokenizer(kept)

        def texts() -> Iterator[str]:
            for text in itertools.chain.from_iterable(sources):
                if not is_held_out(text, self.held_out, config.seed):
                    yield text

        tokenizer = instantiate(config.model.tokenizer).build(texts())
        with atomic_path(kept) as temporary:
            tokenizer.save_pretrained(temporary)
        return tokenizer

    def _corpus(
        self, config: DictConfig, folder: Path, sources: Sequence[NamedTexts], tokenizer: PreTrainedTokenizerBase
    ) -> TokenCorpus:
        """The tokens; those that are already in the run's folder, of a resumed run or of another process."""
        kept = folder / "corpus"
        if kept.is_dir():
            return read_corpus(kept)
        texts = itertools.chain.from_iterable(sources)
        encoder = PairEncoder(tokenizer, self.sequence_length)
        corpus = write_corpus(kept, texts, encoder, self.held_out, config.seed)
        log.info(
            "%d tokens of %d documents to train on, %d tokens of %d documents held out",
            corpus.train_tokens,
            corpus.train_documents,
            corpus.held_out_tokens,
            corpus.held_out_documents,
        )
        return corpus


def _sizes(corpus: TokenCorpus) -> dict[str, int]:
    names = ("held_out_tokens", "held_out_documents", "train_tokens", "train_documents")
    return {name: getattr(corpus, name) for name in names}


def _tidy(folder: Path) -> None:
    """Remove what only an interrupted run needs: resume=true takes a run with a last checkpoint for interrupted."""
    for path in (folder / "corpus", folder / "tokenizer"):
        shutil.rmtree(path, ignore_errors=True)
    (folder / LAST).unlink(missing_ok=True)


def _settings(config: DictConfig) -> dict[str, Any]:
    """What the model was trained with, as JSON takes it."""
    parts = OmegaConf.to_container(config, resolve=True)
    assert isinstance(parts, dict)
    return {str(name): parts[name] for name in ("task", "model", "trainer", "seed")} | {"data": parts["data"]["name"]}
