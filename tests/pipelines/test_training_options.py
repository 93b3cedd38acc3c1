"""train.py's options for frozen parts, adapters and precision, and all that act on a ranker with a
similarity, through the whole training path.
"""

import platform
from itertools import product
from pathlib import Path

import pytest
import torch
from hydra.errors import InstantiationException
from in_process import configured
from real_layout import write_encoder
from safetensors.torch import load_file

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


@pytest.mark.slow
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


@pytest.mark.slow
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


BESIDE_COSINE = [
    "model.ranker.similarity=20",
    "+data.train.train_queries=8",
    "+data.train.documents=40",
    "+data.dev.dev_queries=3",
    "+data.dev.documents=20",
    "lists.size=4",
    "max_length=64",
    "reconstruct.steps=0",
    "training.epochs=1",
    "training.lists_per_batch=2",
    "training.head_learning_rate=1e-2",
]
KINDS = {
    "cross_encoder": ["model=cross_encoder"],
    "backpack": ["model=backpack"],
    "plain_backpack": ["model=backpack", "model.ranker.attribute_senses=null"],
}
THAWED = ["training.frozen=[head.dense.*]", "training.frozen_epochs=1", "training.epochs=2"]
TAUGHT = ["teacher=ranker", "teacher.checkpoint={reference}", "teacher.loss=listwise_kl"]
RECONSTRUCTED = ["reconstruct.steps=2", "reconstruct.texts=20", "reconstruct.held_out=5"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return write_encoder(tmp_path_factory.mktemp("encoder") / "bert")


@pytest.fixture(scope="module")
def reference(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder with a similarity: a teacher, and what swaps are held to."""
    folder = tmp_path_factory.mktemp("reference")
    trained_beside_cosine(folder, encoder, *KINDS["cross_encoder"])
    return folder


def trained_beside_cosine(folder: Path, encoder: Path, *options: str) -> dict[str, torch.Tensor]:
    """Train a ranker with a similarity, and read its weights."""
    given = [*BESIDE_COSINE, f"model.ranker.name={encoder}", f"output={folder}", *options]
    train(configured("train", *given), folder, [])
    return weights_of(folder)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a run's ranker; those of a Backpack have the names of a cross-encoder's."""
    weights = load_file(folder / "ranker" / "model.safetensors")
    return {name.removeprefix("backpack."): weight for name, weight in weights.items()}


def changed_layers(weights: dict[str, torch.Tensor], encoder: Path) -> tuple[set[str], set[str]]:
    """Weights of the encoder, and of its copies, that are others than before the training."""
    of_encoder = set()
    of_copies = set()
    for name, weight in load_file(encoder / "model.safetensors").items():
        if name.startswith("pooler."):  # a ranker has none
            continue
        kept = weights[f"backbone.{name}"]
        if not torch.equal(kept, weight.to(kept.dtype)):
            of_encoder.add(name)
        # Of two layers the second is copied.
        copied = name.replace("encoder.layer.1.", "joint.layers.0.")
        if copied != name and not torch.equal(weights[copied], weight):
            of_copies.add(copied)
    return of_encoder, of_copies


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *product(KINDS, [["training.adversary=0.5", "training.augment=swap"]]),
        *product(
            ["cross_encoder", "backpack"],
            [
                ["lists.negatives=bias_aware", "training.loss=lambdarank"],
                THAWED,
                TAUGHT,
                ["model.ranker.dtype=bfloat16"],
            ],
        ),
        ("backpack", RECONSTRUCTED),
    ],
)
def test_every_option_trains_what_a_similarity_leaves_to_train(
    kind: str, options: list[str], encoder: Path, reference: Path, tmp_path: Path
) -> None:
    options = [option.format(reference=reference) for option in options]
    weights = trained_beside_cosine(tmp_path, encoder, *KINDS[kind], *options)
    of_encoder, of_copies = changed_layers(weights, encoder)
    assert not of_encoder
    assert "joint.layers.0.output.dense.weight" in of_copies


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_joint_layers_are_a_part_that_can_be_frozen(encoder: Path, tmp_path: Path) -> None:
    weights = trained_beside_cosine(
        tmp_path, encoder, *KINDS["backpack"], "training.frozen=[joint]"
    )
    assert changed_layers(weights, encoder) == (set(), set())
    assert weights["head.out.weight"].any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["cross_encoder", "backpack"])
def test_a_ranker_that_is_trained_further_keeps_its_encoder(
    kind: str, encoder: Path, tmp_path: Path
) -> None:
    first = trained_beside_cosine(tmp_path / "first", encoder, *KINDS[kind])
    options = [option for option in BESIDE_COSINE if not option.startswith(("model.", "recon"))]
    options += [f"checkpoint={tmp_path / 'first'}", f"output={tmp_path}", "training.adversary=0.5"]
    train(configured("train", *options), tmp_path / "second", [])
    further = weights_of(tmp_path / "second")
    assert not changed_layers(further, encoder)[0]
    assert not torch.equal(further["head.out.weight"], first["head.out.weight"])

    ranker, _ = load_ranker(tmp_path / "second" / "ranker")
    frozen = [name for name, value in ranker.named_parameters() if not value.requires_grad]
    assert len(frozen) == sum("backbone." in name for name, _ in ranker.named_parameters())
    assert all("backbone." in name for name in frozen)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cross_encoder", "backpack"])
def test_an_encoder_that_stays_as_it_is_takes_no_adapter(
    kind: str, encoder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="with a similarity the encoder stays as it is"):
        trained_beside_cosine(tmp_path, encoder, *KINDS[kind], "adapter=lora")
