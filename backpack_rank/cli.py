"""The command line: ``backpack-rank train|evaluate ...``, as train.py and evaluate.py do it, and the server.

Help, lists of choices and mistyped options are answered from conf/ before Hydra and torch are imported.
"""

from __future__ import annotations

import difflib
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from backpack_rank.files import resource_folder
from backpack_rank.pipelines.stopping import one_line_when_stopped

if TYPE_CHECKING:
    from omegaconf import DictConfig

EXAMPLES = {
    "train": (
        ("python train.py", "the default: a small Backpack on the synthetic collection, a few minutes on a CPU"),
        ("python train.py model=gpt2_tiny seed=1", "another ranker, another seed"),
        ("python train.py data=beir data.folder=my_collection", "your own collection, in BEIR's layout"),
        ("python train.py data=msmarco trainer=gpu logger=wandb", "a collection of ir_datasets, on a GPU"),
        ("python train.py model=backpack model.ranker.name=FOLDER", "a Backpack over any pretrained model"),
        ("python train.py teacher=run teacher.files=[run.trec]", "learn from another system's scores"),
        ("python train.py resume=true", "go on with the last interrupted run"),
        ("python train.py -m seed=0,1,2 model=backpack_tiny,gpt2_tiny", "several runs, one after the other"),
    ),
    "evaluate": (
        ("python evaluate.py", "the ranker trained last, as it is"),
        ("python evaluate.py alpha=0.5", "the dial: 1 leaves the ranker as it is, 0 removes all that the policy can"),
        ("python evaluate.py alpha=0 policy=paired_tokens", "another policy for what alpha turns"),
        ("python evaluate.py -m alpha=1,0.5,0 policy=lowest_senses,paired_tokens", "a sweep: tables, charts, a page"),
        ("python evaluate.py alpha=auto \"budget='nDCG@10 loss<=1%'\"", "choose alpha on the dev split"),
        ("python evaluate.py run=[a.trec,b.trec] data=dl19", "compare finished runs of any system"),
        ("python evaluate.py explain.query=TEXT explain.document=TEXT", "where one score comes from"),
        ("python evaluate.py experiment=fair_retrieval/table1", "a table of a paper"),
    ),
}
"""From simple to advanced."""
RENAMED = {
    "warmup": "pretraining",
    "training.warmup_share": "training.warmup_ratio",
    "task.warmup_share": "task.warmup_ratio",
    "training.new_rate": "training.head_learning_rate",
    "model.recommended.new_rate": "model.recommended.head_learning_rate",
    "model.recommended.warmup_epochs": "model.recommended.pretraining_epochs",
    "policy.where": "policy.scope",
    "wordings": "variants",
    "start.senses": "start.weights",
    "task.table": "task.published",
    "data=embedded": "data=synthetic",
    "~data.first_stage": "first_stage=bm25, first_stage=run first_stage.path=FILE or another of conf/first_stage",
    "+data.first_stage": "first_stage=bm25, first_stage=run first_stage.path=FILE or another of conf/first_stage",
    "model=bm25": "run=FILE or first_stage=bm25",
    "task=language_model": "pretraining.epochs=N",
}
"""Options as they were called in version 0.1, and what they are called now."""
_OVERRIDE = re.compile(r"(?P<mark>[+~]*)(?P<key>[A-Za-z][\w./@-]*)(?:=(?P<value>.*))?", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script ``backpack-rank``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    verbs = {"train": train, "evaluate": evaluate, "serve": serve}
    if given[:1] in (["-h"], ["--help"], []):
        print("backpack-rank train|evaluate [OPTION=VALUE ...]\n")
        print("train     trains a ranker             backpack-rank train --help")
        print("evaluate  measures a ranker or runs   backpack-rank evaluate --help")
        print("serve     answers rerank requests     backpack-rank serve --help")
        return
    if given == ["--version"]:
        from backpack_rank import __version__

        print(f"backpack-rank {__version__}")
        return
    if given[0] not in verbs:
        raise SystemExit(f"backpack-rank {given[0]}: use one of {', '.join(verbs)}{_nearest(given[0], verbs)}")
    verbs[given[0]](given[1:])


def train(arguments: Sequence[str] | None = None) -> None:
    """``python train.py``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with one_line_when_stopped("train", given):
        if not answered("train", given):
            _run("train", given)


def evaluate(arguments: Sequence[str] | None = None) -> None:
    """``python evaluate.py``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with one_line_when_stopped("evaluate", given):
        if not answered("evaluate", given):
            _run("evaluate", given)


def serve(arguments: Sequence[str] | None = None) -> None:
    """``backpack-rank serve``: an HTTP server for one ranker or several."""
    import argparse

    parser = argparse.ArgumentParser(
        "backpack-rank serve",
        description="Answer rerank requests over HTTP, at any alpha. docs/serving.md describes requests and answers.",
    )
    parser.add_argument("ranker", nargs="?", help="folder or hub id; default: the ranker trained last")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="serve this too, under this name",
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s, this machine alone")
    parser.add_argument("--port", type=int, default=8000, help="default: %(default)s; 0 takes a free one")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--attribute", default="gender", help="whose words policies are about (conf/attribute)")
    parser.add_argument("--examples-run", metavar="RUN", help="TREC run whose queries the page at / offers")
    parser.add_argument("--examples-data", metavar="FOLDER", help="its collection, a folder in BEIR's layout")
    parser.add_argument("--api-key-file", metavar="FILE", help="bearer key; default: BACKPACK_RANK_API_KEY")
    parser.add_argument("--no-key", action="store_true", help="no key, though other machines reach the server")
    parser.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help="name in the Host header")
    parser.add_argument("--cors-origin", action="append", default=[], metavar="URL", help="let pages from there read")
    parser.add_argument("--allow-amplification", action="store_true", help="take alpha above 1")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="default: %(default)s")
    limits = {"documents": 1_000, "body": 8_000_000, "queue-tokens": 1_000_000, "requests": 256}
    for name, default in limits.items():
        parser.add_argument(f"--max-{name}", type=int, default=default, metavar="N", help="default: %(default)s")
    options = parser.parse_args(sys.argv[2:] if arguments is None else arguments)
    try:
        from backpack_rank.serving.command import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "starlette", "prometheus_client"):
            raise
        raise SystemExit(f"the server needs {error.name}: pip install 'backpack-rank[serve]'") from error
    run(options)


