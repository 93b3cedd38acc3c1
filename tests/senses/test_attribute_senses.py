"""The paper's rule and explanations on rankers with attribute senses."""

from __future__ import annotations

import copy

import pytest
import torch
from attribute_sense_examples import (
    EXAMPLES,
    GENDER,
    RELIGION,
    attribute,
    new_example,
    new_ranker,
    slow_hidden,
)

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.models.attribute_senses import add_attribute_senses
from backpack_rank.models.factory import split_attribute
from backpack_rank.senses.attribution import attribute as explain
from backpack_rank.senses.policies import LowestSenses, PolicyContext
from backpack_rank.senses.policy_names import DefaultPolicy
from backpack_rank.senses.views import View

QUERY = "who is the queen"
DOCUMENT = "She said (he is a nurse) and the QUEEN, her actress; sheets manual"


@pytest.fixture(scope="module", params=EXAMPLES)
def tokenizer_and_kind(request):
    make, kind = EXAMPLES[request.param]
    return make(), kind


@pytest.fixture(scope="module")
def gender(tmp_path_factory):
    return attribute(tmp_path_factory.mktemp("gender"), "gender", GENDER)


@pytest.fixture(scope="module")
def religion(tmp_path_factory):
    return attribute(tmp_path_factory.mktemp("religion"), "religion", RELIGION)


@pytest.fixture(scope="module")
def example(tokenizer_and_kind, gender, religion):
    return new_example(*tokenizer_and_kind, [(gender, GENDER), (religion, RELIGION)])


def context(example, attribute) -> PolicyContext:
    return PolicyContext(example.ranker, example.tokenizer, attribute.all_pairs(), attribute.name)


def test_s_l_is_1_for_the_senses_and_0_for_the_groups(example, gender):
    assert [group for _, group in example.ranker.config.groups[:2]] == ["female", "male"]
    sensitivity = context(example, gender).sensitivity
    assert sensitivity.unknown == ()
    # Senses of religion have nothing to say of she and he.
    torch.testing.assert_close(
        sensitivity.values, torch.tensor([1.0] * 4 + [0.0] * 2 + [1.0] * 3), atol=1e-6, rtol=0
    )


def test_s_l_of_three_groups_is_the_share_of_pairs_without_them(example, religion):
    values = context(example, religion).sensitivity.values
    groups = [group for _, group in example.ranker.config.groups[6 - 4 :]]
    assert sorted(groups) == ["christian", "jewish", "muslim"]
    torch.testing.assert_close(values[:6], torch.ones(6), atol=1e-6, rtol=0)
    # Of (muslim, christian), (muslim, jewish) and (christian, jewish) each group misses one.
    torch.testing.assert_close(values[6:], torch.full((3,), 1 / 3), atol=1e-6, rtol=0)


def test_the_rule_picks_the_senses_of_the_attribute_alone(example, gender, religion):
    for chosen_attribute, expected in ((gender, [4, 5]), (religion, [6, 7, 8])):
        for policy in (LowestSenses(), DefaultPolicy(chosen_attribute)):
            (view,) = policy.views(context(example, chosen_attribute), 0.25)
            assert view.sense_weights.tolist() == [
                0.25 if sense in expected else 1.0 for sense in range(9)
            ]


def test_words_that_are_not_split_have_no_say(tokenizer_and_kind):
    """Most words of this attribute are in pieces, and a ranker that is split at load leaves them
    whole.
    """
    ranker, pair_tokenizer = new_ranker(*tokenizer_and_kind)
    gender = Attribute.named("gender")
    split_attribute(ranker, pair_tokenizer, gender)
    policy_context = PolicyContext(
        ranker, pair_tokenizer.tokenizer, gender.all_pairs(), gender.name
    )
    torch.testing.assert_close(
        policy_context.sensitivity.values, torch.tensor([1.0] * 4 + [0.0] * 2), atol=1e-6, rtol=0
    )
    (view,) = LowestSenses().views(policy_context, 0.0)
    assert view.sense_weights.tolist() == [1.0] * 4 + [0.0] * 2


