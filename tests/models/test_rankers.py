"""Rankers: head, inputs, saving and loading."""

import math

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.backpack import BackpackLMHeadModel, BackpackModel
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.rankers import BackpackForRanking, GPT2ForRanking

TEXTS = [[5, 9, 300, 9, 7, 41], [8], [77, 12, 5, 5, 130, 2, 2, 6]]


@pytest.fixture
def batch():
    return PackedBatch.from_sequences(TEXTS)


@pytest.fixture(params=["backpack", "gpt2"])
def ranker(request, make_backpack, make_gpt2):
    return make_backpack() if request.param == "backpack" else make_gpt2()


def head_by_hand(head, vector):
    hidden = head.dense.weight.double() @ vector.double() + head.dense.bias.double()
    gelu = torch.stack([h * 0.5 * (1 + math.erf(h / math.sqrt(2))) for h in hidden])
    return (head.out.weight.double() @ gelu + head.out.bias.double()).item()


@torch.no_grad()
def test_backpack_scores_are_the_head_over_the_mix_at_the_last_token(make_backpack, batch):
    ranker = make_backpack()
    scores = ranker(batch).scores
    assert scores.shape == (3,)
    for score, text in zip(scores.tolist(), TEXTS, strict=True):
        mix = ranker.backpack(torch.tensor([text])).mixed[0, -1]
        assert score == pytest.approx(head_by_hand(ranker.head, mix), abs=1e-5)


@torch.no_grad()
def test_gpt2_scores_are_the_head_over_the_last_hidden_state_of_the_librarys_model(
    make_gpt2, batch
):
    ranker = make_gpt2()
    ranker.transformer.set_attn_implementation("packed_sdpa")
    scores = ranker(batch).scores.tolist()
    ranker.transformer.set_attn_implementation("eager")
    for score, text in zip(scores, TEXTS, strict=True):
        hidden = ranker.transformer(torch.tensor([text])).last_hidden_state[0, -1]
        assert score == pytest.approx(head_by_hand(ranker.head, hidden), abs=1e-5)


@torch.no_grad()
def test_sense_vectors_are_given_on_request_and_score_the_same(make_backpack, batch):
    ranker = make_backpack()
    output = ranker(batch, return_senses=True)
    assert output.senses.shape == (3, 8, 32)
    assert torch.equal(ranker.score_senses(output.senses), output.scores)
    assert torch.equal(ranker(batch).scores, output.scores)
    assert ranker(batch).senses is None


@torch.no_grad()
def test_texts_may_have_weights_of_their_own_and_score_bit_for_bit_as_under_shared_ones(
    make_backpack, batch
):
    ranker = make_backpack()
    rising, ones = torch.linspace(0, 1, 8), torch.ones(8)
    expected = [ranker(batch, sense_weights=weights).scores for weights in (rising, ones)]
    assert torch.equal(ranker(batch, sense_weights=rising.expand(3, -1)).scores, expected[0])
    mixed = ranker(batch, sense_weights=torch.stack([rising, ones, rising])).scores
    assert mixed.tolist() == [expected[0][0], expected[1][1], expected[0][2]]
    assert mixed[1] == ranker(batch).scores[1]
    with pytest.raises(ValueError, match="need 8 finite weights"):
        ranker(batch, sense_weights=torch.ones(3, 7))


def test_gpt2_refuses_to_give_sense_vectors(make_gpt2, batch):
    with pytest.raises(TypeError, match="GPT2ForRanking has no sense vectors"):
        make_gpt2()(batch, return_senses=True)


def test_scores_depend_on_every_parameter(ranker, batch):
    """But not on what cancels: the weight network's key bias."""
    ranker(batch).scores.sum().backward()
    for name, parameter in ranker.named_parameters():
        gradient = parameter.grad
        if name.endswith("sense_weight_net.c_attn.bias"):
            gradient = gradient[:32]
        assert gradient.abs().max() > 0, name


