"""The front door: help and lists at once, mistyped and renamed options named, one script for all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backpack_rank import cli
from backpack_rank.files import resource_folder

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
@pytest.mark.parametrize("argument", ["--help", "-h", "list=data", "polcy=x"])
def test_help_and_lists_come_before_hydra_and_torch(script: str, argument: str) -> None:
    program = (
        "import runpy, sys\n"
        f"sys.argv = [{script!r}, {argument!r}]\n"
        "try:\n"
        f"    runpy.run_path({script!r}, run_name='__main__')\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'torch', 'transformers', 'lightning', 'hydra'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("verb", "said"), [("serve", "--model NAME=FOLDER"), ("rerank", "action=status")])
def test_help_of_the_other_verbs_comes_before_torch_and_fastapi(verb: str, said: str) -> None:
    program = (
        "import sys\n"
        "from backpack_rank import cli\n"
        "try:\n"
        f"    cli.main([{verb!r}, '--help'])\n"
        "except SystemExit as done:\n"
        "    assert done.code == 0\n"
        "heavy = {'torch', 'transformers', 'fastapi', 'uvicorn'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.parametrize("script", ["train", "evaluate", "rerank"])
def test_help_names_eight_examples_and_every_group(script: str) -> None:
    text = cli.help_text(script)
    assert sum(line.startswith(f"  {cli.PROGRAMS[script]}") for line in text.splitlines()) == 8
    config = (resource_folder("conf") / f"{script}.yaml").read_text()
    groups = [line.split(":")[0].removeprefix("  - ") for line in config.splitlines() if line.startswith("  - ")]
    for group in set(groups) - {"_self_", "override hydra/job_logging"}:
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {group} ")]
        assert len(line.split("]")[1]) > 5, line
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("script", ["train", "evaluate", "rerank"])
def test_every_choice_has_a_description(script: str) -> None:
    for group in cli.groups_of(script):
        for choice, description in cli.choices(group).items():
            assert description, f"conf/{group}/{choice}.yaml begins with no comment"


def test_lists_take_singular_and_plural() -> None:
    assert cli.choices_text("evaluate", "policies") == cli.choices_text("evaluate", "policy")
    assert "experiment=fair_retrieval/table1" in cli.choices_text("evaluate", "experiments")
    with pytest.raises(SystemExit, match=r"list=polices: evaluate\.py has no such group; did you mean policy\?"):
        cli.choices_text("evaluate", "polices")


@pytest.mark.parametrize(
    ("script", "option", "said"),
    [
        ("evaluate", "polcy=uniform", r"polcy: evaluate\.py has no such option; did you mean policy\?"),
        ("evaluate", "policy=paired_token", "policy=paired_token: there is no such choice; did you mean paired_tokens"),
        ("evaluate", "policy=uniform,lowest_sense", "policy=lowest_sense: there is no such choice"),
        ("evaluate", "policy.cont=3", "policy.cont: policy has no option cont; did you mean count"),
        ("evaluate", "scoring.devise=cpu", "scoring.devise: scoring has no option devise; did you mean device"),
        ("rerank", "alfa=0.5", "alfa: backpack-rank rerank has no such option; did you mean alpha"),
        ("rerank", "scoring.workers=2", "scoring.workers: scoring has no option workers"),
        ("train", "training.epoch=3", "training.epoch: training has no option epoch; did you mean epochs"),
        ("train", "model=backpack_tny", "model=backpack_tny: there is no such choice; did you mean backpack_tiny"),
        ("train", "warmup.epochs=1", r"warmup\.epochs=1: this is now called pretraining\.epochs"),
        ("train", "training.new_rate=1", r"this is now called training\.head_learning_rate"),
        ("train", "data=embedded", "data=embedded: this is now called data=synthetic"),
        ("evaluate", "wordings=grep_biasir", "this is now called variants"),
        ("evaluate", "policy.where=senses", r"this is now called policy\.scope"),
        ("evaluate", "~data.first_stage", "first_stage=bm25"),
        ("train", "+data.first_stage={path:run.trec}", "first_stage=bm25"),
    ],
)
def test_a_wrong_option_is_refused_with_the_right_one(script: str, option: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        cli.check_options(script, ["-m", option])


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("train", ["data=beir", "data.folder=x", "model=backpack", "model.ranker.name=y", "training.epochs=1"]),
        ("train", ["task=listwise", "model=listwise_tiny", "task.lists=mathsort", "+data.train.documents=3"]),
        ("evaluate", ["-m", "alpha=1,0", "policy=uniform,threshold", "hydra.job.num=1"]),
        ("evaluate", ["experiment=lists/bias", "task.size=3", "listwise=trained", "listwise.depth=3"]),
        ("evaluate", ["first_stage=run", "first_stage.path=a=b.trec", "run=null", "--cfg", "job"]),
        ("evaluate", ["data=dl19", "+data.first_stage.depth=10"]),
        ("evaluate", ["--config-dir=my", "data=mine"]),
        ("rerank", ["run=a.trec", "alpha=[1,0]", "+executor_options.partition=cpu", "data.folder=x", "data=beir"]),
    ],
)
def test_right_options_pass(script: str, options: list[str]) -> None:
    cli.check_options(script, options)


def test_the_console_script_has_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--help"])
    assert {"train", "evaluate", "rerank", "serve"} <= set(capsys.readouterr().out.split())
    cli.main(["evaluate", "list=aggregate"])
    assert "aggregate=kemeny" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"use one of train, evaluate, rerank, serve; did you mean evaluate\?"):
        cli.main(["evalute"])
    with pytest.raises(SystemExit, match=r"takes no -m: give several alphas as alpha=\[1,0\.5,0\]"):
        cli.main(["rerank", "-m", "alpha=1,0"])
