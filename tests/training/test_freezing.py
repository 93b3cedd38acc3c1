"""Frozen parts stay as they are, bit for bit; wrong names are refused; thawing and resuming go
together.
"""

import lightning as L
import pytest
import torch
from small_training import changed_names, state_of, train_with_checkpoints
from transformers import (
    AlbertConfig,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    LlamaConfig,
    ModernBertConfig,
)

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.configuration import CrossEncoderConfig
from backpack_rank.models.rankers import CrossEncoderForRanking
from backpack_rank.training.freezing import FrozenParts, UnfreezeCallback, parts

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "pad_token_id": 0,
}
BACKBONES = {
    "bert": (BertConfig(**SHAPE), "encoder.layer.{}."),
    "modernbert": (
        ModernBertConfig(**SHAPE, bos_token_id=1, eos_token_id=2, cls_token_id=1),
        "layers.{}.",
    ),
    "llama": (LlamaConfig(**SHAPE), "layers.{}."),
    "gpt2": (
        GPT2Config(vocab_size=50, n_embd=32, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2),
        "h.{}.",
    ),
    "distilbert": (
        DistilBertConfig(vocab_size=50, dim=32, n_layers=3, n_heads=4, hidden_dim=48),
        "transformer.layer.{}.",
    ),
}


def cross_encoder(name="bert"):
    return CrossEncoderForRanking(CrossEncoderConfig(backbone_config=BACKBONES[name][0]))


def frozen_names(ranker, *entries):
    """Parameters that are frozen by the entries."""
    ranker.requires_grad_(True)
    assert FrozenParts(entries).apply(ranker) == []
    return {name for name, parameter in ranker.named_parameters() if not parameter.requires_grad}


def names(ranker, prefix):
    return {name for name, _ in ranker.named_parameters() if name.startswith(prefix)}


@pytest.fixture
def ranker(make_backpack):
    return make_backpack(layers=3)


@pytest.mark.parametrize("name", BACKBONES)
def test_layers_of_every_family_are_found(name):
    ranker, pattern = cross_encoder(name), "backbone." + BACKBONES[name][1]
    of_layer_1, of_layer_2 = (names(ranker, pattern.format(number)) for number in (1, 2))
    assert of_layer_1
    assert of_layer_2
    assert frozen_names(ranker, "backbone.layers.1") == of_layer_1
    assert frozen_names(ranker, "backbone.layers.1-2") == of_layer_1 | of_layer_2


def test_parts_of_a_backpack_are_frozen_by_their_names(ranker):
    assert frozen_names(ranker, "senses") == names(ranker, "backpack.sense_network.")
    assert frozen_names(ranker, "weights") == names(ranker, "backpack.sense_weight_net.")
    assert frozen_names(ranker, "head") == names(ranker, "head.")
    assert frozen_names(ranker, "backbone") == names(ranker, "backpack.backbone.")
    assert frozen_names(ranker, "backbone.embeddings") == {"backpack.backbone.wte.weight"}
    assert frozen_names(ranker) == set()


def test_patterns_and_parts_may_be_mixed_and_overlap(ranker):
    frozen = frozen_names(ranker, "*.bias", "head", "head.out.*")
    assert frozen == names(ranker, "head.") | {
        name for name, _ in ranker.named_parameters() if name.endswith(".bias")
    }


def test_a_parameter_with_two_names_is_frozen_by_either(ranker):
    """Published GPT-2 Backpacks name the word embeddings twice."""
    assert frozen_names(ranker, "backpack.word_embeddings.*") == {"backpack.backbone.wte.weight"}


def test_a_layer_that_is_run_several_times_has_no_number():
    config = AlbertConfig(**SHAPE, embedding_size=16)
    ranker = CrossEncoderForRanking(CrossEncoderConfig(backbone_config=config))
    assert list(parts(ranker)) == ["backbone", "backbone.embeddings", "head"]


@pytest.mark.parametrize(
    "entry",
    ["backbone.layers.3", "backbone.layers.2-3", "backbone.layers.2-1", "sense", "senses.*"],
)
def test_an_entry_that_matches_nothing_says_what_there_is(ranker, entry):
    with pytest.raises(
        ValueError, match=f"'{entry.replace('*', '.')}' is no part of BackpackForRanking"
    ) as raised:
        FrozenParts([entry]).apply(ranker)
    known = "Parts are backbone, backbone.embeddings, backbone.layers.0-2, senses, weights, head; parameters have names"
    assert known in str(raised.value)
    assert "backpack.backbone.wte.weight" in str(raised.value)
    assert all(parameter.requires_grad for parameter in ranker.parameters())


