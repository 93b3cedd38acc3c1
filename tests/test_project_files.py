"""Files for people, services and programs around the code: what they name is there, and they agree."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from backpack_rank import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def steps(workflow: Path) -> list[dict]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_make_and_nothing_else(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    for command in commands:
        program, target = command.split()
        assert program == "make"
        assert target in TARGETS


def test_there_is_a_workflow_for_lint_tests_docs_and_the_wheel() -> None:
    assert {path.stem for path in WORKFLOWS} == {"lint", "test", "docs", "wheel"}


def test_the_tests_run_on_every_python_that_the_package_names() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]
    tested = matrix["strategy"]["matrix"]["python"]
    named = [
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if re.search(r"Python :: 3\.\d+$", line)
    ]
    assert tested == named == ["3.10", "3.11", "3.12", "3.13", "3.14"]


def test_the_oldest_versions_are_the_lower_bounds_of_every_dependency() -> None:
    oldest = {}
    for line in (ROOT / "constraints" / "oldest.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, _, version = line.partition("==")
            oldest[name] = version
    named = {}
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        (lowest,) = [bound for bound in requirement.specifier if bound.operator == ">="]
        named[requirement.name.lower().replace("_", "-")] = Version(lowest.version)
    assert {name: Version(version) for name, version in oldest.items()} == named


def test_the_versions_and_titles_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    assert citation["version"] == zenodo["version"] == PROJECT["version"] == __version__
    assert citation["title"] == zenodo["title"]
    assert citation["license"] == zenodo["license"] == PROJECT["license"]
    assert citation["authors"] == zenodo["creators"]
    paper = citation["references"][0]
    assert paper["title"] == "Controlling Gender Bias in Retrieval via a Backpack Architecture"
    assert paper["url"] == PROJECT["urls"]["Paper"] == "https://arxiv.org/abs/2511.00875"
    assert zenodo["related_identifiers"][0]["identifier"] == "arXiv:2511.00875"


def test_the_changelog_begins_with_this_version_and_its_day() -> None:
    first = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert re.fullmatch(rf"{re.escape(PROJECT['version'])} \(\d{{4}}-\d\d-\d\d\)", first[1])


def test_hooks_before_a_commit_run_what_make_lint_runs() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    tools = {" ".join(hook["entry"].split()[:2]) for hook in repository["hooks"]}
    assert tools == {".venv/bin/ruff check", ".venv/bin/ruff format", ".venv/bin/mypy"}
    for tool in tools:
        assert tool.replace(".venv/bin", "$(BIN)") in (ROOT / "Makefile").read_text()


def test_issue_forms_have_what_github_asks_for() -> None:
    forms = [
        path
        for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")
        if path.stem != "config"
    ]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text())
        assert form.keys() >= {"name", "description", "body"}
        ids = [part["id"] for part in form["body"]]
        assert len(ids) == len(set(ids))
        assert {part["type"] for part in form["body"]} <= {"textarea", "input"}


def test_the_development_container_is_one_json_object_and_calls_make() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    program, target = container["postCreateCommand"].split()
    assert (program, target in TARGETS) == ("make", True)


def test_the_hosted_site_is_built_as_make_docs_builds_it() -> None:
    settings = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert (ROOT / settings["sphinx"]["configuration"]).is_file()
    assert settings["sphinx"]["fail_on_warning"]
    installed = settings["build"]["jobs"]["install"][-1]
    make = (ROOT / "Makefile").read_text()
    (extra,) = re.findall(r"'\.\[(\w+)\]'", installed)
    assert f"--editable '.[{extra}]'" in make.partition("$(INTEGRATIONS): ")[2].partition("\n\n")[0]
    assert settings["build"]["tools"]["python"] in {
        line.rpartition(" ")[2] for line in PROJECT["classifiers"]
    }


def test_agents_are_told_targets_and_files_that_exist() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.split()) <= 300
    for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE):
        assert target in TARGETS
    for path in re.findall(r"`((?:tests|docs|conf|backpack_rank)/[\w/.]*)`", text):
        assert (ROOT / path).exists(), path
