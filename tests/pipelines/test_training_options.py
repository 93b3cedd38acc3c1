"""train.py's options for frozen parts, adapters and precision, through the whole training path."""

import platform
from pathlib import Path

import pytest
import torch
from hydra.errors import InstantiationException
from in_process import configured

from backpack_rank.models.loading import load_ranker
from backpack_rank.pipelines.train import train
from backpack_rank.pipelines.training_settings import TrainingSettings

SMALL = [
    "model.tokenizer.vocab_size=500",
    "model.ranker.layers=1",
    "model.ranker.hidden_size=32",
    "model.ranker.heads=2",
    "+data.train.train_queries=8",
    "+data.train.documents=40",
    "+data.dev.dev_queries=3",
    "+data.dev.documents=20",
    "max_length=64",
    "pretraining.epochs=0",
    "training.epochs=1",
]


def trained(folder: Path, *options: str) -> None:
    train(configured("train", *SMALL, f"output={folder}", *options), folder, [])


@pytest.mark.filterwarnings("ignore")
def test_a_run_with_adapters_and_frozen_parts_saves_an_ordinary_ranker(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    trained(
        tmp_path,
        "adapter=lora",
        "adapter.rank=2",
        "training.frozen=[weights]",
        "training.learning_rate=0.05",
    )
    ranker, _ = load_ranker(tmp_path / "ranker")
    (path,) = (tmp_path / "checkpoints").glob("step=*.ckpt")
    checkpoint = torch.load(path, weights_only=False)
    state = {
        name.removeprefix("ranker."): value for name, value in checkpoint["state_dict"].items()
    }
    weights = ranker.state_dict()
    module = "backpack.backbone.h.0.attn.c_attn"
    product = state[f"{module}.lora_B.default.weight"] @ state[f"{module}.lora_A.default.weight"]
    assert product.abs().max() > 1e-4
    torch.testing.assert_close(
        weights[f"{module}.weight"], state[f"{module}.base_layer.weight"] + 2.0 * product.T
    )
    assert set(state) - set(weights) == {
        f"{module}.{name}"
        for name in ("base_layer.weight", "base_layer.bias", "lora_A.default.weight")
    } | {f"{module}.lora_B.default.weight"}
    (optimizer,) = checkpoint["optimizer_states"]
    changed = sum(len(group["params"]) for group in optimizer["param_groups"])
    sense = sum(name.startswith(("backpack.sense_network.", "head.")) for name in weights)
    assert changed == sense + 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["training.frozen=[sense]"], "'sense' is no part of BackpackForRanking"),
        (["training.frozen=head"], r"training.frozen=head must be a list"),
        (["training.frozen_epochs=1"], r"training.frozen must say what"),
        (
            ["trainer.precision=bf16-true"],
            r"trainer.precision=bf16-true keeps every weight in half precision",
        ),
        (["adapter=lora", "adapter.rank=0"], r"adapter.rank=0 must be a whole number from 1"),
        (
            ["adapter=lora", "adapter.target_modules=[query]"],
            "called query; there are c_attn, c_proj, c_fc",
        ),
    ],
)
def test_wrong_options_end_before_training(
    tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises((ValueError, InstantiationException), match=message):
        trained(tmp_path, *options)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.skipif(
    not Path("/proc/cpuinfo").is_file(), reason="asks Linux what the processor can do"
)
@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the names of the features are those of x86"
)
def test_precision_auto_is_bf16_where_the_processor_has_it() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    wanted = "bf16-mixed" if flags & {"avx512_bf16", "amx_bf16"} else "32-true"
    settings = TrainingSettings.of(configured("train", "trainer.precision=auto"))
    assert settings.trainer.options["precision"] == wanted
    assert TrainingSettings.of(configured("train")).trainer.options["precision"] == "32-true"
