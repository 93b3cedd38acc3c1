"""Every option of every file below conf/, with values of sixteen sorts: taken, or refused by one
sentence that names it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from every_option import VALUES, Leaf, composed_with, group_files, group_leaves, outcome, own_leaves
from hydra.utils import get_object
from in_process import configured
from omegaconf import DictConfig

from backpack_rank.checks import UsageError
from backpack_rank.constructors import annotations_of
from backpack_rank.pipelines.evaluate import task_of
from backpack_rank.pipelines.given import check_names, parsed
from backpack_rank.pipelines.nodes import known_targets
from backpack_rank.pipelines.training_settings import TrainingSettings

ONE_VALUE, FOUR_VALUES = len(VALUES), len(VALUES) // 4
SECONDS = 5  # of this process's own work: other processes do not count
# An experiment takes half a second to compose: its options are tried by the slow test alone.
QUICK_FILES = [file for file in group_files() if not file.startswith("experiment/")]
WITHOUT_ARGUMENTS = (".Evaluation", ".SweepReport", ".UniformSenses", ".AllPairs")


def looked_at(config: DictConfig) -> None:
    """What evaluate.py looks at before it loads anything."""
    task_of(config).check()


def wrong(leaves: Iterable[Leaf], every: int) -> list[str]:
    """Outcomes that are neither taken nor refused by a sentence, or that took too long.

    Args:
        every: of the values one in so many is tried, and others for the next option. Options of
            one annotation are looked at by the same lines, so together they get all values.
    """
    lines = []
    for place, leaf in enumerate(leaves):
        for name in list(VALUES)[place % every :: every]:
            begun = time.process_time()
            verdict, answer = outcome(leaf, VALUES[name])
            if verdict in ("bad", "absent") or time.process_time() - begun > SECONDS:
                lines.append(
                    f"{leaf.script} {leaf.choices} {leaf.option}={name}: {verdict}: {answer[:300]}"
                )
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("script", ["calibrate", "evaluate", "rerank", "train"])
def test_options_of_the_scripts_are_taken_or_named(
    script: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", str(tmp_path))
    leaves = own_leaves(script)
    assert len(leaves) > 10
    assert wrong(leaves, every=FOUR_VALUES) == []


@pytest.mark.parametrize("file", QUICK_FILES)
def test_options_of_the_groups_are_taken_or_named(
    file: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", str(tmp_path))
    composed_with.cache_clear()
    assert wrong(group_leaves(file), every=ONE_VALUE) == []


def test_an_option_of_every_group_is_tried() -> None:
    tried = {file.partition("/")[0] for file in group_files() if group_leaves(file)}
    assert tried == {file.partition("/")[0] for file in group_files()} - {"variants"}


@pytest.mark.slow
@pytest.mark.parametrize("file", group_files())
def test_options_of_the_groups_with_four_values(
    file: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", str(tmp_path))
    composed_with.cache_clear()
    # An experiment's own options are few sorts of many names: each gets one of the values.
    every = ONE_VALUE if file.startswith("experiment/") else FOUR_VALUES
    assert wrong(group_leaves(file), every) == []


def test_what_constructors_take_can_be_read() -> None:
    ours = [target for target in known_targets() if target.startswith("backpack_rank.")]
    unread = [
        target for target in ours if not annotations_of(get_object(target)) and ".No" not in target
    ]
    assert [target for target in unread if not target.endswith(WITHOUT_ARGUMENTS)] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["bias.threshold=nan"], "bias.threshold=nan must be a whole number of at least 0"),
        (["bias.threshold=inf"], "bias.threshold=inf must be a whole number"),
        (
            ["bias.cutoffs=5"],
            "bias.cutoffs=5 must be a list in which each is a whole number from 1 to 1000000",
        ),
        (
            ["bias.cutoffs=[1000000000000]"],
            r"bias.cutoffs\[0\]=1000000000000 must be a whole number",
        ),
        (["bias.lexicon=null"], "bias.lexicon=null must be a path"),
        (
            ["experiment=recruitment", "data.test.documents.john=null"],
            "^data.test.documents.john=null must be a text",
        ),
        (
            ["listwise=hugging_face"],
            "^listwise.ranker.name has no value: give listwise.ranker.name=",
        ),
        (["~attribute.sides"], "^attribute.sides has no value: give attribute.sides="),
        (
            ["policy=explicit", "policy.values=[1,1e30]"],
            r"policy.values\[1\]=1e\+30 must be a number from 0 to 1000",
        ),
        (["policy._target_=os.getcwd"], "policy._target_=os.getcwd: no file of conf/ names it"),
        (
            ["first_stage=bm25", "+first_stage.token_pattern=''"],
            "first_stage.token_pattern='' must be a text",
        ),
        (["data=synthetic", "data.measures=null"], "data.measures=null must be a list of measures"),
        (["data=synthetic", "data.measures=[]"], r"data.measures=\[\] must be a list of measures"),
        (["data=synthetic", "data.seed=a"], "^data.seed=a must be a whole number from 0"),
        (["data=synthetic", "data.seed=1.5"], "^data.seed=1.5 must be a whole number from 0"),
        (["attribute.name=''"], "attribute.name='' must be a name"),
        (["run=5"], "run=5 must be a path"),
        (["checkpoint=5"], "checkpoint=5 must be a path"),
        (["budget=true", "alpha=auto"], "budget=true must be a name"),
        (["alpha=auto", "budget='RaB(tf)@5 loss<=1%'"], "RaB.* less bias is no loss"),
        (["scoring.device=mps"], "scoring.device=mps, but torch sees no such device"),
        (
            [f"attribute.name={'x' * 5000}"],
            r"attribute.name=x+\.\.\. must be a name of 1 to 255 characters$",
        ),
    ],
)
def test_an_evaluation_names_the_option_and_what_it_takes(options: list[str], message: str) -> None:
    config = configured("evaluate", *options)
    with pytest.raises(ValueError, match=message):
        looked_at(config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["model.ranker.layers=0"], "model.ranker.layers=0 must be a whole number from 1 to 1000"),
        (["model.ranker.layers=-1"], "model.ranker.layers=-1 must be"),
        (["model.ranker.hidden_size=0"], "model.ranker.hidden_size=0 must be"),
        (
            ["model.ranker.dropout=nan"],
            "model.ranker.dropout=nan must be a number of at least 0 and below 1",
        ),
        (["training.frozen=[1]"], r"training.frozen\[0\]=1 must be a name"),
        (["trainer.accelerator=[]"], r"^trainer.accelerator=\[\] must be a text"),
        (
            ["+trainer.limit_train_batchs=3"],
            "^trainer.limit_train_batchs: .*did you mean limit_train_batches",
        ),
        (
            ["model=backpack", "model.recommended.start_weights=a"],
            "^model.recommended.start_weights=a: use one of random, attention",
        ),
        (["data=dl19", "data.root=5"], "^data.root=5 must be a path"),
        (["trainer.accelerator=tpu"], "Lightning's trainer refuses trainer.accelerator=tpu"),
        (["checkpoint=5"], "checkpoint=5 must be a path"),
        (["model=knrm", "model.ranker.sizes.kernels=1"], "model.ranker.sizes.kernels=1"),
    ],
)
def test_a_training_names_the_option_and_what_it_takes(options: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings.of(configured("train", *options)).ranking()


@pytest.mark.parametrize("argument", ["alpha=1_0", "bias.cutoffs=[5,1_0]", "+data.seed=1_000"])
def test_numbers_with_underscores_are_refused(argument: str) -> None:
    with pytest.raises(UsageError, match="is no number; write it without _"):
        parsed([argument])


def test_names_with_underscores_and_digits_are_no_numbers() -> None:
    parsed(
        [
            "output=outputs/2_0",
            "checkpoint=1_0_run",
            "measures=[nDCG@1_0]",
            "run=[a_1.trec,b_2.trec]",
        ]
    )


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "./lowest_senses", "lowest_senses.yml"]
)
def test_a_choice_is_a_file_of_its_group(name: str) -> None:
    with pytest.raises(UsageError, match="there is no such choice"):
        check_names("evaluate", [f"policy={name}"])
