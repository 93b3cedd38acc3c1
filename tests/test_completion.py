"""Completion in real shells: what Tab offers behind what was typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backpack_rank import cli
from backpack_rank.checks import UsageError
from backpack_rank.options import choices, groups_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def offered_words(capsys: pytest.CaptureFixture[str]):
    def words(line: str) -> list[str]:
        cli.main(["completion", "--words", *line.split(" ")])
        return capsys.readouterr().out.split()

    return words


def test_verbs_options_choices_and_options_of_a_choice_are_offered(offered_words) -> None:
    assert offered_words("ev") == ["evaluate"]
    assert offered_words("evaluate policy=pair") == ["policy=paired_tokens"]
    assert offered_words("evaluate -m policy=uniform,pair") == ["policy=uniform,paired_tokens"]
    assert offered_words("train data=") == sorted(f"data={name}" for name in choices("data"))
    assert offered_words("train list=mod") == ["list=model"]
    assert "training.epochs=" in offered_words("train training.e")
    assert offered_words("evaluate explain.document_f") == ["explain.document_file="]
    assert "data.folder=" in offered_words("train data=beir data.")
    assert "data.folder=" not in offered_words("train data=synthetic data.")
    assert offered_words("serve --max-r") == ["--max-requests"]
    assert offered_words("evaluate swap=") == ["swap=false", "swap=true"]


@pytest.mark.slow
def test_every_group_of_every_verb_is_offered(offered_words) -> None:
    for verb in ("train", "evaluate", "rerank", "retrieve", "calibrate"):
        words = offered_words(f"{verb} ")
        for group in groups_of(verb):
            assert f"{group}=" in words


@pytest.mark.parametrize("line", ["walk ", "evaluate run=a.t", "evaluate nothing.", "train =", ""])
def test_what_is_unknown_or_a_file_offers_no_option(line: str, offered_words) -> None:
    assert [word for word in offered_words(line) if "=" in word] == []


def test_another_shell_is_refused() -> None:
    with pytest.raises(UsageError, match="use one of bash, zsh, fish; did you mean fish"):
        cli.main(["completion", "fsh"])


def test_completion_comes_before_torch_and_hydra() -> None:
    program = (
        "import sys\nfrom backpack_rank import cli\n"
        "cli.main(['completion', '--words', 'evaluate', 'policy='])\n"
        "assert not {'torch', 'hydra', 'transformers'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with ``backpack-rank`` on PATH."""
    path = tmp_path / "backpack-rank"
    path.write_text(f"#!{sys.executable}\nfrom backpack_rank.cli import main\nmain()\n")
    path.chmod(0o755)
    search = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": search, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}


def asked(shell: list[str], program: str, environment: dict[str, str]) -> list[str]:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    done = subprocess.run(
        [*shell, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("backpack-rank retr", ["retrieve"]),
        ("backpack-rank evaluate policy=pair", ["paired_tokens"]),  # bash splits words at =
        ("backpack-rank train recipe=minilm mod", ["model.", "model="]),
        ("backpack-rank export ", ["--attribute", "--help", "--int8", "--output", "--wide", "-h"]),
    ],
)
def test_bash_completes(line: str, replies: list[str], environment: dict[str, str]) -> None:
    program = (
        'eval "$(backpack-rank completion bash)"\n'
        f"COMP_LINE='{line}'\nCOMP_POINT=${{#COMP_LINE}}\n"
        "compopt() { :; }\n"  # which only works while bash completes
        '_backpack_rank\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    assert asked(["bash", "--norc"], program, environment) == replies


@pytest.mark.processes
def test_zsh_completes(environment: dict[str, str], tmp_path: Path) -> None:
    """Keys are typed into a shell in a pseudo-terminal, as by a person."""
    script = tmp_path / "backpack-rank"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nfrom backpack_rank.cli import main\n"
        "main() if sys.argv[1] == 'completion' else print(*sys.argv[1:])\n"
    )
    program = (
        f"cd {tmp_path}\n"
        "zmodload zsh/zpty\n"
        "zpty shell 'zsh -f -i'\n"
        'zpty -w shell "PS1=; autoload -Uz compinit; compinit -u -D"\n'
        "zpty -w shell 'eval \"$(backpack-rank completion zsh)\"'\n"
        "zpty -w -n shell $'backpack-rank evaluate policy=pair\\t swap=fa\\t > out\\n'\n"
        "for i in {1..300}; do sleep 0.1; [[ -s out ]] && break; done\n"
        "cat out\n"
    )
    completed = asked(["zsh", "-f"], program, environment)
    assert completed == ["evaluate", "policy=paired_tokens", "swap=false"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("backpack-rank evaluate policy=pair", ["policy=paired_tokens"]),
        ("backpack-rank evaluate data=syn", ["data=synthetic"]),  # and not the file
        ("backpack-rank retr", ["retrieve"]),
        (
            "backpack-rank evaluate run=retr",
            ["run=retrieved.trec"],
        ),  # a file: nothing else is known
    ],
)
def test_fish_completes(
    line: str, replies: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    for name in ("synthesis.md", "retrieved.trec"):
        (tmp_path / name).touch()
    program = f"cd {tmp_path}\nbackpack-rank completion fish | source\ncomplete -C '{line}'\n"
    assert asked(["fish"], program, environment) == replies
