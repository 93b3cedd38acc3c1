"""The encoder's similarity in the score, against the library's own reading of each text alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.datamodule import EncodedList, collate_lists
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.shared_tokenizer import shared_tokenizer
from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.integrations.onnx_graph import RankerGraph
from backpack_rank.models.factory import backpack_on_backbone, cross_encoder
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.pooled_map import kept_vectors
from backpack_rank.models.similarity import JointLayers
from backpack_rank.models.token_similarity import best_cosines
from backpack_rank.position.passages.representations import representations
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.attribution import attribute_batch
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policies import PairedTokens
from backpack_rank.senses.views import View
from backpack_rank.training.adversary import GroupAdversary
from backpack_rank.training.freezing import FrozenParts
from backpack_rank.training.module import OptimizerConfig

SCALE = 20.0
QUERY = "who can rewire a house"
DOCUMENTS = ["she is an electrician", "he sells flowers to the woman", "an apple", "a house"]
SWAPPED = ["he is an electrician", "she sells flowers to the man", "an apple", "a house"]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "hidden_dropout_prob": 0.1,
}


@pytest.fixture(scope="module")
def tokenizer():
    texts = [QUERY, *DOCUMENTS, *SWAPPED] * 20
    tokenizer = train_bpe(texts, vocab_size=400)
    tokenizer.add_special_tokens({"cls_token": "[CLS]"})
    return tokenizer


@pytest.fixture(scope="module", params=["bert", "electra"])
def folder(request, tokenizer, tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param)
    sizes = SIZES | ({"embedding_size": 16} if request.param == "electra" else {})
    config = AutoConfig.for_model(request.param, vocab_size=len(tokenizer), **sizes)
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def new_ranker(folder, tokenizer, kind, trained=False, **options):
    """A ranker of random weights, and what joins its texts; a trained one compares tokens too."""
    torch.manual_seed(1)
    if trained:
        options = {"token_similarity": 6, **options}
    if kind == "backpack":
        options = {"senses": 4, "attribute_senses": "gender", **options}
        ranker = backpack_on_backbone(tokenizer, name=str(folder), similarity=SCALE, **options)
    else:
        ranker = cross_encoder(tokenizer, name=str(folder), similarity=SCALE, **options)
    if trained:  # what training would change
        with torch.no_grad():
            for parameter in ranker.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.2 * torch.randn_like(parameter))
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 40)
    return ranker.eval(), pair_tokenizer


def rows(pair_tokenizer, documents=DOCUMENTS):
    return PackedBatch.from_sequences(pair_tokenizer.pairs(QUERY, documents))


@torch.no_grad()
def library_states(folder, pair_tokenizer, pooling="mean"):
    """The library's hidden states of query and documents, and the cosines of their vectors."""
    library = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def read(ids):
        ids = torch.tensor(ids)[None]
        return library(input_ids=ids, output_hidden_states=True).hidden_states

    def alone(text):
        (ids,) = pair_tokenizer.encode([text])
        return [pair_tokenizer.start_id, *ids.tolist(), pair_tokenizer.end_id]

    of_query = read([*alone(QUERY)[:-1], pair_tokenizer.separator_id])
    of_documents = [read(alone(document)) for document in DOCUMENTS]

    def vector(states):
        return states[-1][0].mean(dim=0) if pooling == "mean" else states[-1][0, 0]

    vectors = torch.stack([vector(states) for states in of_documents])
    cosines = torch.cosine_similarity(vectors, vector(of_query)[None])
    return library, of_query, of_documents, cosines


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("kind", ["backpack", "cross_encoder"])
def test_a_new_ranker_scores_by_the_encoders_cosine(folder, tokenizer, kind, pooling):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, kind, similarity_pooling=pooling)
    *_, cosines = library_states(folder, pair_tokenizer, pooling)
    scores = ranker(rows(pair_tokenizer)).scores.detach()
    torch.testing.assert_close(scores, SCALE * cosines, atol=1e-4, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["backpack", "cross_encoder"])
def test_each_token_of_a_query_adds_its_best_cosine(folder, tokenizer, kind):
    cosine, pair_tokenizer = new_ranker(folder, tokenizer, kind)
    both, _ = new_ranker(folder, tokenizer, kind, token_similarity=7)
    batch = rows(pair_tokenizer)
    added = both(batch).scores - cosine(batch).scores

    _, of_query, of_documents, _ = library_states(folder, pair_tokenizer)
    words = of_query[-1][0][1:-1]
    for found, states in zip(added.tolist(), of_documents, strict=True):
        best = []
        for word in words:
            cosines = [torch.cosine_similarity(word, token, dim=0) for token in states[-1][0]]
            best.append(float(max(cosines)))
        assert found == pytest.approx(7 * sum(best) / len(best), abs=1e-4)


