"""Attribute senses: scores by a slow calculation, what alpha = 1 and alpha = 0 promise, forms,
files, training.
"""

from __future__ import annotations

import copy

import hypothesis
import numpy as np
import pytest
import torch
from attribute_sense_examples import (
    EXAMPLES,
    GENDER,
    Example,
    attribute,
    new_example,
    new_ranker,
    real_gpt2,
    slow_score,
    slow_senses,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attribute_senses import add_attribute_senses
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.token_shift import SCOPES, TokenClasses, token_shift
from backpack_rank.models.word_forms import word_forms
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import UNCHANGED, ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.views import View

QUERY = "who is the queen"
WORDS = [
    "the",
    "nurse",
    "said",
    "sheets",
    "manual",
    "soup",
    "bridge",
    "herself",
    "3",
    ",",
    '"',
    "(",
    ")",
    "-",
    "xyz",
]
CLASS_WORDS = [word for words in GENDER.values() for word in words]
CASES = (str.lower, str.capitalize, str.upper)


USUAL = {"word pieces, BERT", "byte-level, GPT-2", "unigram split at spaces, RoBERTa read padded"}


@pytest.fixture(
    scope="module",
    params=[
        name if name in USUAL else pytest.param(name, marks=pytest.mark.slow)
        for name in (*EXAMPLES, "real GPT-2")
    ],
)
def tokenizer_and_kind(request):
    """A tokenizer and a kind of backbone."""
    if request.param == "real GPT-2":
        return real_gpt2(request.getfixturevalue("real_data")), "gpt2"
    make, kind = EXAMPLES[request.param]
    return make(), kind


@pytest.fixture(scope="module")
def gender(tmp_path_factory):
    return attribute(tmp_path_factory.mktemp("gender"), "gender", GENDER)


@pytest.fixture(scope="module")
def plain_ranker(tokenizer_and_kind):
    """The ranker of the examples without attribute senses."""
    return new_ranker(*tokenizer_and_kind)


@pytest.fixture(scope="module")
def example(tokenizer_and_kind, gender) -> Example:
    return new_example(*tokenizer_and_kind, [(gender, GENDER)])


@pytest.fixture(scope="module")
def example_in_all_texts(tokenizer_and_kind, gender) -> Example:
    return new_example(*tokenizer_and_kind, [(gender, GENDER)], where="all")


@pytest.fixture(scope="module")
def example_split_at_load(tokenizer_and_kind, gender) -> Example:
    return new_example(*tokenizer_and_kind, [(gender, GENDER)], read_as_one=False)


cased = st.builds(
    lambda word, case: case(word), st.sampled_from(CLASS_WORDS), st.sampled_from(CASES)
)
texts = st.lists(st.one_of(cased, st.sampled_from(WORDS)), max_size=7).map(" ".join)
few = settings(
    max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False
)


def scores(example, batch, factors=None):
    with torch.no_grad():
        return example.ranker(
            batch, sense_weights=None if factors is None else torch.tensor(factors)
        ).scores


def at_zero(example):
    return [1.0] * example.ranker.config.num_senses + [0.0] * len(example.groups)


@pytest.mark.parametrize("name", ["example", "everywhere", "at_load"])
def test_senses_and_scores_are_those_of_the_slow_calculation(
    example, example_in_all_texts, example_split_at_load, name
):
    example = {
        "example": example,
        "everywhere": example_in_all_texts,
        "at_load": example_split_at_load,
    }[name]
    documents = [
        "She said (he is a nurse) and the QUEEN, her actress; sheets manual",
        '"woman" said King',
        "",
        "the actor",
        "She said soup",
    ]
    query = "who is the king or her" if name == "everywhere" else QUERY
    batch = example.batch(query, documents)
    with torch.no_grad():
        output = example.ranker(batch, return_senses=True)
    k = example.ranker.config.num_senses
    assert output.senses.shape == (len(documents), k + 2, 16)
    assert output.senses[0, k:].abs().sum(dim=1).min() > 1e-3
    for row, document in enumerate(documents):
        expected = slow_senses(example, query, document)
        torch.testing.assert_close(output.senses[row].double(), expected, atol=2e-4, rtol=2e-4)
        for factors in (
            [1.0] * (k + 2),
            at_zero(example),
            [1.0] * k + [0.5, 0.5],
            [0.3, 2, 1, 0, 0.7, 1.3],
        ):
            score = slow_score(example.ranker, expected, factors)
            assert scores(example, batch, factors)[row].item() == pytest.approx(score, abs=5e-4)
    torch.testing.assert_close(scores(example, batch), output.scores, atol=1e-4, rtol=1e-4)


@few
@given(document=texts)
def test_any_document_is_read_as_by_the_slow_calculation(example, document):
    with torch.no_grad():
        senses = example.ranker(example.batch(QUERY, [document]), return_senses=True).senses[0]
    torch.testing.assert_close(
        senses.double(), slow_senses(example, QUERY, document), atol=2e-4, rtol=2e-4
    )


@few
@given(documents=st.lists(texts, min_size=1, max_size=4))
def test_splitting_at_load_changes_no_bit_at_alpha_1(
    plain_ranker, example_split_at_load, documents
):
    ranker, pair_tokenizer = plain_ranker
    batch = PackedBatch.from_sequences(pair_tokenizer.pairs(QUERY, documents))
    with torch.no_grad():
        expected = ranker(batch, return_senses=True)
        output = example_split_at_load.ranker(batch, return_senses=True)
        assert torch.equal(example_split_at_load.ranker(batch).scores, ranker(batch).scores)
    torch.testing.assert_close(
        output.senses.sum(dim=1), expected.senses.sum(dim=1), atol=1e-4, rtol=1e-4
    )
    ones = [1.0] * example_split_at_load.ranker.config.total_senses
    torch.testing.assert_close(
        scores(example_split_at_load, batch, ones), expected.scores, atol=1e-4, rtol=1e-4
    )


template = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.tuples(
            st.sampled_from(sorted(GENDER)), st.sampled_from(CASES), st.booleans(), st.booleans()
        ),
    ),
    min_size=1,
    max_size=8,
)


