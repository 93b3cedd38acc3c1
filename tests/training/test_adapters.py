"""LoRA through peft itself: what is trained, what is merged, what is saved, and what is refused."""

import sys

import pytest
import torch
from small_training import changed_names, state_of, train_with_checkpoints
from transformers import BertConfig, GPT2Config, ModernBertConfig, Qwen2Config

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.configuration import BackpackConfig, CrossEncoderConfig
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking
from backpack_rank.models.utils import cast_parameters
from backpack_rank.training.adapters import Lora, NoAdapter, merged
from backpack_rank.training.freezing import FrozenParts, backbone_of
from backpack_rank.training.module import OptimizerConfig

pytest.importorskip("peft")

TEXTS = [[3, 4, 5, 6], [7, 8], [9, 10, 11]]
BATCH = PackedBatch.from_sequences(TEXTS)


def config(name):
    shape = {
        "vocab_size": 60,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 48,
        "initializer_range": 0.2,
    }
    if name == "bert":
        return BertConfig(**shape, attention_probs_dropout_prob=0.0)
    if name == "qwen2":
        return Qwen2Config(**shape, num_key_value_heads=2)
    return GPT2Config(**shape, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2)


def backpack(name, seed=0):
    torch.manual_seed(seed)
    options = {"backbone_config": config(name), "num_senses": 4, "initializer_range": 0.2}
    return BackpackForRanking(BackpackConfig(**options)).eval()


def cross_encoder(name, seed=0):
    torch.manual_seed(seed)
    return CrossEncoderForRanking(
        CrossEncoderConfig(backbone_config=config(name), initializer_range=0.2)
    ).eval()


def adapted(ranker, moved=0.05, **options):
    """The ranker with adapters that do something."""
    Lora(**{"rank": 4, "dropout": 0.0, "target_modules": "all-linear", **options}).apply(ranker)
    with torch.no_grad():
        for name, parameter in ranker.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=moved)
    return ranker


