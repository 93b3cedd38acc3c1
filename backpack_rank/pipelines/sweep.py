"""What comes after the last job of ``python evaluate.py -m ...``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from backpack_rank.reporting.sweep import write_sweep_report

log = logging.getLogger(__name__)


class SweepReport(Callback):
    """Writes one table and one plot over all jobs, and prints the table and where the plot is."""

    def on_multirun_end(self, config: DictConfig, **options: Any) -> None:
        """Called by Hydra when every job has ended."""
        write_sweep_report(Path(config.hydra.sweep.dir))