def written(pieces, side: int) -> str:
    """A text with the words of classes of one side, or of the other."""
    words = []
    for piece in pieces:
        if isinstance(piece, str):
            words.append(piece)
            continue
        key, case, first, second = piece
        members = list(GENDER[key])
        words.append(case(members[int(first if side == 0 else second)]))
    return " ".join(words)


@few
@given(templates=st.lists(template, min_size=1, max_size=3))
def test_at_alpha_0_documents_that_differ_in_words_of_classes_have_one_score(example, templates):
    first, second = (
        example.batch(QUERY, [written(text, side) for text in templates]) for side in (0, 1)
    )
    scores_by_wording = [scores(example, batch, at_zero(example)) for batch in (first, second)]
    # Decoders read what neighbours begin with once; where a swap makes beginnings alike, sums
    # differ by rounding.
    if len(templates) == 1 or example.ranker.config.pooling == "first":
        assert torch.equal(*scores_by_wording)
    torch.testing.assert_close(*scores_by_wording, atol=1e-5, rtol=1e-5)


@few
@given(question=template, templates=st.lists(template, min_size=1, max_size=2))
def test_queries_too_where_all_words_are_read_as_one(example_in_all_texts, question, templates):
    question = ["who", *question]
    batches = [
        example_in_all_texts.batch(written(question, side), [written(t, side) for t in templates])
        for side in (0, 1)
    ]
    scores_by_wording = [
        scores(example_in_all_texts, batch, at_zero(example_in_all_texts)) for batch in batches
    ]
    torch.testing.assert_close(*scores_by_wording, atol=1e-5, rtol=1e-5)
    if len(templates) == 1:
        assert torch.equal(*scores_by_wording)


def test_words_of_one_class_really_differ_at_alpha_1(example):
    first, second = (
        scores(example, example.batch(QUERY, [f"the {word} said"])) for word in ("actor", "actress")
    )
    assert (first - second).abs() > 1e-4


