"""Paired tokens: the guarantee, the formula against edited copies of the model, and what is left
alone.
"""

import copy

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from moved_tables import edited
from transformers import ViTConfig, ViTModel
from whole_words import SHAPE, save_backbone

from backpack_rank.attributes.word_classes import WordClass, WordClasses
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer, train_bpe
from backpack_rank.data.vocabulary import WordVocabulary
from backpack_rank.models import factory
from backpack_rank.models.attention import packed_trunk
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.token_shift import SCOPES, TokenClasses, token_shift
from backpack_rank.models.utils import input_embeddings
from backpack_rank.models.word_ranker import interaction_ranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.views import View

CLASSES = WordClasses(
    "test",
    (
        WordClass("subject", ("he", "she")),
        WordClass("possessive", ("him", "his", "her", "hers")),
        WordClass("adult", ("man", "woman")),
        WordClass("rare", ("widower", "widow")),
    ),
)
WORDS = [word for word_class in CLASSES.classes[:3] for word in word_class.words]
OTHERS = ["doctor", "ward", "bridge", "soup", "and", "the"]


@pytest.fixture(scope="module")
def tokenizer():
    cases = (str.lower, str.capitalize)
    text = " ".join(case(word) for word in WORDS + OTHERS for case in cases)
    bare = [f"({case(word)})" for word in WORDS for case in cases]
    return train_bpe(
        [text] * 4 + [case(word) for word in WORDS for case in cases] * 4 + bare * 4, vocab_size=480
    )


@pytest.fixture(scope="module")
def classes(tokenizer):
    return TokenClasses.of(tokenizer, CLASSES)


@pytest.fixture(scope="module")
def backpack(tokenizer):
    return ranker_of(factory.new_backpack, tokenizer, senses=8)


@pytest.fixture(scope="module")
def gpt2(tokenizer):
    return ranker_of(factory.new_gpt2, tokenizer)


def ranker_of(make, tokenizer, **options):
    torch.manual_seed(0)
    shape = {
        "layers": 2,
        "hidden_size": 32,
        "heads": 4,
        "positions": 64,
        "dropout": 0.0,
        "initializer_range": 0.3,
    }
    return make(tokenizer, **{**shape, **options}).eval()


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def batch_of(tokenizer, *texts):
    return PackedBatch.from_sequences([ids_of(tokenizer, text) for text in texts])


TEXTS = (
    " He gave her the soup and she thanked him",
    " the man",
    " his bridge and hers and the ward She saw",
)


def test_variants_of_case_and_space_are_classes_of_their_own(tokenizer, classes):
    by_id = {token: index for index, ids in enumerate(classes.members) for token in ids}
    for pair in (
        (" he", " she"),
        (" He", " She"),
        (" man", " woman"),
        (" his", " hers"),
        (" Him", " Her"),
    ):
        first, second = (ids_of(tokenizer, text) for text in pair)
        assert len(first) == len(second) == 1, pair
        assert by_id[first[0]] == by_id[second[0]]
    (lower,), (upper,) = ids_of(tokenizer, " he"), ids_of(tokenizer, " He")
    assert by_id[lower] != by_id[upper]
    assert {"widower", "widow"} <= set(classes.several_tokens)
    assert not set(ids_of(tokenizer, " the doctor and soup")) & set(by_id)


@torch.no_grad()
@pytest.mark.parametrize("scope", SCOPES)
def test_a_piece_of_a_longer_word_stays_scope_it_is(backpack, gpt2, tokenizer, classes, scope):
    """ " she" begins "sheward", and "he" ends "bridgehe": neither is a pronoun."""
    (she,), (he,) = ids_of(tokenizer, " she"), ids_of(tokenizer, "he")
    pieces = [[she, *ids_of(tokenizer, "ward")], [*ids_of(tokenizer, " bridge"), he]]
    assert [tokenizer.decode(ids) for ids in pieces] == [" sheward", " bridgehe"]
    assert {she, he} <= set().union(*classes.members)
    words = [
        [she, *ids_of(tokenizer, " ward")],
        [*ids_of(tokenizer, " bridge"), *ids_of(tokenizer, "("), he],
    ]
    end = [tokenizer.eos_token_id]
    rankers = [backpack] if scope != "weights" else [backpack, gpt2]
    for ranker in rankers:
        for ids, moves in [(ids, False) for ids in pieces] + [(ids, True) for ids in words]:
            batch = PackedBatch.from_sequences([ids + end, ids_of(tokenizer, " soup") + end])
            plain = ranker(batch).scores
            for alpha in (0.0, 0.5):
                shift = token_shift(ranker, classes, scope, alpha)
                assert torch.equal(ranker(batch, token_shift=shift).scores, plain) != moves


