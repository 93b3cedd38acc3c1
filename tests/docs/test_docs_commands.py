"""Every command, Python block, option and link of README and docs/ works as it is written there.

All commands are composed. Those on the synthetic collection are run in this process, with a small
trained ranker; those that need a GPU, a download or BACKPACK_RANK_DATA are not, and what needs
another library ("# needs NAME") is run in tests/integrations.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import hydra.utils
import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from workplace import Workplace

from backpack_rank.evaluation.alpha_search import BudgetUnreachableError
from backpack_rank.pipelines.calibrate import calibrate
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.given import quoted
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.pipelines.retrieve import retrieve
from backpack_rank.pipelines.sweep import with_tests
from backpack_rank.reporting.sweep import collect_sweep
from backpack_rank.scale.rerank import rerank

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
DATA = "BACKPACK_RANK_DATA"
SMALL_TEST = ["+data.test.test_queries=12", "+data.test.documents=80"]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OF_REAL_DATA = (
    *("experiment=answer_positions", "experiment=position_buckets", "experiment=passage_rotation"),
    "experiment=lists/capcal",
    "experiment=frontier",  # trains six rankers a seed; end_to_end/test_frontier.py runs it
    "experiment=fair_retrieval/as_coded",  # trains for minutes; end_to_end/test_as_coded.py runs it
    *("listwise=hugging_face", "listwise=openai"),
)
_OPTION = re.compile(r"`\+?([a-z][\w.]*)=((?!\")[^`\s]*)`")  # an argument of Python has quotes


@dataclass(frozen=True)
class Command:
    """A line of a ```bash block."""

    line: str

    @property
    def script(self) -> str:
        return shlex.split(self.line)[1]

    def jobs(self) -> list[list[str]]:
        """Overrides of every job; one without -m."""
        words = [quoted(word) for word in shlex.split(self.line)[2:]]
        if "-m" not in words:
            return [words]
        parsed = OverridesParser.create().parse_overrides([word for word in words if word != "-m"])
        return [list(job) for batch in BasicSweeper.split_arguments(parsed, None) for job in batch]

    @property
    def here(self) -> bool:
        """Whether the small ranker and the synthetic collection are all that it needs."""
        named = re.findall(r"(?<!\S)(?:data|checkpoint)=(\S+)", self.line)
        if self.script in ("rerank", "retrieve", "calibrate"):
            return True  # of these, only what runs here is in a block for bash
        real = any(option in self.line for option in _OF_REAL_DATA)
        own = "data.folder=audit" in self.line or "data.file=pairs.csv" in self.line
        synthetic = set(named) <= {"synthetic"} or own
        return self.script == "evaluate.py" and synthetic and not real


def blocks(page: Path, *kinds: str) -> list[tuple[str, str]]:
    return [
        block for block in _BLOCK.findall(page.read_text(encoding="utf-8")) if block[0] in kinds
    ]


def commands(text: str) -> list[Command]:
    return [
        Command(line) for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]


COMMANDS = [
    (page.stem, command)
    for page in PAGES
    for _, text in blocks(page, "bash")
    for command in commands(text)
]


def composed(script: str, overrides: list[str]) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose(Path(script).stem, overrides=overrides)


def jobs_with_every_value(jobs: list[list[str]]) -> list[list[str]]:
    """Of the jobs of a multirun, those that bring a value which no job before them had."""
    chosen, seen = [], set()
    for overrides in jobs:
        if not seen.issuperset(overrides):
            chosen.append(overrides)
            seen.update(overrides)
    return chosen


def unknown_arguments(node: object) -> list[str]:
    """Keys beside a ``_target_`` that its function does not take."""
    wrong: list[str] = []
    if isinstance(node, list):
        for value in node:
            wrong += unknown_arguments(value)
    if not isinstance(node, dict):
        return wrong
    for value in node.values():
        wrong += unknown_arguments(value)
    if "_target_" in node:
        parameters = inspect.signature(hydra.utils.get_object(node["_target_"])).parameters
        takes_all = any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )
        for key in map(str, node):
            # Keys with an underscore in front are Hydra's.
            if not takes_all and not key.startswith("_") and key not in parameters:
                wrong.append(f"{node['_target_']}: {key}")
    return wrong


def keys(node: object, start: str = "") -> set[str]:
    """Dotted names of everything in a configuration."""
    if not isinstance(node, dict):
        return set()
    own_keys = {f"{start}{key}" for key in node}
    return own_keys.union(*(keys(value, f"{start}{key}.") for key, value in node.items()))


@pytest.fixture(scope="module")
def options() -> set[str]:
    """Every option of all scripts, with every choice of every group."""

    def options_of(script: str, *choices: str) -> set[str]:
        return keys(OmegaConf.to_container(composed(script, list(choices)), resolve=False))

    scripts = ("evaluate.py", "train.py", "rerank", "calibrate", "vectors")
    known = set().union(*(options_of(script) for script in scripts))
    for path in sorted((ROOT / "conf").glob("*/**/*.yaml")):
        group, name = path.relative_to(ROOT / "conf").with_suffix("").as_posix().split("/", 1)
        for script in scripts:
            if f"- {group}:" in (ROOT / "conf" / f"{Path(script).stem}.yaml").read_text():
                known |= options_of(script, f"{group}={name}")
                break  # a file has the same options under every script
    return known


def test_there_are_pages_and_commands() -> None:
    assert len(PAGES) >= 7
    assert len(COMMANDS) > 30


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=lambda value: str(getattr(value, "line", value))
)
def test_every_command_composes(
    page: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA, os.environ.get(DATA, "/nowhere"))
    assert re.fullmatch(
        r"(python (train|evaluate)\.py|backpack-rank (rerank|retrieve|calibrate))\b.*", command.line
    ), f"not run by this test: {command.line}"
    for overrides in jobs_with_every_value(command.jobs()):
        config = composed(command.script, overrides)
        assert not unknown_arguments(OmegaConf.to_container(config, resolve=False))
        if command.script not in ("train.py", "retrieve"):
            hydra.utils.instantiate(config.policy, _convert_="all")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_option_in_the_text_exists(page: Path, options: set[str]) -> None:
    for name, value in _OPTION.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        folder = ROOT / "conf" / name
        if folder.is_dir() and value[:1].islower() and value != "null":
            for choice in value.split("|"):
                assert (folder / f"{choice}.yaml").is_file() or choice == "inverse", (
                    f"{name}={choice}"
                )
        else:
            # task.runs.KNRM is a name of the user's own below an option that is a mapping.
            assert name in options or name.rpartition(".")[0] in {"task.runs"}, f"{name}={value}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_python_of_a_page_run(
    page: Path,
    documented: Workplace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(documented.folder)
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(documented.folder / "cache"))
    names = {"folder": str(documented.newest("train") / "ranker")}
    for number, (kind, text) in enumerate(blocks(page, "bash", "python")):
        if kind == "bash":
            for place, command in enumerate(commands(text)):
                if command.here:
                    jobs = jobs_with_every_value(command.jobs())
                    run(command, jobs, documented, tmp_path / f"{number}-{place}")
        elif "# needs " not in text and (DATA not in text or os.environ.get(DATA)):
            exec(compile(text, f"{page.name}, block {number}", "exec"), names)


def run(command: Command, jobs: list[list[str]], documented: Workplace, folder: Path) -> None:
    if command.script == "retrieve":
        (overrides,) = jobs
        retrieve(composed("retrieve", [*overrides, *SMALL_TEST, f"output={folder / 'first.trec'}"]))
        assert (folder / "first.trec").read_text()
        return
    if command.script == "calibrate":
        (overrides,) = jobs
        path = calibrate(composed("calibrate", [*overrides, f"runs={documented.output}"]))
        assert path.parent == documented.newest("train") / "ranker"
        return
    if command.script == "rerank":
        (overrides,) = jobs
        small = SMALL_TEST if "data=synthetic" in overrides else []
        assert any(
            rerank(
                composed(
                    command.script, [*overrides, *small, f"output={documented.output}", "workers=1"]
                )
            ).iterdir()
        )
        return
    for number, overrides in enumerate(jobs):
        small = SMALL_TEST if "data=synthetic" in overrides else []
        config = composed(command.script, [*overrides, *small, f"output={documented.output}"])
        job = folder / str(number) if len(jobs) > 1 else folder
        # Tables and the page of a ranker are tested elsewhere and take most of the time; those of
        # runs are quick.
        try:
            evaluate(config, job, quiet=len(jobs) > 1 or "run=[" not in command.line)
        except (
            BudgetUnreachableError
        ):  # the budgets of the pages are meant for a ranker of full size
            assert "alpha=auto" in command.line
        else:
            assert any(job.iterdir()), command.line
    if len(jobs) > 1:
        assert len(with_tests(collect_sweep(folder), folder).entries) > len(jobs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue  # nothing is asked of the network
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings
            }, target
