"""Mistakes as sentences."""

from __future__ import annotations

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from backpack_rank.pipelines.errors import friendly_errors


def test_a_variable_that_is_not_set_is_named(monkeypatch, caplog) -> None:
    monkeypatch.delenv("BACKPACK_RANK_DATA", raising=False)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    config = OmegaConf.create({"_target_": "builtins.dict", "files": "${oc.env:BACKPACK_RANK_DATA}/sorting"})
    with pytest.raises(SystemExit), friendly_errors():
        instantiate(config, _convert_="all")
    assert "the environment variable BACKPACK_RANK_DATA is not set: set it" in caplog.text
    with pytest.raises(SystemExit), friendly_errors():
        config.files  # noqa: B018
    assert "files: the environment variable BACKPACK_RANK_DATA is not set" in caplog.text
