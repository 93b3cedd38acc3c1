"""Hydra composes and runs jobs: arguments are given, and a mistake is one sentence."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from backpack_rank.checks import UsageError
from backpack_rank.pipelines import hydra_jobs
from backpack_rank.pipelines.output_folder import command_of, register_resolvers

COMMANDS: list[list[str]] = []
"""What ``sys.argv`` was in each job."""


@pytest.fixture(autouse=True)
def _no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.setattr(sys, "argv", ["pytest"])


def run_and_record(*arguments: str, folder: Path) -> list[DictConfig]:
    """The configurations of the jobs that a command line asks for."""
    configurations: list[DictConfig] = []

    def job(config: DictConfig) -> None:
        COMMANDS.append(sys.argv)
        configurations.append(config)

    folders = [f"hydra.run.dir={folder}", f"hydra.sweep.dir={folder}", "hydra/job_logging=none"]
    hydra_jobs.compose_and_run("train", [*arguments, *folders, "hydra/hydra_logging=none"], job)
    return configurations


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=1,2"], "Ambiguous value for argument 'seed=1,2'.*-m sweeps over the values"),
        (["nonsense=1"], "nonsense: backpack-rank train has no such option"),
        (["hydra/launcher=nonsuch"], "Could not find 'hydra/launcher/nonsuch'; see --help"),
        (["--config-dir=nonsuch"], "Additional config directory '.*nonsuch' not found"),
        (["--config-name=nonsuch"], "Cannot find primary config 'nonsuch'"),
        (["--experimental-rerun=config.pickle"], "give the options of that run again"),
    ],
)
def test_what_cannot_be_composed_is_a_sentence_and_runs_nothing(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        run_and_record(*arguments, folder=tmp_path)
    assert refused.value.code == 2
    assert not GlobalHydra.instance().is_initialized()
    assert sys.argv == ["pytest"]


@pytest.mark.parametrize(
    ("script", "option", "message"),
    [
        ("evaluate", "alpha=abc", "alpha=abc: use one of auto, or a finite number"),
        # An option of one task, which its field alone declares.
        ("evaluate", "certificate=maybe", "certificate=maybe must be true or false"),
        ("evaluate", "policy=soft policy.temperature=warm", "policy.temperature=warm must be"),
        ("train", "lists.size=1", "lists.size=1 must be a whole number from 2"),
        ("train", "task=listwise model=listwise_tiny seed=x", "seed=x must be a whole number"),
    ],
)
def test_a_wrong_value_is_refused_before_a_folder_is_made(
    script: str, option: str, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What would be marked there as unfinished, resume=true would take up."""
    with pytest.raises(SystemExit) as ended:
        hydra_jobs.run(
            script, [*option.split(), f"output={tmp_path / 'outputs'}", "hydra/hydra_logging=none"]
        )
    assert ended.value.code == 2
    assert message in caplog.text
    assert list(tmp_path.iterdir()) == []
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.slow
def test_one_job_or_one_for_each_value_is_run(tmp_path: Path) -> None:
    (config,) = run_and_record("seed=3", folder=tmp_path)
    assert config.seed == 3
    assert [config.seed for config in run_and_record("-m", "seed=1,2", folder=tmp_path)] == [1, 2]
    several = run_and_record("seed=1,2", "hydra.mode=MULTIRUN", folder=tmp_path)
    assert [config.seed for config in several] == [1, 2]


TWO_SEEDS = """\
# @package _global_
hydra:
  mode: MULTIRUN
  run: {dir: FOLDER}
  sweep: {dir: FOLDER}
  job_logging: {root: null}
  hydra_logging: {root: null}
  sweeper:
    params:
      seed: 1,2
"""


@pytest.mark.slow
def test_a_sweep_that_a_configuration_asks_for_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where somebody has added ``hydra.mode`` to a file of conf/: no option names Hydra."""
    conf = shutil.copytree(hydra_jobs.resource_folder("conf"), tmp_path / "conf")
    recipe = TWO_SEEDS.replace("FOLDER", str(tmp_path / "output"))
    (conf / "recipe" / "two_seeds.yaml").write_text(recipe)
    monkeypatch.setattr(hydra_jobs, "resource_folder", lambda _name: conf)
    configurations: list[DictConfig] = []
    hydra_jobs.compose_and_run("train", ["recipe=two_seeds"], configurations.append)
    assert [config.seed for config in configurations] == [1, 2]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["alpha=1,0", "checkpoint='a/x'"], ["alpha-0", "alpha-1"]),
        # What tells jobs apart is in the name, and a path is one part of it.
        (
            ["alpha=1", "checkpoint=a/x,b/x"],
            ["alpha-1_checkpoint-x-[0-9a-f]{8}", "alpha-1_checkpoint-x-[0-9a-f]{8}"],
        ),
        (["alpha=1", "run='../a.run','../b.run'"], ["alpha-1_run-[ab].run-[0-9a-f]{8}"] * 2),
        (["certificate_pairs=['a/b.jsonl']"], ["certificate_pairs-b.jsonl-[0-9a-f]{8}"]),
        (["checkpoint=a/x"], ["job"]),
        ([f"measures=[{','.join(['nDCG@10'] * 40)}]"], [r"measures-\[nDCG.{186}-[0-9a-f]{8}"]),
    ],
)
def test_every_job_of_a_multirun_has_a_folder_of_its_own(
    options: list[str], names: list[str], tmp_path: Path
) -> None:
    arguments = ["-m", *options, f"hydra.sweep.dir={tmp_path}", "hydra/job_logging=none"]
    register_resolvers(command_of("evaluate", arguments, str(tmp_path)))
    folders: list[Path] = []

    def job(_config: DictConfig) -> bool:
        folders.append(Path(HydraConfig.get().runtime.output_dir))
        return True

    hydra_jobs.compose_and_run("evaluate", [*arguments, "hydra/hydra_logging=none"], job)
    assert {folder.parent for folder in folders} == {tmp_path}
    assert len(set(folders)) == len(names)
    for folder, name in zip(sorted(folders), names, strict=True):
        assert re.fullmatch(name, folder.name)
        assert folder.is_dir()


def test_further_processes_are_started_with_the_options_of_the_job(tmp_path: Path) -> None:
    run_and_record("seed=3", folder=tmp_path)
    assert COMMANDS[-1][:3] == ["pytest", "train", "seed=3"]
    assert sys.argv == ["pytest"]


def test_the_folder_of_the_user_is_searched_too(tmp_path: Path) -> None:
    (tmp_path / "conf" / "trainer").mkdir(parents=True)
    (tmp_path / "conf" / "trainer" / "mine.yaml").write_text("devices: 7\n")
    arguments = [f"--config-dir={tmp_path / 'conf'}", "trainer=mine"]
    (config,) = run_and_record(*arguments, folder=tmp_path / "run")
    assert config.trainer.devices == 7


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [(["--cfg=job", "--package=training"], "loss: "), (["--info=defaults"], "trainer/cpu")],
)
def test_what_is_to_be_printed_runs_nothing(
    arguments: list[str], shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_and_record(*arguments, folder=tmp_path) == []
    assert shown in capsys.readouterr().out


def test_a_defect_of_a_job_is_raised_as_it_is(tmp_path: Path) -> None:
    def job(config: DictConfig) -> Any:
        raise OSError("a defect")

    folder = f"hydra.run.dir={tmp_path}"
    with pytest.raises(OSError, match="a defect"):
        hydra_jobs.compose_and_run("train", [folder, "hydra/job_logging=none"], job)
