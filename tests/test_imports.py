"""What the doors import, which is most of the time until they work: nothing that they do not use,
and no collection.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from backpack_rank._gc import without_gc

ROOT = Path(__file__).resolve().parents[1]
TRAINING = {"lightning", "torchmetrics", "peft", "tensorboard", "wandb"}
LATER = {
    "scipy.stats",
    "bm25s",
    "altair",
    "vl_convert",
    "ir_datasets",
    "pandas",
    "matplotlib",
    "openai",
    "requests",
}
"""Of one source, of measures once all is scored, or of a command that is not given."""


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


DOORS = [
    ("import backpack_rank, backpack_rank.cli", {"torch", "transformers", "numpy", "scipy"}),
    ("import backpack_rank.scale.process", {"torch", "transformers", "hydra"}),
    ("import backpack_rank; backpack_rank.load", TRAINING | LATER | {"hydra", "rich"}),
    ("import backpack_rank.serving.command", TRAINING | LATER | {"hydra"}),
    ("import backpack_rank.scale.rerank, backpack_rank.scale.workers", TRAINING | LATER),
    # What Hydra imports for evaluate.py, and what it calls then.
    ("import backpack_rank.pipelines.sweep, backpack_rank.pipelines.evaluate", TRAINING | LATER),
]
"""Statements, and what neither they nor those above them may import: those that import least come
first.
"""


@pytest.mark.slow
def test_a_door_imports_nothing_that_it_does_not_use() -> None:
    run(
        "import sys\n"
        f"for statement, unused in {DOORS!r}:\n"
        "    exec(statement)\n"
        "    found = unused & sys.modules.keys()\n"
        "    assert not found, (statement, found)\n"
    )


@pytest.mark.slow
def test_the_package_registers_nothing_before_it_is_asked_and_collects_nothing_then() -> None:
    run(
        "import gc, sys\n"
        "collections = []\n"
        "gc.callbacks.append(lambda phase, info: phase == 'start' and 'torch' in sys.modules and "
        "collections.append(info))\n"
        "finders, hooks = list(sys.meta_path), list(sys.path_hooks)\n"
        "import backpack_rank\n"
        "assert sys.meta_path == finders and sys.path_hooks == hooks\n"
        "assert 'transformers' not in sys.modules\n"
        "from transformers import CONFIG_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING as "
        "classifiers\nassert not [finder for finder in sys.meta_path if "
        "type(finder).__module__.startswith('backpack_rank')]\nassert 'backpack' not in "
        "CONFIG_MAPPING\nassert not [config for config in classifiers if "
        "config.__module__.startswith('backpack_rank')]\n"
        "collections.clear()\n"
        "backpack_rank.load\n"
        "assert 'torch' in sys.modules and gc.isenabled()\n"
        "assert len(collections) < 3, collections\n"
        "assert not [config for config in classifiers if "
        "config.__module__.startswith('backpack_rank')]\n"
    )


@pytest.mark.parametrize("on", [True, False])
def test_a_collector_that_was_off_stays_off_and_one_that_was_on_collects_again(on: bool) -> None:
    was = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with without_gc():
            assert not gc.isenabled()
        assert gc.isenabled() is on
        assert gc.get_freeze_count() == 0
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize(("call", "message"), [("", "collected"), ("exit_without_gc()", "")])
def test_a_process_ends_without_a_last_collection(call: str, message: str) -> None:
    program = (
        "from backpack_rank._gc import exit_without_gc\n"
        "class Loud:\n"
        "    def __del__(self, say=print): say('collected')\n"
        "one = Loud()\n"
        "one.itself = one\n"
        "del one\n"
        f"{call}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == message
