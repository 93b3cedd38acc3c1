"""Values of options that are out of range or of the wrong kind, refused before anything is loaded."""

from __future__ import annotations

import pytest
from hydra.errors import InstantiationException
from in_process import configured
from option_values import EVALUATION, TRAINING, read, with_option

from backpack_rank.pipelines.errors import friendly_errors
from backpack_rank.pipelines.settings import EvaluationSettings


def mistake(script: str, option: str, value: str) -> str:
    """What is wrong with the refusal of a value: nothing if it is short and names the option."""
    try:
        read(script, with_option(script, option, value))
    except (ValueError, InstantiationException) as refusal:
        cause = refusal.__cause__ if isinstance(refusal, InstantiationException) else refusal
        sentence = str(cause)
        if not isinstance(cause, ValueError) or len(sentence.splitlines()) > 3:
            return f"{option}={value} is refused by {cause!r}"
        if option.removeprefix("reconstruct.") not in sentence:
            return f"{option}={value} is not named by: {sentence}"
        return ""
    return f"{option}={value} is taken"


@pytest.mark.slow
@pytest.mark.parametrize("script", ["evaluate", "train"])
def test_wrong_values_are_named_with_their_option(script: str) -> None:
    table = {"evaluate": EVALUATION, "train": TRAINING}[script]
    mistakes = [
        mistake(script, option, value) for option, values in table.items() for value in values
    ]
    assert [unnamed for unnamed in mistakes if unnamed] == []


ENDS_OF_RANGES = [
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
]


@pytest.mark.slow
def test_the_ends_of_the_ranges_are_taken() -> None:
    for script, option, value in ENDS_OF_RANGES:
        read(script, with_option(script, option, value))


def test_an_option_that_what_a_class_makes_does_not_have_is_named_with_the_class(
    capsys: pytest.CaptureFixture, caplog
) -> None:
    with pytest.raises(SystemExit), friendly_errors():
        EvaluationSettings.of(configured("evaluate", "+policy.count=3"))
    assert "policy.count: DefaultPolicy has no such option" in caplog.text


def test_an_option_that_a_node_does_not_have_is_named(
    capsys: pytest.CaptureFixture, caplog
) -> None:
    with pytest.raises(SystemExit) as ended, friendly_errors():
        read("evaluate", with_option("evaluate", "policy.cont", "3"))
    assert ended.value.code == 2
    assert "policy.cont: RandomSenses has no such option" in caplog.text
