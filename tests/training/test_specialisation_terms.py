"""Each term of sense specialisation against loops, texts scored alone, and sums by hand; where gradients go."""

import copy
import itertools

import numpy as np
import pytest
import torch

from backpack_rank.data.datamodule import EncodedList, collate_lists
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.rankers import RankerOutput
from backpack_rank.models.token_shift import TokenClasses
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.training.losses import RankingLoss, listwise_softmax, scatter_lists
from backpack_rank.training.specialisation_terms import (
    AlphaRobust,
    ContentFree,
    Counterfactual,
    CounterfactualScorer,
    ReferenceGap,
    TiedSenses,
    chosen_texts,
    scale,
    spread_within,
)
from backpack_rank.training.teachers import Distillation

CHOSEN = [1, 6]
OUTSIDE = torch.tensor([1.0, 0, 1, 1, 1, 1, 0, 1])
CLASSES = TokenClasses(("two", "three"), ((300, 310), (320, 330, 340)), WordBoundaries(torch.ones(1), torch.ones(1)))
QUERIES = ("doctor in the ward", "who cooks soup for him")
LISTS = (
    ("The doctor said he would see her.", "A man and a woman.", "A bridge over a river."),
    ("She cooks soup.", "The cook prepares bread."),
)
SWAPPED = {
    0: ("The doctor said she would see him.", "A woman and a man."),
    1: ("He cooks soup.", "The cook prepares bread."),
}
PLACES = {0: (0, 1), 1: (0, 1)}  # in list 1 the query changes, so every text does
ROWS = [0, 1, 3, 4]


@pytest.fixture(scope="module")
def batch(pair_tokenizer):
    """Two lists of three and two documents; all but the third text have a counterfactual."""
    items = []
    for number, (query, documents) in enumerate(zip(QUERIES, LISTS, strict=True)):
        other = query if number == 0 else "who cooks soup for her"
        swapped = dict(zip(PLACES[number], pair_tokenizer.pairs(other, SWAPPED[number]), strict=True))
        labels = (2, 0, 1)[: len(documents)]
        teacher = np.array([3.0, -1.0, 0.5][: len(documents)])
        items.append(EncodedList(pair_tokenizer.pairs(query, documents), labels, teacher, swapped))
    found = collate_lists(items)
    assert found.swapped.rows.tolist() == ROWS
    return found


@pytest.fixture
def ranker(make_backpack):
    return make_backpack().train()


def run(ranker, batch):
    output = ranker(batch.texts, return_senses=True)
    return output, scatter_lists(output.scores.float(), batch.mask)


def alone(ranker, texts, alpha):
    """Scores of packed texts, one at a time, with the senses of S times alpha."""
    weights = torch.where(OUTSIDE == 1, 1.0, alpha)
    ends = texts.offsets.tolist()
    parts = [texts.input_ids[start:end].tolist() for start, end in itertools.pairwise(ends)]
    with torch.no_grad():
        scores = [ranker(PackedBatch.from_sequences([part]), sense_weights=weights).scores.item() for part in parts]
    return np.array(scores, dtype=float)


def variance_by_hand(scores):
    """Of the batch's lists, texts 0 to 2 and 3 to 4."""
    lists = [scores[:3], scores[3:]]
    return sum(((part - part.mean()) ** 2).sum() for part in lists) / (2 + 1)


def tied_by_loops(ranker, outside):
    squares = lengths = 0.0
    with torch.no_grad():
        for ids in CLASSES.members:
            vectors = [ranker.backpack.senses(torch.tensor([token]))[0] for token in ids]
            for sense in outside:
                mean = sum(vector[sense] for vector in vectors) / len(ids)
                for vector in vectors:
                    squares += float(((vector[sense] - mean) ** 2).sum())
                    lengths += float((vector[sense] ** 2).sum())
    return squares / lengths


def tied(weight=1.0):
    return TiedSenses(CLASSES, [sense for sense in range(8) if sense not in CHOSEN], weight)


def test_tied_is_the_mean_squared_deviation_from_the_class(ranker, batch):
    found = tied().loss(ranker, batch, None, torch.zeros(2, 3))
    assert found.item() == pytest.approx(tied_by_loops(ranker, [0, 2, 3, 4, 5, 7]), rel=1e-4)
    assert found.item() > 0.01


