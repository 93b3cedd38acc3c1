"""The front door: help and lists at once, mistyped options named, one script for all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from backpack_rank import cli, commands
from backpack_rank.checks import UsageError
from backpack_rank.files import resource_folder
from backpack_rank.options import check_first_names, choices, groups_of
from backpack_rank.pipelines.given import (
    check,
    check_effects,
    check_files,
    check_names,
    parsed,
    quoted,
)

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
@pytest.mark.parametrize("argument", ["--help", "-h", "list=data", "polcy=x", "~sed", "data=dl91"])
def test_help_lists_and_mistyped_names_come_before_hydra(script: str, argument: str) -> None:
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


@pytest.mark.parametrize(
    "options",
    [
        ["seed=1", "data=dl19", "logger=null", "experiment=null"],
        ["experiment=stages", "task.first=[1,0]"],
        ["policy=${choice}"],
        ["policy=uniform,lowest_senses", "-m"],
        ["--config-dir=mine", "own.option=3"],
        ["hydra.searchpath=[file:///mine]", "data=mine"],
        ["--package", "x=1", "--info", "y=1"],
        ["data@data.dev=dl19", "hydra/launcher=joblib", "hydra.verbose=true", "prompt=plain"],
        ["--cfg", "job", "alpha", "=3"],
    ],
    ids=str,
)
def test_what_only_hydra_can_judge_is_left_to_it(options: list[str]) -> None:
    check_first_names("evaluate", options)


@pytest.mark.parametrize("command", [["train.py"], ["evaluate.py"], ["-m", "backpack_rank"]])
def test_a_python_without_the_packages_is_told_how_to_take_the_one_that_has_them(
    command: list[str],
) -> None:
    # -S: no site-packages, as with the system's Python before the environment is activated.
    done = subprocess.run(
        [sys.executable, "-S", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("No module named")
    assert ". .venv/bin/activate after `make run`" in line


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        ("serve", "--model NAME=FOLDER"),
        ("rerank", "action=status"),
        ("retrieve", "output=bm25.trec"),
        ("calibrate", "method=isotonic"),
        ("export", "--wide"),
        ("data", "--mirror"),
    ],
)
def test_help_of_the_other_verbs_comes_before_torch_and_fastapi(verb: str, message: str) -> None:
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
    assert message in done.stdout


@pytest.mark.parametrize(
    ("script", "examples"),
    [
        ("train", 8),
        ("evaluate", 8),
        ("rerank", 7),
        ("retrieve", 4),
        ("calibrate", 4),
        ("vectors", 2),
    ],
)
def test_help_names_examples_and_every_group(script: str, examples: int) -> None:
    text = cli.help_text(script)
    assert (
        sum(line.startswith(f"  {commands.called(script)}") for line in text.splitlines())
        == examples
    )
    config = (resource_folder("conf") / f"{script}.yaml").read_text()
    groups = [
        line.split(":")[0].removeprefix("  - ")
        for line in config.splitlines()
        if line.startswith("  - ")
    ]
    for group in set(groups) - {"_self_", "override hydra/job_logging"}:
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {group} ")]
        assert len(line.split("]")[1]) > 5, line
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    "script", ["train", "evaluate", "rerank", "retrieve", "calibrate", "vectors"]
)
def test_every_choice_has_a_description(script: str) -> None:
    for group in groups_of(script):
        for choice, description in choices(group).items():
            assert description, f"conf/{group}/{choice}.yaml begins with no comment"


def test_lists_take_singular_and_plural() -> None:
    assert cli.choices_text("evaluate", "policies") == cli.choices_text("evaluate", "policy")
    assert "experiment=fair_retrieval/table1" in cli.choices_text("evaluate", "experiments")
    with pytest.raises(
        SystemExit,
        match=r"list=polices: backpack-rank evaluate has no such group; did you mean policy\?",
    ):
        cli.choices_text("evaluate", "polices")


@pytest.mark.parametrize(
    ("script", "option", "message"),
    [
        (
            "evaluate",
            "polcy=uniform",
            r"polcy: backpack-rank evaluate has no such option; did you mean policy\?",
        ),
        (
            "evaluate",
            "policy=paired_token",
            "policy=paired_token: there is no such choice; did you mean paired_tokens",
        ),
        ("evaluate", "policy=uniform,lowest_sense", "policy=lowest_sense: there is no such choice"),
        ("evaluate", "policy.cont=3", "policy.cont: policy has no option cont; did you mean count"),
        (
            "evaluate",
            "policy.count=3",
            "policy=default has no option count; add policy=lowest_senses or policy=most_voted",
        ),
        (
            "evaluate",
            "scoring.devise=cpu",
            "scoring.devise: scoring has no option devise; did you mean device",
        ),
        ("rerank", "alfa=0.5", "alfa: backpack-rank rerank has no such option; did you mean alpha"),
        ("rerank", "scoring.workers=2", "scoring.workers: scoring has no option workers"),
        (
            "train",
            "training.epoch=3",
            "training.epoch: training has no option epoch; did you mean epochs",
        ),
        (
            "train",
            "model=backpack_tny",
            "model=backpack_tny: there is no such choice; did you mean backpack_tiny",
        ),
        (
            "evaluate",
            "+alfa=0.5",
            r"\+alfa: backpack-rank evaluate has no such option; did you mean alpha\?",
        ),
        ("evaluate", "++alfa=0.5", "did you mean alpha"),
        ("evaluate", "~alfa", "did you mean alpha"),
        (
            "train",
            "+training.epoch=3",
            "training.epoch: training has no option epoch; did you mean epochs",
        ),
        ("train", "+data.trian=null", "data has no option trian; did you mean train"),
        ("train", "+lists.sizes=3", "lists has no option sizes; did you mean size"),
        ("train", "+model.recommended.warm=1", "model.recommended has no option warm"),
        ("evaluate", "+policy=paired_tokens_weights", "did you mean paired_tokens"),
        ("evaluate", "aggregate.k=5", "no aggregate is chosen; add aggregate="),
        ("evaluate", "+data.test.depth=3", "no data is chosen; add data="),
        ("evaluate", "recalibrate.weight=2", r"does nothing without recalibrate\.run="),
        ("evaluate", "=3", "'=3' names no option"),
        ("evaluate", "aggregate_depth=10", "does nothing without aggregate="),
        ("evaluate", "ties=id", r"does nothing without run=\.\.\. or recalibrate\.run="),
        (
            "train",
            "training.margin=2",
            "training.margin does nothing without training.loss=pairwise_hinge: add that",
        ),
        ("train", "data.rotation_seed=3", r"does nothing without data\.rotation="),
        (
            "train",
            "reconstruct.texts=9",
            r"does nothing without reconstruct\.steps=\.\.\. or model=",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_the_right_one(
    script: str, option: str, message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        check(script, ["-m", option])


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (
            "train",
            [
                "training.loss=ranknet,pairwise_hinge",
                "training.margin=2",
                "data.rotation=train",
                "data.rotation_seed=3",
            ],
        ),
        ("train", ["model=backpack", "reconstruct.texts=9"]),
        ("evaluate", ["run=[a.trec,b.trec]", "ties=id", "aggregate=rrf", "aggregate_depth=10"]),
        ("evaluate", ["data.rotation_seed=3"]),
        (
            "train",
            [
                "data=beir",
                "data.folder=x",
                "model=backpack",
                "model.ranker.name=y",
                "training.epochs=1",
            ],
        ),
        (
            "train",
            [
                "task=listwise",
                "model=listwise_tiny",
                "task.lists=mathsort",
                "+data.train.documents=3",
            ],
        ),
        ("evaluate", ["-m", "alpha=1,0", "policy=uniform,threshold", "hydra.job.num=1"]),
        (
            "evaluate",
            ["experiment=lists/bias", "task.size=3", "listwise=trained", "listwise.depth=3"],
        ),
        (
            "evaluate",
            ["first_stage=run", "first_stage.path='a=b.trec'", "run=null", "--cfg", "job"],
        ),
        ("evaluate", ["data=dl19", "+data.first_stage.depth=10"]),
        ("evaluate", ["--config-dir=my", "data=mine"]),
        (
            "rerank",
            [
                "run=a.trec",
                "alpha=[1,0]",
                "data.folder=x",
                "data=beir",
            ],
        ),
        (
            "evaluate",
            [
                "+hydra.sweeper.max_batch_size=3",
                "run=a.trec",
                "aggregate=borda",
                "aggregate_depth=10",
            ],
        ),
        (
            "evaluate",
            [
                "recalibrate.run=a.trec",
                "recalibrate.weight=0.5",
                "policy=paired_tokens",
                "policy.wide=true",
            ],
        ),
        (
            "train",
            [
                "+trainer.limit_train_batches=3",
                "+logger.flush_logs_every_n_steps=1",
                "+model.ranker.dropout=0",
            ],
        ),
        (
            "train",
            [
                "+data.test_first_stage={_target_:x.Y}",
                "+model.recommended.reconstruct_steps=3",
                "~data.bias",
            ],
        ),
    ],
)
def test_right_options_pass(script: str, options: list[str]) -> None:
    check_names(script, options)
    check_effects(script, parsed(options))


SENTENCES = (
    "who's the doctor, and why (again)?",
    "caf\u00e9 au lait = 3 \u20ac; \u65e5\u672c\u8a9e [x] {y: z}",
    "it costs ${HOME} \\${alpha} and C:\\dir\\",
    "\"quoted\" and 'quoted'",
    "'tis the season of 'giving'",
    "a\tb\nc",
    "null and void",
    "\\",
    "",
    "-5",
)


@given(
    text=st.one_of(
        st.sampled_from(SENTENCES), st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    )
)
def test_any_sentence_is_a_text_to_be_explained(text: str) -> None:
    if re.fullmatch(r"(['\"]).*\1|null", text, re.DOTALL):
        return  # in Hydra's own quotes already
    (override,) = parsed([quoted(f"explain.query={text}")])
    config = OmegaConf.create({"explain": {"query": None}})
    OmegaConf.update(config, override.key_or_group, override.value())
    assert config.explain.query == text


def test_texts_in_quotes_and_other_options_stay_as_they_are() -> None:
    given = [
        "explain.query='what is it?'",
        'explain.document="a \\" b"',
        "alpha=0.5",
        "explain.query=null",
        "-m",
    ]
    assert [quoted(argument) for argument in given] == given


@pytest.mark.parametrize("argument", ["alpha=[", "alpha", "scoring={a", "run='x", "alpha=1,["])
def test_what_hydra_cannot_read_is_a_sentence(argument: str) -> None:
    with pytest.raises(UsageError, match="cannot be read as OPTION=VALUE") as refused:
        parsed(["--cfg", "job", argument])
    assert refused.value.code == 2


def test_the_console_script_has_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--help"])
    usage, _, *lines = capsys.readouterr().out.splitlines()
    assert usage == ("backpack-rank train|evaluate|rerank|retrieve|calibrate|serve|export|data ...")
    assert [line.split()[0] for line in lines] == [
        "train",
        "evaluate",
        "rerank",
        "retrieve",
        "calibrate",
        "serve",
        "export",
        "data",
    ]
    cli.main(["evaluate", "list=aggregate"])
    assert "aggregate=kemeny" in capsys.readouterr().out
    with pytest.raises(
        SystemExit, match=r"use one of train, .*, export, data; did you mean evaluate\?"
    ):
        cli.main(["evalute"])
    with pytest.raises(SystemExit, match=r"takes no -m: give several alphas as alpha=\[1,0\.5,0\]"):
        cli.main(["rerank", "-m", "alpha=1,0"])


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_an_export_names_the_package_that_is_missing(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for present in {"onnx", "onnxscript"} - {
        package
    }:  # which are imported first, and may not be installed either
        monkeypatch.setitem(sys.modules, present, ModuleType(present))
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("onnx_export", "onnx_check"):
        monkeypatch.delitem(sys.modules, f"backpack_rank.integrations.{module}", raising=False)
    with pytest.raises(
        UsageError, match=rf"the export needs {package}: pip install '\.\[onnx\]' in the checkout"
    ):
        cli.main(["export", "onnx", "folder"])


def called(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A script of the checkout, or the console script as pip writes it, in a process of its own."""
    command = [sys.executable, str(ROOT / script) if script.endswith(".py") else script, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


@pytest.fixture
def console_script(tmp_path: Path) -> str:
    path = tmp_path / "backpack-rank"
    path.write_text("import sys\nfrom backpack_rank.cli import main\nsys.exit(main())\n")
    return str(path)


@pytest.mark.processes
def test_help_and_mistakes_name_the_command_that_was_typed(console_script: str) -> None:
    for command, typed, other in (
        (["train.py"], "python train.py", "backpack-rank train"),
        ([console_script, "train"], "backpack-rank train", "python train.py"),
    ):
        shown = called(*command, "--help").stdout
        assert f"  {typed} resume=true\n" in shown
        assert other not in shown
        refused = called(*command, "sed=1")
        assert refused.returncode == 2
        assert refused.stderr.startswith(
            f"sed: {typed.removeprefix('python ')} has no such option; did you mean seed"
        )
        nowhere = called(*command, "data.train.x=1", "data=synthetic")
        assert nowhere.returncode == 2, nowhere.stderr
        assert other not in nowhere.stderr


@pytest.mark.processes
def test_the_package_speaks_of_itself_as_it_was_started(console_script: str) -> None:
    """Comments of conf/ name scripts of the checkout; an installed command has none."""
    module = ["-m", "backpack_rank"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command, typed in (
        ([*module], "python -m backpack_rank"),
        ([console_script], "backpack-rank"),
    ):
        for arguments in (
            ["train", "--help"],
            ["evaluate", "--help"],
            ["rerank", "--help"],
            ["evaluate", "list=experiment"],
            ["train", "list=first_stage"],
            ["serve", "--help"],
            ["--help"],
        ):
            done = subprocess.run(
                [sys.executable, *command, *arguments],
                env=environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            assert "train.py" not in done.stdout, arguments
            assert "evaluate.py" not in done.stdout, arguments
            assert arguments[-1] != "--help" or typed in done.stdout
        refused = subprocess.run(
            [sys.executable, *command, "train", "sed=1"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"sed: {typed} train has no such option")


@pytest.mark.processes
def test_a_sentence_on_another_verb_names_it_in_the_same_way(
    console_script: str, tmp_path: Path
) -> None:
    for command, typed in (
        (["evaluate.py"], "python train.py"),
        ([console_script, "evaluate"], "backpack-rank train"),
    ):
        refused = called(*command, f"output={tmp_path / 'none'}")
        assert f"run `{typed}` first" in refused.stderr


@pytest.mark.parametrize(
    "arguments", ["-h", "--version", "train -h", "evaluate list=policy", "serve -h", "export -h"]
)
def test_a_reader_may_leave_before_the_help_ends(console_script: str, arguments: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as when `head` has its lines
    command = [sys.executable, console_script, *arguments.split()]
    for buffered in ("", "1"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": buffered}
        done = subprocess.run(
            command, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
    os.close(writing)


def test_what_is_to_be_installed_is_a_name_that_pip_finds() -> None:
    """The project is on no package index: an extra is installed from the checkout."""
    section = (
        (ROOT / "pyproject.toml")
        .read_text()
        .partition("[project.optional-dependencies]\n")[2]
        .partition("\n[")[0]
    )
    extras = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE))
    pages = [
        *ROOT.glob("docs/*.md"),
        ROOT / "README.md",
        *ROOT.glob("conf/**/*.yaml"),
        *ROOT.glob("backpack_rank/**/*.py"),
    ]
    advised = 0
    for page in pages:
        text = page.read_text()
        assert "install 'backpack-rank[" not in text, page
        for extra in re.findall(r"""pip install '\.\[([\w,]+)\]'|install\(["'](\w+)["']\)""", text):
            assert set("".join(extra).split(",")) <= extras, page
            advised += 1
    assert advised >= 8


@pytest.mark.parametrize("value", ["none.trec", "[none.trec]", "[{there},none.trec]"])
def test_a_run_that_is_not_there_is_named_before_torch_is_imported(
    value: str, tmp_path: Path
) -> None:
    there = tmp_path / "there.trec"
    there.write_text("q Q0 d 1 1 x\n")
    given = value.format(there=there)
    program = (
        "import sys\nfrom backpack_rank import cli\n"
        f"try:\n    cli.main(['evaluate', 'run={given}', 'data=synthetic'])\n"
        "finally:\n    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "run=none.trec: there is no such file\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("evaluate checkpoint=./none", "checkpoint=./none: there is no such folder"),
        ("evaluate data=beir data.folder=none", "data.folder=none: there is no such folder"),
        ("train data=beir data.folder=none", "data.folder=none: there is no such folder"),
        ("evaluate bias.groups=[field:group,/none]", "bias.groups=/none: there is no such file"),
        ("evaluate first_stage=run first_stage.path=none", "first_stage.path=none: there is no"),
        ("evaluate data=pairs data.query=search", "data=pairs needs data.file. A table with a row"),
        ("calibrate /none", "checkpoint=/none: there is no such folder"),
        ("serve /none", "/none: there is no such folder"),
        ("export onnx ./none", "./none: there is no such folder"),
    ],
)
def test_what_is_not_there_is_named_before_torch_is_imported(arguments: str, sentence: str) -> None:
    program = (
        "import sys\nfrom backpack_rank import cli\n"
        f"try:\n    cli.main({arguments.split()!r})\n"
        "finally:\n    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.splitlines()) == 1


def test_names_of_runs_in_quotes_and_those_that_are_there_go_on(tmp_path: Path) -> None:
    (tmp_path / "a,b.trec").touch()
    (tmp_path / "a.trec").touch()
    check_files(
        parsed(
            [
                f"run='{tmp_path}/a,b.trec'",
                f"run={tmp_path}/a.trec",
                "run=null",
                "run=${oc.env:RUN}",
                "run=[first_stage]",
                "checkpoint=cross-encoder/none",
                "checkpoint=http://127.0.0.1:1",
                "bias.lexicon=gender_words",
                "-m",
            ]
        )
    )