@torch.no_grad()
def test_tokens_are_compared_within_their_row(folder, tokenizer):
    """Beside a longer query, a shorter one and an empty document."""
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, "cross_encoder", token_similarity=7)
    others = [*pair_tokenizer.pairs(f"{QUERY} or a house", ["", *DOCUMENTS])]
    others += pair_tokenizer.pairs("she", DOCUMENTS)
    batch = PackedBatch.from_sequences([*others, *pair_tokenizer.pairs(QUERY, DOCUMENTS)])
    expected = ranker(rows(pair_tokenizer)).scores
    together = ranker(batch).scores[len(others) :]
    torch.testing.assert_close(together, expected, atol=1e-4, rtol=1e-5)


def test_training_in_half_precision_keeps_the_cosines_digits():
    texts = PackedBatch.from_sequences([range(5), range(9)])
    places = torch.tensor([[0, 1]])
    states = torch.randn(14, 32, generator=torch.manual_seed(0))
    expected, _ = best_cosines(states, texts, places)
    with torch.autocast("cpu", torch.bfloat16):
        values, _ = best_cosines(states, texts, places)
    assert torch.equal(values, expected)


def test_what_tokens_add_is_a_part_of_the_similarity(folder, tokenizer):
    message = r"token_similarity=0\.5 .* give model\.ranker\.similarity too"
    with pytest.raises(ValueError, match=message):
        cross_encoder(tokenizer, name=str(folder), token_similarity=0.5)


@torch.no_grad()
@pytest.mark.parametrize("apart", [0, 1, 2])
def test_upper_layers_read_query_and_document_together(folder, tokenizer, apart):
    ranker, pair_tokenizer = new_ranker(
        folder, tokenizer, "cross_encoder", trained=True, layers_apart=apart, token_similarity=None
    )
    library, of_query, of_documents, cosines = library_states(folder, pair_tokenizer)
    expected, below = [], []
    for states, cosine in zip(of_documents, cosines, strict=True):
        together = torch.cat([of_query[apart], states[apart]], dim=1)
        # The library's own layers, with the weights that were trained.
        for number, layer in enumerate(library.encoder.layer[apart:]):
            layer.load_state_dict(ranker.joint.layers[number].state_dict())
            if layer is library.encoder.layer[-1]:
                below.append(together[0])
            together = layer(together, None)
        expected.append(SCALE * cosine + ranker.head._learned(together[0, 0]))
    batch = rows(pair_tokenizer)
    torch.testing.assert_close(ranker(batch).scores, torch.stack(expected), atol=2e-4, rtol=1e-4)
    # The study of what tokens know of their place reads the same layers.
    every = torch.ones_like(batch.input_ids, dtype=torch.bool)
    vectors = representations(ranker)["contextual"](batch, every)
    torch.testing.assert_close(vectors, torch.cat(below), atol=2e-4, rtol=1e-4)


