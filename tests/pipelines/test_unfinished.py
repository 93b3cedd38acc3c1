"""Unfinished folders are marked, locked while their process lives, and found again by the same
command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backpack_rank.files import LAST, UNFINISHED, atomic_path
from backpack_rank.pipelines.begun import remember
from backpack_rank.pipelines.output_folder import Command, NewFolders, command_of, link_latest
from backpack_rank.pipelines.run_folder import safe_options, save_overrides
from backpack_rank.pipelines.unfinished import (
    Unfinished,
    claim,
    find,
    finish,
    held,
    refuse_links,
    release,
)

HOLDER = """
import os, sys, time
from backpack_rank.pipelines.unfinished import claim
claim(sys.argv[1], sys.argv[2:])
if os.fork() == 0:  # a worker, which outlives its parent for a while
    time.sleep(3)
    os._exit(0)
print("claimed", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _nothing_held(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    for folder in held():
        release(folder)


def another(folder: Path, *options: str) -> subprocess.Popen:
    """A process of its own that has claimed a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "claimed\n"
    return process


def killed(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def left_unfinished(folder: Path, *options: str, multirun: bool = False, mine: bool = True) -> Path:
    if mine:
        remember(options)
    claim(folder, options, multirun)
    release(folder)
    return folder


def test_a_mark_stands_from_the_first_moment_to_the_last(tmp_path: Path) -> None:
    folder = Path(NewFolders(Command(("seed=1", "output=x")))(str(tmp_path / "train" / "now")))
    assert folder == tmp_path / "train" / "now"
    mark = Unfinished.read(folder)
    assert mark is not None
    assert (mark.options, mark.multirun, mark.process) == (
        ("seed=1", "output=x"),
        False,
        os.getpid(),
    )
    assert mark.alive
    assert finish(folder)
    assert os.listdir(folder) == []
    assert Unfinished.read(folder) is None
    assert not finish(folder), "a process that did not claim it takes no mark away"


def test_what_lives_is_left_alone_and_what_was_killed_is_free_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "train" / "one"
    process = another(folder, "seed=1")
    with pytest.raises(
        ValueError, match=rf"one is in use by process {process.pid} on {os.uname().nodename}"
    ):
        claim(folder)
    with pytest.raises(ValueError, match=rf"one is not interrupted: process {process.pid} on"):
        find([tmp_path / "train"], [], False)
    killed(process)
    assert find([tmp_path / "train"], [], False).folder == folder
    claim(folder)
    assert held() == [folder]


def test_half_written_files_of_a_killed_process_go_when_its_folder_is_claimed(
    tmp_path: Path,
) -> None:
    process = another(tmp_path / "one")
    with atomic_path(tmp_path / "one" / "ranker") as temporary:
        temporary.mkdir()
        shutil.copytree(
            temporary.parent, tmp_path / "one" / ".config.yaml.abc.tmp"
        )  # as kill -9 leaves it
    killed(process)
    claim(tmp_path / "one")
    assert sorted(os.listdir(tmp_path / "one")) == [".lock", UNFINISHED, "ranker"]


def test_the_last_one_with_the_same_options_is_found_in_any_order_of_them(tmp_path: Path) -> None:
    first = left_unfinished(tmp_path / "train" / "1", "seed=1", "model=knrm", "output=o")
    second = left_unfinished(tmp_path / "train" / "2", "seed=2")
    sweep = left_unfinished(tmp_path / "train" / "3", "seed=1,2", multirun=True)
    left_unfinished(sweep / "0", "seed=1")
    for age, folder in enumerate((sweep, second, first)):
        os.utime(folder / UNFINISHED, (time.time() - 10 * age,) * 2)
    assert find([tmp_path / "train"], ["model=knrm", "seed=1"], False).folder == first
    assert find([tmp_path / "train"], ["seed=1,2"], True).folder == sweep
    assert find([tmp_path / "train"], [], False).folder == sweep, "its job goes with it"
    with pytest.raises(
        FileNotFoundError, match=r"nothing to resume with these options; .* \(-m seed=1,2\)"
    ):
        find([tmp_path / "train"], ["seed=3"], False)
    (second / LAST).parent.mkdir()
    (second / LAST).touch()
    assert find([tmp_path / "train"], [], False).folder == second, (
        "one with a checkpoint comes first"
    )
    with pytest.raises(
        FileNotFoundError, match=r"nothing to resume, nothing below \S*evaluate and \S*sweep is"
    ):
        find([tmp_path / "evaluate", tmp_path / "sweep"], [], False)


@pytest.mark.parametrize(
    "text", ["", "[1]", "options: 3", "\x00", "options: [a]\nprocess: x\nhost: y\nmultirun: no"]
)
def test_a_mark_that_cannot_be_read_still_marks(tmp_path: Path, text: str) -> None:
    (tmp_path / UNFINISHED).write_text(text)
    assert Unfinished.read(tmp_path) == Unfinished(tmp_path, None)
    with pytest.raises(ValueError, match="UNFINISHED cannot be read; give the options again"):
        command_of("evaluate", [f"resume={tmp_path}"], "outputs")
    expected = Command(("alpha=1,0",), True, tmp_path)
    assert command_of("evaluate", [f"resume={tmp_path}", "-m", "alpha=1,0"], "outputs") == expected


def test_an_evaluation_goes_on_with_the_options_it_was_begun_with(tmp_path: Path) -> None:
    folder = left_unfinished(
        tmp_path / "o" / "sweep" / "1", "alpha=1,0.5", "policy=uniform", multirun=True
    )
    given = ["resume=true", f"output={tmp_path / 'o'}"]
    expected = Command((f"output={tmp_path / 'o'}", "alpha=1,0.5", "policy=uniform"), True, folder)
    assert command_of("evaluate", given, "outputs") == expected
    release(folder)
    again = ["-m", "alpha=1,0.5", "policy=uniform", *given]
    assert command_of("evaluate", again, "outputs").resumed == folder
    release(folder)
    assert command_of("evaluate", [f"resume={folder}"], "outputs").options == (
        "alpha=1,0.5",
        "policy=uniform",
    )
    release(folder)
    with pytest.raises(ValueError, match="begun with other options than alpha=0"):
        command_of("evaluate", [f"resume={folder}", "alpha=0"], "outputs")
    with pytest.raises(FileNotFoundError, match="is no folder, so there is nothing to resume"):
        command_of("evaluate", ["resume=nowhere"], "outputs")
    with pytest.raises(FileNotFoundError, match="is finished, so there is nothing to resume"):
        command_of("evaluate", [f"resume={tmp_path}"], "outputs")


def test_a_training_reads_its_options_in_its_folder(tmp_path: Path) -> None:
    folder = left_unfinished(tmp_path / "train" / "1", "seed=1")
    given = ["resume=true", f"output={tmp_path}"]
    too_early = command_of("train", given, "outputs")  # killed before it had written them
    assert too_early.options == (f"output={tmp_path}", "seed=1")
    release(folder)
    save_overrides(folder, ["seed=1"])
    assert command_of("train", given, "outputs") == Command(
        (f"output={tmp_path}", f"resume='{folder}'"), False, folder
    )


def test_options_in_a_folder_of_somebody_else_name_no_code(tmp_path: Path) -> None:
    folder = left_unfinished(tmp_path / "sweep", "task._target_=os.system", multirun=True)
    with pytest.raises(
        ValueError, match=r"give the options again .*task\._target_=os\.system is neither a name"
    ):
        command_of("evaluate", [f"resume={folder}"], "outputs")
    assert safe_options(["alpha=range(0,1)", "policy=uniform,soft"], "x") == [
        "alpha=range(0,1)",
        "policy=uniform,soft",
    ]
    for option in ("policy=glob(*)", "policy=uniform,../x", "alpha=1,${oc.env:HOME}"):
        with pytest.raises(ValueError, match="neither a name of conf/ nor a plain value"):
            safe_options([option], "x")


@pytest.mark.parametrize("script", ["train", "evaluate"])
def test_options_of_a_folder_that_somebody_else_began_are_asked_for(
    tmp_path: Path, script: str
) -> None:
    options = (
        ["data=msmarco", "logger=wandb"]
        if script == "train"
        else ["data=msmarco", "listwise=openai"]
    )
    folder = left_unfinished(tmp_path / script / "1", *options, mine=False)
    if script == "train":
        save_overrides(folder, options)
    for given in ([f"resume={folder}"], ["resume=true", f"output={tmp_path}"]):
        with pytest.raises(
            ValueError, match=r"not begun by you .*begun with: data=msmarco .*command line too"
        ):
            command_of(script, given, "outputs")
    resumed = command_of(
        script, [f"resume={folder}", *options], "outputs"
    )  # now they are this user's own
    assert resumed.resumed == folder
    release(folder)
    assert command_of(script, [f"resume={folder}"], "outputs").resumed == folder


def test_where_nothing_is_kept_options_are_asked_for_and_nothing_fails(
    tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "file" / "cache"))
    folder = left_unfinished(tmp_path / "train" / "1", "seed=1")
    with pytest.raises(ValueError, match=r"begun with: seed=1\."):
        command_of("evaluate", [f"resume={folder}"], "outputs")
    assert command_of("evaluate", [f"resume={folder}", "seed=1"], "outputs").options == ("seed=1",)


LINKED = [
    "train.log",
    ".hydra",
    ".hydra/config.yaml",
    "logs/hparams.yaml",
    UNFINISHED,
    ".lock",
    "checkpoints",
    "1/x.log",
]


@pytest.mark.parametrize("name", LINKED)
def test_a_folder_that_holds_a_link_is_not_resumed(tmp_path: Path, name: str) -> None:
    folder = left_unfinished(tmp_path / "train" / "1", "seed=1")
    outside = tmp_path / "outside"
    if name == UNFINISHED:
        (folder / name).rename(outside)
    else:
        outside.write_text("")
    before = outside.read_text()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside)
    with pytest.raises(
        ValueError, match=rf"{shlex.quote(name)} is a link to .*outside', where .*: remove it"
    ):
        command_of("train", [f"resume={folder}", "seed=1"], "outputs")
    assert outside.read_text() == before


def test_the_folder_itself_and_what_wandb_links_within_its_own_may_be_links(tmp_path: Path) -> None:
    folder = left_unfinished(tmp_path / "train" / "1", "seed=1")
    (folder / "wandb" / "run-1").mkdir(parents=True)
    (folder / "wandb" / "latest-run").symlink_to("run-1")
    (tmp_path / "latest").symlink_to(folder)
    assert (
        command_of("evaluate", [f"resume={tmp_path / 'latest'}"], "outputs").resumed
        == tmp_path / "latest"
    )
    (folder / "wandb" / "run-2").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="run-2 is a link to"):
        refuse_links(folder)


BOMB = (
    "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12))
    + "options: *a11\n"
)
MERGED = "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
TOO_MUCH = {
    "aliases": BOMB,
    "merged entries": f"a0: &a0 {{k: v}}\n{MERGED}options: *a11\n",
    "depth": f"options: {'[' * 5000}{']' * 5000}\n",
    "depth in blocks": f"options:\n{'- ' * 5000}a\n",
}


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_a_mark_that_costs_more_than_it_says_is_one_that_cannot_be_read(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / UNFINISHED).write_text(f"{TOO_MUCH[kind]}multirun: false\nprocess: 1\nhost: a\n")
    assert Unfinished.read(tmp_path) == Unfinished(tmp_path, None)


@pytest.mark.parametrize("value", ["false", "null", "0"])
def test_without_resume_nothing_is_looked_for(tmp_path: Path, value: str) -> None:
    assert command_of("train", [f"resume={value}", "seed=1"], str(tmp_path)).resumed is None


def test_further_processes_of_a_run_look_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert command_of("train", ["resume=true"], str(tmp_path)) == Command(("resume=true",))


def test_the_last_folder_of_each_kind_has_a_link_that_moves_with_the_outputs(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        (tmp_path / "here" / "train" / name).mkdir(parents=True)
        link_latest(tmp_path / "here", "train", tmp_path / "here" / "train" / name)
    os.rename(tmp_path / "here", tmp_path / "there")
    assert (
        tmp_path / "there" / "latest" / "train"
    ).resolve() == tmp_path / "there" / "train" / "two"
    assert os.listdir(tmp_path / "there" / "latest") == ["train"]


STOPPED = """
import os, sys, time
from pathlib import Path
from backpack_rank.pipelines.stopping import one_line_when_stopped
with one_line_when_stopped("train", ["output=o"]):
    there, here = os.pipe()
    worker = os.fork() if sys.argv[2] == "worker" else None
    if worker == 0:  # Python forgets a signal that comes while it forks
        os.write(here, b".")
    elif worker:
        os.read(there, 1)
    if sys.argv[1] != "early" and worker != 0:
        from backpack_rank.pipelines.unfinished import claim
        claim("o/train/now")
    if worker != 0:
        print("ready", flush=True)
    try:
        # Not one long sleep: a signal between Python's look for signals and the call would wait
        # for its end.
        for _ in range(600):
            time.sleep(0.1)
    except Exception:
        print("caught")
"""


def stopped(folder: Path, when: str, number: int, worker: str = "alone") -> tuple[int, str]:
    """Exit code and what was said, of a process group that gets a signal as a terminal sends it."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, when, worker],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert out == ""
    return process.returncode, err


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
@pytest.mark.parametrize("worker", ["alone", "worker"])
def test_a_signal_ends_with_one_line_and_its_number(
    tmp_path: Path, number: int, name: str, worker: str
) -> None:
    line = f"{name}: stopped before anything was written\n"
    assert stopped(tmp_path, "early", number, worker) == (128 + number, line)


# Ways in which Python, C code and a library drop any exception and go on.
DROPPED = {
    "callback of a weak reference": """
text = Text()
callback = weakref.ref(text, stop)
del text
""",
    "attribute asked for in C": """
Text.__getattr__ = lambda self, name: stop()
asked = ctypes.pythonapi.PyObject_HasAttrString(ctypes.py_object(Text()), b"length")
""",
    "except of everything": """
try:
    stop()
except:
    pass
""",
    "exception that another one hides": """
def close():
    try:
        stop()
    finally:
        return
close()
""",
}
STOPPED_WHILE_DROPPED = """
import ctypes, signal, time, weakref
from backpack_rank.pipelines.stopping import one_line_when_stopped
class Text: pass
def stop(*_): signal.raise_signal(signal.SIGINT)
with one_line_when_stopped("train", []):
{}
    time.sleep(60)
"""


@pytest.mark.parametrize("way", DROPPED)
def test_a_signal_is_not_lost_where_what_is_raised_is_dropped(way: str) -> None:
    program = STOPPED_WHILE_DROPPED.format(textwrap.indent(DROPPED[way], "    "))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (130, "Ctrl-C: stopped before anything was written\n")


ENDED_WITH_AN_ERROR = """
import signal, time
from backpack_rank.pipelines.stopping import one_line_when_stopped
before = signal.getsignal(signal.SIGINT)
try:
    with one_line_when_stopped("train", []):
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException:
            raise RuntimeError("closed")
except RuntimeError:
    pass
time.sleep(0.2)
assert signal.getsignal(signal.SIGINT) is before
"""


def test_nothing_is_sent_again_after_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDED_WITH_AN_ERROR], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


HELD_BACK = """
import signal
from backpack_rank.pipelines.stopping import held_back, one_line_when_stopped
with one_line_when_stopped("train", []):
    with held_back("the graph"):
        signal.raise_signal(signal.SIGTERM)
        {}
        print("traced", flush=True)
    print("not reached")
"""


def test_a_signal_acts_behind_a_call_that_cannot_stand_it_and_a_second_one_at_once() -> None:
    waiting = "SIGTERM: waiting for the graph to end; once more: at once\n"
    for again, code, out, err in (
        ("", 143, "traced\n", "SIGTERM: stopped before anything was written\n"),
        ("signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "", ""),
    ):
        done = subprocess.run(
            [sys.executable, "-c", HELD_BACK.format(again)],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert (done.returncode, done.stdout, done.stderr) == (code, out, waiting + err)


@pytest.mark.slow
def test_the_line_says_what_is_kept_and_how_to_go_on(tmp_path: Path) -> None:
    code, output = stopped(tmp_path, "late", signal.SIGINT)
    assert code == 130
    assert output == (
        "Ctrl-C: stopped before the end of the first epoch of o/train/now; "
        "go on with: backpack-rank train resume=o/train/now output=o\n"
    )
    (tmp_path / "o" / "train" / "now" / LAST).parent.mkdir()
    (tmp_path / "o" / "train" / "now" / LAST).touch()
    assert (
        "o/train/now keeps all up to its last whole epoch"
        in stopped(tmp_path, "late", signal.SIGTERM)[1]
    )
    assert (tmp_path / "o" / "train" / "now" / UNFINISHED).exists()