def test_a_query_keeps_its_words(example):
    first, second = (
        scores(example, example.batch(q, ["she said"]), at_zero(example))
        for q in ("a king", "a queen")
    )
    assert (first - second).abs() > 1e-4


@pytest.mark.parametrize(
    "text", ["the sheets", "the manual", "bridge", "kings", "womanly said", "xqueenx"]
)
def test_pieces_of_other_words_are_left_alone(example, text):
    batch = example.batch(QUERY, [text])
    assert torch.equal(example.ranker.backpack.read(batch).input_ids, batch.input_ids)


@few
@given(documents=st.lists(texts, min_size=1, max_size=3))
@hypothesis.example(documents=["herself", "his"])  # at alpha 0 both begin with token " her"
@hypothesis.example(documents=["herself", "her"])
def test_paired_tokens_reach_words_that_are_split_at_load(
    plain_ranker, example_split_at_load, gender, documents
):
    ranker, pair_tokenizer = plain_ranker
    batch = PackedBatch.from_sequences(pair_tokenizer.pairs(QUERY, documents))
    classes = TokenClasses.of(pair_tokenizer.tokenizer, gender.classes())
    for scope in SCOPES:
        for alpha in (0.0, 0.5):
            with torch.no_grad():
                expected = ranker(
                    batch, token_shift=token_shift(ranker, classes, scope, alpha)
                ).scores
                output = example_split_at_load.ranker(
                    batch,
                    token_shift=token_shift(example_split_at_load.ranker, classes, scope, alpha),
                ).scores
            torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def test_words_end_with_their_text(example_in_all_texts):
    """A text need not end with a token of its own: what the next one begins with is no part of its
    last word.
    """
    rows = example_in_all_texts.ranker.backpack.attribute_senses.rows()
    forms = [
        row.pieces
        for row in rows
        if len(row.pieces) > 1 and row.pieces[1:] not in {r.pieces for r in rows}
    ]
    pieces = forms[0]
    texts = [[*pieces[:1]], [*pieces[1:], *pieces]]
    together = example_in_all_texts.ranker.backpack.read(PackedBatch.from_sequences(texts))
    alone = [
        example_in_all_texts.ranker.backpack.read(PackedBatch.from_sequences([text]))
        for text in texts
    ]
    assert together.input_ids.tolist() == torch.cat([text.input_ids for text in alone]).tolist()
    assert together.lengths == [len(alone_batch.input_ids) for alone_batch in alone]


def test_every_form_is_found_and_the_longest_of_those_that_begin_alike(example_in_all_texts):
    attribute_senses = example_in_all_texts.ranker.backpack.attribute_senses
    for number, row in enumerate(attribute_senses.rows()):
        read = attribute_senses.read(PackedBatch.from_sequences([[*row.pieces]]))
        assert read.input_ids.tolist() == [attribute_senses.vocabulary + number]
        assert attribute_senses.form_of(row.pieces) == number
        assert attribute_senses.read(read).input_ids.tolist() == read.input_ids.tolist()


def test_tokens_beyond_the_tokenizers_are_no_words(example):
    beyond = len(example.tokenizer) + 1
    texts = [
        [
            *example.pair_tokenizer.pairs(QUERY, ["she said"])[0][:-1],
            beyond,
            example.pair_tokenizer.end_id,
        ]
    ]
    batch = PackedBatch.from_sequences(texts)
    assert example.ranker.backpack.read(batch).input_ids[-2] == beyond
    assert torch.isfinite(scores(example, batch, at_zero(example))).all()


def test_a_saved_ranker_has_its_senses_again(example, tmp_path):
    save_ranker(tmp_path / "ranker", example.ranker, example.pair_tokenizer)
    again, _ = load_ranker(tmp_path / "ranker")
    assert again.config.groups == (("gender", "female"), ("gender", "male"))
    assert again.backpack.attribute_senses.rows() == example.ranker.backpack.attribute_senses.rows()
    state = again.state_dict()
    assert all(
        torch.equal(value, state[name]) for name, value in example.ranker.state_dict().items()
    )
    batch = example.batch(QUERY, ["She said", "the actress and his queen", ""])
    with torch.no_grad():
        for factors in (None, torch.tensor(at_zero(example))):
            loaded_scores = again.eval()(batch, sense_weights=factors).scores
            expected = example.ranker(batch, sense_weights=factors).scores
            torch.testing.assert_close(loaded_scores, expected, atol=1e-6, rtol=0)