@torch.no_grad()
def test_rows_whose_similarity_alone_is_wanted_are_read_along(folder, tokenizer):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, "cross_encoder", trained=True)
    batch, others = rows(pair_tokenizer), rows(pair_tokenizer, SWAPPED[:2])
    reading = ranker.read_jointly(batch, others=others)
    alone, of_others = ranker.read_jointly(batch), ranker.read_jointly(others)
    assert not torch.allclose(alone.similarity[:2], of_others.similarity, atol=1e-3)
    expected = torch.cat([alone.similarity, of_others.similarity])
    torch.testing.assert_close(reading.similarity, expected, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(reading.pooled, alone.pooled, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(reading.below, alone.below, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_at_alpha_0_no_text_is_read_as_written(folder, tokenizer, monkeypatch):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, "backpack", trained=True)
    tokens = []
    lower_states = JointLayers._lower_states

    def counted(joint, backbone, texts):
        tokens.append(len(texts.input_ids))
        return lower_states(joint, backbone, texts)

    monkeypatch.setattr(JointLayers, "_lower_states", counted)
    batch = rows(pair_tokenizer)
    weights = torch.cat([torch.ones(4), torch.zeros(len(ranker.config.groups))])
    at_0 = ranker(batch, sense_weights=weights)
    senses = ranker(batch, return_senses=True).senses
    torch.testing.assert_close(ranker.score_senses(senses, weights), at_0.scores)
    assert tokens[0] < tokens[1]
    weights[-1] = 0.5
    ranker(batch, sense_weights=weights)
    assert tokens[2] == tokens[1]


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("tokens", [{}, {"token_similarity": 6}])
def test_alpha_acts_on_the_similarity_linearly_and_takes_it_from_swapped_words(
    folder, tokenizer, tokens
):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, "backpack", **tokens)
    groups = len(ranker.config.groups)

    def scores(documents, alpha):
        weights = torch.cat([torch.ones(4), torch.full((groups,), alpha)])
        return ranker(rows(pair_tokenizer, documents), sense_weights=weights).scores

    at_0, at_1 = scores(DOCUMENTS, 0.0), scores(DOCUMENTS, 1.0)
    assert (at_1 - at_0)[:2].abs().min() > 1e-3, "the words do something"
    assert torch.equal(at_0[2:], at_1[2:]), "texts without them do not move"
    torch.testing.assert_close(scores(DOCUMENTS, 0.3), at_0 + 0.3 * (at_1 - at_0))
    torch.testing.assert_close(at_1, ranker(rows(pair_tokenizer)).scores)
    torch.testing.assert_close(scores(SWAPPED, 0.0), at_0, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_kept_sense_vectors_give_the_same_scores(folder, tokenizer, tmp_path):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, "backpack", trained=True)
    scorer = Scorer(ranker, pair_tokenizer)
    cached = PointwiseReranker(scorer, cache=SenseCache(tmp_path))
    pairs = [(QUERY, document) for document in DOCUMENTS]
    for alpha in (1.0, 0.4, 0.0):
        one_by_one = [cached.predict([pair], alpha=alpha)[0] for pair in pairs]
        swept = cached.sweep(QUERY, DOCUMENTS, alphas=[alpha, 0.7])[0]
        np.testing.assert_allclose(cached.predict(pairs, alpha=alpha), one_by_one, atol=2e-5)
        np.testing.assert_allclose(swept, one_by_one, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_an_explanation_adds_up_to_the_score_with_its_similarity(folder, tokenizer, pooling):
    ranker, pair_tokenizer = new_ranker(
        folder, tokenizer, "backpack", trained=True, similarity_pooling=pooling
    )
    batch = rows(pair_tokenizer)
    for alpha in (1.0, 0.3):
        weights = torch.cat([torch.ones(4), torch.full((len(ranker.config.groups),), alpha)])
        explained = attribute_batch(ranker, batch, View(sense_weights=weights))
        expected = ranker(batch, sense_weights=weights).scores.detach().double()
        torch.testing.assert_close(explained.scores, expected, atol=1e-4, rtol=1e-5)
        assert explained.residuals.abs().max() < 1e-4
        # The query's tokens have no part in the similarity, and a document's have.
        assert explained.contributions.abs().sum() > 1


@pytest.mark.slow
def test_an_explanation_has_every_token_in_its_place(folder, tokenizer):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, "backpack", trained=True)
    found = PointwiseReranker(Scorer(ranker, pair_tokenizer)).explain(QUERY, DOCUMENTS[0])
    segments = [word.segment for word in found.words]
    assert [word.text for word in found.words if word.segment == "document"] == DOCUMENTS[0].split()
    assert segments.count("query") == len(QUERY.split())


@pytest.mark.parametrize("kind", ["backpack", "cross_encoder"])
def test_training_changes_all_but_the_encoder(folder, tokenizer, kind):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, kind)
    before = {name: value.clone() for name, value in ranker.named_parameters()}
    optimizer = OptimizerConfig(1e-2).optimizer(ranker)
    ranker.train()
    for _ in range(3):  # the head begins at 0, so what is below it learns from the second step on
        optimizer.zero_grad()
        scores = ranker(rows(pair_tokenizer)).scores
        torch.nn.functional.cross_entropy(scores[None], torch.tensor([3])).backward()
        optimizer.step()
    changed = {name for name, value in ranker.named_parameters() if (value != before[name]).any()}
    assert not [name for name in changed if "backbone." in name]
    assert {name for name in before if "joint.layers.0" in name and "weight" in name} <= changed
    assert "head.out.weight" in changed


def test_a_head_that_starts_at_zero_is_not_frozen(folder, tokenizer):
    ranker, _ = new_ranker(folder, tokenizer, "cross_encoder")
    with pytest.raises(ValueError, match="keeps the head, which is 0 in a new"):
        FrozenParts(["head"]).apply(ranker)
    assert ranker.head.out.weight.requires_grad
    trained, _ = new_ranker(folder, tokenizer, "cross_encoder", trained=True)
    assert FrozenParts(["head"]).apply(trained) == []
    assert not trained.head.out.weight.requires_grad


