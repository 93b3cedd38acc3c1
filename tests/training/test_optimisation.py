"""Optimiser, schedule, and a whole small training run."""

import numpy as np
import pytest
import torch
from small_training import in_document_order, job_collection, quiet_trainer

from backpack_rank.data.batching import Pairs
from backpack_rank.data.datamodule import EncodedList, RankingData, collate_lists
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.models.factory import new_backpack, new_gpt2
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.training.losses import listwise_softmax
from backpack_rank.training.module import OptimizerConfig, RankingModule


def rates(optimisation, steps):
    """Learning rate of every step, as the optimizer uses it."""
    model = torch.nn.Linear(2, 2)
    optimizer = optimisation.optimizer(model)
    schedule = optimisation.schedule(optimizer, steps)
    learning_rates = []
    for _ in range(steps):
        learning_rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return learning_rates


def test_the_rate_rises_and_falls_in_straight_lines():
    learning_rates = rates(OptimizerConfig(learning_rate=1.0, warmup_ratio=0.4), 10)
    assert learning_rates == pytest.approx(
        [1 / 4, 2 / 4, 3 / 4, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    )


def test_without_a_warm_up_the_rate_starts_at_its_highest():
    learning_rates = rates(OptimizerConfig(learning_rate=0.5, warmup_ratio=0.0), 5)
    assert learning_rates[0] == 0.5
    assert learning_rates == sorted(learning_rates, reverse=True)
    assert learning_rates[-1] > 0


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": 0.0},
        {"learning_rate": -1.0},
        {"warmup_ratio": 1.0},
        {"warmup_ratio": -0.1},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match=f"training.{next(iter(options))}"):
        OptimizerConfig(**options)


def test_matrices_decay_and_vectors_do_not(make_backpack):
    ranker = make_backpack()
    decayed, others = OptimizerConfig(weight_decay=0.3).optimizer(ranker).param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert {parameter.ndim for parameter in decayed["params"]} == {2}
    assert {parameter.ndim for parameter in others["params"]} == {1}
    assert len(decayed["params"]) + len(others["params"]) == len(list(ranker.parameters()))


@pytest.fixture(scope="module")
def jobs():
    return job_collection(second_grade=2)


@pytest.fixture(scope="module")
def candidates(jobs):
    return in_document_order(jobs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [new_backpack, new_gpt2])