def answered(script: str, arguments: Sequence[str]) -> bool:
    """Whether the command line asked for help or a list, which is then printed.

    Raises:
        SystemExit: an option or a choice that does not exist, with the nearest that does.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        print(help_text(script))
        return True
    for argument in arguments:
        if argument.startswith("list="):
            print(choices_text(script, argument.partition("=")[2]))
            return True
    check_options(script, arguments)
    return False


def help_text(script: str) -> str:
    """What ``--help`` prints."""
    what = {
        "train": "Train a ranker.",
        "evaluate": "Measure a ranker, at any position of the dial alpha, or run files.",
    }
    lines = [
        what[script],
        "",
        f"python {script}.py [OPTION=VALUE ...]      -m: several values, separated by commas",
        "",
    ]
    for command, meaning in EXAMPLES[script]:
        lines += [f"  {command}", f"      {meaning}"]
    lines += ["", f"Groups of options; python {script}.py list=GROUP shows the choices:", ""]
    groups = groups_of(script)
    width = max(map(len, groups))
    for group, comment in groups.items():
        lines += textwrap.wrap(
            f"  {group:{width}}  {comment}", 100, subsequent_indent=" " * (width + 4), break_long_words=False
        )
    lines += ["", f"Every option is described in {resource_folder('conf') / f'{script}.yaml'}."]
    lines += [f"What would run, without running it: python {script}.py ... --cfg job"]
    return "\n".join(lines)


def groups_of(script: str) -> dict[str, str]:
    """Config groups of a script, with the comment beside each in its defaults list."""
    text = (resource_folder("conf") / f"{script}.yaml").read_text(encoding="utf-8")
    part = text.partition("defaults:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^  - (\w+): (\S+)[ \t]*(?:# (.*))?$", part, re.MULTILINE)
    return {name: " ".join(filter(None, (f"[{default}]", comment))) for name, default, comment in found}


def choices(group: str) -> dict[str, str]:
    """The choices of a config group, ``{name: first comment line}``; sorted."""
    folder = resource_folder("conf") / group
    return {
        file.relative_to(folder).with_suffix("").as_posix(): _description(file)
        for file in sorted(folder.rglob("*.yaml"))
    }


def choices_text(script: str, group: str) -> str:
    """What ``list=GROUP`` prints; the plural of a group's name counts too.

    Raises:
        SystemExit: the script has no such group.
    """
    groups = groups_of(script)
    for name in (group, group.removesuffix("s"), re.sub("ies$", "y", group)):
        if name in groups:
            found = choices(name)
            width = max(map(len, found))
            wrapped = [
                textwrap.wrap(f"{name}={choice:{width}}  {text}".rstrip(), 118, subsequent_indent=" " * 6)
                for choice, text in found.items()
            ]
            return "\n".join(line for lines in wrapped for line in lines)
    raise SystemExit(
        f"list={group}: {script}.py has no such group{_nearest(group, groups)} (groups: {', '.join(groups)})"
    )


def check_options(script: str, arguments: Sequence[str]) -> None:
    """Refuse options that do not exist, and name the nearest ones.

    Raises:
        SystemExit: with one sentence.
    """
    groups, known = groups_of(script), _options(script)
    if any(argument.startswith(("--config", "-cd", "-cn", "-cp")) for argument in arguments):
        return  # files of the user's own
    for argument in arguments:
        found = _OVERRIDE.fullmatch(argument)
        if found is None or argument.startswith("-") or not (found["mark"] or found["value"] is not None):
            continue
        mark, key, value = found["mark"], found["key"], found["value"]
        _refuse_renamed(mark, key, value)
        key = key.partition("@")[0]
        if key in groups and value is not None:
            _check_choice(key, value)
        elif not mark and key not in groups and key.partition(".")[0] not in known and "/" not in key:
            raise SystemExit(f"{key}: {script}.py has no such option{_nearest(key, known)}; see --help")
        elif not mark and "." in key:
            _check_nested(script, key, arguments)


def _run(script: str, arguments: list[str]) -> None:
    """Compose the configuration by Hydra and do the work."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from backpack_rank.pipelines import jobs, unfinished
    from backpack_rank.pipelines.errors import friendly_errors
    from backpack_rank.pipelines.output_folder import command_of, register_resolvers

    with friendly_errors():
        command = command_of(script, arguments, str(_options(script)["output"]))

    def job(config: DictConfig) -> Any:
        state = HydraConfig.get()
        folder, options = Path(state.runtime.output_dir), list(state.overrides.task)
        if state.mode == RunMode.MULTIRUN:
            return jobs.one_of_several(script, config, folder, options, command)
        return jobs.alone(script, config, folder, options)

    register_resolvers(command)
    flags = ["-m"] if command.multirun else []  # argparse wants them first
    sys.argv = [f"{script}.py", *flags, *command.options]
    hydra.main(version_base="1.3", config_path=str(resource_folder("conf")), config_name=script)(job)()
    for folder in unfinished.held():  # of a multirun whose jobs have all gone well
        unfinished.finish(folder)


