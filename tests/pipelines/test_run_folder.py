"""A run's folder may come from anybody: names of conf/ and plain values are taken from it, code
never.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from backpack_rank.pipelines.run_folder import plain_values, run_config

HOSTILE = [
    "+data.test={_target_:builtins.exec,_args_:[x]}",
    "data.test._target_=os.system",
    "+data.test.more._target_=os.system",
    "data.seed='${oc.env:HOME}'",
    "data.seed=${oc.env:HOME}",
    "data=../../elsewhere/data",
    "data=/nowhere/data",
    "+data.sizes=[1,{_target_:os.system}]",
    "hydra.searchpath=[file:///tmp]",
    "data@hydra.job=dl19",
    "data=none_of_ours",
]


def with_overrides(folder: Path, *overrides: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overrides.yaml").write_text(yaml.safe_dump(list(overrides)))
    return folder


@pytest.mark.parametrize("option", HOSTILE)
def test_an_option_that_is_no_name_and_no_plain_value_is_refused(
    tmp_path: Path, option: str
) -> None:
    folder = with_overrides(tmp_path, "seed=1", option)
    with pytest.raises(ValueError, match="neither a name of conf/ nor a plain value") as error:
        run_config(folder)
    assert str(folder / "overrides.yaml") in str(error.value)
    if option.lstrip("+").startswith("data"):
        assert option in str(error.value)
        with pytest.raises(ValueError, match="neither a name"):
            run_config(folder, only=("data",))
    else:
        run_config(folder, only=("data",))


def test_names_and_plain_values_are_composed_from_conf(tmp_path: Path) -> None:
    options = [
        "model=knrm",
        "data.seed=3",
        "seed=5",
        "+data.test.test_queries=12",
        "lists.relevant=null",
        "adapter=lora",
    ]
    config = run_config(with_overrides(tmp_path, *options))
    assert (config.model.name, config.data.seed, config.seed, config.data.test.test_queries) == (
        "knrm",
        3,
        5,
        12,
    )
    assert run_config(tmp_path, only=("data",)).seed == 0


@pytest.mark.parametrize("text", ["{", "a: 1", "[1, 2]", "[data=]==", '["data.no_such_key=3"]'])
def test_damaged_options_are_an_error_with_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "overrides.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"overrides\.yaml"):
        run_config(tmp_path)


@pytest.mark.parametrize(
    "text", [f"data.sizes={'[' * 2000}{']' * 2000}", f"seed={'1' * 20_000}", f"seed={'(' * 3000}"]
)
def test_an_option_that_would_cost_the_parser_its_stack_is_refused(
    tmp_path: Path, text: str
) -> None:
    folder = with_overrides(tmp_path, text)
    with pytest.raises(
        ValueError, match=r"overrides\.yaml: .*\.\.\. is too long or has too many brackets"
    ):
        run_config(folder)


@pytest.mark.parametrize(
    "text", ["[" * 2000 + "]" * 2000, "- " * 2000 + "a", "a: &a {k: v}\nb: {<<: *a}"]
)
def test_options_that_are_nested_too_deeply_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "overrides.yaml").write_text(text)
    with pytest.raises(
        ValueError, match=r"overrides\.yaml is not YAML .*(levels deep|merged by <<)"
    ):
        run_config(tmp_path)


def test_plain_values_leave_out_what_names_code_or_interpolates(tmp_path: Path) -> None:
    node = {
        "name": "knrm",
        "ranker": {"_target_": "os.system", "layers": 2},
        "home": "${oc.env:HOME}",
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model": node, "seed": 3}))
    assert plain_values(tmp_path) == {"model": {"name": "knrm", "ranker": {"layers": 2}}, "seed": 3}
    assert plain_values(tmp_path / "nowhere") == {}


class _Touch:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_checkpoint_that_holds_code_is_not_run(tmp_path: Path) -> None:
    from backpack_rank.files import LAST
    from backpack_rank.pipelines.train import train

    file = tmp_path / LAST
    file.parent.mkdir()
    torch.save({"state_dict": {}, "more": _Touch(tmp_path / "touched")}, file)
    small = [
        "model.tokenizer.vocab_size=400",
        "model.ranker.layers=1",
        "model.ranker.hidden_size=16",
    ]
    small += [
        "model.ranker.heads=2",
        "pretraining.epochs=0",
        "+data.train.train_queries=8",
        "+data.train.documents=40",
    ]
    small += [
        "+data.dev.dev_queries=4",
        "+data.dev.documents=20",
        "training.epochs=1",
        "logger.save_dir=x",
    ]
    config = run_config(with_overrides(tmp_path / "new", *small))
    config.resume = str(tmp_path)
    with_overrides(tmp_path, *small)
    with pytest.raises(ValueError, match=r"last\.ckpt holds more than weights and numbers"):
        train(config, tmp_path, [])
    assert not (tmp_path / "touched").exists()