@pytest.mark.parametrize("kind", ["backpack", "cross_encoder"])
def test_an_adversary_reads_the_vector_without_its_similarity(folder, tokenizer, kind):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, kind, trained=True)
    adversary = GroupAdversary(ranker, groups=2, weight=3.0)
    texts = pair_tokenizer.pairs(QUERY, DOCUMENTS)
    batch = collate_lists([EncodedList(texts, (1, 0, 0, 0), leanings=(1, 2, 0, 0))])

    def gradients(loss):
        ranker.zero_grad()
        loss.backward()
        named = ranker.named_parameters()
        return {name: value.grad.clone() for name, value in named if value.grad is not None}

    output = ranker(batch.texts)
    reversed_ones = gradients(adversary.loss(ranker, batch, output, output.scores[None]))
    assert any("joint.layers.0." in name for name in reversed_ones)
    assert not any("backbone." in name or name.startswith("head.") for name in reversed_ones)

    # The same loss by hand, without a reversal.
    with kept_vectors(ranker.head) as kept:
        ranker(batch.texts)
    log_shares = adversary.classifier(kept[0][:, :32]).log_softmax(-1)
    of_leanings = log_shares[range(4), batch.leanings]
    for name, gradient in gradients(-of_leanings.mean()).items():
        torch.testing.assert_close(reversed_ones[name], -3.0 * gradient)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("kind", ["backpack", "cross_encoder"])
def test_a_saved_folder_gives_the_same_scores(folder, tokenizer, kind, trained, tmp_path):
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, kind, trained)
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    again, tokenizer_again = load_ranker(tmp_path / "ranker")
    batch = rows(tokenizer_again)
    expected = ranker(rows(pair_tokenizer)).scores
    # Weights that lie elsewhere in memory may be multiplied in another order.
    torch.testing.assert_close(again.eval()(batch).scores, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_similarty": 20}, r"similarity=token_similarty: use one of scale, apart"),
        ({"scale": None}, r"similarity\.scale=None must be above 0"),
        ({"apart": None}, r"similarity\.apart=None must be a whole number"),
        ({"pooling": None}, r"similarity\.pooling=None: use one of mean, first"),
    ],
)
def test_a_folder_with_an_unknown_option_of_similarity_or_without_one_is_refused(
    folder, tokenizer, tmp_path, change, message
):
    save_ranker(tmp_path, *new_ranker(folder, tokenizer, "cross_encoder"))
    config = json.loads((tmp_path / "config.json").read_text())
    for name, value in change.items():
        if value is None:
            del config["similarity"][name]
        else:
            config["similarity"][name] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "checksums.json").unlink()
    with pytest.raises(ValueError, match=message):
        load_ranker(tmp_path)


@pytest.mark.parametrize("name", ["where", "separator_id"])
def test_a_folder_whose_attribute_senses_lack_an_option_is_refused_by_its_name(
    folder, tokenizer, tmp_path, name
):
    save_ranker(tmp_path, *new_ranker(folder, tokenizer, "backpack"))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["attribute_senses"][name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "checksums.json").unlink()
    with pytest.raises(ValueError, match=f"cannot be loaded: one of its files lacks '{name}'"):
        load_ranker(tmp_path)


def test_other_libraries_join_pairs_as_the_ranker_does(folder, tokenizer, tmp_path):
    _, pair_tokenizer = new_ranker(folder, tokenizer, "cross_encoder")
    shared_tokenizer(
        pair_tokenizer.tokenizer,
        pair_tokenizer.max_length,
        pair_tokenizer.start_id,
        pair_tokenizer.between,
        pair_tokenizer.end_id,
    ).save_pretrained(tmp_path)
    documents = [*DOCUMENTS, "a house " * 40]
    other = AutoTokenizer.from_pretrained(tmp_path)
    encoded = other([QUERY] * len(documents), documents, truncation="only_second")["input_ids"]
    assert encoded == [row.tolist() for row in pair_tokenizer.pairs(QUERY, documents)]
    start, separator = pair_tokenizer.start_id, pair_tokenizer.separator_id
    for row in encoded:
        assert row[row.index(separator) + 1] == start, "the document is a text of its own"
    assert max(map(len, encoded)) == pair_tokenizer.max_length


