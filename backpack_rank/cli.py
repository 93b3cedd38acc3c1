"""The command line: ``backpack-rank VERB ...``, as train.py and evaluate.py do it too, and the server.

Help, lists of choices and mistyped options are answered from conf/ before Hydra and torch are imported.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backpack_rank._gc import exit_without_gc, without_gc
from backpack_rank.checks import UsageError
from backpack_rank.commands import called, install, program
from backpack_rank.files import resource_folder
from backpack_rank.options import (
    check_files,
    check_grammar,
    check_options,
    choices,
    groups_of,
    nearest,
    own_options,
    quoted,
)
from backpack_rank.pipelines.stopping import one_line_when_stopped
from backpack_rank.progress import printable

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from omegaconf import DictConfig

EXAMPLES = {
    "train": (
        ("", "the default: a small Backpack on the synthetic collection, a few minutes on a CPU"),
        ("model=gpt2_tiny seed=1", "another ranker, another seed"),
        ("data=beir data.folder=my_collection", "your own collection, in BEIR's layout"),
        ("data=msmarco trainer=gpu logger=wandb", "a collection of ir_datasets, on a GPU"),
        ("model=backpack model.ranker.name=FOLDER", "a Backpack over any pretrained model"),
        ("teacher=run teacher.files=[run.trec]", "learn from another system's scores"),
        ("resume=true", "go on with the last interrupted run"),
        ("-m seed=0,1,2 model=backpack_tiny,gpt2_tiny", "several runs, one after the other"),
    ),
    "evaluate": (
        ("", "the ranker trained last, as it is"),
        ("alpha=0.5", "the dial: 1 leaves the ranker as it is, 0 removes all that the policy can"),
        ("alpha=0 policy=renditions", "another policy for what alpha turns"),
        ("-m alpha=1,0.5,0 policy=lowest_senses,uniform", "a sweep: tables, charts, a page"),
        ("alpha=auto \"budget='nDCG@10 loss<=1%'\"", "choose alpha on the dev split"),
        ("run=[a.trec,b.trec] data=dl19", "compare finished runs of any system"),
        ("explain.query=TEXT explain.document=TEXT", "where one score comes from"),
        ("experiment=fair_retrieval/table1", "a table of a paper"),
    ),
    "rerank": (
        ("", "the ranker trained last over its first stage, by a process for each core"),
        ("run=bm25.trec data=beir data.folder=my_collection", "the documents of a run"),
        ("run=bm25.trec data=dl19 alpha=[1,0.5,0]", "a run for each alpha"),
        ("run=bm25.trec data=dl19 action=plan folder=FOLDER shards=200", "only cut it into shards"),
        ("run=bm25.trec data=dl19 action=score folder=FOLDER shard=7", "a shard, in an array job"),
        ("action=status folder=FOLDER", "what is scored and what is open"),
        ("action=merge folder=FOLDER", "the runs, once all is scored"),
        ("run=bm25.trec data=dl19 engine=datatrove executor=slurm", "shards as tasks of datatrove"),
    ),
    "retrieve": (
        ("data=beir data.folder=my_collection output=bm25.trec", "BM25's run of a collection, to measure or rank anew"),
        ("data=dl19 split=dev output=dev.trec.gz", "the candidates of another split"),
        ("data=dl19 first_stage=bm25 first_stage.depth=1000", "BM25 where the data bring candidates of their own"),
        ("data=beir data.folder=my_collection first_stage=dense first_stage.checkpoint=FOLDER", "a dual encoder's run"),
    ),
}
"""Options of each verb and what they do, from simple to advanced."""
VERBS = {
    "train": "trains a ranker",
    "evaluate": "measures a ranker or runs",
    "rerank": "ranks a large run anew",
    "retrieve": "writes a run of BM25",
    "serve": "answers rerank requests",
    "export": "writes a ranker as ONNX",
}


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Print the sentence of a wrong command line, which the interpreter does not do for a status other than 1."""
    try:
        yield
    except UsageError as error:
        print(printable(str(error)), file=sys.stderr)
        raise


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script ``backpack-rank``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    functions = (train, evaluate, rerank, retrieve, serve, export)
    verbs = {function.__name__: function for function in functions}
    if given[:1] in (["-h"], ["--help"], []):
        lines = [f"{verb:9} {what:27} backpack-rank {verb} --help" for verb, what in VERBS.items()]
        tell("\n".join([f"backpack-rank {'|'.join(VERBS)} ...", "", *lines]))
        return
    if given == ["--version"]:
        from backpack_rank import __version__

        tell(f"backpack-rank {__version__}")
        return
    if given[0] not in verbs:
        with _one_sentence():
            raise UsageError(f"backpack-rank {given[0]}: use one of {', '.join(verbs)}{nearest(given[0], verbs)}")
    verbs[given[0]](given[1:])


