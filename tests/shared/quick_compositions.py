"""Hydra without its repeated work: a thousand compositions read the same files of conf/ again."""

from __future__ import annotations

import copy

from hydra._internal.config_repository import ConfigRepository
from hydra.plugins.config_source import ConfigResult


def read_each_configuration_once() -> None:
    """Let Hydra keep what it has read of a file of conf/, for all compositions of this process.

    No test changes conf/ while it runs. A composition gets a copy, because it may be changed.
    """
    read = ConfigRepository.load_config
    kept: dict[tuple[str, ...], ConfigResult | None] = {}

    def load_config(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
        places = [f"{source.provider} {source.path}" for source in repository.get_sources()]
        key = (*places, config_path)
        if key not in kept:
            kept[key] = read(repository, config_path)
        composed = copy.copy(kept[key])
        if composed is not None:
            composed.config = copy.deepcopy(composed.config)
        return composed

    ConfigRepository.load_config = load_config