def test_training_with_the_senses_summed_has_the_loss_and_gradients_of_the_senses_apart(example):
    """Without weights the senses are not split; the dense gradient of the split ones is another way
    to the same.
    """
    batch = example.batch(QUERY, ["She said (he is here)", "the actress and his queen", "soup"])
    gradients, losses = [], []
    for weights in (None, torch.ones(example.ranker.config.total_senses)):
        ranker = copy.deepcopy(example.ranker).train()
        loss = ranker(batch, sense_weights=weights).scores.log_softmax(dim=0)[1].neg()
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: parameter.grad for name, parameter in ranker.named_parameters()})
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert [name for name, gradient in gradients[0].items() if gradient is None] == []
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(
            _dense(gradient), _dense(gradients[1][name]), atol=2e-4, rtol=2e-3, msg=name
        )


def test_sparse_gradients_are_the_dense_ones(example):
    batch = example.batch(QUERY, ["She said (he is here)", "the actress and his queen", "soup"])
    ranker = copy.deepcopy(example.ranker).train()
    table = ranker.backpack.get_input_embeddings()
    ranker(batch).scores.square().sum().backward()
    gradient = _dense(table.weight.grad)
    ranker.zero_grad()
    # A table that is no leaf of the graph, as FSDP has it, gets dense gradients alone.
    leaf = table.weight
    del table.weight
    table.weight = leaf * 1.0
    ranker(batch).scores.square().sum().backward()
    torch.testing.assert_close(gradient, leaf.grad, atol=1e-5, rtol=1e-4)


def _dense(gradient):
    return gradient.to_dense() if gradient.is_sparse else gradient


def test_half_precision_scores_about_the_same(example):
    documents = ["She said (he is here)", "the actress and his queen", "soup"]
    view = View(torch.tensor(at_zero(example)))
    exact = Scorer(copy.deepcopy(example.ranker), example.pair_tokenizer)
    rough = Scorer(
        copy.deepcopy(example.ranker),
        example.pair_tokenizer,
        ScoringSettings(dtype="bfloat16", device="cpu"),
    )
    for tested_view in (UNCHANGED, view):
        np.testing.assert_allclose(
            rough.score(QUERY, documents, tested_view),
            exact.score(QUERY, documents, tested_view),
            atol=0.1,
        )
    swapped = ["He said (she is here)", "the actor and her king", "soup"]
    assert (
        rough.score(QUERY, documents, view).tobytes() == rough.score(QUERY, swapped, view).tobytes()
    )


def test_one_pass_serves_all_alphas(example, tmp_path):
    """The cache holds [N, k + G, d]; scores from it at every alpha are those of a pass of their
    own.
    """
    documents = {"a": "She said (he is here)", "b": "the actress and his queen", "c": "soup"}
    collection = Collection("tiny", MemoryStore(documents), {"q": QUERY}, {"q": {"a": 1}})
    pairs = Pairs(collection, ("q",) * 3, tuple(documents))
    scorer = Scorer(copy.deepcopy(example.ranker), example.pair_tokenizer)
    k = example.ranker.config.num_senses
    cache = SenseCache(tmp_path)
    for alpha in (1.0, 0.5, 0.0):
        view = View(torch.tensor([1.0] * k + [alpha] * 2))
        controlled_scores = scorer.scores(pairs, view, cache)
        np.testing.assert_allclose(
            controlled_scores, scorer.score(QUERY, list(documents.values()), view), atol=1e-5
        )
    (file,) = tmp_path.glob("*.npy")
    assert np.load(file).shape == (3, k + 2, 16)
    senses = torch.from_numpy(scorer.senses(pairs))
    word_part, attribute_part = senses[:, :k].sum(dim=1), senses[:, k:].sum(dim=1)
    with torch.no_grad():
        linear = example.ranker.head(word_part + 0.5 * attribute_part)
    controlled_scores = scores(
        example, example.batch(QUERY, list(documents.values())), [1.0] * k + [0.5] * 2
    )
    torch.testing.assert_close(controlled_scores, linear, atol=1e-5, rtol=1e-5)


