"""What the configuration makes of a new Backpack before ranking training."""

import logging
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from transformers import BertConfig

from backpack_rank.models.configuration import BackpackConfig, CrossEncoderConfig
from backpack_rank.models.ranker import BackpackForRanking, CrossEncoderForRanking
from backpack_rank.pipelines.beginning import Beginning

CONF = Path(__file__).resolve().parents[2] / "conf"


@pytest.fixture
def bert(tokenizer):
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return BertConfig(vocab_size=len(tokenizer), max_position_embeddings=48, initializer_range=0.3, **shape)


@pytest.fixture
def ranker(bert):
    return BackpackForRanking(BackpackConfig(backbone_config=bert, num_senses=8))


@pytest.fixture
def run(tiny_collection):
    """Every document for every query, and a query of another split."""
    documents = dict.fromkeys([doc_id for doc_id, _ in tiny_collection.documents], 0.0)
    return dict.fromkeys((*tiny_collection.queries, "elsewhere"), documents)


@pytest.fixture
def begin(encoder, tiny_collection, run, tmp_path):
    """A function that does with a ranker what the options say."""

    def do(ranker, *options):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("train", overrides=list(options))
        Beginning.of(config).apply(config, ranker, encoder, tiny_collection, run, tmp_path)

    return do


def state(ranker):
    return {name: value.clone() for name, value in ranker.state_dict().items()}


def test_without_options_nothing_is_done_to_any_ranker(ranker, bert, begin):
    for own in (ranker, CrossEncoderForRanking(CrossEncoderConfig(backbone_config=bert))):
        before = state(own)
        begin(own)
        assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())


def test_a_start_and_a_reconstruction_change_senses_and_weights_alone(ranker, begin, caplog):
    before = state(ranker)
    options = ("start.senses=context", "start.weights=sharp", "start.texts=12")
    with caplog.at_level(logging.INFO):
        begin(ranker, *options)
    changed = {name for name, value in ranker.state_dict().items() if not torch.equal(value, before[name])}
    projection = "backpack.sense_network.final_mlp.c_proj"
    assert changed == {f"{projection}.weight", f"{projection}.bias", "backpack.sense_weight_net.c_attn.weight"}
    assert "senses=context weights=sharp, measured on 12 texts" in caplog.text
    with caplog.at_level(logging.INFO):
        begin(ranker, "reconstruct.steps=2")
    assert "2 steps over 20 texts" in caplog.text
    assert "after 2 steps" in caplog.text
    changed = {name for name, value in ranker.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if ".sense_network." in name or ".sense_weight_net." in name}


def test_a_ranker_without_senses_is_refused(bert, begin):
    ranker = CrossEncoderForRanking(CrossEncoderConfig(backbone_config=bert))
    for option in ("start.senses=embedding", "start.weights=sharp", "reconstruct.steps=1"):
        with pytest.raises(ValueError, match="CrossEncoderForRanking has no senses to begin with"):
            begin(ranker, option)


def test_trained_senses_are_not_overwritten(ranker, begin, tmp_path):
    ranker.save_pretrained(tmp_path / "trained")
    trained = BackpackForRanking.from_pretrained(str(tmp_path / "trained"))
    with pytest.raises(ValueError, match="trained are trained ones: leave out"):
        begin(trained, "start.senses=embedding")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("start.senses=glove", "senses='glove' is not a start"),
        ("start.weights=flat", "weights='flat' is not a start"),
        ("start.texts=1", "start.texts=1"),
        ("reconstruct.steps=-3", "reconstruct.steps=-3"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_loaded(option, message):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides=[option])
    with pytest.raises(Exception, match=message):
        Beginning.of(config)