def test_tied_does_not_depend_on_the_scale_of_the_senses(ranker, batch):
    before = tied().loss(ranker, batch, None, torch.zeros(2, 3)).item()
    with torch.no_grad():
        ranker.backpack.sense_network.final_mlp.c_proj.weight.mul_(7)
        ranker.backpack.sense_network.final_mlp.c_proj.bias.mul_(7)
    assert tied().loss(ranker, batch, None, torch.zeros(2, 3)).item() == pytest.approx(before, rel=1e-4)


def test_tied_knows_no_dropout_and_leaves_the_mode_alone(make_backpack, batch):
    ranker = make_backpack(dropout=0.5)
    expected = tied().loss(ranker, batch, None, torch.zeros(2, 3)).item()
    assert tied().loss(ranker.train(), batch, None, torch.zeros(2, 3)).item() == expected
    assert all(module.training for module in ranker.modules())


def test_tied_moves_the_other_senses_of_words_together_and_leaves_those_of_s_bit_for_bit(ranker, batch):
    everything = torch.arange(350)
    with torch.no_grad():
        before = ranker.backpack.senses(everything)
    optimizer = torch.optim.Adam(ranker.parameters(), lr=5e-3)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = tied().loss(ranker, batch, None, torch.zeros(2, 3))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    changed = {name for name, own in ranker.named_parameters() if own.grad is not None and own.grad.abs().max() > 1e-6}
    assert changed == {"backpack.sense_network.final_mlp.c_proj.weight"}
    assert losses[-1] < 0.2 * losses[0]
    with torch.no_grad():
        after = ranker.backpack.senses(everything)
    assert torch.equal(after[:, CHOSEN], before[:, CHOSEN])
    assert (after[:, 0] - before[:, 0]).abs().max() > 1e-3


def test_both_wordings_are_scored_as_each_text_alone(make_backpack, batch):
    ranker = make_backpack(dropout=0.4).train()
    both = CounterfactualScorer(OUTSIDE).of(ranker, batch, run(ranker, batch)[0])
    assert all(module.training for module in ranker.modules())
    ranker.eval()
    assert both.rows.tolist() == ROWS
    for alpha, found in ((1.0, both.full), (0.0, both.without)):
        expected = np.stack(
            [alone(ranker, batch.texts, alpha)[ROWS], alone(ranker, batch.swapped.texts, alpha)], axis=1
        )
        np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-4)
    assert (both.full - both.without).abs().min() > 1e-4


def test_both_wordings_are_computed_once_per_output(ranker, batch):
    wordings = CounterfactualScorer(OUTSIDE)
    first, second = run(ranker, batch)[0], run(ranker, batch)[0]
    both = wordings.of(ranker, batch, first)
    assert wordings.of(ranker, batch, first) is both
    assert wordings.of(ranker, batch, second) is not both