@torch.inference_mode()
@pytest.mark.parametrize("query", [QUERY, "who is the woman"])
@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("kind", ["backpack", "plain backpack", "cross_encoder"])
def test_the_graph_for_onnx_gives_the_same_scores(folder, tokenizer, kind, pooling, query):
    options = {"attribute_senses": None} if kind == "plain backpack" else {}
    ranker, pair_tokenizer = new_ranker(
        folder,
        tokenizer,
        kind.removeprefix("plain "),
        trained=True,
        similarity_pooling=pooling,
        **options,
    )
    # The last document has a form of several pieces, beside its first piece alone.
    texts = pair_tokenizer.pairs(query, [*DOCUMENTS, "an actress, a can and a house"])
    length = max(map(len, texts)) + 3
    ids = torch.full((len(texts), length), 20)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.from_numpy(text)
        mask[row, : len(text)] = 1
    given = {"input_ids": ids, "attention_mask": mask}
    batch = PackedBatch.from_sequences(texts)
    shift = None
    if kind == "cross_encoder":
        context = PointwiseReranker(Scorer(ranker, pair_tokenizer)).hook.context
        words = PairedTokens.of(Attribute.named("gender")).words()
        shift = context.token_shift(words, "weights", 1.0)
    graph = RankerGraph(ranker, tokenizer.pad_token_id, shift).eval()
    scores = {}
    for alpha in (1.0, 0.4, 0.0):
        if shift is None:
            weights = torch.ones(ranker.config.total_senses)
            # Attribute senses stand behind the four of a token.
            weights[4 if kind == "backpack" else 2 :] = alpha
            expected = ranker(batch, sense_weights=weights).scores
            scores[alpha] = graph(**given, sense_weights=weights.expand(len(texts), -1))
        else:
            moved = replace(shift, alpha=alpha)
            expected = ranker(batch, token_shift=moved).scores
            scores[alpha] = graph(**given, alpha=torch.full((len(texts), 1), alpha))
        torch.testing.assert_close(scores[alpha], expected, atol=2e-4, rtol=1e-4)
    moves = (scores[1.0] - scores[0.0])[:2].abs()
    # A Backpack reads a query that asks for a group with no dial, whatever the weights of groups.
    assert (moves.max() < 1e-5) == (kind == "backpack" and query != QUERY)


# An export takes most of a minute, so each encoder and each kind is exported once.
@pytest.mark.packaging
@pytest.mark.parametrize(
    ("folder", "kind"), [("bert", "backpack"), ("electra", "cross_encoder")], indirect=["folder"]
)
def test_an_export_says_what_stands_between_the_texts(folder, tokenizer, kind, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from backpack_rank.integrations.onnx_export import export_onnx

    ranker, _ = new_ranker(folder, tokenizer, kind, trained=True)
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 256)
    reranker = PointwiseReranker(Scorer(ranker, pair_tokenizer))
    # It scores texts by both, and raises where they differ.
    about = export_onnx(reranker, tmp_path / "onnx")
    assert about["pair"]["separator"] == [pair_tokenizer.separator_id, pair_tokenizer.start_id]


def test_what_has_no_such_layers_is_refused(tokenizer, tmp_path):
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
    config = AutoConfig.for_model("distilbert", vocab_size=len(tokenizer), **sizes)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"type bert or electra.*'distilbert'"):
        cross_encoder(tokenizer, name=str(tmp_path), similarity=SCALE)


def test_keys_of_joint_layers_are_read_below_the_last_one(folder, tokenizer):
    with pytest.raises(ValueError, match=r"leave model\.ranker\.keys out"):
        backpack_on_backbone(tokenizer, name=str(folder), similarity=SCALE, keys="last")
    ranker = backpack_on_backbone(tokenizer, name=str(folder), similarity=SCALE)
    assert ranker.config.sense_keys == "below_last"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_sweep_in_half_precision_has_the_scores_of_a_pass(folder, tokenizer, dtype):
    """A similarity is 20 cosines: rounded to half precision, most of a list would tie."""
    ranker, pair_tokenizer = new_ranker(folder, tokenizer, "backpack", trained=True)
    scorer = Scorer(ranker, pair_tokenizer, ScoringSettings(dtype=dtype))
    reranker = PointwiseReranker(scorer, attribute=Attribute.named("gender"))
    swept = np.asarray(reranker.sweep(QUERY, DOCUMENTS, [1.0, 0.0]))
    pairs = [(QUERY, document) for document in DOCUMENTS]
    for row, alpha in enumerate((1.0, 0.0)):
        np.testing.assert_allclose(swept[row], reranker.predict(pairs, alpha=alpha), atol=0.02)
