"""Training of listwise language models: batches, logits at the answer, noise, learning, and the
real optimiser step.
"""

from __future__ import annotations

import math

import lightning as L
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from causal_example import MODELS

from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.position.lists.augmentation import NoAugmentation, PositionAware
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.factory import new_causal_lm
from backpack_rank.position.lists.passages import FixedLists, ListwiseExample, PassageList
from backpack_rank.position.lists.prompt import Prompt, PromptTokenizer
from backpack_rank.position.lists.sorting_tasks import MathSort
from backpack_rank.position.lists.training import (
    NDCG,
    TAU,
    ListwiseModule,
    ListwiseObjective,
    joint_loss,
    lm_loss,
    ndcg,
    noisy,
    rank_loss,
)
from backpack_rank.position.lists.training_data import (
    ListwiseData,
    ListwiseDataset,
    collate,
    encode_lists,
)
from backpack_rank.training.module import OptimizerConfig

PROMPT = Prompt(
    "small",
    prefix="{query}",
    passage="[{identifier}] {passage}",
    identifiers="alphabetic",
    chat=False,
)


@pytest.fixture(scope="module")
def lists() -> list[ListwiseExample]:
    """Lists of three to six expressions."""
    lists = []
    for size in (3, 6, 4, 5):
        lists += MathSort(2, size).lists(size)
    return lists


@pytest.fixture(scope="module")
def pair_tokenizer(lists: list[ListwiseExample]) -> PromptTokenizer:
    texts = []
    for item in lists:
        texts += [message["content"] for message in PROMPT.messages(item.passages)]
    return PromptTokenizer(train_bpe(texts, 400), PROMPT, 200)


def module_of(model, pair_tokenizer, held_out, **options) -> ListwiseModule:
    return ListwiseModule(
        model, pair_tokenizer, OptimizerConfig(1e-2), ListwiseObjective(**options), held_out
    )


def new_model(pair_tokenizer: PromptTokenizer):
    torch.manual_seed(0)
    return new_causal_lm(pair_tokenizer.tokenizer, layers=2, hidden_size=32, heads=2, positions=256)


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_losses_of_a_batch_are_those_of_its_lists_read_one_by_one(kind: str, lists, pair_tokenizer):
    model = MODELS[kind](pair_tokenizer.tokenizer)
    rng = np.random.default_rng(0)
    inverse = rng.uniform(0.5, 2, (6, 6))
    module = module_of(model, pair_tokenizer, lists, weight=0.3, inverse=inverse)
    module.log = lambda *_, **__: None  # no trainer
    loss = module.training_step(collate(encode_lists(pair_tokenizer, lists)), 0).item()
    total = 0.0
    for item in lists:
        prompt = pair_tokenizer.encode(item.passages).ids.tolist()
        answer = pair_tokenizer.answer(item.order)
        logits = model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        total += F.cross_entropy(logits, torch.tensor(answer), reduction="sum").item()
        scores = [logits[0, ids[0]].item() for ids in pair_tokenizer.identifiers(len(item))]
        for first, better in enumerate(item.order):
            for second, worse in enumerate(item.order[first + 1 :], start=first + 1):
                weight = inverse[better, first] * inverse[worse, second] / (first + second + 2)
                total += 0.3 * weight * np.log1p(np.exp(scores[worse] - scores[better]))
    assert loss == pytest.approx(total / len(lists), rel=1e-4)
    alone = module_of(model, pair_tokenizer, lists, language_model=False)
    alone.log = module.log
    batch = collate(encode_lists(pair_tokenizer, lists))
    logits = alone.answer_logits(batch)
    assert torch.equal(logits[:, 0].argmax(-1), module.answer_logits(batch)[:, 0].argmax(-1))
    assert logits.shape[1] == 1


def test_an_epoch_shows_every_list_in_every_order_of_its_augmentation(lists, pair_tokenizer):
    source = FixedLists("some", tuple(lists))
    data = ListwiseData(source, lists, pair_tokenizer, PositionAware(3), batch_size=5, seed=1)
    dataset = ListwiseDataset(source, pair_tokenizer, PositionAware(3), seed=1)
    shown = [dataset.shown(0, number) for number in range(len(dataset))]
    assert len(shown) == 3 * len(lists)
    for place, item in enumerate(lists):
        orders = [example.passages.passages for example in shown[3 * place : 3 * place + 3]]
        assert len(set(orders)) == 3
        assert all(sorted(order) == sorted(item.passages.passages) for order in orders)
    next_epoch = [dataset.shown(1, number).passages for number in range(9)]
    assert next_epoch != [example.passages for example in shown[:9]]
    loader = data.train_dataloader()
    first, again = ([batch.ids for batch in loader] for _ in range(2))
    assert sum(map(len, first)) == len(shown)
    assert all(map(torch.equal, first, again))
    assert len(first) == len(again)
    loader.sampler.set_epoch(1)
    assert not torch.equal(next(iter(loader)).ids, first[0])


