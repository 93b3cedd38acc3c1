"""Mistakes as a user meets them, in real processes: status 2, at most six lines on standard error,
no traceback.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
from pathlib import Path

import pytest
from damaged_folders import DAMAGES, small_saved_ranker
from forked import run_forked
from workplace import ROOT

pytestmark = pytest.mark.processes

NAMES = [
    ("evaluate", ["alfa=0.5"], "did you mean alpha"),
    ("evaluate", ["+alfa=0.5"], "did you mean alpha"),
    ("evaluate", ["++alfa=0.5"], "did you mean alpha"),
    ("evaluate", ["~swop"], "did you mean swap"),
    ("evaluate", ["scoring.devise=cpu"], "did you mean device"),
    ("evaluate", ["policy=lowest_sense"], "did you mean lowest_senses"),
    ("evaluate", ["aggregate.k=5"], "no aggregate is chosen"),
    ("evaluate", ["recalibrate.weight=2"], "does nothing without recalibrate.run"),
    ("evaluate", ["aggregate_depth=10"], "does nothing without aggregate"),
    ("evaluate", ["list=polices"], "did you mean policy"),
    ("train", ["+training.epoch=3"], "did you mean epochs"),
    ("train", ["training.new_rate=1"], "did you mean learning_rate"),
    ("train", ["model=backpack_tny"], "did you mean backpack_tiny"),
    ("train", ["+lists.sizes=3"], "did you mean size"),
]
GRAMMAR = [
    ("evaluate", ["alpha=["], "cannot be read as OPTION=VALUE"),
    ("evaluate", ["alpha"], "cannot be read as OPTION=VALUE"),
    ("evaluate", ["alpha=1,0"], "Ambiguous value"),
    ("evaluate", ["alpha=${nothing}"], "nothing"),
    ("train", ["resume=true"], "nothing to resume"),
    ("train", ["trainer={a"], "cannot be read as OPTION=VALUE"),
]
VALUES = [
    ("evaluate", ["alpha=nan"], "alpha=nan"),
    ("evaluate", ["alpha=1e20", "data=synthetic", "checkpoint={ranker}"], "alpha=1e+20"),
    ("evaluate", ["swap=no"], "swap=no must be true or false"),
    (
        "evaluate",
        ["measures=[]"],
        "measures=[] must be a name of 1 to 255 characters, or a list of measures",
    ),
    ("evaluate", ["scoring.workers=-1"], "scoring.workers=-1"),
    (
        "evaluate",
        ["policy.count=true"],
        "policy=default has no option count; add policy=lowest_senses",
    ),
    (
        "evaluate",
        ["policy=lowest_senses", "policy.count=true"],
        "policy.count=true must be a whole number",
    ),
    (
        "evaluate",
        ["policy=lowest_senses", "+policy.cont=3"],
        "policy.cont: LowestSenses has no such option",
    ),
    ("evaluate", ["alpha=auto", "budget='nDCG@10 loss<=1'"], "give it in %"),
    ("evaluate", ["alpha=auto", "budget='nDCG@10 loss<=-1%'"], "from 0% to 100%"),
    ("evaluate", ["explain.query=what's up, (doc)?"], "needs both texts"),
    (
        "evaluate",
        ["scoring.device=tpu9", "data=synthetic", "checkpoint={ranker}"],
        "scoring.device=tpu9",
    ),
    ("train", ["training.head_learning_rate=-1"], "training.head_learning_rate=-1"),
    ("train", ["trainer.devices=abc"], "trainer.devices=abc"),
    ("train", ["seed=-1"], "seed=-1"),
]
DATA = [
    "data=trec",
    "data.collection={folder}/c.tsv",
    "data.test.topics={folder}/t.tsv",
    "data.test.qrels={folder}/q.txt",
]
FILES = [
    ("some.run", b"q1 Q0 d1 1 1_0 t\n", "some.run, line 1"),
    ("some.run", b"q1 Q0 d1 1 2.0\n", "some.run, line 1"),
    ("some.run.gz", gzip.compress(b"q1 Q0 d1 1 2.0 t\n", mtime=0)[:-6], "gzip"),
    ("c.tsv", b"id\ttext\nd1\tone\n", "looks like a header"),
    ("c.tsv", b"d1\tone\rd2\ttwo\nd3\tx\n", "carriage returns"),
    ("t.tsv", b"qid\tquery\nq1\twhat?\n", "looks like a header"),
    ("q.txt", b"q1 0 d1 1e30\n", "q.txt, line 1"),
    ("q.txt", b"q1 0 x1 1\n", "none of its 1 judged documents"),
    (
        "words.csv",
        b"word,group\nshe,female\nhe,male\n" + b"x" * 200_000 + b",male\n",
        "words.csv, line 4",
    ),
]


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_saved_ranker(tmp_path_factory.mktemp("saved"))


def ends_well(script: str, options: list[str], folder: Path, message: str) -> None:
    variables = {
        "BACKPACK_RANK_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    environment = {**os.environ, **variables}
    environment.pop("HYDRA_FULL_ERROR", None)
    given = [*options, f"output={folder / 'outputs'}"]
    done = run_forked(f"{script}.py", given, folder, environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) <= 6, done.stderr
    assert message in done.stderr
    assert not re.search(r"scoring \S+: ", done.stderr)  # the progress of what was scored before


@pytest.mark.parametrize(("script", "options", "message"), [*NAMES, *GRAMMAR, *VALUES])
def test_a_wrong_option_ends_well(
    script: str, options: list[str], message: str, tmp_path: Path, ranker: Path
) -> None:
    ends_well(
        script, [option.replace("{ranker}", str(ranker)) for option in options], tmp_path, message
    )


@pytest.mark.parametrize(
    ("name", "content", "message"), FILES, ids=[f"{name}: {message}" for name, _, message in FILES]
)
def test_a_malformed_file_ends_well(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    right = {"c.tsv": b"d1\tone\nd2\ttwo\n", "t.tsv": b"q1\twhat?\n", "q.txt": b"q1 0 d1 1\n"}
    right["some.run"] = b"q1 Q0 d1 1 2.0 t\nq1 Q0 d2 2 1.0 t\n"
    for file, raw in (right | {name: content}).items():
        (tmp_path / file).write_bytes(raw)
    run = name if name.startswith("some.run") else "some.run"
    words = [f"bias.lexicon={tmp_path / name}"] if name == "words.csv" else []
    options = [option.replace("{folder}", str(tmp_path)) for option in DATA]
    ends_well("evaluate", [f"run={tmp_path / run}", *options, *words], tmp_path, message)


ESCAPES = "\x1b]0;root\x07\x1b[2J"


def test_escape_sequences_of_ids_and_paths_do_not_reach_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / f"data{ESCAPES}"
    folder.mkdir()
    tied = "q1 Q0 d1 1 1.0 t\nq1 Q0 d2 2 1.0 t\n"
    files = {"c.tsv": "d1\tone\nd2\ttwo\n", "t.tsv": "q1\twhat?\n", "q.txt": "q1 0 d1 1\n"}
    files |= {"tied.run": tied, "wrong.run": tied + f"q1 Q0 d3{ESCAPES} 3 0.5 t\n"}
    for name, text in files.items():
        (folder / name).write_text(text)
    data = [
        option.replace("={folder}", f"='{folder}") + ("'" if "{" in option else "")
        for option in DATA
    ]
    for name, message in (
        ("tied.run", "[WARNING] - "),
        ("wrong.run", r"document 'd3\x1b]0;root\x07\x1b[2J' of query"),
    ):
        options = [f"run='{folder / name}'", *data, f"output='{folder / 'outputs'}'"]
        environment = {
            "BACKPACK_RANK_CACHE": str(tmp_path / "cache"),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        done = run_forked("evaluate.py", options, tmp_path, {**os.environ, **environment})
        shown = done.stdout + done.stderr
        assert message in shown
        assert r"data\x1b]0;root\x07\x1b[2J/" in shown
        assert not {"\x1b", "\x07"} & set(shown)


@pytest.mark.parametrize(
    "damage", ["weights cut", "word embeddings of zeros", "no merges", "configuration cut"]
)
@pytest.mark.parametrize("kept", [True, False])
def test_a_damaged_ranker_ends_well(damage: str, kept: bool, tmp_path: Path, ranker: Path) -> None:
    folder = tmp_path / "ranker"
    shutil.copytree(ranker, folder)
    if not kept:
        (folder / "checksums.json").unlink()
    DAMAGES[damage](folder)
    small = ["data=synthetic", "+data.test.test_queries=4", "+data.test.documents=30"]
    ends_well("evaluate", [f"checkpoint={folder}", *small], tmp_path, str(folder))
