"""Making, saving and loading rankers with their tokenizers."""

import json
import os

import pytest
import torch

from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer, train_bpe
from backpack_rank.models.factory import (
    new_backpack,
    new_gpt2,
    pretrained_backpack,
    pretrained_gpt2,
)
from backpack_rank.models.finding import find_ranker
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.pipelines.output_folder import link_latest


def test_a_new_ranker_has_the_size_that_was_asked_for(tokenizer):
    ranker = new_backpack(
        tokenizer,
        layers=1,
        hidden_size=24,
        heads=3,
        senses=6,
        positions=40,
        sense_intermediate_scale=2,
    )
    config = ranker.config
    trunk = config.backbone_config
    assert (trunk.n_layer, trunk.n_embd, trunk.n_head, config.num_senses, config.n_positions) == (
        1,
        24,
        3,
        6,
        40,
    )
    assert config.hidden_size == 24
    assert ranker.backpack.sense_network.final_mlp.c_proj.weight.shape == (48, 6 * 24)
    assert config.vocab_size == len(tokenizer)
    assert new_gpt2(tokenizer, layers=1, hidden_size=24, heads=3, positions=40).config.n_embd == 24


def test_heads_that_do_not_divide_are_refused(tokenizer):
    with pytest.raises(ValueError, match="heads=5 must divide hidden_size=32"):
        new_gpt2(tokenizer, layers=1, hidden_size=32, heads=5)


@pytest.mark.parametrize("kind", ["backpack", "gpt2"])
def test_a_saved_folder_gives_the_same_scores_and_the_same_tokens(
    kind, make_backpack, make_gpt2, pair_tokenizer, tmp_path
):
    ranker = make_backpack() if kind == "backpack" else make_gpt2()
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    again, again_encoder = load_ranker(tmp_path / "ranker")
    assert type(again) is type(ranker)
    assert again_encoder.max_length == pair_tokenizer.max_length
    assert again_encoder.fingerprint == pair_tokenizer.fingerprint
    texts = again_encoder.pairs("the doctor", ["He works in the ward.", ""])
    batch = PackedBatch.from_sequences(texts)
    with torch.no_grad():
        # Loaded weights lie elsewhere in memory, and the last bit of a product may depend on their
        # alignment.
        torch.testing.assert_close(again(batch).scores, ranker(batch).scores, rtol=1e-5, atol=1e-5)
    assert all(
        torch.equal(a, b)
        for a, b in zip(again.state_dict().values(), ranker.state_dict().values(), strict=True)
    )


def test_saving_again_replaces_the_folder_and_a_failure_leaves_the_old_one(
    make_backpack, pair_tokenizer, tmp_path
):
    folder = tmp_path / "ranker"
    save_ranker(folder, make_backpack(seed=1), pair_tokenizer)
    save_ranker(folder, make_backpack(seed=2), pair_tokenizer)
    weights = (folder / "model.safetensors").read_bytes()

    class Broken:
        sep_token_id = eos_token_id = 0

        def save_pretrained(self, where):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_ranker(folder, make_backpack(seed=3), PairTokenizer(Broken(), 48))
    assert (folder / "model.safetensors").read_bytes() == weights
    assert [path.name for path in tmp_path.iterdir()] == ["ranker"]
    first, _ = load_ranker(folder)
    expected = make_backpack(seed=2).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in first.state_dict().items())


def test_training_can_start_from_a_saved_ranker(make_backpack, make_gpt2, pair_tokenizer, tmp_path):
    for make, start in ((make_backpack, pretrained_backpack), (make_gpt2, pretrained_gpt2)):
        save_ranker(tmp_path / start.__name__, make(), pair_tokenizer)
        ranker = start(pair_tokenizer.tokenizer, name=str(tmp_path / start.__name__))
        assert torch.equal(ranker.head.dense.weight, make().head.dense.weight)
        assert all(module.training for module in ranker.modules()), (
            "dropout must be on when training starts"
        )


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(
    make_backpack, pair_tokenizer, tmp_path, sentences
):
    save_ranker(tmp_path / "ranker", make_backpack(), pair_tokenizer)
    larger = train_bpe(sentences, vocab_size=500)
    assert len(larger) > len(pair_tokenizer.tokenizer)
    with pytest.raises(
        ValueError, match=rf"the tokenizer has {len(larger)} tokens, but .* has embeddings for"
    ):
        pretrained_backpack(larger, name=str(tmp_path / "ranker"))


def test_a_limit_above_the_positions_is_refused(make_backpack, tokenizer):
    assert make_pair_tokenizer(tokenizer, make_backpack(), 64).max_length == 64
    with pytest.raises(ValueError, match="max_length=65 exceeds the ranker's 64 positions"):
        make_pair_tokenizer(tokenizer, make_backpack(), 65)


def test_the_ranker_that_was_finished_last_is_taken_though_the_clock_was_moved_back(tmp_path):
    for name, time in (("first", 2_000_000_000), ("second", 1_000_000_000)):
        ranker = tmp_path / "train" / name / "ranker"
        ranker.mkdir(parents=True)
        (ranker / "config.json").touch()
        os.utime(ranker, (time, time))
        link_latest(tmp_path, "train", ranker.parent)
    assert find_ranker(None, str(tmp_path)) == ranker


def test_a_folder_without_a_ranker_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"config\.json is missing: .* not the folder of a saved ranker"
    ):
        load_ranker(tmp_path)


@pytest.mark.parametrize("architectures", [["BackpackGPT2LMHeadModel"], ["BertModel"], None])
def test_the_folder_of_another_architecture_is_named(architectures, tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "architectures": architectures})
    )
    with pytest.raises(
        ValueError, match=r"(is not a ranker|names no architecture).*; rankers are classifiers of"
    ):
        load_ranker(tmp_path)
