"""Mistakes as sentences."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from backpack_rank.files import resource_folder
from backpack_rank.pipelines.errors import (
    LogFile,
    PrintableLines,
    errors_to_stderr,
    friendly_errors,
)


def test_the_log_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("")
    (tmp_path / "train.log").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"train\.log"):
        LogFile(tmp_path / "train.log")
    assert (tmp_path / "outside").read_text() == ""


def test_line_breaks_in_logged_values_are_written_out(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "train.log")
    file.setFormatter(PrintableLines(logging.Formatter("%(message)s")))
    logger = logging.Logger("test")
    logger.addHandler(file)
    logger.error("%s: refused after %d tries (%r)", "option\n. ~/evil", 3, "x\ny")
    logger.info("%(option)s has\ntwo lines of ours", {"option": "a\nb"})
    logger.info("é of %s", Path("a"))
    logger.error("%s", ValueError("one\ntwo"))
    file.close()
    lines = (tmp_path / "train.log").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("option\\n. ~/evil: refused after 3 tries ('x\\\\ny')"), lines[0]
    assert lines[1:] == ["a\\nb has", "two lines of ours", "é of a", "one\\ntwo"]


def test_errors_are_bare_sentences_on_the_terminal_and_have_a_prefix_in_the_file(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    file, terminal = LogFile(tmp_path / "train.log"), logging.StreamHandler(sys.stdout)
    for handler in (file, terminal):
        handler.setFormatter(logging.Formatter("[%(name)s][%(levelname)s] - %(message)s"))
    root = logging.Logger("root")
    root.handlers = [file, terminal]
    monkeypatch.setattr(logging, "getLogger", lambda *_: root)
    errors_to_stderr()
    root.info("working")
    root.error("%s (HYDRA_FULL_ERROR=1 shows where)", "alpha=-1 must be\x1b at least 0")
    file.close()
    shown = capsys.readouterr()
    assert shown.out == "[root][INFO] - working\n"
    assert shown.err == r"alpha=-1 must be\x1b at least 0 (HYDRA_FULL_ERROR=1 shows where)" + "\n"
    written = (tmp_path / "train.log").read_text().splitlines()
    assert written[0] == "[root][INFO] - working"
    assert written[1].startswith("[root][ERROR] - alpha=-1 must be")


def test_hydra_s_log_is_this_one() -> None:
    for script in ("train", "evaluate"):
        with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
            composed = compose(script, return_hydra_config=True)
        assert (
            composed.hydra.job_logging.handlers.file["class"]
            == f"{LogFile.__module__}.{LogFile.__name__}"
        )


def test_a_variable_that_is_not_set_is_named(monkeypatch, caplog) -> None:
    monkeypatch.delenv("BACKPACK_RANK_DATA", raising=False)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    config = OmegaConf.create(
        {"_target_": "builtins.dict", "files": "${oc.env:BACKPACK_RANK_DATA}/sorting"}
    )
    with pytest.raises(SystemExit), friendly_errors():
        instantiate(config, _convert_="all")
    assert "the environment variable BACKPACK_RANK_DATA is not set: set it" in caplog.text
    assert "`backpack-rank data list` shows what its folder can have" in caplog.text
    with pytest.raises(SystemExit), friendly_errors():
        config.files  # noqa: B018
    assert "files: the environment variable BACKPACK_RANK_DATA is not set" in caplog.text
