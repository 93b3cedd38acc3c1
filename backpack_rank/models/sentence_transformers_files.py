"""Files that sentence-transformers keeps beside a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backpack_rank.data.model_files import read_settings

MODEL_FILE = "config_sentence_transformers.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
ADVICE = "rank with sentence-transformers itself, and measure its run: run=FILE"


def settings_of(file: Path) -> dict[str, Any]:
    """Read a file that may be missing; then there are no settings."""
    return read_settings(file) if file.is_file() else {}
