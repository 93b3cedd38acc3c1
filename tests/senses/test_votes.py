"""Senses chosen by votes of word pairs."""

import pytest
import torch

from backpack_rank.senses.policies import LowestSenses, PolicyContext
from backpack_rank.senses.sensitivity import first_token_cosines
from backpack_rank.senses.votes import MostVoted, most_voted, votes

PAIRS = (("she", "he"), ("woman", "man"), ("mother", "father"))


def test_every_pair_votes_for_its_lowest_cosine():
    cosines = torch.tensor([[0.9, -0.5, 0.3], [0.2, 0.8, 0.7], [0.0, 0.5, 0.1], [0.4, 0.4, 0.9]])
    assert votes(cosines).tolist() == [3, 1, 0]  # of equal cosines, the first sense


def test_of_equal_votes_the_higher_number_comes_first():
    assert most_voted(torch.tensor([2, 0, 2, 5, 0]), 4).tolist() == [3, 2, 0, 4]


def test_votes_and_means_may_choose_different_senses():
    # Sense 2 is lowest on the mean, but of two of three pairs sense 0 is.
    cosines = torch.tensor([[0.5, 0.9, 0.6], [0.5, 0.9, 0.6], [0.9, 0.9, -0.9]])
    assert most_voted(votes(cosines), 1).tolist() == [0]
    assert LowestSenses(1).chosen(cosines.mean(dim=0)).tolist() == [2]


def test_the_policy_scales_the_senses_with_most_votes(make_backpack, tokenizer):
    context = PolicyContext(make_backpack(), tokenizer, PAIRS)
    policy = MostVoted(count=2)
    (view,) = policy.views(context, 0.25)
    scaled = (view.sense_weights == 0.25).nonzero().flatten().tolist()
    assert sorted(scaled) == sorted(most_voted(policy.votes(context), 2).tolist())
    assert policy.votes(context).sum() == context.sensitivity.pairs
    assert view.sense_weights.sum() == 6 + 2 * 0.25


def test_pairs_may_come_from_a_file(make_backpack, tokenizer, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("first,second\nwoman,man\n", encoding="utf-8")
    context = PolicyContext(make_backpack(), tokenizer, PAIRS)
    of_the_file = PolicyContext(make_backpack(), tokenizer, PAIRS[1:2])
    cast = MostVoted(pairs=str(path)).votes(context)
    assert cast.tolist() == MostVoted().votes(of_the_file).tolist()


def test_first_tokens_of_a_text_may_be_two_parts_of_its_first_word(make_backpack, tokenizer):
    ranker = make_backpack()
    ids = tokenizer("mothers fathers", add_special_tokens=False)["input_ids"]
    assert len(tokenizer("mothers", add_special_tokens=False)["input_ids"]) > 1
    cosines = first_token_cosines(ranker.backpack, tokenizer, [("mothers", "fathers")])
    with torch.no_grad():
        first, second = ranker.backpack.senses(torch.tensor(ids[:2]))
    expected = torch.cosine_similarity(first, second, dim=-1)
    torch.testing.assert_close(cosines[0], expected)


def test_two_sources_of_pairs_are_refused():
    with pytest.raises(ValueError, match=r"either policy\.pairs or policy\.crows_pairs"):
        MostVoted(pairs="gender_pairs", crows_pairs="crows.csv")


def test_more_senses_than_there_are_is_refused(make_backpack, tokenizer):
    context = PolicyContext(make_backpack(), tokenizer, PAIRS)
    with pytest.raises(ValueError, match=r"policy\.count=9, but the model has 8 senses"):
        MostVoted(count=9).views(context, 0.5)