def test_two_processes_share_an_epoch(lists, pair_tokenizer) -> None:
    source = FixedLists("some", tuple(lists[:7]))

    class Place:
        world_size = 2
        global_rank = 0

    seen, held = [], []
    for rank in range(2):
        data = ListwiseData(source, lists, pair_tokenizer, NoAugmentation(), batch_size=2)
        data.trainer = Place()
        data.trainer.global_rank = rank
        loader = data.train_dataloader()
        seen += [number for _, number in loader.sampler]
        assert len(list(loader.sampler)) == 4
        held += next(iter(data.val_dataloader())).tolist()
    assert set(seen) == set(range(7))
    assert sorted(held) == list(range(len(lists)))


def test_noise_is_uniform_and_scaled_by_each_text_s_length() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([100, 25])
    added = noisy(torch.zeros(2, 100, 64), lengths, alpha=5.0)
    for row, length in enumerate((100, 25)):
        size = 5.0 / (length * 64) ** 0.5
        assert added[row].abs().max().item() == pytest.approx(size, rel=1e-2)
        assert added[row].std().item() == pytest.approx(size / 3**0.5, rel=2e-2)


def test_noise_acts_in_training_alone(lists, pair_tokenizer) -> None:
    module = module_of(new_model(pair_tokenizer).eval(), pair_tokenizer, lists, noise=5.0)
    plain = module_of(module.model, pair_tokenizer, lists)
    batch = collate(encode_lists(pair_tokenizer, lists))
    torch.manual_seed(0)
    with torch.no_grad():
        with_noise, without = module.answer_logits(batch), plain.answer_logits(batch)
        assert not torch.allclose(with_noise, without, atol=1e-3)
        module.validation_step(torch.arange(len(lists)), 0)
        plain.validation_step(torch.arange(len(lists)), 0)
    for number in range(len(lists)):
        assert np.array_equal(module._orders[number], plain._orders[number])


@pytest.mark.slow
@pytest.mark.parametrize("language_model", [True, False])
def test_a_small_model_learns_few_lists_by_heart(lists, pair_tokenizer, language_model: bool):
    L.seed_everything(0, verbose=False)
    chosen = lists[:3]
    options = {"weight": 1.0, "language_model": language_model}
    module = module_of(new_model(pair_tokenizer), pair_tokenizer, chosen, **options)
    source = FixedLists("few", tuple(chosen))
    data = ListwiseData(source, chosen, pair_tokenizer, NoAugmentation(), batch_size=3)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=80,
        check_val_every_n_epoch=80,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    trainer.fit(module, data)
    assert float(trainer.callback_metrics[TAU]) > 0.9
    assert float(trainer.callback_metrics[NDCG]) > 0.97


def test_held_out_lists_are_measured_by_grade() -> None:
    grades = np.array([0, 2, 1])
    ranks = np.array([2, 0, 1])
    item = ListwiseExample(PassageList("q", ("x", "y", "z")), ranks, ranks, grades)
    gained = 1 / np.log2(3) + 2 / np.log2(4)  # z, then y, behind x
    best = 2 + 1 / np.log2(3)
    assert ndcg([Ranking(np.array([0, 2, 1]))], [item]) == pytest.approx(gained / best, abs=1e-4)


def test_wrong_objectives_are_named() -> None:
    with pytest.raises(ValueError, match=r"task\.weight=-1 must be a finite number of at least 0"):
        ListwiseObjective(weight=-1)
    with pytest.raises(ValueError, match="leaves nothing to train on"):
        ListwiseObjective(weight=0, language_model=False)


def test_identifiers_of_several_tokens_are_refused(lists, pair_tokenizer) -> None:
    numeric = Prompt("numbers", prefix="{query}", passage="[{identifier}] {passage}", chat=False)
    bpe = train_bpe(["a text without numbers"], 300)
    item = MathSort(1, 12).lists(0)
    message = r"identifier 10 of prompt numbers has 2 tokens.*identifiers=alphabetic"
    with pytest.raises(ValueError, match=message):
        encode_lists(PromptTokenizer(bpe, numeric, 400), item)