@torch.no_grad()
def test_saving_and_loading_gives_identical_weights_and_equal_scores(ranker, batch, tmp_path):
    expected = ranker(batch).scores
    ranker.save_pretrained(tmp_path)
    again, info = type(ranker).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert not again.training
    # Loaded weights lie elsewhere in memory, and the last bit of a product may depend on their
    # alignment.
    torch.testing.assert_close(again(batch).scores, expected, rtol=1e-5, atol=1e-5)
    assert all(
        torch.equal(a, b)
        for a, b in zip(again.state_dict().values(), ranker.state_dict().values(), strict=True)
    )
    stored = load_file(tmp_path / "model.safetensors")
    parameters = sum(parameter.numel() for parameter in ranker.parameters())
    assert sum(tensor.numel() for tensor in stored.values()) == parameters


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_scores_are_near(ranker, batch, dtype, tmp_path):
    expected = ranker(batch).scores
    ranker.save_pretrained(tmp_path)
    half = type(ranker).from_pretrained(tmp_path, dtype=dtype)
    scores = half(batch).scores
    assert scores.dtype == dtype
    assert (scores.float() - expected).abs().max() < 0.1 * expected.abs().max()


def test_dropout_is_off_in_evaluation_and_on_in_training(make_backpack, batch):
    ranker = make_backpack(dropout=0.3)
    assert torch.equal(ranker(batch).scores, ranker(batch).scores)
    ranker.train()
    assert not torch.equal(ranker(batch).scores, ranker(batch).scores)


@torch.no_grad()
def test_next_token_logits_are_those_of_the_language_model_which_transformers_loads(
    make_backpack, tmp_path
):
    ranker = make_backpack()
    ids = torch.tensor([TEXTS[0]])
    model = BackpackLMHeadModel(ranker.config).eval()
    model.backpack.load_state_dict(ranker.backpack.state_dict())
    torch.testing.assert_close(ranker.lm_logits(ids), model(ids).logits)
    model.save_pretrained(tmp_path)
    assert torch.equal(
        AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits
    )


def test_embeddings_are_one_parameter_under_all_their_names(make_backpack):
    ranker = make_backpack().to(torch.bfloat16).to(torch.float32)
    backpack = ranker.backpack
    assert backpack.word_embeddings.weight is backpack.backbone.wte.weight
    assert backpack.position_embeddings.weight is backpack.backbone.wpe.weight
    assert backpack.get_input_embeddings() is backpack.backbone.wte
    names = [name for name, _ in ranker.named_parameters() if "embeddings" in name]
    assert not names


def test_auto_classes_of_transformers_know_saved_folders(make_backpack, tmp_path):
    ranker = make_backpack()
    ranker.save_pretrained(tmp_path / "ranker")
    assert isinstance(AutoConfig.from_pretrained(tmp_path / "ranker"), BackpackConfig)
    BackpackLMHeadModel(ranker.config).save_pretrained(tmp_path / "lm")
    assert isinstance(AutoModelForCausalLM.from_pretrained(tmp_path / "lm"), BackpackLMHeadModel)
    bare = AutoModel.from_pretrained(tmp_path / "lm")
    assert isinstance(bare, BackpackModel)


def test_a_ranker_of_the_other_kind_is_refused(make_backpack, make_gpt2, tmp_path):
    make_backpack().save_pretrained(tmp_path / "backpack")
    make_gpt2().save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ValueError, match="not a checkpoint of BackpackForRanking"):
        BackpackForRanking.from_pretrained(tmp_path / "gpt2")
    with pytest.raises(ValueError, match="not a checkpoint of GPT2ForRanking"):
        GPT2ForRanking.from_pretrained(tmp_path / "backpack")


@torch.no_grad()
@pytest.mark.cuda
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-3), (torch.bfloat16, 0.1)])
def test_scores_on_a_gpu_are_those_of_the_cpu(ranker, batch, dtype, limit):
    expected = ranker(batch).scores
    scores = ranker.to("cuda", dtype)(batch.to("cuda")).scores.float().cpu()
    assert (scores - expected).abs().max() < limit * expected.abs().max()


@pytest.mark.cuda
def test_gradients_on_a_gpu_are_those_of_the_cpu(ranker, batch):
    gradients = []
    for device in ("cpu", "cuda"):
        ranker.to(device).zero_grad(set_to_none=True)
        ranker(batch.to(device)).scores.square().sum().backward()
        of_device = {}
        for name, parameter in ranker.named_parameters():
            if parameter.grad is not None:
                # A copy: to(device) moves gradients where they are.
                of_device[name] = parameter.grad.cpu().clone()
        gradients.append(of_device)
    on_cpu, on_gpu = gradients
    assert on_cpu.keys() == on_gpu.keys()
    for name, gradient in on_cpu.items():
        torch.testing.assert_close(on_gpu[name], gradient, rtol=1e-3, atol=1e-4)