@torch.no_grad()
def test_a_word_and_the_same_token_as_a_piece_are_told_apart_in_one_text(
    backpack, tokenizer, classes
):
    (she,) = ids_of(tokenizer, " she")
    both = [
        she,
        *ids_of(tokenizer, "ward"),
        she,
        *ids_of(tokenizer, " ward"),
        tokenizer.eos_token_id,
    ]
    network, shift = backpack.backpack, token_shift(backpack, classes, "senses", 0.0)
    vectors = network.senses(torch.arange(len(tokenizer)))
    batch = PackedBatch.from_sequences([both])
    shares = network.pooled_weights(batch)[0]
    mix = torch.zeros(32)
    for place, token in enumerate(both):
        moved = edited(vectors, classes, 0.0) if place == both.index(she, 1) else vectors
        mix += (shares[:, place, None] * moved[token]).sum(dim=0)
    scores = backpack(batch, token_shift=shift).scores
    assert float(scores) == pytest.approx(float(backpack.head(mix)), abs=2e-5)


def test_a_vocabulary_without_any_class_is_refused(tokenizer):
    with pytest.raises(ValueError, match="nothing could be moved"):
        TokenClasses.of(tokenizer, WordClasses("odd", (WordClass("rare", ("widower", "widow")),)))


@torch.no_grad()
@pytest.mark.parametrize("scope", SCOPES)
def test_texts_without_class_words_never_change(backpack, tokenizer, classes, scope):
    batch, neutral = (
        batch_of(tokenizer, *TEXTS),
        batch_of(tokenizer, " the doctor and the soup", " ward bridge"),
    )
    plain, expected = backpack(batch).scores, backpack(neutral).scores
    for alpha in (0.0, 0.3, 2.0):
        shift = token_shift(backpack, classes, scope, alpha)
        assert torch.equal(backpack(neutral, token_shift=shift).scores, expected)
        assert (backpack(batch, token_shift=shift).scores - plain).abs().max() > 1e-3
    assert torch.equal(backpack(batch).scores, plain), "a shift leaves nothing behind"


@pytest.fixture(scope="module")
def bert(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    return str(save_backbone(folder, tokenizer, "bert", **SHAPE, max_position_embeddings=64))


@pytest.fixture(scope="module")
def words():
    return WordVocabulary(min_count=1, buckets=4).build([*WORDS, *OTHERS])


@pytest.fixture(scope="module", params=["gpt2", "cross-encoder", "dual encoder", "words"])
def without_senses(request, tokenizer, words):
    """A ranker without senses and its tokenizer."""
    torch.manual_seed(0)
    if request.param == "gpt2":
        return request.getfixturevalue("gpt2"), tokenizer
    if request.param == "words":
        ranker = interaction_ranker(words, interaction="conv_knrm", embedding_size=16)
        return ranker.eval(), words
    make = {"cross-encoder": factory.cross_encoder, "dual encoder": factory.dual_encoder}[
        request.param
    ]
    return make(tokenizer, name=request.getfixturevalue("bert"), pooling="last").eval(), tokenizer


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.5])
def test_a_ranker_without_senses_equals_its_copy_with_edited_embeddings(without_senses, alpha):
    ranker, tokenizer = without_senses
    classes = TokenClasses.of(tokenizer, CLASSES)
    other = copy.deepcopy(ranker)
    table = input_embeddings(other).weight
    table.copy_(edited(table, classes, alpha))
    batch = PackedBatch.from_sequences(
        make_pair_tokenizer(tokenizer, ranker, 48).pairs("his soup", TEXTS)
    )
    scores = ranker(batch, token_shift=token_shift(ranker, classes, "weights", alpha)).scores
    torch.testing.assert_close(scores, other(batch).scores, atol=1e-5, rtol=1e-5)
    assert (scores - ranker(batch).scores).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.5])
