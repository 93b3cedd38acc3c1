"""The command line: ``backpack-rank VERB ...``, and train.py and evaluate.py of a checkout.

From Python, ``cli.main(["evaluate", "alpha=0.5"])`` is ``backpack-rank evaluate alpha=0.5``.

Help, lists, and options and choices that conf/ lacks are answered before Hydra and torch are
imported, so that they come in a tenth of a second.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from backpack_rank._gc import exit_without_gc, without_gc
from backpack_rank._threads import sleep_early
from backpack_rank.checks import UsageError, is_missing_path
from backpack_rank.commands import as_called, called, install, program
from backpack_rank.files import resource_folder
from backpack_rank.options import check_first_names, choices, groups_of, nearest
from backpack_rank.pipelines.stopping import one_line_when_stopped
from backpack_rank.progress import printable

if TYPE_CHECKING:
    from argparse import ArgumentParser

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
    ),
    "retrieve": (
        (
            "data=beir data.folder=my_collection output=bm25.trec",
            "BM25's run of a collection, to measure or rank anew",
        ),
        ("data=dl19 split=dev output=dev.trec.gz", "the candidates of another split"),
        (
            "data=dl19 first_stage=bm25 first_stage.depth=1000",
            "BM25 where the data bring candidates of their own",
        ),
        (
            "data=beir data.folder=my_collection first_stage=dense first_stage.checkpoint=FOLDER",
            "a dual encoder's run",
        ),
    ),
    "calibrate": (
        ("", "the ranker trained last, on the dev split of its data"),
        ("FOLDER data=beir data.folder=my_collection", "any ranker, on your judgements"),
        ("FOLDER method=isotonic alphas=[1,0]", "another map, for two positions of the dial"),
        (
            "checkpoint=ORGANISATION/MODEL output=FOLDER data=dl19 relevant=2",
            "a ranker of the hub; grades from 2 on are relevant",
        ),
    ),
    "vectors": (
        (
            "data=dl19 first_stage=dense first_stage.checkpoint=FOLDER",
            "two vectors of each document, for a database that answers at every alpha",
        ),
        (
            "data=dl19 first_stage=dense first_stage.checkpoint=FOLDER alpha=0.5",
            "its vector at one position of the dial",
        ),
    ),
}
"""Options of each verb and what they do, from simple to advanced."""

VERBS = {
    "train": "trains a ranker",
    "evaluate": "measures a ranker or runs",
    "rerank": "ranks a large run anew",
    "retrieve": "writes a run of BM25",
    "calibrate": "makes scores probabilities",
    "serve": "answers rerank requests",
    "export": "writes ONNX, or vectors",
    "data": "gets public collections",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """For the console script ``backpack-rank``: run the verb that comes first.

    Args:
        arguments: verb and options; None: those that this process was started with.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    verbs: dict[str, Callable[[Sequence[str]], None]] = {
        "train": train,
        "evaluate": evaluate,
        "rerank": rerank,
        "retrieve": retrieve,
        "calibrate": calibrate,
        "serve": serve,
        "export": export,
        "data": data,
    }
    if not given or given[0] in ("-h", "--help"):
        print_text(_usage())
        return
    if given == ["--version"]:
        from backpack_rank import __version__

        print_text(f"backpack-rank {__version__}")
        return
    verb, *options = given
    if verb not in verbs:
        with _print_usage_errors():
            raise UsageError(f"{called(verb)}: use one of {', '.join(verbs)}{nearest(verb, verbs)}")
    verbs[verb](options)


def train(arguments: Sequence[str] | None = None) -> None:
    """For ``python train.py``: train a ranker.

    Args:
        arguments: options; None: those that this process was started with.
    """
    _run("train", arguments)


def evaluate(arguments: Sequence[str] | None = None) -> None:
    """For ``python evaluate.py``: measure a ranker or runs.

    Args:
        arguments: options; None: those that this process was started with.
    """
    _run("evaluate", arguments)


def rerank(arguments: Sequence[str]) -> None:
    """For ``backpack-rank rerank``: rank a large run anew, in shards.

    Args:
        arguments: options.
    """
    # A plan says what is scored and what is open, so there is no folder of Hydra's to be marked.
    with _print_usage_errors():
        try:
            _run_options("rerank", arguments)
        except KeyboardInterrupt:
            print("stopped; the same command goes on", file=sys.stderr)
            raise SystemExit(130) from None


