"""Paired tokens: the guarantee, the formula against edited copies of the model, and what is left alone."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.tokenisation import PairEncoder, train_bpe
from backpack_rank.data.word_classes import WordClass, WordClasses
from backpack_rank.models.packing import PackedBatch
from backpack_rank.scoring import Scorer, ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.control import Control, applied
from backpack_rank.senses.tokens import TokenMove, token_classes

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
    return train_bpe([text] * 4 + [case(word) for word in WORDS for case in cases] * 4 + bare * 4, vocab_size=480)


@pytest.fixture(scope="module")
def classes(tokenizer):
    return token_classes(tokenizer, CLASSES)


@pytest.fixture(scope="module")
def backpack(tokenizer):
    return _ranker("new_backpack", tokenizer, senses=8)


@pytest.fixture(scope="module")
def gpt2(tokenizer):
    return _ranker("new_gpt2", tokenizer)


def _ranker(kind, tokenizer, **options):
    from backpack_rank.models import build

    torch.manual_seed(0)
    shape = {"layers": 2, "hidden_size": 32, "heads": 4, "positions": 64, "dropout": 0.0, "initializer_range": 0.3}
    return getattr(build, kind)(tokenizer, **shape, **options).eval()


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def batch_of(tokenizer, *texts):
    return PackedBatch.from_sequences([ids_of(tokenizer, text) for text in texts])


TEXTS = (" He gave her the soup and she thanked him", " the man", " his bridge and hers and the ward She saw")


def test_variants_of_case_and_space_are_classes_of_their_own(tokenizer, classes):
    by_id = {token: index for index, ids in enumerate(classes.members) for token in ids}
    for pair in ((" he", " she"), (" He", " She"), (" man", " woman"), (" his", " hers"), (" Him", " Her")):
        first, second = (ids_of(tokenizer, text) for text in pair)
        assert len(first) == len(second) == 1, pair
        assert by_id[first[0]] == by_id[second[0]]
    (lower,), (upper,) = ids_of(tokenizer, " he"), ids_of(tokenizer, " He")
    assert by_id[lower] != by_id[upper]
    assert {"widower", "widow"} <= set(classes.in_parts)
    assert not set(ids_of(tokenizer, " the doctor and soup")) & set(by_id)


@torch.no_grad()
@pytest.mark.parametrize("where", ["senses", "weights", "both"])
def test_a_piece_of_a_longer_word_stays_where_it_is(backpack, gpt2, tokenizer, classes, where):
    """ " she" begins "sheward", and "he" ends "bridgehe": neither is a pronoun."""
    (she,), (he,) = ids_of(tokenizer, " she"), ids_of(tokenizer, "he")
    pieces = [[she, *ids_of(tokenizer, "ward")], [*ids_of(tokenizer, " bridge"), he]]
    assert [tokenizer.decode(ids) for ids in pieces] == [" sheward", " bridgehe"]
    assert {she, he} <= {token for ids in classes.members for token in ids}
    words = [[she, *ids_of(tokenizer, " ward")], [*ids_of(tokenizer, " bridge"), *ids_of(tokenizer, "("), he]]
    end = [tokenizer.eos_token_id]
    rankers = [backpack] if where != "weights" else [backpack, gpt2]
    for ranker in rankers:
        for ids, moves in [(ids, False) for ids in pieces] + [(ids, True) for ids in words]:
            batch = PackedBatch.from_sequences([ids + end, ids_of(tokenizer, " soup") + end])
            plain = ranker(batch).scores
            for alpha in (0.0, 0.5):
                with applied(ranker, Control(tokens=TokenMove(classes, where, alpha))):
                    assert torch.equal(ranker(batch).scores, plain) != moves


@torch.no_grad()
def test_a_word_and_the_same_token_as_a_piece_are_told_apart_in_one_text(backpack, tokenizer, classes):
    (she,) = ids_of(tokenizer, " she")
    both = [she, *ids_of(tokenizer, "ward"), she, *ids_of(tokenizer, " ward"), tokenizer.eos_token_id]
    network, move = backpack.backpack, TokenMove(classes, "senses", 0.0)
    vectors = network.senses(torch.arange(len(tokenizer)))
    batch = PackedBatch.from_sequences([both])
    shares = network.pooled_weights(batch)[0]
    mix = torch.zeros(32)
    for place, token in enumerate(both):
        moved = edited(vectors, classes, 0.0) if place == both.index(she, 1) else vectors
        mix += (shares[:, place, None] * moved[token]).sum(dim=0)
    with applied(backpack, Control(tokens=move)):
        assert float(backpack(batch).scores) == pytest.approx(float(backpack.head(mix)), abs=2e-5)


def test_a_vocabulary_without_any_class_is_refused(tokenizer):
    with pytest.raises(ValueError, match="nothing could be moved"):
        token_classes(tokenizer, WordClasses("odd", (WordClass("rare", ("widower", "widow")),)))


@torch.no_grad()
@pytest.mark.parametrize("where", ["senses", "weights", "both"])
def test_alpha_one_is_bit_identical_and_texts_without_class_words_never_change(backpack, tokenizer, classes, where):
    batch = batch_of(tokenizer, *TEXTS)
    plain = backpack(batch).scores
    with applied(backpack, Control(tokens=TokenMove(classes, where, 1.0))):
        assert torch.equal(backpack(batch).scores, plain)
    neutral = batch_of(tokenizer, " the doctor and the soup", " ward bridge")
    expected = backpack(neutral).scores
    for alpha in (0.0, 0.3, 2.0):
        with applied(backpack, Control(tokens=TokenMove(classes, where, alpha))):
            assert torch.equal(backpack(neutral).scores, expected)
            assert (backpack(batch).scores - plain).abs().max() > 1e-3
    assert torch.equal(backpack(batch).scores, plain), "hooks are gone"


def edited(table, classes, alpha):
    """The embedding table with every member of a class moved, row by row."""
    moved = table.clone()
    for ids in classes.members:
        mean = sum(table[token] for token in ids) / len(ids)
        for token in ids:
            moved[token] = mean + alpha * (table[token] - mean)
    return moved


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.5])
def test_weights_equal_a_copy_of_the_model_with_edited_embeddings(gpt2, tokenizer, classes, alpha):
    other = copy.deepcopy(gpt2)
    other.transformer.wte.weight.copy_(edited(gpt2.transformer.wte.weight, classes, alpha))
    batch = batch_of(tokenizer, *TEXTS)
    with applied(gpt2, Control(tokens=TokenMove(classes, "weights", alpha))):
        found = gpt2(batch).scores
    torch.testing.assert_close(found, other(batch).scores, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("where", ["senses", "weights", "both"])
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.5])
def test_a_backpack_equals_the_slow_formula(backpack, tokenizer, classes, where, alpha):
    """Contextual weights of an edited copy, sense vectors of an edited table, summed token by token."""
    network = backpack.backpack
    reader = copy.deepcopy(network)
    if where != "senses":
        reader.backbone.wte.weight.copy_(edited(network.backbone.wte.weight, classes, alpha))
    vectors = network.senses(torch.arange(len(tokenizer)))
    if where != "weights":
        vectors = edited(vectors, classes, alpha)
    batch = batch_of(tokenizer, *TEXTS)
    from backpack_rank.models.attention import packed_trunk

    weights = reader.sense_weight_net.pooled(packed_trunk(reader.backbone, batch), batch)
    expected = []
    for row, text in enumerate(TEXTS):
        mix = torch.zeros(32)
        for position, token in enumerate(ids_of(tokenizer, text)):
            for sense in range(8):
                mix += weights[row, sense, position] * vectors[token, sense]
        expected.append(float(backpack.head(mix)))
    with applied(backpack, Control(tokens=TokenMove(classes, where, alpha))):
        found = backpack(batch).scores.tolist()
    assert found == pytest.approx(expected, abs=2e-5)


partners = {word: word_class.words for word_class in CLASSES.classes[:3] for word in word_class.words}


@st.composite
def swapped_texts(draw):
    words = draw(st.lists(st.sampled_from(WORDS + OTHERS), min_size=1, max_size=14))
    case = draw(st.lists(st.sampled_from([str.lower, str.capitalize]), min_size=len(words), max_size=len(words)))
    other = [draw(st.sampled_from(partners[word])) if word in partners else word for word in words]
    return tuple(" ".join(c(word) for c, word in zip(case, text, strict=True)) for text in (words, other))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(swapped_texts(), min_size=1, max_size=5), query=swapped_texts())
def test_swaps_within_classes_leave_scores_bit_identical_at_alpha_zero(
    backpack, gpt2, tokenizer, classes, pairs, query
):
    for ranker, where in ((backpack, "both"), (gpt2, "weights")):
        scorer = Scorer(ranker, PairEncoder(tokenizer, 64))
        with applied(ranker, Control(tokens=TokenMove(classes, where, 0.0))):
            first = scorer.score(query[0], [pair[0] for pair in pairs])
            second = scorer.score(query[1], [pair[1] for pair in pairs])
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_guarantee_holds_where_documents_are_cut_and_in_half_precision(tokenizer, classes, dtype):
    ranker, encoder = _ranker("new_backpack", tokenizer, senses=8), PairEncoder(tokenizer, 24)
    scorer = Scorer(ranker, encoder, ScoringSettings(dtype=dtype))
    first = ["he saw the man and his soup " * 4, "the man"]
    second = ["she saw the woman and hers soup " * 4, "the woman"]
    assert [len(ids) for ids in encoder.encode(first)] == [len(ids) for ids in encoder.encode(second)]
    assert len(encoder.encode(first)[0]) > 24
    assert scorer.score("her", first).tobytes() != scorer.score("his", second).tobytes()
    with applied(ranker, Control(tokens=TokenMove(classes, "both", 0.0))):
        assert scorer.score("her", first).tobytes() == scorer.score("his", second).tobytes()


@torch.no_grad()
def test_means_of_classes_are_taken_without_dropout(tokenizer, classes):
    from backpack_rank.models import build

    torch.manual_seed(0)
    ranker = build.new_backpack(
        tokenizer, layers=1, hidden_size=32, heads=4, positions=64, senses=8, dropout=0.5, initializer_range=0.3
    )
    batch, control = batch_of(tokenizer, *TEXTS), Control(tokens=TokenMove(classes, "senses", 0.0))
    scores = []
    for training in (True, False):
        ranker.train(training)
        with applied(ranker, control):
            assert ranker.training == training
            scores.append(ranker.eval()(batch).scores)
    assert torch.equal(*scores)


def test_without_the_control_the_same_swaps_change_scores(backpack, tokenizer):
    """Otherwise the test above would show nothing."""
    scorer = Scorer(backpack, PairEncoder(tokenizer, 64))
    scores = scorer.score("doctor", ["he saw the man", "she saw the woman"])
    assert abs(scores[0] - scores[1]) > 1e-3


@pytest.mark.parametrize("where", ["senses", "weights", "both"])
def test_the_cached_path_equals_a_pass_of_its_own(backpack, tokenizer, classes, tmp_path, where):
    documents = {f"d{i}": text for i, text in enumerate(TEXTS)}
    collection = Collection("tiny", MemoryStore(documents), {"q": "doctor"}, {})
    run = {"q": dict.fromkeys(documents, 0.0)}
    scorer = Scorer(backpack, PairEncoder(tokenizer, 64))
    weights = torch.linspace(0, 1, 8)
    controls = [Control(weights=weights, tokens=TokenMove(classes, where, alpha)) for alpha in (0.0, 0.25, 1.0, 1.5)]
    passes = []
    handle = backpack.backpack.backbone.register_forward_pre_hook(lambda *_: passes.append(1))
    cached = scorer.rank_controls(run, collection, controls, SenseCache(tmp_path))
    assert len(passes) == {"senses": 2, "weights": 4, "both": 4}[where]
    handle.remove()
    direct = scorer.rank_controls(run, collection, controls)
    for one, other in zip(cached, direct, strict=True):
        assert list(one["q"].values()) == pytest.approx(list(other["q"].values()), abs=1e-5)
    spread = np.ptp([run["q"]["d0"] for run in direct])
    assert spread > 1e-3


def test_a_ranker_without_senses_reads_moved_tokens_only(gpt2, classes):
    for where in ("senses", "both"):
        refused = pytest.raises(TypeError, match=r"policy\.where=weights")
        with refused, applied(gpt2, Control(tokens=TokenMove(classes, where, 0.0))):
            pass


def test_an_unknown_place_is_named(classes):
    with pytest.raises(ValueError, match="'embedding': use one of senses, weights, both"):
        TokenMove(classes, "embedding", 0.5)
