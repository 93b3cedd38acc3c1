"""Values of options that are out of range or of the wrong kind, refused before anything is loaded."""

from __future__ import annotations

import pytest
from hydra.errors import InstantiationException
from in_process import configured
from option_values import EVALUATION, TRAINING, read, with_option

from backpack_rank.pipelines.errors import friendly_errors
from backpack_rank.pipelines.settings import EvaluationSettings


@pytest.mark.parametrize(
    ("script", "option", "value"),
    [("evaluate", option, value) for option, values in EVALUATION.items() for value in values]
    + [("train", option, value) for option, values in TRAINING.items() for value in values],
)
def test_a_wrong_value_is_named_with_its_option(script: str, option: str, value: str) -> None:
    with pytest.raises((ValueError, InstantiationException)) as refused:
        read(script, with_option(script, option, value))
    cause = refused.value.__cause__ if isinstance(refused.value, InstantiationException) else refused.value
    assert isinstance(cause, ValueError)
    assert option.removeprefix("reconstruct.") in str(cause)
    assert len(str(cause).splitlines()) <= 3


@pytest.mark.parametrize(
    ("script", "option", "value"),
    [
        ("evaluate", "alpha", "0"),
        ("evaluate", "alpha", "2.5"),
        ("evaluate", "alpha", "auto"),
        ("evaluate", "swap", "false"),
        ("evaluate", "measures", "[nDCG@10]"),
        ("evaluate", "measures", "nDCG@10"),
        ("evaluate", "cache.max_gb", "0"),
        ("evaluate", "scoring.tokens_per_batch", "null"),
        ("evaluate", "budget", "nDCG@10 loss<=1%"),
        ("train", "seed", "4294967295"),
        ("train", "training.gradient_clip", "null"),
        ("train", "training.patience", "0"),
        ("train", "training.head_learning_rate", "null"),
        ("train", "lists.relevant", "9"),
        ("train", "trainer.limit_train_batches", "3"),
    ],
)
def test_the_ends_of_the_ranges_are_taken(script: str, option: str, value: str) -> None:
    read(script, with_option(script, option, value))


def test_an_option_that_what_a_class_makes_does_not_have_is_named_with_the_class(
    capsys: pytest.CaptureFixture, caplog
) -> None:
    with pytest.raises(SystemExit), friendly_errors():
        EvaluationSettings.of(configured("evaluate", "+policy.count=3"))
    assert "policy.count: DefaultPolicy has no such option" in caplog.text


def test_an_option_that_a_node_does_not_have_is_named(capsys: pytest.CaptureFixture, caplog) -> None:
    with pytest.raises(SystemExit) as ended, friendly_errors():
        read("evaluate", with_option("evaluate", "policy.cont", "3"))
    assert ended.value.code == 2
    assert "policy.cont: RandomSenses has no such option" in caplog.text