def retrieve(arguments: Sequence[str]) -> None:
    """For ``backpack-rank retrieve``: write the candidates of a first stage as a TREC run.

    Args:
        arguments: options.
    """
    _run("retrieve", arguments)


def calibrate(arguments: Sequence[str]) -> None:
    """For ``backpack-rank calibrate``: make scores of a ranker probabilities of relevance.

    Args:
        arguments: options, before them perhaps the folder of the ranker.
    """
    options = list(arguments)
    if options and "=" not in options[0] and not options[0].startswith("-"):
        options[0] = f"checkpoint={options[0]}"
    _run("calibrate", options)


def serve(arguments: Sequence[str]) -> None:
    """For ``backpack-rank serve``: an HTTP server for one ranker or several.

    Args:
        arguments: flags.
    """
    options = _serve_parser().parse_args(arguments)
    with _print_usage_errors():
        for ranker in (options.ranker, *options.model):
            _check_there("" if ranker is None else ranker.partition("=")[2] or ranker)
        try:
            with without_gc():
                from backpack_rank.serving.command import run
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in ("fastapi", "uvicorn", "starlette", "prometheus_client"):
                raise
            raise UsageError(f"the server needs {error.name}: {install('serve')}") from error
        run(options)


def _check_there(ranker: str) -> None:
    """Refuse a path that leads nowhere, before seconds of imports."""
    if is_missing_path(ranker):
        raise UsageError(f"{ranker}: there is no such folder")


def export(arguments: Sequence[str]) -> None:
    """For ``backpack-rank export onnx``: write a saved ranker for ONNX Runtime.

    Behind ``vectors`` stand options of conf/: write the vectors of a collection.

    Args:
        arguments: flags, or options.
    """
    if arguments and arguments[0] == "vectors":
        _run("vectors", arguments[1:])
        return
    options = _export_parser().parse_args(arguments)
    with one_line_when_stopped("export", arguments), _print_usage_errors():
        _check_there(options.ranker)
        try:
            from backpack_rank.integrations.onnx_export import run
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in ("onnx", "onnxscript", "onnxruntime"):
                raise
            raise UsageError(f"the export needs {package}: {install('onnx')}") from error
        run(options)


def data(arguments: Sequence[str]) -> None:
    """For ``backpack-rank data list`` and ``data get NAME``: public collections as folders.

    Args:
        arguments: flags.
    """
    options = _data_parser().parse_args(arguments)
    with _print_usage_errors():
        from backpack_rank.data.public.command import run
        from backpack_rank.pipelines.errors import friendly_errors, set_up_log

        set_up_log()
        try:
            with friendly_errors():
                run(options)
        except KeyboardInterrupt:
            print("stopped; the same command goes on", file=sys.stderr)
            raise SystemExit(130) from None


