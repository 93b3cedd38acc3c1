"""Checkpoints in the layout of stanfordnlp/backpack-gpt2, against a slow Backpack written here from
the formulas.
"""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

from backpack_rank.models.backpack import BackpackLMHeadModel, BackpackModel
from backpack_rank.models.rankers import BackpackForRanking, GPT2ForRanking

# The published shape in small; the scale is not 4, so that it cannot be mixed up with the block's
# 4d.
D, LAYERS, HEADS, SENSES, SCALE, VOCABULARY, POSITIONS = 24, 3, 3, 4, 3, 40, 20
ALIASES = {
    "backpack.word_embeddings.weight": "backpack.gpt2_model.wte.weight",
    "backpack.position_embeddings.weight": "backpack.gpt2_model.wpe.weight",
    "lm_head.weight": "backpack.gpt2_model.wte.weight",
}
CONFIG = {
    "activation_function": "gelu_new",
    "architectures": ["BackpackGPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "auto_map": {
        "AutoConfig": "configuration_backpack_gpt2.BackpackGPT2Config",
        "AutoModelForCausalLM": "modeling_backpack_gpt2.BackpackGPT2LMHeadModel",
    },
    "bos_token_id": 39,
    "embd_pdrop": 0.1,
    "eos_token_id": 39,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_embd": D,
    "n_head": HEADS,
    "n_inner": None,
    "n_layer": LAYERS,
    "n_positions": POSITIONS,
    "num_senses": SENSES,
    "reorder_and_upcast_attn": True,
    "resid_pdrop": 0.1,
    "scale_attn_by_inverse_layer_idx": True,
    "scale_attn_weights": True,
    "sense_intermediate_scale": SCALE,
    "torch_dtype": "float32",
    "use_cache": True,
    "vocab_size": VOCABULARY,
}


def published_state() -> dict[str, torch.Tensor]:
    """Random weights under exactly the published names, large enough for peaked softmaxes."""
    generator = torch.Generator().manual_seed(5)

    def random(*shape):
        return torch.randn(shape, generator=generator) * 0.3

    def norm(name):
        return {f"{name}.weight": 1 + random(D), f"{name}.bias": random(D)}

    def conv(name, rows, columns):  # Conv1D: [in, out]
        return {f"{name}.weight": random(rows, columns), f"{name}.bias": random(columns)}

    trunk = "backpack.gpt2_model"
    state = {
        f"{trunk}.wte.weight": random(VOCABULARY, D),
        f"{trunk}.wpe.weight": random(POSITIONS, D),
    }
    for layer in range(LAYERS):
        block = f"{trunk}.h.{layer}"
        state |= norm(f"{block}.ln_1") | norm(f"{block}.ln_2")
        state |= conv(f"{block}.attn.c_attn", D, 3 * D) | conv(f"{block}.attn.c_proj", D, D)
        state |= conv(f"{block}.mlp.c_fc", D, 4 * D) | conv(f"{block}.mlp.c_proj", 4 * D, D)
        # Buffers of old versions.
        state[f"{block}.attn.bias"] = torch.ones(1, 1, POSITIONS, POSITIONS).tril().to(torch.uint8)
        state[f"{block}.attn.masked_bias"] = torch.tensor(-1e4)
    state |= norm(f"{trunk}.ln_f")
    senses = "backpack.sense_network"
    state |= norm(f"{senses}.ln") | norm(f"{senses}.block.ln_1") | norm(f"{senses}.block.ln_2")
    state |= conv(f"{senses}.block.mlp.c_fc", D, 4 * D) | conv(
        f"{senses}.block.mlp.c_proj", 4 * D, D
    )
    state |= conv(f"{senses}.final_mlp.c_fc", D, SCALE * D) | conv(
        f"{senses}.final_mlp.c_proj", SCALE * D, SENSES * D
    )
    state |= {
        "backpack.sense_weight_net.c_attn.weight": random(2 * D, D),  # Linear: [out, in]
        "backpack.sense_weight_net.c_attn.bias": random(2 * D),
    }
    return state | {alias: state[name] for alias, name in ALIASES.items()}