def test_forms_of_a_class_are_of_one_case_and_stand_behind_the_same(tokenizer_and_kind, gender):
    tokenizer, _ = tokenizer_and_kind
    forms = word_forms(tokenizer, gender.classes(), gender.group_of_words())
    assert len({form.pieces for form in forms}) == len(forms)
    by_class = {}
    for form in forms:
        by_class.setdefault(form.word_class, []).append(form)
    for members in by_class.values():
        assert len({form.word for form in members}) > 1
        (words_of_class,) = [words for words in GENDER.values() if members[0].word in words]
        for form in members:
            assert words_of_class[form.word] == form.group
            # Decoded, each is the word in the same case as the others.
            text = "".join(tokenizer.convert_ids_to_tokens(list(form.pieces)))
            core = text.replace("##", "").strip("Ġ▁")
            assert core.lower() == form.word
        cases = {
            ("".join(tokenizer.convert_ids_to_tokens(list(f.pieces))).strip("Ġ▁#").istitle())
            for f in members
        }
        assert len(cases) == 1


def test_a_word_alone_is_no_class(tmp_path):
    """The tokenizer does not know the Cyrillic letter of the second word."""
    make, _ = EXAMPLES["word pieces, BERT"]
    letters = attribute(tmp_path, "gender", {"letter": {"he": "male", "шe": "female"}})
    with pytest.raises(ValueError, match="the tokenizer knows no two words of a class"):
        word_forms(make(), letters.classes(), letters.group_of_words())


def test_a_word_of_two_attributes_is_refused_by_its_name(tokenizer_and_kind, gender, tmp_path):
    tokenizer, kind = tokenizer_and_kind
    ranker, pair_tokenizer = new_ranker(tokenizer, kind)
    separator = pair_tokenizer.separator_id
    add_attribute_senses(ranker.backpack, tokenizer, gender, separator_id=separator)
    rows, groups = ranker.backpack.attribute_senses.rows(), ranker.config.groups
    faith = attribute(tmp_path, "religion", {"title": {"woman": "muslim", "nurse": "christian"}})
    with pytest.raises(
        ValueError,
        match=r"'woman' is a word of religion and of another attribute of this ranker \(gender\)",
    ):
        add_attribute_senses(ranker.backpack, tokenizer, faith, separator_id=separator)
    assert (ranker.backpack.attribute_senses.rows(), ranker.config.groups) == (rows, groups)


@pytest.mark.parametrize("kind", ["gemma3n_text", "gemma4_text"])
def test_a_backbone_with_two_tables_of_tokens_is_refused(kind, gender):
    tokenizer = EXAMPLES["unigram without split, GPT-2"][0]()
    size = len(tokenizer)
    shape = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 24,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 96,
        "num_kv_shared_layers": 0,
        "layer_types": ["full_attention"] * 2,
        "vocab_size": size,
        "pad_token_id": 0,
        "hidden_size_per_layer_input": 4,
        "vocab_size_per_layer_input": size,
    }
    if kind == "gemma3n_text":
        shape |= {
            "laurel_rank": 4,
            "altup_num_inputs": 2,
            "activation_sparsity_pattern": [0.0, 0.0],
        }
    backbone_config = AutoConfig.for_model(kind, **shape)
    ranker = BackpackForRanking(BackpackConfig(backbone_config=backbone_config, num_senses=4))
    with pytest.raises(
        ValueError, match=f"a backbone of type '{kind}' looks tokens up in more than one table"
    ):
        add_attribute_senses(ranker.backpack, tokenizer, gender, separator_id=4)
    assert ranker.config.total_senses == 4