def print_text(text: str) -> None:
    """Print what was asked for; a reader that leaves early, such as ``head``, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter flushes standard output once more at its end, into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _print_usage_errors() -> Iterator[None]:
    """Print the sentence of a wrong command line.

    The interpreter prints what ``SystemExit`` says only where its status is 1; that of a mistake
    is 2.
    """
    try:
        yield
    except UsageError as error:
        print(printable(str(error)), file=sys.stderr)
        raise


def _usage() -> str:
    """What ``backpack-rank`` prints without a verb."""
    lines = [f"{called('|'.join(VERBS))} ...", ""]
    for verb, meaning in VERBS.items():
        lines.append(f"{verb:10} {meaning:27} {called(verb)} --help")
    return "\n".join(lines)


def _serve_parser() -> ArgumentParser:
    parser = _parser(
        called("serve"),
        description="Answer rerank requests over HTTP, at any alpha. "
        "docs/serving.md describes requests and answers.",
    )
    add = parser.add_argument

    # What is served.
    add(
        "ranker",
        nargs="?",
        help="folder, hub id, or http://... of another server; default: the ranker trained last",
    )
    add(
        "--model",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="serve this too, under this name",
    )
    add(
        "--server-model",
        metavar="NAME",
        help="of RANKER=http://...: which of its rankers is asked, as hosted ones want it",
    )

    # Where it listens.
    add("--host", default="127.0.0.1", help="default: %(default)s, this machine alone")
    add("--port", type=int, default=8000, help="default: %(default)s; 0 takes a free one")

    # How rankers are loaded, read and shown.
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    formats = ["float32", "bfloat16", "float16", "auto"]
    add("--dtype", default="float32", choices=formats)
    add("--attribute", default="gender", help="whose words policies are about (conf/attribute)")
    add(
        "--long-documents",
        choices=["cut", "chunks"],
        help="what is read of a long document, unless a request says it; default: cut",
    )
    add("--max-chunks-per-doc", type=int, metavar="N", help="with chunks; default: all")
    add("--chunk-overlap", type=int, metavar="TOKENS", help="with chunks; default: 0")
    add("--template", help="how a language model RANKER is asked (conf/template, or YAML)")
    add(
        "--labels",
        metavar="RELEVANT,OTHER",
        help="of a classifier RANKER with two labels, that of relevant documents first",
    )
    add(
        "--pooling",
        choices=["mean", "first", "last"],
        help="how an encoder RANKER without modules makes a vector of a text",
    )
    add(
        "--activation",
        choices=["sigmoid", "calibrated"],
        help="what scores are shown as; calibrated: probabilities of relevance "
        "(docs/explain-a-score.md#scores-as-probabilities); default: sigmoid",
    )
    add("--calibration", metavar="FILE", help="default: calibration.json beside each ranker")

    # The page at /.
    add("--examples-run", metavar="RUN", help="TREC run whose queries the page at / offers")
    add("--examples-data", metavar="FOLDER", help="its collection, a folder in BEIR's layout")

    # Who is answered.
    add("--api-key-file", metavar="FILE", help="bearer key; default: BACKPACK_RANK_API_KEY")
    add("--no-key", action="store_true", help="no key, though other machines reach the server")
    add(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name in the Host header",
    )
    add(
        "--cors-origin",
        action="append",
        default=[],
        metavar="URL",
        help="let pages from there read",
    )

    # What a request may ask for, and for how long.
    add("--allow-amplification", action="store_true", help="take alpha above 1")
    add("--timeout", type=float, default=60.0, metavar="SECONDS", help="default: %(default)s")
    limits = {
        "documents": (1_000, "N", "of a request"),
        "body": (8_000_000, "BYTES", "of a request"),
        "queue-tokens": (1_000_000, "TOKENS", "that wait or are scored at a time"),
        "requests": (256, "N", "that are read, wait or are scored at a time"),
    }
    for name, (default, unit, of_what) in limits.items():
        explained = f"{of_what}; default: %(default)s"
        add(f"--max-{name}", type=int, default=default, metavar=unit, help=explained)
    return parser


def _export_parser() -> ArgumentParser:
    parser = _parser(
        called("export"),
        description="Write a saved ranker as an ONNX graph with the dial as an input: "
        "docs/other-libraries.md#onnx-a-ranker-without-torch. `export vectors` writes those of a "
        "collection: docs/retrieval.md.",
    )
    add = parser.add_argument
    add("format", choices=["onnx"])
    add("ranker", help="folder of a run or of a ranker, or hub id")
    add("--output", metavar="FOLDER", help="default: onnx in the folder of the ranker")
    add(
        "--wide",
        action="store_true",
        help="without senses: alpha also moves titles, occupations and kinship",
    )
    add("--attribute", default="gender", help="whose words alpha moves (conf/attribute)")
    return parser


def _data_parser() -> ArgumentParser:
    parser = _parser(
        called("data"),
        description="Public collections as the folders that options such as data=dl19 read: "
        "list says what there is, its size and licence; get downloads and builds. "
        "docs/data.md",
    )
    add = parser.add_argument
    add("action", choices=["list", "get"])
    add("name", nargs="*", help="of data list; minilm is all that recipe=minilm needs")
    add("--folder", help="default: that of BACKPACK_RANK_DATA, else data")
    add("--mirror", metavar="URL", help="a server that has the files below /HOST/PATH")
    add("--yes", action="store_true", help="ask nothing")
    return parser


ALONE = {
    "rerank": "takes no -m: give several alphas as alpha=[1,0.5,0]",
    "retrieve": "takes no -m: each run is a command of its own",
    "calibrate": "takes no -m: give several alphas as alphas=[1,0.5,0]",
    "vectors": "takes no -m: without alpha, one export serves every alpha",
}
"""Of verbs without ``-m``: what to do instead."""

"""Of verbs that take flags in place of options of conf/."""


def _parser(program: str, description: str) -> ArgumentParser:
    """A parser whose help may be read in part."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def print_help(self, file: Any = None) -> None:
            print_text(self.format_help().rstrip())

    return Parser(program, description=description)


