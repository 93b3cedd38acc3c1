"""Sense quality of a trained Backpack: agreement with judged word pairs, and the words near a word in each sense."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.data.similarity import read_similarity
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.build import RANKERS, load_ranker
from backpack_rank.models.device import pick_device
from backpack_rank.models.language_model import load_language_model
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.pipelines.common import RANKER, save_config
from backpack_rank.pipelines.language_model import LANGUAGE_MODEL
from backpack_rank.reporting.sense_quality import (
    SenseQualityReport,
    by_word,
    print_sense_quality,
    write_sense_quality,
)
from backpack_rank.senses.meaning import PROBES, nearest_words, one_token_words, predicted_words
from backpack_rank.senses.word_similarity import similarity_quality


@dataclass(frozen=True)
class SenseQuality:
    """``task`` of ``evaluate.py experiment=sense_quality``.

    Attributes:
        word_similarity: files of word pairs with people's judgements, see
            :func:`~backpack_rank.data.similarity.read_similarity`.
        words: whose nearest words in each sense are shown.
        count: how many of them.
    """

    word_similarity: Sequence[str] = ()
    words: Sequence[str] = PROBES
    count: int = 8

    def __post_init__(self) -> None:
        for name in ("word_similarity", "words"):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, (value,))
        if self.count < 1:
            raise ValueError(f"task.count={self.count} must be at least 1")
        if not self.word_similarity and not self.words:
            raise ValueError("nothing to report on: give task.word_similarity=[FILE,...] or task.words=[WORD,...]")

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Write ``sense_quality.json`` and ``sense_quality.md``, and print the tables."""
        judged = [read_similarity(path) for path in self.word_similarity]
        checkpoint = find_backpack(config.checkpoint, config.output)
        backpack, encoder, predicts = load_backpack(checkpoint)
        backpack.to(pick_device(config.scoring.device, "scoring.device"))  # type: ignore[arg-type]
        lists = tuple(similarity_quality(backpack, encoder, part) for part in judged)
        words = [str(word) for word in self.words]
        vocabulary = one_token_words(encoder) if words else None
        nearest = nearest_words(backpack, encoder, vocabulary, words, self.count) if vocabulary else []
        predicted = predicted_words(backpack, encoder, vocabulary, words, self.count) if vocabulary and predicts else []
        report = SenseQualityReport(str(checkpoint), lists, by_word(words, nearest, predicted))
        save_config(folder, config)
        write_sense_quality(folder, report)
        if not quiet:
            print_sense_quality(report)
            print(f"Written to {folder}")


def find_backpack(checkpoint: str | None, output: str) -> Path:
    """The folder of a saved language model or ranker: the one given, one in the run given, or the last trained one.

    Raises:
        FileNotFoundError: there is none.
    """
    if checkpoint is not None:
        folder = Path(checkpoint).expanduser()
        for candidate in (folder / LANGUAGE_MODEL, folder / RANKER, folder):
            if (candidate / "config.json").is_file():
                return candidate
        raise FileNotFoundError(
            f"checkpoint={checkpoint}: neither a run's folder nor a saved language model or ranker (no config.json)"
        )
    found = [path for name in (LANGUAGE_MODEL, RANKER) for path in Path(output, "train").glob(f"**/{name}/config.json")]
    if not found:
        raise FileNotFoundError(
            f"no trained Backpack below {Path(output, 'train')}: run `python train.py` first, or give checkpoint=FOLDER"
        )
    return max(found, key=lambda path: path.stat().st_mtime).parent


def load_backpack(folder: Path) -> tuple[BackpackModel, PairEncoder, bool]:
    """The network of a saved ranker or language model, its encoder, and whether it predicts words.

    Raises:
        ValueError: it has no senses.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if (config.get("architectures") or [""])[0] not in {ranker.__name__ for ranker in RANKERS}:
        model, tokenizer = load_language_model(folder)
        return model.backpack, PairEncoder(tokenizer, model.config.n_positions), True
    ranker, encoder = load_ranker(folder)
    if not isinstance(ranker, BackpackForRanking):
        raise ValueError(f"{folder}: {type(ranker).__name__} has no sense vectors, so there is no sense quality")
    return ranker.backpack, encoder, False
