"""Keeps other libraries quiet."""

from __future__ import annotations

import logging
import os


def quiet_libraries() -> None:
    """Keep progress bars of loading, and advice that concerns no user, out of the terminal."""
    os.environ.setdefault("WANDB_SILENT", "true")
    for name in ("lightning.pytorch.utilities.rank_zero", "bm25s", "aiobotocore", "botocore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