def tell(text: str) -> None:
    """Print what was asked for; a reader that leaves early, such as ``head``, has what it wanted."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def train(arguments: Sequence[str] | None = None) -> None:
    """``python train.py``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with one_line_when_stopped("train", given), _one_sentence():
        if not answered("train", given):
            _run("train", given)


def evaluate(arguments: Sequence[str] | None = None) -> None:
    """``python evaluate.py``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with one_line_when_stopped("evaluate", given), _one_sentence():
        if not answered("evaluate", given):
            _run("evaluate", given)


def rerank(arguments: Sequence[str] | None = None) -> None:
    """``backpack-rank rerank``."""
    given = list(sys.argv[2:] if arguments is None else arguments)
    with _one_sentence():
        if answered("rerank", given):
            return
        if {"-m", "--multirun"} & set(given):
            raise UsageError("takes no -m: give several alphas as alpha=[1,0.5,0]")
        try:
            _run("rerank", given)
        except KeyboardInterrupt:
            print("stopped; the same command goes on", file=sys.stderr)
            raise SystemExit(130) from None


def retrieve(arguments: Sequence[str] | None = None) -> None:
    """``backpack-rank retrieve``."""
    given = list(sys.argv[2:] if arguments is None else arguments)
    with one_line_when_stopped("retrieve", given), _one_sentence():
        if not answered("retrieve", given):
            if {"-m", "--multirun"} & set(given):
                raise UsageError("backpack-rank retrieve takes no -m: each run is a command of its own")
            _run("retrieve", given)


def serve(arguments: Sequence[str] | None = None) -> None:
    """``backpack-rank serve``: an HTTP server for one ranker or several."""
    parser = _parser(
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
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16", "int8", "auto"])
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
    with _one_sentence():
        try:
            with without_gc():
                from backpack_rank.serving.command import run
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "starlette", "prometheus_client"):
                raise
            raise UsageError(f"the server needs {error.name}: {install('serve')}") from error
        run(options)


def export(arguments: Sequence[str] | None = None) -> None:
    """``backpack-rank export onnx``: a saved ranker for ONNX Runtime, and what runs it."""
    given = list(sys.argv[2:] if arguments is None else arguments)
    parser = _parser(
        "backpack-rank export",
        description="Write a saved ranker as an ONNX graph with the dial as an input: docs/onnx.md.",
    )
    parser.add_argument("format", choices=["onnx"])
    parser.add_argument("ranker", help="folder of a run or of a ranker, or hub id")
    parser.add_argument("--output", metavar="FOLDER", help="default: onnx in the folder of the ranker")
    parser.add_argument("--int8", action="store_true", help="also write model_int8.onnx, and say how far off it is")
    parser.add_argument(
        "--wide",
        action="store_true",
        help="without senses: alpha also moves titles, occupations and kinship",
    )
    parser.add_argument("--attribute", default="gender", help="whose words alpha moves (conf/attribute)")
    options = parser.parse_args(given)
    with one_line_when_stopped("export", given), _one_sentence():
        try:
            from backpack_rank.integrations.onnx_export import run
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in ("onnx", "onnxscript", "onnxruntime"):
                raise
            raise UsageError(f"the export needs {package}: {install('onnx')}") from error
        run(options)


def _parser(program: str, description: str) -> ArgumentParser:
    """A parser whose help may be read in part."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def print_help(self, file: Any = None) -> None:
            tell(self.format_help().rstrip())

    return Parser(program, description=description)