def test_pairs_are_those_of_the_paper_where_nothing_is_split(tokenizer_and_kind, gender, tmp_path):
    """A ranker with senses of religion has none of gender: eq. 4 over the words' own vectors."""
    tokenizer, kind = tokenizer_and_kind
    ranker, pair_tokenizer = new_ranker(tokenizer, kind)
    pairs = (("she", "he"), ("woman", "man"))
    plain = PolicyContext(ranker, tokenizer, pairs, "gender").sensitivity
    faith = attribute(
        tmp_path, "religion", {"creed": {"christian": "christian", "church": "muslim"}}
    )
    add_attribute_senses(
        ranker.backpack, tokenizer, faith, separator_id=pair_tokenizer.separator_id
    )
    sensitivity = PolicyContext(ranker, tokenizer, pairs, "gender").sensitivity
    torch.testing.assert_close(sensitivity.values[:4], plain.values)
    assert sensitivity.values[4:].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "weights", [None, [1.0] * 4 + [0.0] * 2 + [1.0] * 3, [0.3, 2, 1, 0, 0.7, 1.3, 1, 0, 0.5]]
)
def test_contributions_add_up_and_stand_in_the_places_of_words(example, weights):
    view = None if weights is None else View(torch.tensor(weights))
    explanation = explain(example.ranker, example.pair_tokenizer, QUERY, DOCUMENT, view)
    with torch.no_grad():
        batch = example.batch(QUERY, [DOCUMENT])
        score = example.ranker(
            batch, sense_weights=None if view is None else view.sense_weights
        ).scores.item()
    assert explanation.score == pytest.approx(score, abs=1e-4)
    assert explanation.contributions.shape == (9, len(explanation.alignment.ids))
    for parts in (explanation.per_sense, explanation.per_token, explanation.per_word):
        assert parts.sum().item() == pytest.approx(
            explanation.score - explanation.empty_score, abs=1e-8
        )
    assert explanation.sense_names[4:6] == ("gender: female", "gender: male")
    named = {}
    for word in explanation.words:
        if word.segment == "document":
            named[word.text.strip('(),;"').lower()] = explanation.contributions[
                :, word.start : word.end
            ]
    for word, group, other in (
        ("she", 4, 5),
        ("he", 5, 4),
        ("queen", 4, 5),
        ("her", 4, 5),
        ("actress", 4, 5),
    ):
        factor = 1.0 if weights is None else weights[group]
        assert (named[word][group].abs().sum() > 1e-7) == (factor > 0)
        assert not named[word][other].any()
        assert not named[word][6:].any()
    for word in ("nurse", "sheets", "manual", "said"):
        assert not named[word][4:].any()


def test_a_contribution_is_what_the_score_loses_where_the_head_is_linear(example):
    example = copy.copy(example)
    ranker = copy.deepcopy(example.ranker).double()
    with torch.no_grad():
        ranker.head.dense.bias.fill_(1000.0)  # up there gelu(x) is x
    explanation = explain(ranker, example.pair_tokenizer, QUERY, DOCUMENT)
    readout = ranker.head.out.weight[0] @ ranker.head.dense.weight
    attribute_senses, k = ranker.backpack.attribute_senses, ranker.config.num_senses
    batch = attribute_senses.read(example.batch(QUERY, [DOCUMENT]))
    with torch.no_grad():
        shares = ranker.backpack.pooled_weights(batch)[0]
        table, last = (
            ranker.backpack.get_input_embeddings().weight,
            ranker.backpack.sense_network.final_mlp.c_proj,
        )
        expected = torch.zeros(9, dtype=torch.float64)
        rows = attribute_senses.rows()
        for place, token in enumerate(batch.input_ids.tolist()):
            if token < attribute_senses.vocabulary:
                continue
            row = rows[token - attribute_senses.vocabulary]
            vectors = {}
            for contribution in rows:
                if contribution.word_class == row.word_class:
                    pieces = [slow_hidden(ranker, table[piece]) for piece in contribution.pieces]
                    vectors[contribution.pieces] = sum(pieces) / len(pieces)
            difference = vectors[row.pieces] - sum(vectors.values()) / len(vectors)
            for sense in range(k):
                part = difference @ last.weight[:, sense * 16 : (sense + 1) * 16]
                expected[k + row.group] += shares[sense, place] * (part @ readout)
    torch.testing.assert_close(explanation.per_sense[4:], expected[4:], atol=1e-8, rtol=1e-6)
    assert expected[4:6].abs().min() > 1e-4
