"""Word-embedding rankers as rankers: sides of a pair, limits, padding, saving and loading,
gradients, frozen parts.
"""

import math

import pytest
import torch

from backpack_rank.attributes.word_classes import WordClass, WordClasses
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.vocabulary import SPECIAL, WordPairTokenizer, WordVocabulary
from backpack_rank.models.interactions import INTERACTIONS
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.token_shift import TokenClasses, token_shift
from backpack_rank.models.word_ranker import (
    InteractionConfig,
    InteractionForRanking,
    interaction_ranker,
)
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.views import View
from backpack_rank.training.adapters import Lora, merged
from backpack_rank.training.freezing import FrozenParts
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.pretraining import LanguageModelModule

QUERIES = {
    "doctor in the ward": ["The doctor said he would see the patient in the ward.", "", "zork"],
    "zork": ["Zork, the engineer", "a nurse"],
    "?!": ["a nurse", ""],
    "nurse nurse a woman the ward and how it works": [
        "A nurse explains to a man and a woman how it works",
        "it",
    ],
}


@pytest.fixture(scope="module")
def words(sentences):
    return WordVocabulary(min_count=1, buckets=20).build(sentences)


def make(words, name, seed=0, **options):
    """A ranker with large random weights, as it scores."""
    torch.manual_seed(seed)
    ranker = interaction_ranker(
        words, interaction=name, **{"embedding_size": 12, "max_query_length": 6, **options}
    )
    with torch.no_grad():
        for parameter in ranker.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.5)
    return ranker.eval()


def rows(words, ranker):
    pair_tokenizer = make_pair_tokenizer(words, ranker, 60)
    return [
        ids
        for query, documents in QUERIES.items()
        for ids in pair_tokenizer.pairs(query, documents)
    ]


@torch.no_grad()
@pytest.mark.parametrize("name", INTERACTIONS)
def test_a_batch_gives_the_scores_of_one_text_at_a_time(words, name):
    ranker = make(words, name)
    texts = rows(words, ranker)
    scores = ranker(PackedBatch.from_sequences(texts)).scores
    assert scores.shape == (len(texts),)
    assert scores.isfinite().all()
    assert scores.unique().numel() > 4
    alone = torch.cat([ranker(PackedBatch.from_sequences([text])).scores for text in texts])
    assert (scores - alone).abs().max() < 1e-5 * scores.abs().max()
    empty = PackedBatch.from_sequences([texts[-3], texts[-3]])  # no word on either side
    assert len(texts[-3]) == 1
    assert ranker(empty).scores.tolist() == pytest.approx([scores[-3].item()] * 2, rel=1e-5)


@pytest.mark.parametrize("name", INTERACTIONS)
def test_scores_depend_on_every_parameter(words, name):
    ranker = make(words, name)
    texts = rows(words, ranker)
    ranker(PackedBatch.from_sequences(texts)).scores.sum().backward()
    for parameter_name, parameter in ranker.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name
    read = {int(number) for text in texts for number in text}
    moved = set(ranker.backbone.weight.grad.abs().sum(1).nonzero().flatten().tolist())
    assert moved <= read - {words.sep_token_id}, "no word gets a gradient that no text has"


@torch.no_grad()
@pytest.mark.parametrize("name", INTERACTIONS)
def test_a_saved_folder_gives_the_same_scores_and_the_same_words(words, name, tmp_path):
    ranker = make(words, name)
    pair_tokenizer = make_pair_tokenizer(words, ranker, 60)
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    again, loaded_tokenizer = load_ranker(tmp_path / "ranker")
    assert type(again) is InteractionForRanking
    assert type(loaded_tokenizer) is WordPairTokenizer
    assert (loaded_tokenizer.max_length, loaded_tokenizer.fingerprint) == (
        60,
        pair_tokenizer.fingerprint,
    )
    assert again.config.sizes == ranker.config.sizes
    texts = loaded_tokenizer.pairs("zork in the ward", ["The doctor", "zork"])
    assert [ids.tolist() for ids in texts] == [
        ids.tolist() for ids in pair_tokenizer.pairs("zork in the ward", ["The doctor", "zork"])
    ]
    batch = PackedBatch.from_sequences(texts)
    torch.testing.assert_close(again(batch).scores, ranker(batch).scores, rtol=1e-5, atol=1e-5)
    assert all(
        torch.equal(a, b)
        for a, b in zip(again.state_dict().values(), ranker.state_dict().values(), strict=True)
    )


