"""What a new Backpack over a pretrained backbone does before ranking training."""

import pytest
import torch
from in_process import configured
from small_training import changed_names, small_bert, state_of

from backpack_rank.models.configuration import BackpackConfig, CrossEncoderConfig
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.training.reconstruction import Reconstruction
from backpack_rank.training.trainer import TrainerSettings
from backpack_rank.training.warm_start import WarmStart


@pytest.fixture
def bert(tokenizer):
    torch.manual_seed(0)
    return small_bert(len(tokenizer))


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


def test_without_options_nothing_is_done_to_any_ranker(ranker, bert, warm_start):
    for untouched in (ranker, CrossEncoderForRanking(CrossEncoderConfig(backbone_config=bert))):
        before = state_of(untouched)
        warm_start(untouched, WarmStart())
        assert changed_names(before, untouched.state_dict()) == set()


def test_a_start_and_a_reconstruction_change_senses_and_weights_alone(ranker, warm_start):
    before = state_of(ranker)
    warm_start(ranker, WarmStart("sharp"))
    changed = changed_names(before, ranker.state_dict())
    assert changed == {"backpack.sense_weight_net.c_attn.weight"}
    warm_start(ranker, WarmStart(reconstruction=Reconstruction(steps=2)))
    assert changed_names(before, ranker.state_dict()) == {
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
    config = configured("train", "start.weights=sharp", "reconstruct.steps=2")
    beginning = TrainingSettings(config).ranking().beginning
    assert beginning == WarmStart("sharp", Reconstruction(steps=2))