def trained(ranker):
    return {name for name, parameter in ranker.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("make", [backpack, cross_encoder])
@pytest.mark.parametrize("name", ["bert", "qwen2", "gpt2"])
def test_only_adapters_and_new_parts_get_gradients(make, name):
    ranker = make(name)
    before = {key for key, _ in ranker.named_parameters()}
    inside = {key for key in before if ".backbone." in f".{key}"}
    adapted(ranker)
    ranker(BATCH).scores.sum().backward()
    got = {key for key, parameter in ranker.named_parameters() if parameter.grad is not None}
    assert got == trained(ranker)
    new = before - inside
    assert new <= got
    assert all(".lora_" in key for key in got - new)
    assert got - new


@torch.no_grad()
def test_scores_do_not_change_when_an_adapter_is_put_in():
    ranker = backpack("qwen2")
    scores = ranker(BATCH).scores
    Lora().apply(ranker)
    assert torch.equal(ranker(BATCH).scores, scores)


@pytest.mark.parametrize("name", ["bert", "qwen2", "gpt2"])
@torch.no_grad()
def test_the_merged_weight_is_the_weight_plus_the_scaled_product(name):
    ranker = adapted(backpack(name), rank=3, scale=1.5)
    ends = {
        "bert": "encoder.layer.1.output.dense",
        "qwen2": "layers.1.mlp.down_proj",
        "gpt2": "h.1.mlp.c_proj",
    }[name]
    layer = ranker.backpack.backbone.get_submodule(ends)
    product = 1.5 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    assert layer.lora_A["default"].weight.shape[0] == 3
    expected = layer.base_layer.weight + (product.T if name == "gpt2" else product)
    with merged(ranker):
        merged_weight = ranker.backpack.backbone.get_submodule(ends).weight
    torch.testing.assert_close(merged_weight, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [backpack, cross_encoder])
@pytest.mark.parametrize("name", ["bert", "qwen2", "gpt2"])
@torch.no_grad()
def test_merged_scores_are_the_unmerged_ones_and_nothing_is_left_behind(make, name):
    plain = make(name)(BATCH).scores
    ranker = adapted(make(name))
    state = state_of(ranker)
    scores = ranker(BATCH).scores
    assert (scores - plain).abs().max() > 0.02
    with merged(ranker) as same:
        assert same is ranker
        assert set(ranker.state_dict()) == set(make(name).state_dict())
        torch.testing.assert_close(ranker(BATCH).scores, scores, rtol=1e-5, atol=1e-5)
    assert changed_names(state, ranker.state_dict()) == set()
    assert any(".lora_A." in key for key in trained(ranker))
    assert torch.equal(ranker(BATCH).scores, scores)


@torch.no_grad()
def test_adapters_come_back_when_saving_fails():
    ranker = adapted(backpack("qwen2"))
    names = list(ranker.state_dict())
    with pytest.raises(OSError, match="disk full"), merged(ranker):
        raise OSError("disk full")
    assert list(ranker.state_dict()) == names


@torch.no_grad()
def test_packed_texts_score_as_each_text_alone_through_adapters():
    for name in ("bert", "qwen2"):
        ranker = adapted(backpack(name))
        alone = [ranker(PackedBatch.from_sequences([text])).scores for text in TEXTS]
        torch.testing.assert_close(ranker(BATCH).scores, torch.cat(alone), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_saved_folder_is_read_without_peft(make_backpack, pair_tokenizer, tmp_path, monkeypatch):
    ranker = adapted(make_backpack())
    ids = pair_tokenizer.pairs("the doctor", ["He works in the ward.", ""])
    scores = ranker(PackedBatch.from_sequences(ids)).scores
    with merged(ranker):
        save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    for module in [name for name in sys.modules if name.split(".")[0] == "peft"]:
        monkeypatch.setitem(sys.modules, module, None)
    again, _ = load_ranker(tmp_path / "ranker")
    with merged(again.eval()) as same:
        again_scores = same(PackedBatch.from_sequences(ids)).scores
    torch.testing.assert_close(again_scores, scores, rtol=1e-5, atol=1e-5)
    with pytest.raises(ImportError, match=r"adapter=lora needs peft: pip install '\.\[lora\]'"):
        Lora().apply(again)


def test_peft_chooses_the_modules_of_models_that_it_knows():
    for name, expected in (
        ("bert", {"query", "value"}),
        ("qwen2", {"q_proj", "v_proj"}),
        ("gpt2", {"c_attn"}),
    ):
        ranker = backpack(name)
        Lora(rank=2).apply(ranker)
        chosen = {
            key.split(".lora_")[0].rsplit(".", 1)[-1] for key in trained(ranker) if ".lora_" in key
        }
        assert chosen == expected


def test_a_model_that_peft_does_not_know_needs_names():
    backbone_config = ModernBertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        pad_token_id=0,
    )
    ranker = CrossEncoderForRanking(CrossEncoderConfig(backbone_config=backbone_config))
    with pytest.raises(
        ValueError, match=r"'modernbert': set adapter.target_modules=all-linear, or to some of Wqkv"
    ):
        Lora().apply(ranker)
    Lora(target_modules=["attn.Wo"]).apply(ranker)
    assert {key for key in trained(ranker) if "backbone." in key} == {
        "backbone.layers.0.attn.Wo.lora_A.default.weight",
        "backbone.layers.0.attn.Wo.lora_B.default.weight",
    }


@pytest.mark.parametrize(
    ("targets", "unknown"),
    [
        (["q_proj", "query"], "query"),
        (["proj"], "proj"),
        ("layers.0.q_proj", r"layers.0.q_proj"),
        (["embed_tokens"], "embed_tokens"),  # the sense network reads it too
        (["sense_weight_net"], "sense_weight_net"),
    ],
)
def test_names_that_no_linear_layer_of_the_backbone_has_are_refused(targets, unknown):
    ranker = backpack("qwen2")
    with pytest.raises(
        ValueError, match=rf"called {unknown}; there are q_proj, k_proj, v_proj, o_proj, gate_proj"
    ):
        Lora(target_modules=targets).apply(ranker)
    assert not any(".lora_" in name for name, _ in ranker.named_parameters())


def test_a_pattern_is_of_whole_names():
    ranker = backpack("qwen2")
    Lora(target_modules=r"layers\.1\..*\.[qk]_proj").apply(ranker)
    with_adapters = {key.split(".lora_")[0] for key in trained(ranker) if ".lora_" in key}
    assert with_adapters == {f"backpack.backbone.layers.1.self_attn.{name}_proj" for name in "qk"}


@pytest.mark.parametrize(
    "options",
    [{"rank": 0}, {"scale": 0.0}, {"dropout": 1.0}, {"target_modules": []}, {"target_modules": ""}],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match=f"adapter.{next(iter(options))}"):
        Lora(**options)


def test_no_adapter_leaves_everything_trainable():
    ranker = backpack("bert")
    NoAdapter().apply(ranker)
    with merged(ranker) as same:
        assert same is ranker
    assert len(trained(ranker)) == len(list(ranker.parameters()))


def test_layers_frozen_beside_an_adapter_keep_their_adapters_as_they_are():
    ranker = adapted(backpack("qwen2"))
    FrozenParts(["backbone.layers.0", "head"]).apply(ranker)
    left = trained(ranker)
    assert not any(".layers.0." in name or name.startswith("head.") for name in left)
    assert any(".layers.1." in name and ".lora_" in name for name in left)


def test_what_thaws_beside_an_adapter_is_the_adapter_and_not_the_backbone():
    ranker = adapted(backpack("qwen2"))
    (thaw,) = FrozenParts(["backbone"], epochs=1).apply(ranker)
    names = {id(parameter): name for name, parameter in ranker.named_parameters()}
    assert {names[id(parameter)] for parameter in thaw.parameters} == {
        n for n in names.values() if ".lora_" in n
    }


@torch.no_grad()
def test_adapters_of_a_backbone_in_bf16_are_in_fp32_and_merge_within_its_rounding():
    ranker = backpack("qwen2")
    cast_parameters(backbone_of(ranker), "bfloat16")
    adapted(ranker)
    formats = {
        ".lora_" in name: parameter.dtype
        for name, parameter in backbone_of(ranker).named_parameters()
    }
    assert formats == {True: torch.float32, False: torch.bfloat16}
    assert OptimizerConfig().optimizer(ranker).param_groups
    scores = ranker(BATCH).scores
    exact = adapted(backpack("qwen2"))
    exact.load_state_dict(ranker.state_dict())
    exact = exact(BATCH).scores
    assert scores.dtype == torch.float32
    with merged(ranker):
        assert {parameter.dtype for parameter in backbone_of(ranker).parameters()} == {
            torch.bfloat16
        }
        together = ranker(BATCH).scores
    spread = exact.std()
    assert 0 < (scores - exact).abs().max() < 0.2 * spread
    assert 0 < (together - exact).abs().max() < 0.2 * spread


@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*The dirpath has changed.*"
)
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(
    make_backpack, tiny_collection, pair_tokenizer, tmp_path
):
    def fit(seed, folder, start=None):
        ranker = make_backpack(dropout=0.1)
        torch.manual_seed(seed)  # other adapters at the start
        Lora(rank=2, dropout=0.1).apply(ranker)
        train_with_checkpoints(
            ranker, tiny_collection, pair_tokenizer, folder, epochs=2, start=start
        )
        with merged(ranker):
            return state_of(ranker)

    uninterrupted = fit(0, tmp_path / "one")
    resumed = fit(1, tmp_path / "two", tmp_path / "one" / "epoch=0.ckpt")
    assert changed_names(uninterrupted, resumed) == set()
    start = make_backpack().state_dict()
    changed = changed_names(start, uninterrupted)
    inside = {name for name in changed if ".backbone." in name}
    assert inside == {f"backpack.backbone.h.{layer}.attn.c_attn.weight" for layer in (0, 1)}
    assert changed - inside == {
        n for n in start if ".backbone." not in n and not n.endswith("_embeddings.weight")
    }