@torch.no_grad()
def test_query_and_document_are_cut_to_their_limits_and_the_separator_is_neither(words):
    ranker = make(words, "knrm", max_query_length=3, max_document_length=4)
    pair_tokenizer = make_pair_tokenizer(words, ranker, 8)
    batch = PackedBatch.from_sequences(
        [
            *pair_tokenizer.pairs("the nurse said a", ["he would"]),
            *pair_tokenizer.pairs("his", ["the man and a woman, the nurse"]),
        ]
    )
    query, document = ranker.sides(batch)
    names = words.convert_ids_to_tokens
    assert names(query.packed.input_ids.tolist()) == ["the", "nurse", "said", "his"]
    assert query.packed.lengths == [3, 1]
    assert query.tokens.nonzero().flatten().tolist() == [0, 1, 2, 7]
    assert names(document.packed.input_ids.tolist()) == ["he", "would", "the", "man", "and", "a"]
    assert document.packed.lengths == [2, 4]
    assert document.tokens.nonzero().flatten().tolist() == [5, 6, 9, 10, 11, 12]
    vectors, mask = document.padded()
    assert mask.tolist() == [[True, True, False, False], [True] * 4]
    assert (vectors[0, 2:] == 0).all()
    assert torch.equal(vectors[1], ranker.backbone.weight[batch.input_ids[9:13]])
    assert document.ids()[1].tolist() == batch.input_ids[9:13].tolist()
    with pytest.raises(ValueError, match="max_length=9 exceeds the ranker's 8 positions"):
        make_pair_tokenizer(words, ranker, 9)


@torch.no_grad()
def test_unknown_words_match_themselves_and_dropped_ones_do_not(sentences):
    scores = {}
    for unknown in ("hash", "drop"):
        tokenizer = WordVocabulary(min_count=1, unknown=unknown, buckets=1000).build(sentences)
        ranker = make(tokenizer, "knrm")
        ranker.interaction.score.weight.copy_(torch.eye(11)[:1])  # the exact matches alone
        scorer = Scorer(
            ranker, make_pair_tokenizer(tokenizer, ranker, 30), ScoringSettings(device="cpu")
        )
        scores[unknown] = scorer.score("zork", ["the zork", "the xyzzy", "the man"]).tolist()
    assert scores["hash"][0] > scores["hash"][1] + 0.2
    assert scores["hash"][1] == scores["hash"][2]
    assert len(set(scores["drop"])) == 1


@torch.no_grad()
@pytest.mark.parametrize("name", ["knrm", "tk"])
def test_token_representations_are_what_is_matched(words, name):
    ranker = make(words, name)
    pair_tokenizer = make_pair_tokenizer(words, ranker, 60)
    pairs = [
        *pair_tokenizer.pairs("the nurse", ["the nurse said zork", "a man"]),
        *pair_tokenizer.pairs("a man", [""]),
    ]
    vectors = ranker.token_representations(PackedBatch.from_sequences(pairs))
    assert vectors.shape == (sum(map(len, pairs)), 12)
    place = 0
    for ids in pairs:
        split = ids.tolist().index(words.sep_token_id)
        for start, part, shift in ((0, ids[:split], 0), (split + 1, ids[split + 1 :], 500)):
            expected = ranker.backbone.weight[torch.tensor(part, dtype=torch.long)]
            if name == "tk" and len(part):
                everywhere = torch.ones(1, len(part), dtype=torch.bool)
                expected = ranker.interaction.contextualise(expected[None], everywhere, shift)[0]
            word_vectors = vectors[place + start : place + start + len(part)]
            torch.testing.assert_close(word_vectors, expected, rtol=1e-5, atol=1e-5)
        assert (vectors[place + split] == 0).all()
        place += len(ids)
    if name == "tk":
        # The first document begins with the query's words, which other words and positions follow.
        assert (vectors[0] - vectors[3]).abs().max() > 0.1