def _run(verb: str, arguments: Sequence[str] | None) -> None:
    """Run a verb that takes options of conf/; a signal ends it with one line."""
    options = sys.argv[1:] if arguments is None else arguments
    with one_line_when_stopped(verb, options), _print_usage_errors():
        _run_options(verb, options)


def _run_options(verb: str, options: Sequence[str]) -> None:
    """Print help or a list of choices where the options ask for it, else do what they say."""
    if "-h" in options or "--help" in options:
        print_text(help_text(verb))
        return
    for option in options:
        if option.startswith("list="):
            print_text(choices_text(verb, option.partition("=")[2]))
            return
    if verb in ALONE and {"-m", "--multirun"} & set(options):
        raise UsageError(f"{called(verb)} {ALONE[verb]}")
    check_first_names(verb, options)
    sleep_early()
    if verb != "train":
        # Loaders and loggers of a training may wait for the collector; nothing here does.
        exit_without_gc()
    # Imported here: help, lists and mistyped names need no Hydra.
    from backpack_rank.pipelines.hydra_jobs import run

    run(verb, options)


def help_text(script: str) -> str:
    """What ``--help`` prints: what the verb does, examples, groups of options."""
    summaries = {
        "train": "Train a ranker.",
        "evaluate": "Measure a ranker, at any position of the dial alpha, or run files.",
        "rerank": "Rank the documents of a large run anew, in shards: "
        "what is killed goes on by the same command.",
        "retrieve": "Write the candidates of a collection, of BM25 or another first stage, "
        "as a TREC run.",
        "calibrate": "Make scores of a ranker probabilities of relevance, and measure at every "
        "alpha how far off they are.",
        "vectors": "Write the vectors of a collection for a database with its own search.",
    }
    command = called(script)
    usage = f"{command} [OPTION=VALUE ...]"
    if script in ("train", "evaluate"):
        usage += "      -m: several values, separated by commas"
    lines = [summaries[script], "", usage, ""]
    for options, meaning in EXAMPLES[script]:
        lines.append(f"  {command} {options}".rstrip())
        lines.append(f"      {meaning}")

    lines += ["", f"Groups of options; {command} list=GROUP shows the choices:", ""]
    groups = groups_of(script)
    width = max(map(len, groups))
    for group, comment in groups.items():
        lines += textwrap.wrap(
            as_called(f"  {group:{width}}  {comment}"),
            width=100,
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
        )

    file = resource_folder("conf") / f"{script}.yaml"
    lines += ["", f"Every option is described in {file}."]
    lines.append(f"What would run, without running it: {command} ... --cfg job")
    return "\n".join(lines)


def choices_text(script: str, group: str) -> str:
    """What ``list=GROUP`` prints; the plural of a group's name counts too.

    Raises:
        UsageError: the script has no such group.
    """
    groups = groups_of(script)
    for name in (group, group.removesuffix("s"), re.sub("ies$", "y", group)):
        if name in groups:
            return _choices_of(name)
    raise UsageError(
        f"list={group}: {program(script)} has no such group{nearest(group, groups)} "
        f"(groups: {', '.join(groups)})"
    )


def _choices_of(group: str) -> str:
    """The choices of a group, each with the first sentence of its file."""
    descriptions = choices(group)
    width = max(map(len, descriptions))
    lines: list[str] = []
    for choice, description in descriptions.items():
        line = as_called(f"{group}={choice:{width}}  {description}".rstrip())
        lines += textwrap.wrap(line, width=118, subsequent_indent=" " * 6)
    return "\n".join(lines)
