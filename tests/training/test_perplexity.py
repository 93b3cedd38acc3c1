"""Perplexity against an obvious loop, and stopping in the middle of an epoch."""

import math

import lightning as L
import pytest
import torch
import torch.nn.functional as F

from backpack_rank.data.text_data import TextData
from backpack_rank.data.texts import is_held_out
from backpack_rank.data.token_rows import write_corpus
from backpack_rank.models.language_model import language_model_of
from backpack_rank.training.language_model import TextModule
from backpack_rank.training.module import Optimisation

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
LENGTH = 24
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}


@pytest.fixture
def data(tmp_path, encoder, sentences):
    """Rows of 24 tokens; some held-out documents are longer than a row, some shorter."""
    texts = [
        *sentences,
        *(f"{text} {text}" for text in sentences),
        "soup",
        "a river",
        "two bridges",
        "the doctor",
        "an old door",
    ]
    corpus = write_corpus(tmp_path / "corpus", texts, encoder, 0.4, 0)
    held = [text for text in texts if is_held_out(text, 0.4, 0)]
    return TextData(corpus, LENGTH, batch_size=2), held


def loop(model, encoder, documents):
    """Document by document, token by token."""
    total = count = 0
    for document in documents:
        ids = [encoder.end_id, *encoder.encode([document])[0].tolist(), encoder.end_id]
        for start in range(0, len(ids) - 1, LENGTH):
            part = torch.tensor([ids[start : start + LENGTH + 1]])
            logits = model(part[:, :-1]).logits[0]
            total += F.cross_entropy(logits, part[0, 1:], reduction="sum").item()
            count += part.shape[1] - 1
    return math.exp(total / count), count


@torch.no_grad()
def test_perplexity_is_that_of_a_loop_over_documents(make_backpack, encoder, data, tmp_path):
    text_data, held = data
    model = language_model_of(make_backpack()).eval()
    expected, count = loop(model, encoder, held)
    assert count == text_data.corpus.held_out_tokens
    assert {len(encoder.encode([text])[0]) > LENGTH for text in held} == {True, False}
    trainer = L.Trainer(**QUIET, default_root_dir=tmp_path)
    (found,) = trainer.validate(TextModule(model, Optimisation()), text_data, verbose=False)
    assert found["val/perplexity"] == pytest.approx(expected, rel=1e-4)
    assert found["val/loss"] == pytest.approx(math.log(expected), rel=1e-4)


@torch.no_grad()
def test_the_training_loss_is_the_mean_over_next_tokens(make_backpack):
    model = language_model_of(make_backpack()).eval()
    rows = torch.tensor([[5, 9, 300, 9, 7], [8, 1, 1, 60, 2]])
    module = TextModule(model, Optimisation())
    assert module.mean_loss(rows).item() == pytest.approx(model(rows, labels=rows).loss.item(), rel=1e-5)


def test_training_stops_at_a_step_and_measures_there(make_backpack, data, tmp_path):
    text_data, _ = data
    model = language_model_of(make_backpack(initializer_range=0.05))
    measured = []

    class Recorded(TextModule):
        def on_validation_epoch_end(self):
            super().on_validation_epoch_end()
            measured.append((self.trainer.global_step, self.trainer.callback_metrics["val/perplexity"].item()))

    steps = -(-len(text_data.rows) // 2)
    trainer = L.Trainer(
        **QUIET,
        max_epochs=20,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
        use_distributed_sampler=False,
    )
    module = Recorded(model, Optimisation(1e-3), max_steps=2 * steps + 1)
    trainer.fit(module, text_data)
    assert [step for step, _ in measured] == [steps, 2 * steps, 2 * steps + 1]
    assert measured[-1][1] < measured[0][1]
    assert trainer.global_step == module.total_steps == 2 * steps + 1
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0, "the learning rate has come down to 0"
