"""The warm-up on the backbone's pooled vector: what it measures, that it learns, and what it leaves
as it was.
"""

import numpy as np
import pytest
import torch
from small_training import changed_names, quiet_trainer, small_bert, state_of

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.reconstruction import (
    Reconstructed,
    Reconstruction,
    ReconstructionModule,
    mixed_and_pooled,
    train_senses_only,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*in eval mode.*"),
]
NEW = ("backpack.sense_network.", "backpack.sense_weight_net.")


@pytest.fixture
def ranker(tokenizer):
    torch.manual_seed(0)
    backbone = small_bert(len(tokenizer))
    config = BackpackConfig(backbone_config=backbone, num_senses=8, initializer_range=0.1)
    return BackpackForRanking(config)


@pytest.fixture
def texts(pair_tokenizer, sentences):
    return [text for query in sentences[:7] for text in pair_tokenizer.pairs(query[:16], sentences)]


def fitted(ranker, texts, held_out, tmp_path, steps=60, **options):
    module = ReconstructionModule(
        ranker, OptimizerConfig(**{"learning_rate": 5e-3, **options}), held_out
    )
    trainer = quiet_trainer(tmp_path, max_epochs=-1, max_steps=steps)
    with train_senses_only(ranker):
        trainer.fit(module, Reconstruction(steps=steps, batch_size=8).loader(texts, seed=0))
    return module


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_the_mix_is_that_of_the_ranker_and_the_target_the_last_hidden_state(
    kind, ranker, make_backpack, texts
):
    ranker = ranker.eval() if kind == "bert" else make_backpack()
    batch = PackedBatch.from_sequences(texts[:5])
    mix, pooled = mixed_and_pooled(ranker.backpack, batch)
    torch.testing.assert_close(
        mix, ranker(batch, return_senses=True).senses.sum(1), atol=1e-5, rtol=1e-4
    )
    for row, text in enumerate(texts[:5]):
        hidden = ranker.backpack.hidden_states(PackedBatch.from_sequences([text]))
        torch.testing.assert_close(
            pooled[row], hidden[0 if kind == "bert" else -1], atol=1e-5, rtol=1e-4
        )


def test_explained_variance_and_cosine_are_those_of_vectors_less_their_means(ranker, texts):
    reconstructed = Reconstructed.on(ranker, texts[:20], batch_size=6)
    ranker.eval()
    with torch.no_grad():
        mix, pooled = (
            part.numpy()
            for part in mixed_and_pooled(ranker.backpack, PackedBatch.from_sequences(texts[:20]))
        )
    assert reconstructed.explained == pytest.approx(
        1 - np.var(pooled - mix, axis=0).sum() / np.var(pooled, axis=0).sum(), abs=1e-4
    )
    m, y = mix - mix.mean(0), pooled - pooled.mean(0)
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(m, y, strict=True)]
    assert reconstructed.cosine == pytest.approx(np.mean(cosines), abs=1e-4)
    np.testing.assert_allclose(reconstructed.mean, pooled.mean(0), atol=1e-5)
    assert reconstructed.variance == pytest.approx(np.var(pooled, axis=0).sum(), rel=1e-4)


def test_the_loss_is_the_share_of_the_variance_that_is_not_explained_and_1_less_the_cosine(
    ranker, texts
):
    """On the texts that mean and variance come from: a mix that is a constant off misses the
    constant's square.
    """
    ranker.eval()
    module = ReconstructionModule(ranker, OptimizerConfig(), texts[:20])
    module.on_fit_start()
    module.log = lambda *args, **options: None
    batch = PackedBatch.from_sequences(texts[:20])
    with torch.no_grad():
        mix, pooled = (part.numpy() for part in mixed_and_pooled(ranker.backpack, batch))
        loss = float(module.training_step(batch, 0))
    constant = np.square(mix.mean(0)).sum() / module.before.variance
    target = pooled - pooled.mean(0)
    cosines = (mix * target).sum(1) / np.linalg.norm(mix, axis=1) / np.linalg.norm(target, axis=1)
    assert loss == pytest.approx(
        1 - module.before.explained + constant + 1 - cosines.mean(), rel=1e-4
    )


@pytest.mark.slow
def test_the_warm_up_explains_most_of_the_pooled_vector_and_leaves_everything_else(
    ranker, texts, tmp_path
):
    state = state_of(ranker.train())
    module = fitted(ranker, texts[8:], texts[:8], tmp_path)
    assert module.before.explained < 0.2
    assert module.after.explained > module.before.explained + 0.3
    assert module.after.explained == pytest.approx(
        Reconstructed.on(ranker, texts[:8]).explained, abs=1e-6
    )
    new = {name for name in state if name.startswith(NEW)}
    assert changed_names(state, ranker.state_dict()) == new
    assert all(parameter.requires_grad for parameter in ranker.parameters())
    assert all(part.training for part in ranker.modules())


def test_the_warm_up_is_repeated_by_its_seed(ranker, texts, tmp_path):
    state = state_of(ranker)
    results = []
    for _ in range(2):
        ranker.load_state_dict(state)
        torch.rand(len(results) + 1)
        fitted(ranker, texts[8:], texts[:8], tmp_path, steps=3)
        results.append(state_of(ranker))
    assert changed_names(*results) == set()


def test_only_senses_and_weights_learn_and_what_was_frozen_stays_so_also_after_an_error(ranker):
    ranker.head.out.weight.requires_grad_(False)
    with train_senses_only(ranker):
        learning = {
            name for name, parameter in ranker.named_parameters() if parameter.requires_grad
        }
        assert not any(part.training for part in ranker.modules())
    assert learning == {name for name, _ in ranker.named_parameters() if name.startswith(NEW)}

    def fail():
        with train_senses_only(ranker):
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    frozen = {name for name, parameter in ranker.named_parameters() if not parameter.requires_grad}
    assert frozen == {"head.out.weight"}
    assert ranker.training


def test_texts_are_split_into_disjoint_parts(texts):
    learned, held = Reconstruction(held_out=6).split(texts)
    assert (len(learned), len(held)) == (50, 6)
    assert sorted(map(bytes, [*learned, *held])) == sorted(map(bytes, texts))
    learned, held = Reconstruction(held_out=500).split(texts)
    assert (len(learned), len(held)) == (45, 11)


def test_batches_are_shuffled_by_seed(texts):
    ids = [
        [batch.input_ids.tolist() for batch in Reconstruction(batch_size=8).loader(texts, s)]
        for s in (0, 0, 1)
    ]
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 7


@pytest.mark.parametrize(
    ("option", "value"),
    [("steps", -1), ("texts", 0), ("held_out", 1), ("batch_size", 0), ("learning_rate", 0)],
)
def test_impossible_options_are_refused(option, value):
    with pytest.raises(ValueError, match=rf"reconstruct\.{option}={value}"):
        Reconstruction(**{option: value})


def test_too_few_or_equal_texts_are_refused(ranker, texts):
    with pytest.raises(ValueError, match="9 texts are too few"):
        Reconstruction().split(texts[:9])
    with pytest.raises(ValueError, match="all 3 held-out texts the same vector"):
        Reconstructed.on(ranker, [texts[0]] * 3)
