"""What a swap does to scores is held to a reference ranker's, through the attribute senses alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import configured
from small_training import ONE_LAYER

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.datamodule import EncodedList, collate_lists
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attribute_senses import add_attribute_senses
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.pipelines.train import train
from backpack_rank.training.kept_swap import KeptSwap, kept_swap
from backpack_rank.training.losses import scatter_lists

QUERY = "doctor in the ward"
DOCUMENTS = ("The doctor said he would see her.", "A man walks.", "A bridge over a river.")
SWAPPED = ("The doctor said she would see him.", "A woman walks.")


@pytest.fixture
def ranker(make_backpack, pair_tokenizer):
    backpack = make_backpack()
    separator_id = pair_tokenizer.separator_id
    add_attribute_senses(
        backpack.backpack,
        pair_tokenizer.tokenizer,
        Attribute.named("gender"),
        separator_id=separator_id,
    )
    return backpack.eval()


@pytest.fixture
def reference(make_backpack):
    torch.manual_seed(5)
    return make_backpack(initializer_range=0.3).eval()


@pytest.fixture
def batch(pair_tokenizer):
    swapped = dict(enumerate(pair_tokenizer.pairs(QUERY, SWAPPED)))
    return collate_lists(
        [EncodedList(pair_tokenizer.pairs(QUERY, DOCUMENTS), (2, 0, 1), None, swapped)]
    )


def scores_one_by_one(ranker, pair_tokenizer, documents):
    with torch.no_grad():
        return np.array(
            [
                ranker(
                    PackedBatch.from_sequences(pair_tokenizer.pairs(QUERY, [document]))
                ).scores.item()
                for document in documents
            ]
        )


@pytest.mark.slow
def test_the_term_is_the_squared_distance_to_the_reference_in_the_spread_of_the_ranker(
    ranker, reference, batch, pair_tokenizer
) -> None:
    ours, theirs = (
        scores_one_by_one(each, pair_tokenizer, DOCUMENTS) for each in (ranker, reference)
    )
    own_swapped, theirs_swapped = (
        scores_one_by_one(each, pair_tokenizer, SWAPPED) for each in (ranker, reference)
    )
    factor = ours.std(ddof=1) / theirs.std(ddof=1)
    distance = (ours[:2] - own_swapped) - factor * (theirs[:2] - theirs_swapped)
    by_hand = np.mean(distance**2) / max(ours.var(ddof=1), 1.0)

    term = KeptSwap(reference, ranker.config.num_senses, weight=1.0)
    output = ranker(batch.texts)
    loss = term.loss(ranker, batch, output, scatter_lists(output.scores, batch.mask)).item()

    assert by_hand > 1e-12
    assert loss == pytest.approx(by_hand, rel=1e-3)


@pytest.mark.slow
def test_gradients_pass_through_the_attribute_senses_alone(ranker, reference, batch) -> None:
    """Where the words of a class have one vector in the sense network, there is nothing to pass
    through.
    """
    term = KeptSwap(reference, ranker.config.num_senses, weight=1.0)
    output = ranker(batch.texts)
    term.loss(ranker, batch, output, scatter_lists(output.scores, batch.mask)).backward()
    with_words = ranker.backpack.sense_network.final_mlp.c_proj.weight.grad.abs().max()
    offsets = ranker.backpack.sense_network.final_mlp.c_proj.bias.grad

    assert with_words > 0
    # b_l is of the k senses alone: the differences have none.
    assert offsets is None or not offsets.any()


def test_a_batch_without_a_swapped_document_costs_nothing(
    ranker, reference, pair_tokenizer
) -> None:
    plain = collate_lists([EncodedList(pair_tokenizer.pairs(QUERY, DOCUMENTS[2:]), (1,))])
    output = ranker(plain.texts)
    term = KeptSwap(reference, ranker.config.num_senses, weight=1.0)
    assert term.loss(ranker, plain, output, scatter_lists(output.scores, plain.mask)).item() == 0


def test_a_ranker_without_attribute_senses_is_refused(
    make_backpack, pair_tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"training\.keep_swap=.* does not have"):
        kept_swap(str(tmp_path), make_backpack(), pair_tokenizer, 1.0)


def test_a_reference_that_joins_texts_with_other_tokens_is_refused(
    ranker, make_backpack, pair_tokenizer, tmp_path: Path
) -> None:
    other = make_backpack(input_form="as_coded")
    joins = make_pair_tokenizer(pair_tokenizer.tokenizer, other, pair_tokenizer.max_length)
    save_ranker(tmp_path / "ranker", other, joins)
    with pytest.raises(ValueError, match="joins query and document with other tokens"):
        kept_swap(str(tmp_path / "ranker"), ranker, pair_tokenizer, 1.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_train_py_takes_a_reference_and_refuses_a_folder_without_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    small = [*ONE_LAYER, "training.epochs=1"]
    train(configured("train", *small, "model.ranker.attribute_senses=null"), first, [])
    train(configured("train", *small, f"training.keep_swap={first}"), second, [])
    ranker, _ = load_ranker(second / "ranker")

    assert ranker.config.groups == (("gender", "female"), ("gender", "male"))
    without = configured("train", *small, f"training.keep_swap={tmp_path / 'none'}")
    with pytest.raises(FileNotFoundError, match=r"training\.keep_swap"):
        train(without, tmp_path / "third", [])
