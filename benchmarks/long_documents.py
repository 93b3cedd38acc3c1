"""What a document of 7 MB costs beside one of 10 kB: ``python -m benchmarks.long_documents``.

A query with 100 candidates of 400 characters, one of which is long. ``evaluate.py`` at alpha = 0 of
renditions, swaps and measures of bias included, and ``backpack-rank rerank`` of the same list, in
this process and in turns, by processor time. The ranker is a small one that is trained first; its
cache of senses is empty each time.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rich.console import Console

from backpack_rank.files import resource_folder
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.scale.rerank import rerank
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record
from benchmarks.timing import in_turns

ROOT = Path(__file__).resolve().parents[1]
GOAL = 1.1
CANDIDATES, USUAL, SHORT = 100, 400, 10_000
LONG_ONE = 7
"""Place of the long document in the list."""
WORDS = (
    "she",
    "her",
    "his",
    "he",
    "nurse",
    "doctor",
    "ward",
    "said",
    "that",
    "the",
    "brother",
    "sister",
    "bridge",
)
TRAINING = (
    *(
        "training.epochs=1",
        "pretraining.epochs=0",
        "model.ranker.layers=2",
        "model.ranker.hidden_size=64",
    ),
    *("model.ranker.heads=2", "model.tokenizer.vocab_size=1000"),
    *("+data.train.documents=400", "+data.train.train_queries=40"),
)


def main() -> None:
    """Time both commands on both lists, print tables, write the JSON file."""
    options = _options()
    console = Console(width=118)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _train(folder)
        jobs: dict[str, Callable[[], object]] = {}
        for length, characters in (("short", SHORT), ("long", options.characters)):
            data = _write_list(folder / length, characters)
            jobs[f"evaluate, {length}"] = _evaluation(folder, length, data)
            jobs[f"rerank, {length}"] = _reranking(folder, length, data)
        times = in_turns(jobs, options.repeats, "commands", "cpu", time.process_time)
    goals = []
    for command in ("evaluate", "rerank"):
        ratio = times.speedup(f"{command}, short", f"{command}, long")
        goals.append(
            Goal(
                f"{command}: processor time with the long document over the short one",
                ratio,
                GOAL,
                False,
            )
        )
    for goal in goals:
        goal.__dict__["judged"] = not options.quick
    record: dict[str, object] = {
        "command": command_line("long_documents"),
        "machine": machine("cpu"),
        "characters": {"short": SHORT, "long": options.characters},
        "seconds": times.seconds,
        "goals": [goal.as_record() for goal in goals],
    }
    rows = [[job, f"{times.median(job):.2f}"] for job in jobs]
    print_table(console, "", ["", "seconds"], rows)
    print_table(console, "Goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals])
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.long_documents", description=__doc__
    )
    add = parser.add_argument
    add("--characters", type=int, default=7_000_000, help="of the long document (%(default)s)")
    add("--repeats", type=int, default=None, help="rounds (5; quick 1)")
    add("--quick", action="store_true", help="one round: checks that all runs, judges no goal")
    add("--output", type=Path, default=None, help="JSON file")
    options = parser.parse_args()
    options.repeats = options.repeats or (1 if options.quick else 5)
    options.output = options.output or record_file("long-documents.json", options.quick)
    return options


def _train(folder: Path) -> None:
    command = [sys.executable, str(ROOT / "train.py"), *TRAINING, f"output={folder / 'outputs'}"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def _write_list(folder: Path, characters: int) -> Path:
    """A query, its documents, judgements and run; one of the documents has so many characters."""
    folder.mkdir()
    rng = random.Random(0)
    lengths = [USUAL] * CANDIDATES
    lengths[LONG_ONE] = characters
    texts = [" ".join(rng.choices(WORDS, k=length // 5)) for length in lengths]
    (folder / "collection.tsv").write_text(
        "".join(f"d{number}\t{text}\n" for number, text in enumerate(texts))
    )
    (folder / "queries.tsv").write_text("q\tdoctor in the ward\n")
    (folder / "qrels").write_text(f"q 0 d{LONG_ONE} 1\n")
    lines = [
        f"q Q0 d{number} {number + 1} {CANDIDATES - number} bm25\n" for number in range(CANDIDATES)
    ]
    (folder / "run").write_text("".join(lines))
    return folder


def _composed(script: str, folder: Path, data: Path, *options: str) -> DictConfig:
    register_resolvers()
    given = [
        *(
            "data=trec",
            f"data.collection={data / 'collection.tsv'}",
            f"data.test.topics={data / 'queries.tsv'}",
        ),
        *(f"data.test.qrels={data / 'qrels'}", f"output={folder / 'outputs'}", "policy=renditions"),
    ]
    with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
        return compose(script, overrides=[*given, *options])


def _evaluation(folder: Path, name: str, data: Path) -> Callable[[], object]:
    def job() -> None:
        place = Path(tempfile.mkdtemp(prefix=f"evaluate-{name}-", dir=folder))
        candidates = ("first_stage=given", f"+data.test.candidates={data / 'run'}")
        config = _composed(
            "evaluate", folder, data, *candidates, "alpha=0", f"cache.folder={place / 'senses'}"
        )
        evaluate(config, place, True)

    return job


def _reranking(folder: Path, name: str, data: Path) -> Callable[[], object]:
    def job() -> None:
        place = Path(tempfile.mkdtemp(prefix=f"rerank-{name}-", dir=folder))
        here = ("workers=1", f"folder={place / 'plan'}")
        rerank(_composed("rerank", folder, data, f"run={data / 'run'}", "alpha=0", *here))

    return job


if __name__ == "__main__":
    main()