def test_a_backpack_equals_the_slow_formula(backpack, tokenizer, classes, scope, alpha):
    """Contextual weights of an edited copy, sense vectors of an edited table, summed token by
    token.
    """
    network = backpack.backpack
    reader = copy.deepcopy(network)
    if scope != "senses":
        reader.backbone.wte.weight.copy_(edited(network.backbone.wte.weight, classes, alpha))
    vectors = network.senses(torch.arange(len(tokenizer)))
    if scope != "weights":
        vectors = edited(vectors, classes, alpha)
    batch = batch_of(tokenizer, *TEXTS)
    weights = reader.sense_weight_net.pooled(packed_trunk(reader.backbone, batch), batch)
    expected = []
    for row, text in enumerate(TEXTS):
        mix = torch.zeros(32)
        for position, token in enumerate(ids_of(tokenizer, text)):
            for sense in range(8):
                mix += weights[row, sense, position] * vectors[token, sense]
        expected.append(float(backpack.head(mix)))
    scores = backpack(
        batch, token_shift=token_shift(backpack, classes, scope, alpha)
    ).scores.tolist()
    assert scores == pytest.approx(expected, abs=2e-5)


partners = {
    word: word_class.words for word_class in CLASSES.classes[:3] for word in word_class.words
}


@st.composite
def swapped_texts(draw):
    words = draw(st.lists(st.sampled_from(WORDS + OTHERS), min_size=1, max_size=14))
    case = draw(
        st.lists(
            st.sampled_from([str.lower, str.capitalize]), min_size=len(words), max_size=len(words)
        )
    )
    other = [draw(st.sampled_from(partners[word])) if word in partners else word for word in words]
    return tuple(
        " ".join(c(word) for c, word in zip(case, text, strict=True)) for text in (words, other)
    )


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pairs=st.lists(swapped_texts(), min_size=1, max_size=5), query=swapped_texts())
@example(
    pairs=[("he", "he"), ("he he he he " + "doctor " * 6, "she he he he " + "doctor " * 6)],
    query=("he", "he"),
)  # the texts begin alike on one side only, so the scores differ in the last bits
def test_swaps_within_classes_leave_scores_as_they_are_at_alpha_zero(
    backpack, gpt2, tokenizer, classes, pairs, query
):
    for ranker, scope in ((backpack, "both"), (gpt2, "weights")):
        scorer = Scorer(ranker, PairTokenizer(tokenizer, 64))
        view = View(token_shift=token_shift(ranker, classes, scope, 0.0))
        first = scorer.score(query[0], [pair[0] for pair in pairs], view)
        second = scorer.score(query[1], [pair[1] for pair in pairs], view)
        # Distinct tokens and common beginnings are read once: how many there are decides the order
        # of additions.
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_guarantee_holds_where_documents_are_cut_and_in_half_precision(
    tokenizer, classes, dtype
):
    ranker, pair_tokenizer = (
        ranker_of(factory.new_backpack, tokenizer, senses=8),
        PairTokenizer(tokenizer, 24),
    )
    scorer = Scorer(ranker, pair_tokenizer, ScoringSettings(dtype=dtype))
    first = ["he saw the man and his soup " * 4, "the man"]
    second = ["she saw the woman and hers soup " * 4, "the woman"]
    assert [len(ids) for ids in pair_tokenizer.encode(first)] == [
        len(ids) for ids in pair_tokenizer.encode(second)
    ]
    assert len(pair_tokenizer.encode(first)[0]) > 24
    assert scorer.score("her", first).tobytes() != scorer.score("his", second).tobytes()
    view = View(token_shift=token_shift(ranker, classes, "both", 0.0))
    assert scorer.score("her", first, view).tobytes() == scorer.score("his", second, view).tobytes()