def slow_logits(state: dict[str, torch.Tensor], ids: list[int]) -> torch.Tensor:
    """Logits [n, vocabulary] in float64, position by position and sense by sense."""
    weights = {name: tensor.double() for name, tensor in state.items()}

    def norm(name, x):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[
            f"{name}.bias"
        ]

    def conv(name, x):
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def mlp(name, x):
        h = conv(f"{name}.c_fc", x)
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        return conv(f"{name}.c_proj", h)

    trunk, embedding = "backpack.gpt2_model", weights["backpack.word_embeddings.weight"]
    x = torch.stack(
        [
            embedding[i] + weights["backpack.position_embeddings.weight"][n]
            for n, i in enumerate(ids)
        ]
    )
    size = D // HEADS
    for layer in range(LAYERS):
        block = f"{trunk}.h.{layer}"
        query, key, value = conv(f"{block}.attn.c_attn", norm(f"{block}.ln_1", x)).split(D, dim=1)
        mixed = torch.zeros_like(x)
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            for i in range(len(ids)):
                logits = torch.stack([query[i, part] @ key[j, part] for j in range(i + 1)])
                shares = torch.softmax(logits / math.sqrt(size) / (layer + 1), dim=0)
                mixed[i, part] = sum(shares[j] * value[j, part] for j in range(i + 1))
        x = x + conv(f"{block}.attn.c_proj", mixed)
        x = x + mlp(f"{block}.mlp", norm(f"{block}.ln_2", x))
    hidden = norm(f"{trunk}.ln_f", x)

    senses = []
    for i in ids:
        r1 = norm("backpack.sense_network.ln", embedding[i]) + embedding[i]
        v = norm("backpack.sense_network.block.ln_1", r1)
        r2 = mlp("backpack.sense_network.block.mlp", v) + r1
        w = norm("backpack.sense_network.block.ln_2", r2)
        senses.append(mlp("backpack.sense_network.final_mlp", w).reshape(SENSES, D))
    net = "backpack.sense_weight_net.c_attn"
    split = [
        (weights[f"{net}.weight"] @ h + weights[f"{net}.bias"]).reshape(2, SENSES, D // SENSES)
        for h in hidden
    ]
    out = []
    for i in range(len(ids)):
        o = torch.zeros(D, dtype=torch.float64)
        for sense in range(SENSES):
            logits = torch.stack([split[i][0, sense] @ split[j][1, sense] for j in range(i + 1)])
            shares = torch.softmax(logits / math.sqrt(D / SENSES), dim=0)
            for j in range(i + 1):
                o = o + shares[j] * senses[j][sense]
        out.append(weights["lm_head.weight"] @ o)
    return torch.stack(out)


def write_config(folder: Path, **changes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def write_bin(folder: Path, state: dict) -> Path:
    torch.save(state, write_config(folder) / "pytorch_model.bin")
    return folder


def write_safetensors(folder: Path, state: dict) -> Path:
    copies = {
        name: tensor.clone() for name, tensor in state.items()
    }  # the format refuses shared tensors
    save_file(copies, write_config(folder) / "model.safetensors", metadata={"format": "pt"})
    return folder


def without(state, *patterns):
    return {
        name: tensor
        for name, tensor in state.items()
        if not any(re.search(p, name) for p in patterns)
    }


def only_lm_head(state):
    """What a library keeps that drops shared tensors and happens to keep the last names."""
    return without(state, r"gpt2_model\.wte", r"gpt2_model\.wpe", "word_embeddings")


FORMS = {
    "bin": lambda folder, state: write_bin(folder, state),
    "bin without old buffers": lambda folder, state: write_bin(
        folder, without(state, r"\.attn\.bias", "masked_bias")
    ),
    "safetensors with copies": lambda folder, state: write_safetensors(folder, state),
    "safetensors without aliases": lambda folder, state: write_safetensors(
        folder, without(state, *ALIASES)
    ),
    "safetensors with aliases alone": lambda folder, state: write_safetensors(
        folder, only_lm_head(state)
    ),
}


@pytest.fixture(scope="module")
def state():
    return published_state()


@pytest.fixture(scope="module")
def expected_logits(state):
    texts = [[3, 17, 3, 8, 25, 0, 11], [39, 5, 1], [22]]
    return texts, [slow_logits(state, text) for text in texts]


@pytest.mark.parametrize("form", FORMS)
def test_logits_of_every_stored_form_equal_the_slow_implementation(
    form, state, expected_logits, tmp_path
):
    model, info = BackpackLMHeadModel.from_pretrained(
        FORMS[form](tmp_path, state), output_loading_info=True
    )
    assert not any(info.values()), info
    for text, logits in zip(*expected_logits, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(
                model(torch.tensor([text])).logits[0].double(), logits, atol=1e-5, rtol=1e-5
            )


@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_of_a_ragged_batch_equal_the_slow_implementation(
    side, state, expected_logits, tmp_path
):
    model = BackpackLMHeadModel.from_pretrained(write_bin(tmp_path, state))
    texts, logits = expected_logits
    ids, mask = torch.full((3, 9), 39), torch.zeros((3, 9), dtype=torch.long)
    places = [slice(9 - len(text), 9) if side == "left" else slice(0, len(text)) for text in texts]
    for row, (place, text) in enumerate(zip(places, texts, strict=True)):
        ids[row, place], mask[row, place] = torch.tensor(text), 1
    with torch.no_grad():
        computed_logits = model(ids, attention_mask=mask).logits.double()
    for row, (place, wanted) in enumerate(zip(places, logits, strict=True)):
        torch.testing.assert_close(computed_logits[row, place], wanted, atol=1e-5, rtol=1e-5)


def test_the_slow_weights_are_far_from_even(state, expected_logits):
    """The comparison would be blind to a wrong softmax if all logits were nearly alike."""
    text, logits = expected_logits[0][0], expected_logits[1][0]
    assert logits[-1].std() > 1
    swapped = slow_logits(state, [text[1], text[0], *text[2:]])
    assert (swapped[-1] - logits[-1]).abs().max() > 0.1


def test_loss_of_the_language_model_is_the_mean_over_next_tokens(state, expected_logits, tmp_path):
    model = BackpackLMHeadModel.from_pretrained(write_bin(tmp_path, state))
    (text, *_), (logits, *_) = expected_logits
    chosen = [logits[i].log_softmax(0)[text[i + 1]] for i in range(len(text) - 1)]
    with torch.no_grad():
        loss = model(torch.tensor([text]), labels=torch.tensor([text])).loss
    assert loss.item() == pytest.approx(-sum(chosen).item() / len(chosen), abs=1e-5)


def test_the_bare_network_loads_from_a_language_model(state, tmp_path):
    language_model = BackpackLMHeadModel.from_pretrained(write_bin(tmp_path, state))
    bare = BackpackModel.from_pretrained(tmp_path)
    ids = torch.tensor([[3, 17, 3, 8]])
    assert torch.equal(bare(ids).mixed, language_model.backpack(ids).mixed)


def test_a_ranker_takes_everything_but_its_head_from_a_language_model(state, tmp_path):
    ranker, info = BackpackForRanking.from_pretrained(
        write_bin(tmp_path, state), new_head=True, output_loading_info=True
    )
    assert info["missing_keys"] == {
        "head.dense.weight",
        "head.dense.bias",
        "head.out.weight",
        "head.out.bias",
    }
    loaded = ranker.state_dict()
    for name, tensor in without(state, r"attn\.(masked_)?bias", "lm_head").items():
        assert torch.equal(loaded[name.replace("gpt2_model", "backbone")], tensor), name
    assert loaded["head.dense.weight"].std() == pytest.approx(0.02, rel=0.2)
    assert not loaded["head.dense.bias"].any()


def test_code_beside_the_weights_is_never_run_and_not_passed_on(state, tmp_path):
    folder = write_bin(tmp_path / "published", state)
    for name in ("configuration_backpack_gpt2.py", "modeling_backpack_gpt2.py"):
        (folder / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    ranker = BackpackForRanking.from_pretrained(folder, new_head=True)
    assert not (tmp_path / "ran").exists()
    ranker.save_pretrained(tmp_path / "own")
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    assert "auto_map" not in config
    assert config["model_type"] == "backpack"
    assert config["architectures"] == ["BackpackForRanking"]


def test_a_ranker_without_its_head_is_no_ranker_unless_a_new_head_is_asked_for(state, tmp_path):
    write_bin(tmp_path, state)
    with pytest.raises(ValueError, match=r"4 keys missing: head\.dense\.bias.*new_head=True"):
        BackpackForRanking.from_pretrained(tmp_path)
    BackpackForRanking.from_pretrained(tmp_path, new_head=True)


@pytest.mark.parametrize("kept", [0, 5, 100, -7])
def test_damaged_weights_are_an_error_that_names_the_file(state, tmp_path, kept):
    BackpackForRanking.from_pretrained(
        write_bin(tmp_path / "from", state), new_head=True
    ).save_pretrained(tmp_path / "own")
    file = tmp_path / "own" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"own/model\.safetensors cannot be read"):
        BackpackForRanking.from_pretrained(tmp_path / "own")


def test_missing_keys_are_named(state, tmp_path):
    write_bin(tmp_path, without(state, r"sense_network\.ln\.", r"h\.1\.mlp\.c_fc\.bias"))
    with pytest.raises(
        ValueError, match=r"3 keys missing: .*h\.1\.mlp\.c_fc\.bias.*sense_network\.ln\.bias"
    ) as error:
        BackpackLMHeadModel.from_pretrained(tmp_path)
    assert "sense_network.ln.weight" in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_word_embeddings_under_no_name_at_all_are_missing(state, tmp_path):
    write_bin(tmp_path, without(state, r"\.wte\.", "word_embeddings", "lm_head"))
    with pytest.raises(ValueError, match=r"missing: .*wte"):
        BackpackForRanking.from_pretrained(tmp_path)


def test_shared_weights_that_differ_are_named(state, tmp_path):
    write_bin(tmp_path, state | {"lm_head.weight": state["lm_head.weight"] + 1})
    with pytest.raises(
        ValueError, match=r"must be equal: lm_head\.weight and backpack\.backbone\.wte\.weight"
    ):
        BackpackLMHeadModel.from_pretrained(tmp_path)


def test_unexpected_keys_are_named(state, tmp_path):
    write_bin(tmp_path, state | {"backpack.extra.weight": torch.ones(2)})
    with pytest.raises(ValueError, match=r"1 key unexpected: backpack\.extra\.weight"):
        BackpackLMHeadModel.from_pretrained(tmp_path)


def test_wrong_shapes_are_named(state, tmp_path):
    write_bin(tmp_path, state | {"backpack.sense_network.final_mlp.c_proj.bias": torch.ones(7)})
    with pytest.raises(
        ValueError, match=r"of another shape: .*final_mlp\.c_proj\.bias \(7,\) instead of \(96,\)"
    ):
        BackpackLMHeadModel.from_pretrained(tmp_path)


def test_a_config_with_another_number_of_senses_is_refused(state, tmp_path):
    write_config(write_bin(tmp_path, state), num_senses=2)
    with pytest.raises(ValueError, match=r"final_mlp\.c_proj\.weight"):
        BackpackLMHeadModel.from_pretrained(tmp_path)


class Payload:
    """Would write a file if it were unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_bin_file_with_code_in_it_is_refused(state, tmp_path):
    write_bin(tmp_path, {**state, "payload": Payload(tmp_path / "ran")})
    with pytest.raises(
        ValueError, match=r"weights of .*pytorch_model\.bin cannot be read \(they are"
    ) as refused:
        BackpackLMHeadModel.from_pretrained(tmp_path)
    assert "weights_only" not in str(
        refused.value
    )  # torch's advice, which would run what is in the file
    assert not (tmp_path / "ran").exists()


def test_a_plain_gpt2_checkpoint_is_no_backpack(tmp_path):
    GPT2LMHeadModel(
        GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=30, n_positions=8)
    ).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"is not a checkpoint of BackpackForRanking: 38 keys missing: .*unexpected: transformer",
    ):
        BackpackForRanking.from_pretrained(tmp_path)


def test_a_bert_checkpoint_is_no_backpack(tmp_path):
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(vocab_size=30, **shape)).save_pretrained(tmp_path)
    for ranker in (BackpackForRanking, GPT2ForRanking):
        with pytest.raises(
            ValueError, match=r"not a checkpoint of .*missing: .*unexpected: embeddings\."
        ):
            ranker.from_pretrained(tmp_path)


def test_a_backpack_is_no_gpt2_ranker(state, tmp_path):
    with pytest.raises(ValueError, match="not a checkpoint of GPT2ForRanking"):
        GPT2ForRanking.from_pretrained(write_bin(tmp_path, state))


def test_a_gpt2_ranker_takes_everything_but_its_head_from_gpt2(tmp_path):
    config = GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=30, n_positions=8)
    published = GPT2LMHeadModel(config)
    published.save_pretrained(tmp_path)
    ranker, info = GPT2ForRanking.from_pretrained(tmp_path, new_head=True, output_loading_info=True)
    assert {name.partition(".")[0] for name in info["missing_keys"]} == {"head"}
    for name, tensor in published.transformer.state_dict().items():
        assert torch.equal(ranker.transformer.state_dict()[name], tensor), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_load_in_half_precision(dtype, state, expected_logits, tmp_path):
    model = BackpackLMHeadModel.from_pretrained(write_bin(tmp_path, state), dtype=dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    (text, *_), (logits, *_) = expected_logits
    with torch.no_grad():
        computed_logits = model(torch.tensor([text])).logits[0].double()
    assert (computed_logits - logits).abs().max() < (
        0.02 if dtype == torch.float16 else 0.2
    ) * logits.abs().max()
    assert (computed_logits - logits).abs().max() > 0


def test_no_folder_of_that_name_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="nothing_here"):
        BackpackForRanking.from_pretrained(tmp_path / "nothing_here")
