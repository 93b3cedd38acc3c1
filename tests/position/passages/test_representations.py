"""Token vectors of every kind of ranker, against the same texts read one at a time by the
libraries' own models.
"""

import copy

import numpy as np
import pytest
import torch
from causal_example import WIDE
from saved_rankers import FIXTURES
from transformers import BertConfig

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.vocabulary import WordPairTokenizer, word_tokenizer
from backpack_rank.models.attribute_senses import add_attribute_senses
from backpack_rank.models.configuration import CrossEncoderConfig, DualEncoderConfig
from backpack_rank.models.dual_encoder import DualEncoderForRanking
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.rankers import (
    BackpackForRanking,
    CrossEncoderForRanking,
    DualPairTokenizer,
)
from backpack_rank.models.word_ranker import interaction_ranker
from backpack_rank.position.passages.representations import KINDS, document_rows, representations

START, SEP = 2, 3
DOCUMENTS = [
    np.array(ids, dtype=np.int32) for ids in ([10, 11, 12, 10], [13], [11, 10, 14, 15, 16])
]


class Tokenizer:
    """The ids that an encoder of pairs needs."""

    sep_token_id, eos_token_id = SEP, None


@pytest.fixture
def bert():
    torch.manual_seed(0)
    return BertConfig(vocab_size=40, max_position_embeddings=40, initializer_range=0.3, **WIDE)


def packed(rows):
    batch = PackedBatch.from_sequences([row.ids for row in rows])
    chosen = []
    for row in rows:
        places = np.arange(len(row.ids))
        chosen.append((places >= row.start) & (places < row.start + row.length))
    return batch, torch.from_numpy(np.concatenate(chosen))


def test_rows_hold_documents_behind_nothing_or_behind_a_query():
    pair_tokenizer = PairTokenizer(Tokenizer(), 9, START)
    rows = document_rows(pair_tokenizer, [*DOCUMENTS, DOCUMENTS[0][:0]])
    assert [row.ids.tolist() for row in rows[:2]] == [
        [START, SEP, 10, 11, 12, 10, SEP],
        [START, SEP, 13, SEP],
    ]
    assert [(row.start, row.length) for row in rows] == [(2, 4), (2, 1), (2, 5), (3, 0)]
    rows = document_rows(pair_tokenizer, DOCUMENTS, np.array([10, 11], dtype=np.int32))
    assert rows[2].ids.tolist() == [START, 10, 11, SEP, 11, 10, 14, 15, SEP]  # cut to nine
    assert [(row.start, row.length) for row in rows] == [(4, 4), (4, 1), (4, 4)]
    assert document_rows(pair_tokenizer, []) == []


def test_rows_of_dual_encoders_and_of_words_hold_documents_too():
    (row, *_) = document_rows(DualPairTokenizer(Tokenizer(), 9, START), DOCUMENTS)
    assert row.ids.tolist() == [START, SEP, START, 10, 11, 12, 10, SEP]
    assert (row.start, row.length) == (3, 4)
    tokenizer = word_tokenizer([f"w{number}" for number in range(20)])
    pair_tokenizer = WordPairTokenizer(tokenizer, 9)
    (row, *_) = document_rows(pair_tokenizer, DOCUMENTS)
    assert (row.start, row.length, len(row.ids)) == (1, 4, 5)


def test_an_encoder_that_takes_documents_apart_is_refused():
    class Backwards(PairTokenizer):
        def join(self, query, document):
            return super().join(query, document[::-1])

    message = "Backwards puts documents into rows in more than one piece"
    with pytest.raises(ValueError, match=message):
        document_rows(Backwards(Tokenizer(), 9, START), DOCUMENTS)


