"""Differences of words moved into chosen senses: gone from the others, and nothing lost in the sum."""

import pytest
import torch

from backpack_rank.models.token_shift import TokenClasses
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.training.moved_senses import project_into_senses

CLASSES = TokenClasses(("two", "three"), ((300, 310), (320, 330, 340)), WordBoundaries(torch.ones(1), torch.ones(1)))
EVERY = torch.arange(400)


@pytest.mark.parametrize("chosen", [[1, 6], [4]])
def test_words_of_a_class_are_alike_in_the_other_senses_and_every_token_keeps_its_sum(make_backpack, chosen):
    ranker = make_backpack(dropout=0.5).train()
    ranker.eval()
    with torch.no_grad():
        before = ranker.backpack.senses(EVERY)
    assert project_into_senses(ranker.train(), CLASSES, chosen) == 3, "one difference of two words, two of three"
    assert all(module.training for module in ranker.modules())
    ranker.eval()
    with torch.no_grad():
        after = ranker.backpack.senses(EVERY)
    torch.testing.assert_close(after.sum(1), before.sum(1), atol=1e-4, rtol=1e-4)
    others = [sense for sense in range(8) if sense not in chosen]
    for ids in CLASSES.members:
        for token in ids[1:]:
            gap_before = before[token] - before[ids[0]]
            gap = after[token] - after[ids[0]]
            assert gap_before[others].abs().max() > 0.1
            assert gap[others].abs().max() < 1e-4
            shared = gap_before[others].sum(0) / len(chosen)
            torch.testing.assert_close(gap[chosen], gap_before[chosen] + shared, atol=1e-4, rtol=1e-4)


def test_nothing_but_the_projection_changes_and_a_second_time_nothing_at_all(make_backpack):
    ranker = make_backpack()
    before = {name: value.clone() for name, value in ranker.state_dict().items()}
    project_into_senses(ranker, CLASSES, [2])
    once = {name: value.clone() for name, value in ranker.state_dict().items()}
    assert [name for name in before if not torch.equal(before[name], once[name])] == [
        "backpack.sense_network.final_mlp.c_proj.weight"
    ]
    project_into_senses(ranker, CLASSES, [2])
    torch.testing.assert_close(dict(ranker.state_dict()), once, atol=1e-5, rtol=1e-4)