def test_some_counterfactuals_are_drawn_from_torchs_generator(ranker, batch):
    every = CounterfactualScorer(OUTSIDE).of(ranker, batch, run(ranker, batch)[0])
    drawn = set()
    for seed in range(6):
        found = []
        for _ in range(2):
            torch.manual_seed(seed)
            found.append(CounterfactualScorer(OUTSIDE, most=2).of(ranker, batch, RankerOutput(torch.zeros(1))))
        assert torch.equal(found[0].rows, found[1].rows)
        assert len(found[0].rows) == 2
        places = [ROWS.index(row) for row in found[0].rows.tolist()]
        torch.testing.assert_close(found[0].without, every.without[places], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(found[0].full, every.full[places], atol=1e-4, rtol=1e-4)
        drawn.add(tuple(places))
    assert len(drawn) > 2


@pytest.mark.parametrize("rows", [[0], [4], [1, 3], [0, 1, 2, 3, 4]])
def test_chosen_texts_are_those_packed_by_themselves(batch, rows):
    ends = batch.texts.offsets.tolist()
    expected = PackedBatch.from_sequences([batch.texts.input_ids[ends[row] : ends[row + 1]].numpy() for row in rows])
    found = chosen_texts(batch.texts, torch.tensor(rows))
    for name in ("input_ids", "position_ids", "text_ids", "offsets"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert ours.tolist() == theirs.tolist()
        assert ours.dtype == theirs.dtype
    assert found.max_length >= expected.max_length


def stretched(ranker, factor):
    """The same ranker with scores that many times as large."""
    with torch.no_grad():
        ranker.head.out.weight.mul_(factor)
        ranker.head.out.bias.mul_(factor)
    return ranker


@pytest.mark.parametrize("factor", [0.1, 20.0])
def test_counterfactual_by_hand(ranker, batch, factor):
    stretched(ranker, factor)
    found = Counterfactual(CounterfactualScorer(OUTSIDE), 1.0).loss(ranker, batch, *run(ranker, batch)).item()
    gaps = alone(ranker, batch.texts, 0.0)[ROWS] - alone(ranker, batch.swapped.texts, 0.0)
    variance = variance_by_hand(alone(ranker, batch.texts, 1.0))
    assert bool(variance > 1) is (factor > 1)
    assert found == pytest.approx((gaps**2).mean() / max(variance, 1.0), rel=1e-3)


@pytest.mark.parametrize("factor", [0.1, 20.0])
def test_content_by_hand(ranker, batch, factor):
    stretched(ranker, factor)
    found = ContentFree(CounterfactualScorer(OUTSIDE), 1.0).loss(ranker, batch, *run(ranker, batch)).item()
    added = alone(ranker, batch.texts, 1.0) - alone(ranker, batch.texts, 0.0)
    other = alone(ranker, batch.swapped.texts, 1.0) - alone(ranker, batch.swapped.texts, 0.0)
    expected = np.array([added[2], *((added[ROWS] + other) / 2)])
    variance = variance_by_hand(alone(ranker, batch.texts, 1.0))
    assert found == pytest.approx((expected**2).mean() / max(variance, 1.0), rel=1e-3)


def test_content_leaves_out_texts_whose_counterfactual_was_not_drawn(ranker, batch):
    torch.manual_seed(3)
    found = ContentFree(CounterfactualScorer(OUTSIDE, most=1), 1.0).loss(ranker, batch, *run(ranker, batch)).item()
    torch.manual_seed(3)
    (place,) = torch.randperm(4)[:1].tolist()
    added = alone(ranker, batch.texts, 1.0) - alone(ranker, batch.texts, 0.0)
    other = alone(ranker, batch.swapped.texts, 1.0) - alone(ranker, batch.swapped.texts, 0.0)
    expected = np.array([added[2], (added[ROWS[place]] + other[place]) / 2])
    variance = variance_by_hand(alone(ranker, batch.texts, 1.0))
    assert found == pytest.approx((expected**2).mean() / max(variance, 1.0), rel=1e-3)


def test_kept_by_hand(ranker, make_backpack, batch):
    reference = stretched(make_backpack(seed=5), 3.0)
    found = ReferenceGap(CounterfactualScorer(OUTSIDE), reference, 1.0).loss(ranker, batch, *run(ranker, batch)).item()
    own, theirs = (
        (alone(one, batch.texts, 1.0), alone(one, batch.texts, 1.0)[ROWS] - alone(one, batch.swapped.texts, 1.0))
        for one in (ranker, reference)
    )
    variance = variance_by_hand(own[0])
    errors = own[1] - theirs[1] * np.sqrt(variance / variance_by_hand(theirs[0]))
    assert found == pytest.approx((errors**2).mean() / max(variance, 1.0), rel=1e-3)


def test_a_ranker_keeps_its_own_differences_at_any_scale(make_backpack, batch):
    reference = stretched(make_backpack(), 4.0).train()
    term = ReferenceGap(CounterfactualScorer(OUTSIDE), reference, 1.0)
    ranker = make_backpack()
    assert term.loss(ranker, batch, *run(ranker, batch)).item() == pytest.approx(0.0, abs=1e-9)
    assert not reference.training
    assert not any(parameter.requires_grad for parameter in reference.parameters())


def test_any_alpha_by_hand(ranker, batch):
    term = AlphaRobust(OUTSIDE, 1.0, RankingLoss())
    output, scores = run(ranker, batch)
    values = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        alpha = torch.rand(()).item()
        torch.manual_seed(seed)
        values.append(term.loss(ranker, batch, output, scores).item())
        turned = scatter_lists(torch.tensor(alone(ranker, batch.texts, alpha)), batch.mask)
        expected, _ = listwise_softmax(turned, batch.labels, batch.mask)
        assert values[-1] == pytest.approx(expected.item(), rel=1e-4)
    assert values[0] == values[2] != values[1]


def test_any_alpha_is_the_whole_objective_of_the_training(ranker, batch):
    teacher = Distillation("listwise_kl", weight=0.5)
    term = AlphaRobust(OUTSIDE, 1.0, RankingLoss("ranknet", weight=0.25), [teacher])
    output, scores = run(ranker, batch)
    torch.manual_seed(1)
    alpha = torch.rand(()).item()
    torch.manual_seed(1)
    found = term.loss(ranker, batch, output, scores).item()
    turned = scatter_lists(torch.tensor(alone(ranker, batch.texts, alpha), dtype=torch.float32), batch.mask)
    ranking = RankingLoss("ranknet")(turned, batch.labels, batch.mask)[0]
    expected = 0.25 * ranking + 0.5 * teacher.loss(ranker, batch, output, turned)
    assert found == pytest.approx(expected.item(), rel=1e-4)


def test_a_batch_without_class_words_has_nothing_for_the_terms(ranker, pair_tokenizer):
    batch = collate_lists([EncodedList(pair_tokenizer.pairs("soup", ["A bridge.", "Bread and fish."]), (1, 0))])
    output, scores = run(ranker, batch)
    wordings = CounterfactualScorer(OUTSIDE)
    assert Counterfactual(wordings, 1.0).loss(ranker, batch, output, scores).item() == 0
    assert ReferenceGap(wordings, copy.deepcopy(ranker), 1.0).loss(ranker, batch, output, scores).item() == 0
    added = alone(ranker, batch.texts, 1.0) - alone(ranker, batch.texts, 0.0)
    found = ContentFree(wordings, 1.0).loss(ranker, batch, output, scores).item()
    assert found == pytest.approx((added**2).mean() / scale(scores, batch.mask).item(), rel=1e-3)


def gradients(ranker, loss):
    """Largest gradients of the senses' projections [k] and of the contextual network."""
    ranker.zero_grad()
    loss.backward()
    projections = ranker.backpack.sense_network.final_mlp.c_proj.weight.grad
    network = [own.grad for own in ranker.backpack.backbone.parameters() if own.grad is not None]
    return projections.unflatten(1, (8, -1)).abs().amax(dim=(0, 2)), max(float(own.abs().max()) for own in network)


def test_gradients_reach_what_they_should(ranker, make_backpack, batch):
    inside, outside = CHOSEN, [0, 2, 3, 4, 5, 7]
    wordings = CounterfactualScorer(OUTSIDE)
    terms = {
        "counterfactual": Counterfactual(wordings, 1.0),
        "content": ContentFree(wordings, 1.0),
        "kept": ReferenceGap(wordings, make_backpack(seed=5), 1.0),
        "any_alpha": AlphaRobust(OUTSIDE, 1.0, RankingLoss()),
    }
    for name, term in terms.items():
        senses, network = gradients(ranker, term.loss(ranker, batch, *run(ranker, batch)))
        assert network > 1e-7, name
        assert (senses[outside] > 1e-7).all(), name
        assert (senses[inside] > 1e-7).all() if name != "counterfactual" else (senses[inside] == 0).all(), name


def test_the_scale_has_no_gradient_and_is_at_least_one():
    scores = torch.tensor([[1.0, 2.0, 99.0], [5.0, 9.0, 4.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert spread_within(scores, mask).item() == pytest.approx((0.5 + 14.0) / 3)
    assert not scale(scores, mask).requires_grad
    assert scale(scores * 0.01, mask).item() == 1.0
    assert spread_within(scores[:, :1], mask[:, :1]).item() == 0.0