@torch.no_grad()
def test_first_vectors_stand_at_their_words(words, tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("nurse 1 2\nthe 3 4\nward 5 6\n")
    ranker = interaction_ranker(words, interaction="knrm", embeddings=str(path))
    assert ranker.training
    assert ranker.config.embedding_size == 2
    table = dict(
        zip(
            words.convert_ids_to_tokens(list(range(len(words)))),
            ranker.backbone.weight.tolist(),
            strict=False,
        )
    )
    assert [table[word] for word in ("nurse", "the", "ward")] == [[1, 2], [3, 4], [5, 6]]
    assert ranker.backbone.weight.shape == (len(words) + 20, 2)
    assert table["doctor"] not in ([1, 2], [3, 4], [5, 6])


def test_half_precision_keeps_exact_matches_apart(words):
    ranker = make(words, "knrm")
    pair_tokenizer = make_pair_tokenizer(words, ranker, 60)
    documents = ["the nurse in the ward", "a man", "doctor"]
    single = Scorer(ranker, pair_tokenizer, ScoringSettings(device="cpu")).score(
        "doctor in the ward", documents
    )
    half = Scorer(ranker, pair_tokenizer, ScoringSettings(device="cpu", dtype="bfloat16")).score(
        "doctor in the ward", documents
    )
    assert half.argsort().tolist() == single.argsort().tolist()
    assert abs(half - single).max() < 0.05 * (single.max() - single.min()) + 0.01


def test_frozen_parts_are_embeddings_and_interaction(words):
    for part, left in (("embeddings", "interaction."), ("interaction", "backbone.")):
        ranker = make(words, "tk")
        FrozenParts([part]).apply(ranker)
        trained = [
            parameter_name
            for parameter_name, parameter in ranker.named_parameters()
            if parameter.requires_grad
        ]
        assert trained
        assert all(parameter_name.startswith(left) for parameter_name in trained)
    with pytest.raises(
        ValueError, match=r"'head' is no part of Interaction.*Parts are embeddings, interaction"
    ):
        FrozenParts(["head"]).apply(make(words, "knrm"))


def test_word_vectors_and_interaction_have_their_own_learning_rates(words):
    optimizer = OptimizerConfig(learning_rate=0.5, head_learning_rate=0.25).optimizer(
        make(words, "knrm")
    )
    rates = {
        tuple(parameter.shape): group["lr"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert rates == {(len(words) + 20, 12): 0.5, (1, 11): 0.25, (1,): 0.25}


def test_what_a_word_ranker_cannot_do_is_refused(words, tokenizer):
    ranker = make(words, "knrm")
    batch = PackedBatch.from_sequences(rows(words, ranker))
    with pytest.raises(TypeError, match="knrm has no sense vectors"):
        ranker(batch, return_senses=True)
    with pytest.raises(
        ValueError,
        match=r"this InteractionForRanking predicts no next token: use pretraining\.epochs=0",
    ):
        LanguageModelModule(ranker, OptimizerConfig())
    with pytest.raises(ValueError, match="no pretrained network to adapt: use adapter=none"):
        Lora().apply(ranker)
    with merged(ranker) as same:
        assert same is ranker
    with pytest.raises(ValueError, match="is no vocabulary of whole words"):
        interaction_ranker(tokenizer, interaction="knrm")
    with pytest.raises(
        ValueError, match=r"model\.ranker\.interaction=drmm: use one of knrm, conv_knrm"
    ):
        interaction_ranker(words, interaction="drmm")
    with pytest.raises(
        ValueError, match=r"model\.ranker\.sizes: knrm has no 'bins'; it has kernels, sigma"
    ):
        interaction_ranker(words, interaction="knrm", sizes={"bins": 3})
    with pytest.raises(ValueError, match="max_query_length=0"):
        InteractionConfig(max_query_length=0)


def test_pacrr_weighs_words_by_the_documents_that_hold_them():
    documents = ["the red fox", "the red hen", "the hen the", "the owl"]
    tokenizer = WordVocabulary(min_count=1, unknown="hash", buckets=2).build(documents)
    ranker = interaction_ranker(
        tokenizer, interaction="pacrr", sizes={"term_weights": True}, embedding_size=4
    )
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 20)
    ranker.count(documents, pair_tokenizer)
    # N = 4: "the" is in all, "red" and "hen" in two, "fox" and "owl" in one, "yak" and its bucket
    # in none.
    expected = {
        "the": 0.0,
        "red": math.log(4 / 3),
        "hen": math.log(4 / 3),
        "fox": math.log(2),
        "owl": math.log(2),
    }
    for word, idf in {**expected, "yak": math.log(4)}.items():
        (ids,) = pair_tokenizer.encode([word])
        assert ranker.interaction.idf[ids[0]].item() == pytest.approx(idf, abs=1e-6)
    plain = interaction_ranker(tokenizer, interaction="pacrr", embedding_size=4)
    plain.count(iter(()), pair_tokenizer)  # reads nothing
    assert plain.interaction.idf is None


def test_word_vectors_are_brought_to_a_length_by_one_factor(words):
    made = {}
    for norm in (None, 5.0):
        torch.manual_seed(0)
        ranker = interaction_ranker(
            words, interaction="knrm", embedding_size=6, embedding_norm=norm
        )
        made[norm] = ranker.backbone.weight.detach()
    word_vectors = made[5.0][len(SPECIAL) : len(words)]
    assert word_vectors.norm(dim=1).mean().item() == pytest.approx(5.0, rel=1e-5)
    factors = made[5.0] / made[None]
    assert factors.min().item() == pytest.approx(factors.max().item(), rel=1e-4)
    with pytest.raises(ValueError, match=r"embedding_norm=-1 must be above 0"):
        interaction_ranker(words, interaction="knrm", embedding_norm=-1)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_idf_of_words_of_a_class_moves_as_their_vectors_do(alpha):
    documents = [
        "the king saw the hen",
        "the king",
        "the king and a red fox",
        "the queen",
        "an owl",
    ]
    tokenizer = WordVocabulary(min_count=1, buckets=2).build(documents)
    torch.manual_seed(0)
    ranker = interaction_ranker(
        tokenizer, interaction="pacrr", sizes={"term_weights": True}, embedding_size=4
    ).eval()
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 20)
    ranker.count(documents, pair_tokenizer)
    king, queen = math.log(5 / 4), math.log(5 / 2)
    classes = TokenClasses.of(
        tokenizer, WordClasses("test", (WordClass("monarch", ("king", "queen")),))
    )
    moved = token_shift(ranker, classes, "weights", alpha)
    (ids,) = (
        torch.from_numpy(ids)[None].long() for ids in pair_tokenizer.encode(["the king saw queen"])
    )
    idf = moved.values(ranker.interaction.idf, ids)[0].tolist()
    middle = (king + queen) / 2
    expected = [
        math.log(5 / 5),
        middle + alpha * (king - middle),
        math.log(5 / 2),
        middle + alpha * (queen - middle),
    ]
    assert idf == pytest.approx(expected, abs=1e-6)
    scorer = Scorer(ranker, pair_tokenizer)
    texts = ["the king saw the fox", "a red hen"]
    queries = ("which king saw the fox", "which queen saw the fox")
    first, second = (scorer.score(query, texts, View(token_shift=moved)) for query in queries)
    assert (first.tobytes() == second.tobytes()) == (alpha == 0)