def slow(scores, ranks, mask, levels=None, inverse=None) -> float:
    """Equations 2 and 4 with Python's numbers; ranks from 1 as in the paper."""
    total = 0.0
    for row in range(len(scores)):
        for i in range(len(scores[row])):
            for j in range(len(scores[row])):
                if not (mask[row][i] and mask[row][j]):
                    continue
                first, second = int(ranks[row][i]) + 1, int(ranks[row][j]) + 1
                order = ranks if levels is None else levels
                if not order[row][i] < order[row][j]:
                    continue
                difference = float(scores[row][j]) - float(scores[row][i])
                loss = math.log(1 + math.exp(difference)) / (first + second)
                if inverse is not None:
                    loss *= float(inverse[row][i]) * float(inverse[row][j])
                total += loss
    return total / len(scores)


@pytest.fixture
def batch():
    """Three lists of at most six passages, with ties; behind shorter ones stands nonsense."""
    rng = np.random.default_rng(0)
    sizes = (6, 4, 2)
    scores = torch.from_numpy(rng.normal(size=(3, 6))).float()
    ranks = torch.zeros((3, 6), dtype=torch.long)
    mask = torch.zeros((3, 6), dtype=torch.bool)
    for row, size in enumerate(sizes):
        ranks[row, :size] = torch.from_numpy(rng.permutation(size))
        mask[row, :size] = True
    scores[1, 4:] = float("nan")
    scores[2, 2:] = float("inf")
    inverse = torch.from_numpy(rng.uniform(0.3, 3, size=(3, 6))).float()
    inverse[2, 3] = float("inf")
    return scores, ranks, mask, ranks // 2, inverse


def test_rank_losses_equal_loops_over_all_pairs(batch) -> None:
    scores, ranks, mask, levels, inverse = batch
    for own_levels in (None, levels):
        for own_inverse in (None, inverse):
            given = (scores, ranks, mask, own_levels, own_inverse)
            assert rank_loss(*given).item() == pytest.approx(slow(*given), rel=1e-5)


def test_the_rank_loss_of_a_pair_is_that_worked_by_hand() -> None:
    scores, ranks = torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([[0, 1]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss = rank_loss(scores, ranks, mask)
    assert loss.item() == pytest.approx(math.log(4) / 3)  # log(1 + 3) / (1 + 2)
    weights = torch.tensor([[2.0, 5.0]])
    weighted = rank_loss(scores, ranks, mask, None, weights)
    assert weighted.item() == pytest.approx(10 * math.log(4) / 3)


def test_ties_have_no_gradient_between_them_and_padding_has_none_at_all(batch) -> None:
    scores, ranks, mask, _, inverse = batch
    scores = scores.clone().requires_grad_()
    tied = torch.zeros_like(ranks)
    assert rank_loss(scores, ranks, mask, tied).item() == 0.0
    rank_loss(scores, ranks, mask, None, inverse).backward()
    gradient = scores.grad
    assert gradient is not None
    assert torch.isfinite(gradient).all()
    assert (gradient[~mask] == 0).all()
    rows = torch.arange(3)
    best = [int(ranks[row, : int(mask[row].sum())].argmin()) for row in range(3)]
    # A step against the gradient raises the best passage's score.
    assert (gradient[rows, best] < 0).all()


def test_gradients_are_those_of_finite_differences(batch) -> None:
    scores, ranks, mask, levels, inverse = batch
    scores, inverse = scores[:1].double().requires_grad_(), inverse[:1].double()
    rank_loss(scores, ranks[:1], mask[:1], levels[:1], inverse).backward()
    step = 1e-4
    for place in range(6):
        moved = [scores.detach().clone() for _ in range(2)]
        moved[0][0, place] += step
        moved[1][0, place] -= step
        high, low = (slow(m, ranks[:1], mask[:1], levels[:1], inverse) for m in moved)
        assert scores.grad[0, place].item() == pytest.approx((high - low) / (2 * step), abs=1e-4)


def test_language_model_loss_is_minus_the_log_probability_of_the_whole_answer() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5, requires_grad=True)
    targets = torch.tensor([[4, 0, 2], [1, 0, 0]])
    known = torch.tensor([[True, True, True], [True, False, False]])
    expected = 0.0
    for row, count in enumerate((3, 1)):
        for place in range(count):
            values = [math.exp(value) for value in logits[row, place].tolist()]
            expected -= math.log(values[int(targets[row, place])] / sum(values))
    loss = lm_loss(logits, targets, known)
    assert loss.item() == pytest.approx(expected / 2, rel=1e-5)
    loss.backward()
    assert (logits.grad[1, 1:] == 0).all()
    assert (logits.grad[0] != 0).any(dim=-1).all()


def test_the_joint_loss_weighs_the_language_model_and_does_without_it() -> None:
    assert joint_loss(torch.tensor(2.0), torch.tensor(3.0), 0.1).item() == pytest.approx(3.2)
    assert joint_loss(torch.tensor(2.0), None, 0.1).item() == 2.0