@torch.no_grad()
def test_cross_encoders_give_the_last_hidden_states_of_their_backbone(bert):
    config = CrossEncoderConfig(backbone_config=bert, separator_id=SEP)
    ranker = CrossEncoderForRanking(config).eval()
    rows = document_rows(PairTokenizer(Tokenizer(), 20, START), DOCUMENTS)
    (kind,) = representations(ranker).items()
    assert kind[0] == "contextual"
    vectors_of_rows = kind[1](*packed(rows)).split([row.length for row in rows])
    ranker.backbone.set_attn_implementation("eager")
    for row, vectors in zip(rows, vectors_of_rows, strict=True):
        ids = torch.from_numpy(row.ids).long()[None]
        types = torch.tensor([[0, 0] + [1] * (row.length + 1)])
        expected = ranker.backbone(ids, token_type_ids=types).last_hidden_state[0, 2:-1]
        torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_dual_encoders_read_the_document_by_itself(bert):
    ranker = DualEncoderForRanking(DualEncoderConfig(backbone_config=bert, separator_id=SEP)).eval()
    pair_tokenizer = DualPairTokenizer(Tokenizer(), 20, START)
    represent = representations(ranker)["contextual"]
    alone = represent(*packed(document_rows(pair_tokenizer, DOCUMENTS)))
    query = np.array([20, 21], dtype=np.int32)
    behind = represent(*packed(document_rows(pair_tokenizer, DOCUMENTS, query)))
    torch.testing.assert_close(alone, behind)
    ranker.backbone.set_attn_implementation("eager")
    expected = [
        ranker.backbone(torch.tensor([[START, *ids.tolist(), SEP]])).last_hidden_state[0, 1:-1]
        for ids in DOCUMENTS
    ]
    torch.testing.assert_close(alone, torch.cat(expected), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_gpt2_gives_its_last_hidden_states(make_gpt2, pair_tokenizer):
    ranker = make_gpt2()
    rows = document_rows(pair_tokenizer, DOCUMENTS)
    vectors = representations(ranker)["contextual"](*packed(rows))
    ranker.transformer.set_attn_implementation("eager")
    expected = [
        ranker.transformer(torch.from_numpy(row.ids).long()[None]).last_hidden_state[0, 1:-1]
        for row in rows
    ]
    torch.testing.assert_close(vectors, torch.cat(expected), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_backpack_tells_context_weights_and_senses_apart(make_backpack, pair_tokenizer):
    ranker = make_backpack()
    backpack = ranker.backpack
    rows = document_rows(pair_tokenizer, DOCUMENTS)
    batch, chosen = packed(rows)
    kinds = {name: represent(batch, chosen) for name, represent in representations(ranker).items()}
    assert list(kinds) == ["contextual", "weights", "senses"]
    lengths = [row.length for row in rows]
    for place, row in enumerate(rows):
        ids = torch.from_numpy(row.ids).long()
        hidden = backpack.backbone(ids[None]).last_hidden_state[0]
        contextual, of_senses, senses = (kind.split(lengths)[place] for kind in kinds.values())
        torch.testing.assert_close(contextual, hidden[1:-1], atol=1e-4, rtol=1e-4)
        queries, keys = backpack.sense_weight_net.split(hidden)
        for sense in range(8):
            # Heads are of size 4.
            logits = torch.stack([queries[-1, sense] @ key / 2 for key in keys[:, sense]])
            weights = logits.softmax(0)[1:-1]
            torch.testing.assert_close(of_senses[:, sense], weights, atol=1e-5, rtol=1e-4)
        for token, vector in zip(ids[1:-1], senses, strict=True):
            expected = backpack.senses(token)
            torch.testing.assert_close(vector.view(8, 32), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_weights_with_keys_from_below_the_last_layer_are_the_rankers_own():
    ranker, pair_tokenizer = load_ranker(FIXTURES / "backpack_on_bert")
    config = copy.deepcopy(ranker.config)
    config.sense_keys = "below_last"
    below = BackpackForRanking(config).eval()
    below.load_state_dict(ranker.state_dict())
    batch, chosen = packed(document_rows(pair_tokenizer, pair_tokenizer.encode(["a man, her hat"])))
    weights = representations(below)["weights"](batch, chosen)
    expected = below.backpack.pooled_weights(batch)[0].T[chosen]
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=1e-6)
    unlike = representations(ranker.eval())["weights"](batch, chosen)
    assert (weights - unlike).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("interaction", ["tk", "knrm"])
def test_word_rankers_give_what_they_compare(interaction):
    tokenizer = word_tokenizer([f"w{number}" for number in range(20)])
    torch.manual_seed(0)
    sizes = {"heads": 2, "head_size": 4} if interaction == "tk" else {}
    ranker = interaction_ranker(
        tokenizer, interaction=interaction, sizes=sizes, embedding_size=6, max_document_length=4
    ).eval()
    rows = document_rows(WordPairTokenizer(tokenizer, 9), DOCUMENTS)
    vectors_of_rows = representations(ranker)["contextual"](*packed(rows)).split(
        [row.length for row in rows]
    )
    for ids, vectors in zip(DOCUMENTS, vectors_of_rows, strict=True):
        read = ranker.backbone(torch.from_numpy(ids[:4]).long())
        if interaction == "tk":
            mask = torch.ones((1, len(read)), dtype=torch.bool)
            read = ranker.interaction.contextualise(read[None], mask, 500)[0]
        torch.testing.assert_close(vectors[:4], read, atol=1e-5, rtol=1e-5)
        assert (vectors[4:] == 0).all()  # the ranker does not read further


def test_rankers_without_token_vectors_are_refused():
    with pytest.raises(ValueError, match="object gives tokens no vectors"):
        representations(object())


def test_every_kind_is_explained(make_backpack):
    assert set(representations(make_backpack())) == set(KINDS)


@torch.no_grad()
def test_words_of_attribute_senses_are_read_as_the_ranker_reads_them(make_backpack, pair_tokenizer):
    """ "stepmother" is several tokens, all of which have the vector of the one position that the
    word is read at.
    """
    ranker = make_backpack()
    add_attribute_senses(
        ranker.backpack,
        pair_tokenizer.tokenizer,
        Attribute.named("gender"),
        separator_id=pair_tokenizer.separator_id,
    )
    kinds = representations(ranker)
    texts = ["a bridge, said he", "a bridge, said she", "her stepmother said he"]
    rows = document_rows(pair_tokenizer, pair_tokenizer.encode(texts))
    batch, chosen = packed(rows)
    sizes = [row.length for row in rows]
    for kind in ("contextual", "weights"):
        first, second, third = kinds[kind](batch, chosen).split(sizes)
        assert torch.equal(first, second), kind
        pieces = third[1:-2]
        assert len(pieces) > 1
        assert torch.equal(pieces, pieces[:1].expand_as(pieces)), kind
    read = ranker.backpack.read(batch)
    expected = ranker.backpack.hidden_states(read)[read.last_positions - 1]
    torch.testing.assert_close(
        kinds["contextual"](batch, chosen)[torch.tensor(sizes).cumsum(0) - 1], expected
    )
    sense_vectors = kinds["senses"](batch, chosen)
    assert not torch.equal(sense_vectors[sizes[0] - 1], sense_vectors[sizes[0] + sizes[1] - 1])