def test_thirty_steps_on_the_same_lists_lower_the_loss(
    kind, tokenizer, pair_tokenizer, jobs, candidates
):
    torch.manual_seed(0)
    size = {"layers": 2, "hidden_size": 32, "heads": 4, "positions": 64}
    ranker = kind(tokenizer, **size, dropout=0.0, initializer_range=0.1)
    module = RankingModule(ranker, OptimizerConfig(3e-3), Pairs.from_run(candidates, jobs))
    module.log = lambda *args, **options: None  # no trainer here
    lists = TrainingLists(jobs, candidates, size=6, max_relevant=1)
    data = RankingData(lists, jobs, module.dev, pair_tokenizer, lists_per_batch=8)
    (batch,) = data.train_dataloader()
    optimizer = module.optimisation.optimizer(ranker)
    losses = []
    for step in range(30):
        optimizer.zero_grad()
        loss = module.training_step(batch, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(np.log(6) * batch.labels.sum(1).mean().item(), rel=0.3)
    assert losses[-1] < 0.2 * losses[0]
    assert module.skipped_lists == 0


@torch.no_grad()
def test_the_loss_of_lists_is_that_of_every_document_scored_alone(
    make_backpack, pair_tokenizer, jobs, candidates
):
    ranker = make_backpack()
    module = RankingModule(ranker, OptimizerConfig(), Pairs.from_run(candidates, jobs))
    module.log = lambda *args, **options: None
    lists = TrainingLists(jobs, candidates, size=5).epoch(0)[:3]
    scorer = Scorer(ranker, pair_tokenizer)
    items, expected = [], []
    for number, entry in enumerate(lists):
        kept = slice(0, 5 - number)  # lists of different lengths
        doc_ids, labels = entry.doc_ids[kept], entry.labels[kept]
        texts = jobs.documents.get_many(doc_ids)
        items.append(
            EncodedList(
                pair_tokenizer.pairs(jobs.queries[entry.query_id], [texts[i] for i in doc_ids]),
                labels,
            )
        )
        scores = np.array(
            [scorer.score(jobs.queries[entry.query_id], [texts[i]])[0] for i in doc_ids],
            dtype=float,
        )
        shares = np.exp(scores) / np.exp(scores).sum()
        expected.append(-(np.array(labels) * np.log(shares)).sum())
    assert module.training_step(collate_lists(items), 0).item() == pytest.approx(
        np.mean(expected), abs=1e-4
    )


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_validation_measures_are_those_of_the_scorers_run(
    make_backpack, pair_tokenizer, jobs, candidates, tmp_path
):
    ranker = make_backpack()
    pairs = Pairs.from_run(candidates, jobs)
    data = RankingData(
        TrainingLists(jobs, candidates), jobs, pairs, pair_tokenizer, tokens_per_batch=100
    )
    (measures,) = quiet_trainer(tmp_path).validate(
        RankingModule(ranker, OptimizerConfig(), pairs), data, verbose=False
    )
    run = PointwiseReranker(Scorer(ranker, pair_tokenizer)).rerank(candidates, jobs)
    expected = effectiveness(run, jobs.qrels, ("nDCG@10", "MRR@10"))
    assert measures == {
        "val/nDCG@10": pytest.approx(expected.mean("nDCG@10"), abs=1e-6),
        "val/MRR@10": pytest.approx(expected.mean("MRR@10"), abs=1e-6),
    }
    assert 0 < measures["val/nDCG@10"] < 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_a_trained_ranker_beats_the_first_stage_and_every_epoch_has_its_own_lists(
    tokenizer, pair_tokenizer, jobs, candidates, tmp_path
):
    torch.manual_seed(0)
    seen = []

    class Recorded(RankingModule):
        def training_step(self, batch, batch_index):
            loss = super().training_step(batch, batch_index)
            seen.append(
                (
                    self.current_epoch,
                    batch.texts.input_ids.tolist(),
                    self.optimizers().param_groups[0]["lr"],
                )
            )
            return loss

    ranker = new_backpack(tokenizer, layers=2, hidden_size=32, heads=4, positions=64, dropout=0.0)
    pairs = Pairs.from_run(candidates, jobs)
    lists = TrainingLists(jobs, candidates, size=6, seed=3)
    data = RankingData(lists, jobs, pairs, pair_tokenizer, lists_per_batch=4)
    trainer = quiet_trainer(tmp_path, max_epochs=12, num_sanity_val_steps=0, gradient_clip_val=1.0)
    trainer.fit(Recorded(ranker, OptimizerConfig(5e-3), pairs), data)
    before = effectiveness(candidates, jobs.qrels, ("nDCG@10",)).mean("nDCG@10")
    assert trainer.callback_metrics["val/nDCG@10"].item() > before + 0.3
    assert len(seen) == 24
    # The rate of the last step is the last of the whole schedule: 24 steps, 2 of them rising.
    assert seen[-1][2] == pytest.approx(5e-3 / 22)
    dataset = [
        pair_tokenizer.pairs(
            jobs.queries[e.query_id], list(jobs.documents.get_many(e.doc_ids).values())
        )
        for e in lists.epoch(5)[:4]
    ]
    expected = np.concatenate([text for texts in dataset for text in texts]).tolist()
    assert next(ids for epoch, ids, _ in seen if epoch == 5) == expected


def test_listwise_loss_is_used(make_backpack, pair_tokenizer, jobs, candidates):
    """A batch without a relevant document trains nothing and is counted."""
    module = RankingModule(make_backpack(), OptimizerConfig(), Pairs.from_run(candidates, jobs))
    module.log = lambda *args, **options: None
    batch = collate_lists([EncodedList(pair_tokenizer.pairs("a doctor", ["one", "two"]), (0, 0))])
    loss = module.training_step(batch, 0)
    assert (
        loss.item() == 0 == listwise_softmax(torch.ones(1, 2), batch.labels, batch.mask)[0].item()
    )
    assert module.skipped_lists == 1


@torch.no_grad()
def test_a_term_is_added_with_its_weight(make_backpack, pair_tokenizer, jobs, candidates):
    class HalfTheLists:
        name, weight = "lists", 3.0

        def loss(self, ranker, batch, output, scores):
            assert output.scores.shape[0] == batch.mask.sum()
            assert scores.shape == batch.mask.shape
            return scores.new_tensor(len(batch.labels) / 2)

    batch = collate_lists([EncodedList(pair_tokenizer.pairs("a doctor", ["one", "two"]), (1, 0))])
    ranker, pairs = make_backpack(), Pairs.from_run(candidates, jobs)
    logged = {}
    losses = []
    for terms in ((), (HalfTheLists(),)):
        module = RankingModule(ranker, OptimizerConfig(), pairs, terms=terms)
        module.log = lambda name, value, **options: logged.update({name: float(value)})
        losses.append(module.training_step(batch, 0).item())
    assert losses[1] - losses[0] == pytest.approx(1.5)
    assert logged["train/lists"] == 0.5