def test_a_cross_encoder_has_no_senses():
    with pytest.raises(ValueError, match="'senses' is no part of CrossEncoderForRanking"):
        FrozenParts(["senses"]).apply(cross_encoder())


def test_freezing_everything_is_refused(ranker):
    with pytest.raises(ValueError, match="leaves no parameter to train"):
        FrozenParts(["backbone", "senses", "weights", "head"]).apply(ranker)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frozen": "head"}, r"must be a list: training.frozen=\[head\]"),
        ({"frozen": ["head"], "epochs": 0}, "training.frozen_epochs=0 must be at least 1"),
        ({"epochs": 2}, "training.frozen must say what"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FrozenParts(**options)


def test_frozen_word_embeddings_get_no_gradient_and_the_senses_above_them_do(ranker):
    ranker.train()
    FrozenParts(["backbone.embeddings", "backbone.layers.0-1"]).apply(ranker)
    ranker(PackedBatch.from_sequences([[3, 4, 5], [6, 7]])).scores.sum().backward()
    with_gradient = {
        name for name, parameter in ranker.named_parameters() if parameter.grad is not None
    }
    assert "backpack.backbone.wte.weight" not in with_gradient
    assert names(ranker, "backpack.sense_network.") <= with_gradient
    assert names(ranker, "backpack.backbone.h.2.") <= with_gradient
    assert not names(ranker, "backpack.backbone.h.1.") & with_gradient


@pytest.fixture
def train_epochs(tiny_collection, pair_tokenizer):
    """A function that trains a ranker for some epochs on the tiny collection."""

    def fit(ranker, folder, freezing, start=None, epochs=3):
        train_with_checkpoints(
            ranker,
            tiny_collection,
            pair_tokenizer,
            folder,
            epochs,
            callbacks=freezing.apply(ranker),
            start=start,
        )
        return state_of(ranker)

    return fit


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_training_leaves_frozen_parts_bit_for_bit(make_backpack, train_epochs, tmp_path):
    before = make_backpack(dropout=0.1).state_dict()
    after = train_epochs(make_backpack(dropout=0.1), tmp_path, FrozenParts(["backbone"]), epochs=1)
    frozen = {n for n in before if "backbone" in n or n.endswith("_embeddings.weight")}
    assert changed_names(before, after) == set(before) - frozen


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*The dirpath has changed.*"
)
def test_a_thawed_part_is_trained_later_and_a_resumed_run_ends_where_the_uninterrupted_one_does(
    make_backpack, train_epochs, tmp_path
):
    freezing = FrozenParts(["backbone", "senses"], epochs=2)
    start = make_backpack(dropout=0.1).state_dict()
    uninterrupted = train_epochs(make_backpack(dropout=0.1), tmp_path, freezing)
    states = [
        torch.load(tmp_path / f"epoch={epoch}.ckpt", weights_only=False)["state_dict"]
        for epoch in range(3)
    ]
    changed = [
        {name for name in start if not torch.equal(start[name], state[f"ranker.{name}"])}
        for state in states
    ]
    assert (
        changed[0]
        == changed[1]
        == {n for n in start if n.startswith(("head.", "backpack.sense_weight_net."))}
    )
    assert changed[2] == set(start)
    for epoch in (0, 1):
        torch.manual_seed(99)
        resumed = train_epochs(
            make_backpack(seed=5, dropout=0.1),
            tmp_path / "two",
            freezing,
            tmp_path / f"epoch={epoch}.ckpt",
        )
        assert changed_names(uninterrupted, resumed) == set()


def test_thawing_in_several_processes_asks_for_the_right_strategy():
    def set_up(strategy):
        trainer = L.Trainer(accelerator="cpu", strategy=strategy, devices=2, logger=False)
        UnfreezeCallback([], 1).setup(trainer, None, "fit")

    with pytest.raises(ValueError, match=r"needs trainer.strategy=ddp_find_unused_parameters_true"):
        set_up("ddp")
    set_up("ddp_find_unused_parameters_true")