def _refuse_renamed(mark: str, key: str, value: str | None) -> None:
    for old, new in RENAMED.items():
        marked = old[0] in "+~"  # the whole node is meant; +data.first_stage.depth=10 is still an option of the data
        whole = f"{mark}{key}" if marked else key
        nested = whole.startswith(f"{old}.") and not marked
        if whole == old or nested or f"{key}={value}" == old:
            rest = whole.removeprefix(old) if nested and "=" not in new else ""
            raise SystemExit(f"{mark}{key}{'' if value is None else f'={value}'}: this is now called {new}{rest}")


def _check_choice(group: str, value: str) -> None:
    found = choices(group)
    for name in value.strip("[]").split(","):
        name = name.strip().removesuffix(".yaml")
        if name and name != "null" and re.fullmatch(r"[\w/-]+", name) and name not in found:
            listed = f"; list={group} shows all" if len(found) > 6 else f" (choices: {', '.join(found)})"
            raise SystemExit(f"{group}={name}: there is no such choice{_nearest(name, found)}{listed}")


def _check_nested(script: str, key: str, arguments: Sequence[str]) -> None:
    """Whether a dotted option is in the files that the command line chooses; what they interpolate is not followed."""
    first, _, rest = key.partition(".")
    chosen = {argument.partition("=")[0]: argument.partition("=")[2] for argument in arguments}
    if "experiment" in chosen:
        return  # which brings options of its own
    node: Any = _options(script).get(first)
    if first in groups_of(script):
        name = chosen.get(first) or groups_of(script)[first].partition("]")[0].strip("[")
        file = resource_folder("conf") / first / f"{name}.yaml"
        if "experiment" in chosen or not file.is_file():
            return  # the experiment may bring more, or there are several
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        if "defaults" in content:
            return
        node = {**content, **(node or {})}
    part = first
    for name in rest.split("."):
        if not isinstance(node, Mapping):
            return
        if name not in node:
            raise SystemExit(
                f"{key}: {part} has no option {name}{_nearest(name, node)}; +{key}=... adds it all the same"
            )
        node, part = node[name], f"{part}.{name}"


def _options(script: str) -> dict[str, Any]:
    """Options of a script's own file, and its groups; texts of the file as they are."""
    content = yaml.safe_load((resource_folder("conf") / f"{script}.yaml").read_text(encoding="utf-8"))
    known = {name: value for name, value in content.items() if name != "defaults"}
    return {**dict.fromkeys(groups_of(script)), **known, "hydra": None, "list": None, "prompt": None}


def _nearest(name: str, known: Any) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def _description(file: Path) -> str:
    """The first sentence of a file's comment, without the command in it."""
    comments = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# @package"):
            continue
        if not line.startswith("#"):
            break
        comments.append(line.removeprefix("#").strip())
    return re.split(r"(?<=[.;])\s|: python ", " ".join(comments), maxsplit=1)[0].rstrip(":;")