@torch.no_grad()
def test_means_of_classes_are_taken_without_dropout(tokenizer, classes):
    ranker = ranker_of(factory.new_backpack, tokenizer, senses=8, dropout=0.5)
    expected = token_shift(ranker, classes, "both", 0.0)
    shift = token_shift(ranker.train(), classes, "both", 0.0)
    assert ranker.training
    assert torch.equal(shift.hidden_means, expected.hidden_means)
    assert torch.equal(shift.embedding_means, expected.embedding_means)


def test_without_a_shift_the_same_swaps_change_scores(backpack, tokenizer):
    """Otherwise the tests above would show nothing."""
    scorer = Scorer(backpack, PairTokenizer(tokenizer, 64))
    scores = scorer.score("doctor", ["he saw the man", "she saw the woman"])
    assert abs(scores[0] - scores[1]) > 1e-3


@pytest.mark.parametrize("scope", SCOPES)
def test_the_cached_path_equals_a_pass_of_its_own(backpack, tokenizer, classes, tmp_path, scope):
    documents = {f"d{i}": text for i, text in enumerate(TEXTS)}
    collection = Collection("tiny", MemoryStore(documents), {"q": "doctor"}, {})
    pairs = Pairs.from_run({"q": dict.fromkeys(documents, 0.0)}, collection)
    scorer, cache = Scorer(backpack, PairTokenizer(tokenizer, 64)), SenseCache(tmp_path)
    weights = torch.linspace(0, 1, 8)
    views = [
        View(weights, token_shift(backpack, classes, scope, alpha))
        for alpha in (0.0, 0.25, 0.75, 1.5)
    ]
    passes = []
    handle = backpack.backpack.backbone.register_forward_pre_hook(lambda *_: passes.append(1))
    cached = [scorer.scores(pairs, view, cache) for view in [*views, *views]]
    assert len(passes) == {"senses": 2, "weights": 4, "both": 4}[scope]
    handle.remove()
    direct = [scorer.scores(pairs, view) for view in views]
    np.testing.assert_allclose(cached, direct * 2, atol=1e-5)
    assert np.ptp([scores[0] for scores in direct]) > 1e-3


def test_a_ranker_without_senses_moves_what_it_reads_alone(gpt2, classes):
    for scope in ("senses", "both"):
        with pytest.raises(
            TypeError, match=r"GPT2ForRanking has no sense vectors, and policy\.scope="
        ):
            token_shift(gpt2, classes, scope, 0.0)
    pictures = ViTModel(
        ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    )
    with pytest.raises(TypeError, match="ViTModel has no word vectors that could be moved"):
        token_shift(pictures, classes, "weights", 0.0)


def test_an_unknown_scope_is_named(backpack, classes):
    with pytest.raises(
        ValueError, match=r"policy\.scope=embedding: use one of senses, weights, both"
    ):
        token_shift(backpack, classes, "embedding", 0.5)


def test_pooled_vectors_of_tokens_are_those_under_the_shift(tokenizer, classes):
    """At alpha 0 the vectors of two texts that differ in a listed word are one."""
    ranker = ranker_of(factory.new_gpt2, tokenizer)
    scorer = Scorer(ranker, PairTokenizer(tokenizer, 32), ScoringSettings(device="cpu"))
    texts = [f"the doctor and {word} and the soup" for word in ("he", "she")]
    sequences = [np.array(tokenizer(text)["input_ids"]) for text in texts]
    (he, she), (score_of_he, score_of_she) = scorer.token_vectors(sequences)
    assert abs(he - she).max() > 1e-3
    shift = token_shift(ranker, classes, "weights", 0.0)
    (he, she), (score_of_he, score_of_she) = scorer.token_vectors(sequences, shift)
    assert he.tolist() == pytest.approx(she.tolist(), abs=1e-5)
    assert score_of_he == pytest.approx(score_of_she, abs=1e-5)
