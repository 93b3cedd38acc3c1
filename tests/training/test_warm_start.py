"""What a new Backpack over a pretrained backbone does before ranking training."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from transformers import BertConfig

from backpack_rank.models.configuration import BackpackConfig, CrossEncoderConfig
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.training.reconstruction import Reconstruction
from backpack_rank.training.trainer import TrainerSettings
from backpack_rank.training.warm_start import WarmStart


@pytest.fixture
def bert(tokenizer):
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    return BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=48, initializer_range=0.3, **shape
    )


@pytest.fixture
def ranker(bert):
    return BackpackForRanking(BackpackConfig(backbone_config=bert, num_senses=8))


@pytest.fixture
def run(tiny_collection):
    """Every document for every query, and a query of another split."""
    documents = dict.fromkeys([doc_id for doc_id, _ in tiny_collection.documents], 0.0)
    return dict.fromkeys((*tiny_collection.queries, "elsewhere"), documents)


@pytest.fixture
def warm_start(pair_tokenizer, tiny_collection, run, tmp_path):
    """A function that does with a ranker what is asked for."""
    settings = TrainerSettings({"accelerator": "cpu"})

    def do(ranker, beginning):
        beginning.apply(settings, ranker, pair_tokenizer, tiny_collection, run, tmp_path)

    return do


def state(ranker):
    return {name: value.clone() for name, value in ranker.state_dict().items()}


def test_without_options_nothing_is_done_to_any_ranker(ranker, bert, warm_start):
    for untouched in (ranker, CrossEncoderForRanking(CrossEncoderConfig(backbone_config=bert))):
        before = state(untouched)
        warm_start(untouched, WarmStart())
        assert all(
            torch.equal(value, before[name]) for name, value in untouched.state_dict().items()
        )


def test_a_start_and_a_reconstruction_change_senses_and_weights_alone(ranker, warm_start):
    before = state(ranker)
    warm_start(ranker, WarmStart("sharp"))
    changed = {
        name for name, value in ranker.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed == {"backpack.sense_weight_net.c_attn.weight"}
    warm_start(ranker, WarmStart(reconstruction=Reconstruction(steps=2)))
    changed = {
        name for name, value in ranker.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed == {
        name for name in before if ".sense_network." in name or ".sense_weight_net." in name
    }


def test_a_ranker_without_senses_is_refused(bert, warm_start):
    ranker = CrossEncoderForRanking(CrossEncoderConfig(backbone_config=bert))
    for beginning in (WarmStart("sharp"), WarmStart(reconstruction=Reconstruction(steps=1))):
        with pytest.raises(ValueError, match="CrossEncoderForRanking has no senses to begin with"):
            warm_start(ranker, beginning)


def test_trained_weights_are_not_overwritten(ranker, warm_start, tmp_path):
    ranker.save_pretrained(tmp_path / "trained")
    trained = BackpackForRanking.from_pretrained(str(tmp_path / "trained"))
    with pytest.raises(ValueError, match="trained are trained ones: leave out"):
        warm_start(trained, WarmStart("sharp"))


def test_an_unknown_start_is_refused_before_anything_is_loaded():
    with pytest.raises(ValueError, match=r"start\.weights=flat: use one of random"):
        WarmStart("flat")


def test_the_configuration_says_how_to_begin():
    with initialize_config_dir(
        str(Path(__file__).resolve().parents[2] / "conf"), version_base="1.3"
    ):
        config = compose("train", overrides=["start.weights=sharp", "reconstruct.steps=2"])
    assert TrainingSettings(config).ranking().beginning == WarmStart(
        "sharp", Reconstruction(steps=2)
    )
