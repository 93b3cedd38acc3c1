"""The language-model warm-up: its text and its loss."""

import pytest
import torch
from small_training import quiet_trainer

from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.pretraining import LanguageModelModule, Pretraining


def test_texts_are_joined_with_end_tokens_and_cut_into_rows(pair_tokenizer, sentences):
    rows = Pretraining(sequence_length=10).sequences(sentences, pair_tokenizer)
    expected = []
    for text in sentences:
        expected += [
            *pair_tokenizer.tokenizer(f" {text}", add_special_tokens=False)["input_ids"],
            pair_tokenizer.end_id,
        ]
    assert rows.shape == (len(expected) // 10, 10)
    assert rows.dtype == torch.int64
    assert rows.flatten().tolist() == expected[: rows.numel()]


def test_no_more_text_is_taken_than_asked_for(pair_tokenizer, sentences):
    assert Pretraining(sequence_length=10, max_tokens=35).sequences(
        iter(sentences * 1000), pair_tokenizer
    ).shape == (
        3,
        10,
    )


def test_too_little_text_is_refused(pair_tokenizer):
    with pytest.raises(
        ValueError, match=r"tokens of text are less than pretraining\.sequence_length=128"
    ):
        Pretraining().sequences(["short"], pair_tokenizer)
    with pytest.raises(ValueError, match="0 tokens of text"):
        Pretraining().sequences([], pair_tokenizer)


@pytest.mark.parametrize("option", ["epochs", "sequence_length", "batch_size", "max_tokens"])
def test_impossible_options_are_refused(option):
    with pytest.raises(ValueError, match=rf"pretraining\.{option}=-1"):
        Pretraining(**{option: -1})


def test_rows_are_shuffled_by_seed_alone(pair_tokenizer, sentences):
    warmup = Pretraining(sequence_length=10, batch_size=4)
    rows = warmup.sequences(sentences, pair_tokenizer)
    orders = [
        torch.cat([batch for (batch,) in warmup.loader(rows, seed)]).tolist() for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(rows.tolist())


@torch.no_grad()
@pytest.mark.parametrize("kind", ["backpack", "gpt2"])
def test_the_loss_is_the_mean_over_next_tokens(kind, make_backpack, make_gpt2):
    ranker = make_backpack() if kind == "backpack" else make_gpt2()
    module = LanguageModelModule(ranker, OptimizerConfig())
    module.log = lambda *args, **options: None
    rows = torch.tensor([[5, 9, 300, 9, 7], [8, 1, 1, 60, 2]])
    logs = []
    for row in rows.tolist():
        for i in range(4):
            logits = ranker.lm_logits(torch.tensor([row[: i + 1]]))[0, -1]
            logs.append(logits.log_softmax(0)[row[i + 1]].item())
    assert module.training_step([rows], 0).item() == pytest.approx(-sum(logs) / 8, abs=1e-4)


def test_rows_longer_than_the_positions_are_refused(make_backpack):
    module = LanguageModelModule(make_backpack(), OptimizerConfig())
    with pytest.raises(
        ValueError, match=r"pretraining\.sequence_length=70 exceeds the ranker's 64 positions"
    ):
        module.training_step([torch.zeros((1, 70), dtype=torch.long)], 0)


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_a_warm_up_lowers_the_next_token_loss_and_leaves_the_head(
    make_backpack, pair_tokenizer, sentences, tmp_path
):
    ranker = make_backpack(initializer_range=0.02).train()
    head = ranker.head.dense.weight.clone()
    warmup = Pretraining(epochs=5, sequence_length=16, batch_size=4)
    losses = []

    class Recorded(LanguageModelModule):
        def training_step(self, batch, batch_index):
            loss = super().training_step(batch, batch_index)
            losses.append(loss.item())
            return loss

    trainer = quiet_trainer(tmp_path, max_epochs=warmup.epochs)
    rows = warmup.sequences(sentences, pair_tokenizer)
    trainer.fit(Recorded(ranker, OptimizerConfig(5e-3, weight_decay=0.0)), warmup.loader(rows, 0))
    assert losses[-1] < 0.8 * losses[0]
    assert torch.equal(ranker.head.dense.weight, head)
