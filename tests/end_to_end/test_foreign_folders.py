"""A ranker's folder that somebody else made: its weights are read, nothing in it is run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from in_process import TEST_SPLIT, evaluated, trained_in
from safetensors.torch import load_file, save_file
from workplace import ROOT, Workplace

TRACE = "touched"


def code(folder: Path) -> dict:
    """A node that makes a file if it is instantiated."""
    return {
        "_target_": "pathlib.Path.touch",
        "_args_": [{"_target_": "pathlib.Path", "_args_": [str(folder / TRACE)]}],
    }


@pytest.fixture
def folder_of_code(trained: Workplace, tmp_path: Path) -> Path:
    """The folder of a run whose every node is code."""
    run = tmp_path / "foreign"
    shutil.copytree(trained.newest("train") / "ranker", run / "ranker")
    config = yaml.safe_load((trained.newest("train") / "config.yaml").read_text())
    node = code(tmp_path)
    splits = dict.fromkeys(("train", "dev", "test", "first_stage"), node)
    config |= {"data": {"name": "x", **splits}, "task": {**node, "lists": "collection", "size": 4}}
    config["model"] |= {"ranker": node, "tokenizer": node, "counting": node}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    return run


def test_evaluate_asks_for_data_in_one_line(
    trained: Workplace, folder_of_code: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match=r"does not say what it was trained on.*add data=\.\.\., one of conf/data"
    ):
        evaluated(trained, tmp_path / "asked", f"checkpoint={folder_of_code}")
    (folder_of_code / "overrides.yaml").write_text(
        yaml.safe_dump(["+data.test={_target_:os.getcwd}"])
    )
    message = re.escape(
        "+data.test={_target_:os.getcwd} is neither a name of conf/ nor a plain value"
    )
    with pytest.raises(ValueError, match=message):
        evaluated(trained, tmp_path / "out", f"checkpoint={folder_of_code}")
    assert not (tmp_path / TRACE).exists()


@pytest.mark.slow
def test_training_goes_on_from_its_weights_alone(folder_of_code: Path, tmp_path: Path) -> None:
    place = Workplace(tmp_path / "place")
    small = ["+data.train.train_queries=8", "+data.train.documents=40", "+data.dev.dev_queries=4"]
    options = [
        f"checkpoint={folder_of_code}",
        *small,
        "+data.dev.documents=20",
        "training.epochs=1",
    ]
    folder = trained_in(place, "further", *options)
    assert not (tmp_path / TRACE).exists()
    assert (folder / "ranker" / "model.safetensors").is_file()


def test_a_ranker_without_its_head_is_not_evaluated(trained: Workplace, tmp_path: Path) -> None:
    folder = tmp_path / "ranker"
    shutil.copytree(min(trained.output.glob("train/*/ranker")), folder)
    (folder / "checksums.json").unlink()
    file = folder / "model.safetensors"
    weights = {
        name: value for name, value in load_file(file).items() if not name.startswith("head.")
    }
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"4 keys missing: head\.dense\.bias"):
        evaluated(trained, tmp_path / "out", f"checkpoint={folder}", "data=synthetic")
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match=re.escape(f"the weights of {file} cannot be read")):
        evaluated(trained, tmp_path / "out", f"checkpoint={folder}", "data=synthetic")


@pytest.mark.processes
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_that_a_folder_names_is_not_run(trained: Workplace, tmp_path: Path, file: str) -> None:
    folder = tmp_path / "ranker"
    shutil.copytree(min(trained.output.glob("train/*/ranker")), folder)
    (folder / "checksums.json").unlink()
    (folder / "evil.py").write_text(f"open({str(tmp_path / TRACE)!r}, 'w')\nclass Evil: ...\n")
    content = json.loads((folder / file).read_text())
    names = {"AutoConfig": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    (folder / file).write_text(json.dumps(content | {"auto_map": names, "tokenizer_class": "Evil"}))
    command = [
        sys.executable,
        str(ROOT / "evaluate.py"),
        f"checkpoint={folder}",
        f"output={tmp_path / 'outputs'}",
        *TEST_SPLIT,
    ]
    pipes = {"input": "yes\n" * 99, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(command, cwd=ROOT, env=trained.environment(), **pipes)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{folder / file} names code (auto_map), and no code of a model is run" in done.stderr
    assert not (tmp_path / TRACE).exists()


@pytest.mark.processes
def test_two_runs_of_one_second_have_folders_of_their_own(trained: Workplace) -> None:
    folder = f"hydra.run.dir='${{new_folder:{trained.output / 'same' / 'second'}}}'"
    options = [folder, "data=synthetic", "+data.test.test_queries=12"]
    jobs = [trained.start("evaluate.py", *options, "+data.test.documents=80") for _ in range(2)]
    assert [job.wait(300) for job in jobs] == [0, 0]
    folders = sorted((trained.output / "same").iterdir())
    assert [folder.name for folder in folders] == ["second", "second_2"]
    assert all((folder / "measures.json").is_file() for folder in folders)