def answered(script: str, arguments: Sequence[str]) -> bool:
    """Whether the command line asked for help or a list, which is then printed.

    Raises:
        UsageError: an option or a choice that does not exist, with the nearest that does.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        tell(help_text(script))
        return True
    for argument in arguments:
        if argument.startswith("list="):
            tell(choices_text(script, argument.partition("=")[2]))
            return True
    check_options(script, arguments)
    check_files(arguments)
    return False


def help_text(script: str) -> str:
    """What ``--help`` prints."""
    what = {
        "train": "Train a ranker.",
        "evaluate": "Measure a ranker, at any position of the dial alpha, or run files.",
        "rerank": "Rank the documents of a large run anew, in shards: what is killed goes on by the same command.",
        "retrieve": "Write the candidates of a collection, of BM25 or another first stage, as a TREC run.",
    }
    command = called(script)
    several = "      -m: several values, separated by commas" if script in ("train", "evaluate") else ""
    lines = [what[script], "", f"{command} [OPTION=VALUE ...]{several}", ""]
    for options, meaning in EXAMPLES[script]:
        lines += [f"  {command} {options}".rstrip(), f"      {meaning}"]
    lines += ["", f"Groups of options; {command} list=GROUP shows the choices:", ""]
    groups = groups_of(script)
    width = max(map(len, groups))
    for group, comment in groups.items():
        lines += textwrap.wrap(
            f"  {group:{width}}  {comment}", 100, subsequent_indent=" " * (width + 4), break_long_words=False
        )
    lines += ["", f"Every option is described in {resource_folder('conf') / f'{script}.yaml'}."]
    lines += [f"What would run, without running it: {command} ... --cfg job"]
    return "\n".join(lines)


def choices_text(script: str, group: str) -> str:
    """What ``list=GROUP`` prints; the plural of a group's name counts too.

    Raises:
        UsageError: the script has no such group.
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
    raise UsageError(
        f"list={group}: {program(script)} has no such group{nearest(group, groups)} (groups: {', '.join(groups)})"
    )


def _run(script: str, arguments: list[str]) -> None:
    """Compose the configuration by Hydra and do the work."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from backpack_rank.pipelines import hydra_jobs, jobs, unfinished
    from backpack_rank.pipelines.errors import friendly_errors, set_up_log
    from backpack_rank.pipelines.output_folder import command_of, register_resolvers

    if script != "train":  # loaders and loggers of a training may wait for the collector to close them
        exit_without_gc()
    set_up_log()
    arguments = quoted(arguments)
    check_grammar(arguments)
    if script in _WITHOUT_FOLDER:
        hydra_jobs.run(script, arguments, _WITHOUT_FOLDER[script])
        return
    with friendly_errors():
        command = command_of(script, arguments, str(own_options(script)["output"]))

    def job(config: DictConfig) -> Any:
        state = HydraConfig.get()
        with friendly_errors():  # an option may name one that is not there
            folder, options = Path(state.runtime.output_dir), list(state.overrides.task)
        if state.mode == RunMode.MULTIRUN:
            return jobs.one_of_several(script, config, folder, options, command)
        return jobs.alone(script, config, folder, options)

    register_resolvers(command)
    hydra_jobs.run(script, [*(["-m"] if command.multirun else []), *command.options], job)  # argparse wants flags first
    for folder in unfinished.held():  # of a multirun whose jobs have all gone well
        unfinished.finish(folder)


def _rerank(config: DictConfig) -> None:
    from backpack_rank.pipelines.errors import friendly_errors

    with without_gc():
        from backpack_rank.scale.rerank import rerank as rerank_run

    with friendly_errors():
        rerank_run(config)


def _retrieve(config: DictConfig) -> None:
    from backpack_rank.pipelines.errors import friendly_errors

    with without_gc():
        from backpack_rank.pipelines.retrieve import retrieve as retrieve_run

    with friendly_errors():
        retrieve_run(config)


_WITHOUT_FOLDER: Mapping[str, Callable[[DictConfig], None]] = {"rerank": _rerank, "retrieve": _retrieve}
"""Verbs without a folder of Hydra's: a plan says what is done and what is open, and a run is one file."""
