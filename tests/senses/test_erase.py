"""The policy erase, on rankers of every kind: fitted, scored, saved, and refused by a sentence."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from foreign_rankers import bert, xlm_roberta
from foreign_rankers import saved as save
from safetensors.numpy import save_file
from saved_rankers import FIXTURES
from transformers import GPT2Config, GPT2ForSequenceClassification

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.long_documents import LongDocuments
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pooled_map import MAP_FILE
from backpack_rank.reranking.load import load
from backpack_rank.reranking.planned_scores import scores_of_pairs
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.erase import Erase
from backpack_rank.senses.erasure import FITS
from backpack_rank.senses.hook import InferenceHook
from backpack_rank.senses.policies import PolicyContext

GENDER = Attribute.named("gender")
OBJECTS = ["the", "doctor", "a", "nurse", "bread", "fish", "and", "b"]


def a_decoder():
    """A classifier whose head scores every token."""
    _, tokenizer = bert()
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=32, pad_token_id=0,
        num_labels=1, initializer_range=0.4,
    )  # fmt: skip
    return GPT2ForSequenceClassification(config), tokenizer


KINDS = {
    "bert": bert,
    "xlm_roberta": xlm_roberta,
    "gpt2 classifier": a_decoder,
    **{name: name for name in ("backpack", "cross_encoder", "gpt2", "cross_encoder_llama")},
    "keys from below": "backpack_on_bert, keys below_last",
}


def candidates(texts=60) -> Pairs:
    """Sentences of he and she, two of three; words that small tokenizers know."""
    rng = np.random.default_rng(0)
    documents = {}
    for number in range(texts):
        words = rng.choice(OBJECTS, size=6).tolist()
        if number % 3:
            words.insert(int(rng.integers(6)), ["he", "she"][number % 2])
        documents[f"d{number}"] = " ".join(words)
    queries = {"q": "the doctor saw"}
    collection = Collection("sentences", MemoryStore(documents), queries, {})
    return Pairs.from_run({"q": dict.fromkeys(documents, 0.0)}, collection)


@pytest.fixture(params=KINDS)
def reranker(request, tmp_path) -> PointwiseReranker:
    kind = KINDS[request.param]
    if isinstance(kind, str):
        folder, _, keys = kind.partition(", keys ")
        ranker, pair_tokenizer = load_ranker(FIXTURES / folder)
        if keys:
            ranker.config.sense_keys = keys
        save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    else:
        save(kind, tmp_path / "ranker")
    # The senses that it was trained with: attribute senses of gender would leave nothing to erase.
    return load(tmp_path / "ranker", device="cpu", split_attribute=False)


@pytest.fixture
def loaded_classifier(tmp_path) -> PointwiseReranker:
    save(bert, tmp_path / "ranker")
    return load(tmp_path / "ranker", device="cpu")


def written(pairs: Pairs) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The pairs with he or she, in both wordings, written here by hand."""
    with_words = [pair for pair in pairs.texts() if {"he", "she"} & set(pair[1].split())]
    wordings = []
    for word in ("she", "he"):
        texts = []
        for query, text in with_words:
            words = [word if part in ("he", "she") else part for part in text.split()]
            texts.append((query, " ".join(words)))
        wordings.append(texts)
    return wordings[0], wordings[1]


def test_at_alpha_0_the_vectors_of_both_groups_have_one_mean(reranker):
    pairs = candidates()
    policy = Erase(GENDER).fitted(reranker, pairs)
    assert policy.fitted_on == 40
    female, male = written(pairs)
    means = []
    for texts in (female, male):
        documents = {str(row): text for row, (_, text) in enumerate(texts)}
        collection = Collection("one group", MemoryStore(documents), pairs.collection.queries, {})
        rows = Pairs.from_run({"q": dict.fromkeys(documents, 0.0)}, collection)
        vectors = reranker.scorer.pooled_vectors(rows)
        (view,) = reranker.with_policy(policy, 0.0).hook.views
        mapped = view.pooled_map(torch.from_numpy(vectors))
        means.append((vectors.mean(axis=0), mapped.numpy().mean(axis=0)))
    plain, erased = zip(*means, strict=True)
    assert np.abs(plain[0] - plain[1]).max() > 1e-3
    np.testing.assert_allclose(erased[0], erased[1], atol=2e-5)


def test_scores_are_the_heads_of_the_mapped_vectors(reranker):
    pairs = candidates(12)
    policy = Erase(GENDER).fitted(reranker, pairs)
    fair = reranker.with_policy(policy, 0.3)
    vectors = torch.from_numpy(reranker.scorer.pooled_vectors(pairs)).double()
    fitted = policy.fitted_map
    mapped = vectors - 0.7 * (vectors - fitted.mean) @ fitted.right.T @ fitted.left.T
    ranker = reranker.scorer.ranker
    with torch.inference_mode():
        expected = ranker.score_vectors(mapped.float()).numpy()
    scores = fair.predict(list(pairs.texts()))
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert np.abs(scores - reranker.predict(list(pairs.texts()))).max() > 1e-4


def test_alpha_1_is_the_ranker_bit_for_bit_and_a_sweep_is_its_single_alphas(reranker):
    pairs = candidates(12)
    policy = Erase(GENDER).fitted(reranker, pairs)
    texts = list(pairs.texts())
    plain = reranker.predict(texts)
    assert (reranker.with_policy(policy, 1.0).predict(texts) == plain).all()
    documents = [document for _, document in texts]
    alphas = [1.0, 0.5, 0.0, 2.0]
    sweep = reranker.sweep(texts[0][0], documents, alphas, policy)
    for alpha, scores in zip(alphas, sweep, strict=True):
        single = reranker.with_policy(policy, alpha).predict(texts)
        np.testing.assert_allclose(scores, single, atol=1e-6, rtol=1e-6)
    assert len({row.tobytes() for row in sweep}) == 4


def test_the_mean_score_of_a_foreign_classifier_is_that_of_both_groups(loaded_classifier):
    # Its last layer is linear, so this much is certain; the score of one text is not.
    pairs = candidates()
    fair = loaded_classifier.with_policy(Erase(GENDER).fitted(loaded_classifier, pairs), 0.0)
    female, male = written(pairs)
    assert (
        abs(loaded_classifier.predict(female).mean() - loaded_classifier.predict(male).mean())
        > 1e-3
    )
    differences = fair.predict(female) - fair.predict(male)
    assert abs(differences.mean()) < 1e-5
    assert np.abs(differences).max() > 1e-3


@pytest.mark.parametrize("fit", FITS)
def test_every_fit_gives_scores_of_its_own(loaded_classifier, fit):
    pairs = candidates()
    policy = Erase(GENDER, fit).fitted(loaded_classifier, pairs)
    texts = list(pairs.texts())
    change = np.abs(
        loaded_classifier.with_policy(policy, 0.0).predict(texts) - loaded_classifier.predict(texts)
    ).max()
    assert (change < 1e-5) == (fit == "none")
    assert policy.name.startswith(f"erase_{fit}")


def test_one_pass_serves_all_alphas(loaded_classifier, monkeypatch):
    pairs = candidates(12)
    policy = Erase(GENDER).fitted(loaded_classifier, pairs)
    reads = []
    ranker = loaded_classifier.scorer.ranker
    ranker.register_forward_pre_hook(lambda _, inputs: reads.append(len(inputs[0])))
    documents = [document for _, document in pairs.texts()]
    loaded_classifier.sweep("the doctor saw", documents, [1.0, 0.7, 0.5, 0.2, 0.0], policy)
    assert sum(reads) == 12


def test_with_a_cache_all_alphas_share_the_vectors_of_a_collection(reranker, tmp_path):
    pairs = candidates(12)
    cache = SenseCache(tmp_path / "cache")
    cached = PointwiseReranker(reranker.scorer, cache=cache)
    policy = Erase(GENDER).fitted(cached, pairs)
    run = {"q": dict.fromkeys(pairs.doc_ids, 0.0)}
    cached.with_policy(policy, 0.5).rerank(run, pairs.collection)
    reads = []
    hook = reranker.scorer.ranker.register_forward_pre_hook(lambda *_: reads.append(1))
    reranked = cached.with_policy(policy, 0.0).rerank(run, pairs.collection)
    hook.remove()
    assert reads == []
    (views,) = [reranker.with_policy(policy, 0.0).hook.views]
    (expected,) = scores_of_pairs([views], reranker.scorer, pairs)
    assert list(reranked["q"].values()) == pytest.approx(expected.tolist(), abs=1e-5)


def test_of_a_long_document_the_best_chunk_counts_at_each_alpha(loaded_classifier, tmp_path):
    pairs = candidates()
    policy = Erase(GENDER).fitted(loaded_classifier, pairs)
    chunks = loaded_classifier.scorer.with_long_documents(LongDocuments("chunks"))
    reranker = PointwiseReranker(chunks, cache=SenseCache(tmp_path / "cache"))
    query = "the doctor saw"
    texts = [text for _, text in pairs.texts()]
    first = texts[1]
    documents = [" ".join(texts), first]
    sweep = reranker.sweep(query, documents, [1.0, 0.5, 0.0], policy)
    collection = Collection(
        "long", MemoryStore({"d0": documents[0], "d1": first}), {"q": query}, {}
    )
    cut = loaded_classifier.sweep(query, documents, [1.0, 0.5, 0.0], policy)
    for alpha, row, row_of_cut in zip([1.0, 0.5, 0.0], sweep, cut, strict=True):
        single = reranker.with_policy(policy, alpha)
        assert row == pytest.approx(single.predict([(query, text) for text in documents]), abs=1e-6)
        run = single.rerank({"q": {"d0": 0.0, "d1": 0.0}}, collection)
        assert row.tolist() == pytest.approx(list(run["q"].values()), abs=1e-6)
        assert row[1] == pytest.approx(row_of_cut[1], abs=1e-6)
        assert row[0] >= row_of_cut[0] - 1e-6
    assert not np.allclose(sweep, cut, atol=1e-4)


def test_the_hook_maps_within_its_block_alone(loaded_classifier):
    pairs = candidates(12)
    policy = Erase(GENDER).fitted(loaded_classifier, pairs)
    scorer = loaded_classifier.scorer
    sequences = scorer.join("the doctor saw", ["he saw a nurse"]).sequences
    plain = scorer.score_tokens(sequences)
    context = PolicyContext.of(scorer.ranker, scorer.tokenizer, GENDER)
    expected = loaded_classifier.with_policy(policy, 0.0).predict(
        [("the doctor saw", "he saw a nurse")]
    )
    with InferenceHook(context, policy, 0.0):
        assert scorer.score_tokens(sequences) == pytest.approx(expected, abs=1e-6)
    assert (scorer.score_tokens(sequences) == plain).all()


def test_a_saved_map_is_found_by_its_path_or_beside_the_weights(loaded_classifier, tmp_path):
    pairs = candidates()
    policy = Erase(GENDER).fitted(loaded_classifier, pairs)
    texts = list(pairs.texts())
    expected = loaded_classifier.with_policy(policy, 0.2).predict(texts)
    policy.save(tmp_path / MAP_FILE)
    from_file = Erase.of(GENDER, file=tmp_path / MAP_FILE)
    assert (loaded_classifier.with_policy(from_file, 0.2).predict(texts) == expected).all()

    assert "erase" not in loaded_classifier.policies
    policy.save(tmp_path / "ranker" / MAP_FILE)
    again = load(tmp_path / "ranker", device="cpu")
    assert "erase" in again.policies
    assert (again.with_policy("erase", 0.2).predict(texts) == expected).all()


def test_texts_are_drawn_by_the_seed_where_there_are_more(loaded_classifier):
    maps = []
    for seed in (0, 0, 1):
        policy = Erase(GENDER, texts=10, seed=seed).fitted(loaded_classifier, candidates())
        assert policy.fitted_on == 10
        maps.append(policy.fitted_map.key)
    assert maps[0] == maps[1] != maps[2]


def test_half_precision_takes_the_map_that_was_fitted_in_float32(loaded_classifier, tmp_path):
    Erase(GENDER).fitted(loaded_classifier, candidates()).save(tmp_path / "ranker" / MAP_FILE)
    texts = list(candidates(12).texts())
    expected = loaded_classifier.with_policy(
        Erase.of(GENDER, file=tmp_path / "ranker" / MAP_FILE), 0.0
    )
    rough = load(tmp_path / "ranker", device="cpu", dtype="bfloat16").with_policy("erase", 0.0)
    assert rough.predict(texts) == pytest.approx(expected.predict(texts), abs=0.2)


def test_no_map_and_maps_of_others_are_refused(loaded_classifier, tmp_path):
    with pytest.raises(ValueError, match="fits one on the dev candidates"):
        loaded_classifier.with_policy("erase", 0.5)
    assert loaded_classifier.with_policy("erase", 1.0).alpha == 1  # no policy is asked there

    policy = Erase(GENDER).fitted(loaded_classifier, candidates())
    policy.save(tmp_path / MAP_FILE)
    inlp = Erase.of(GENDER, fit="inlp", file=tmp_path / MAP_FILE)
    with pytest.raises(ValueError, match="policy erase_leace, and erase_inlp is asked for"):
        loaded_classifier.with_policy(inlp, 0.5)
    age = Erase.of(Attribute.named("age"), file=tmp_path / MAP_FILE)
    with pytest.raises(ValueError, match="attribute gender, and age is asked for"):
        loaded_classifier.with_policy(age, 0.5)

    other = replace(policy, score_of_mean=policy.score_of_mean + 1)
    with pytest.raises(ValueError, match="was fitted to another ranker"):
        loaded_classifier.with_policy(other, 0.5)
    narrow = replace(policy.fitted_map, mean=policy.fitted_map.mean[:-1])
    with pytest.raises(ValueError, match="was fitted to another ranker"):
        loaded_classifier.with_policy(replace(policy, fitted_map=narrow), 0.5)

    for content in (b"no tensors", None):
        broken = tmp_path / "broken.safetensors"
        broken.write_bytes(content or b"")
        if content is None:
            save_file({"mean": np.zeros(3)}, broken)
        with pytest.raises(ValueError, match="no map of the policy erase can be read"):
            loaded_classifier.with_policy(Erase.of(GENDER, file=broken), 0.5)


@pytest.mark.parametrize(
    "shapes",
    [
        ((8,), (8, 2), (2, 9)),  # left and right do not fit together
        ((8,), (9, 2), (2, 9)),  # nor left and the mean
        ((8,), (8, 9), (9, 8)),  # more directions than dimensions
        ((65_537,), (65_537, 1), (1, 65_537)),  # wider than any ranker
    ],
)
def test_a_file_whose_parts_do_not_fit_together_is_refused_by_their_shapes(
    loaded_classifier, tmp_path, shapes
):
    parts = zip(("mean", "left", "right"), shapes, strict=True)
    save_file({name: np.zeros(shape) for name, shape in parts}, tmp_path / MAP_FILE)
    with pytest.raises(ValueError, match="mean, left and right have the shapes"):
        loaded_classifier.with_policy(Erase.of(GENDER, file=tmp_path / MAP_FILE), 0.0)


def test_rankers_without_a_pooled_vector_are_refused():
    reranker = PointwiseReranker(Scorer(*load_ranker(FIXTURES / "knrm")))
    assert "erase" not in reranker.policies
    with pytest.raises(ValueError, match="makes no score of one vector for each text"):
        reranker.with_policy("erase", 0.5)
    with pytest.raises(TypeError, match="makes no score of one vector for each text"):
        Erase(GENDER).fitted(reranker, candidates(12))


def test_of_a_dual_encoder_the_vectors_of_documents_are_mapped():
    reranker = PointwiseReranker(Scorer(*load_ranker(FIXTURES / "dual_encoder")))
    policy = Erase(GENDER, fit="orthogonal").fitted(reranker, candidates(12))
    ranker, tokenizer = reranker.scorer.ranker, reranker.scorer.pair_tokenizer
    query, documents = "the doctor saw", ["she saw a nurse", "he saw bread", "fish"]
    with torch.inference_mode():
        (query_vector,) = ranker.encode_queries(
            PackedBatch.from_sequences(tokenizer.queries([query]))
        )
        vectors = ranker.encode_documents(
            PackedBatch.from_sequences(tokenizer.documents(documents))
        )
    expected = []
    for alpha in (1, 0.5, 0):
        mapped = replace(policy.fitted_map, alpha=alpha)(vectors)
        expected.append((mapped @ query_vector).numpy())
    scores = reranker.sweep(query, documents, [1, 0.5, 0], policy=policy)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    (alone,) = reranker.sweep(query, documents, [0.5], policy=policy)
    np.testing.assert_allclose(alone, expected[1], atol=1e-5)


def test_a_text_without_words_of_the_attribute_is_nothing_to_fit_on(loaded_classifier):
    documents = {"d1": "bread and fish", "d2": "the doctor saw"}
    collection = Collection("neutral", MemoryStore(documents), {"q": "the nurse"}, {})
    pairs = Pairs.from_run({"q": dict.fromkeys(documents, 0.0)}, collection)
    with pytest.raises(ValueError, match="0 of 2 candidates of neutral have some"):
        Erase(GENDER).fitted(loaded_classifier, pairs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": "lease"}, "policy.fit=lease: use one of leace, orthogonal"),
        ({"directions": 2}, "policy.directions=2 does nothing to policy.fit=leace"),
        ({"fit": "inlp", "directions": 0}, "policy.directions=0 must be"),
        ({"texts": 1}, "policy.texts=1 must be a whole number of at least 2"),
        ({"seed": -1}, "policy.seed=-1 must be"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Erase.of(GENDER, **options)


def test_a_mapped_score_is_explained_by_words_and_does_not_split_into_senses():
    reranker = load(FIXTURES / "backpack", device="cpu", split_attribute=False)
    fair = reranker.with_policy(Erase(GENDER).fitted(reranker, candidates()), 0.0)
    pair = "the doctor", "he saw a nurse"
    assert fair.explain(*pair).score == pytest.approx(fair.predict([pair])[0], abs=1e-5)
    with pytest.raises(ValueError, match="erase_leace maps the sum of all senses"):
        fair.explain(*pair, by="senses")


@pytest.mark.packaging
@pytest.mark.parametrize(
    ("kind", "beside_the_weights"), [("cross_encoder", True), ("backpack", False)]
)
def test_a_graph_of_onnx_has_it_as_an_input(tmp_path, kind, beside_the_weights):
    onnx_export = pytest.importorskip("backpack_rank.integrations.onnx_export")
    import onnxruntime
    from tokenizers import Tokenizer

    folder = tmp_path / "ranker"
    shutil.copytree(FIXTURES / kind, folder)
    reranker = load(folder, device="cpu")
    policy = Erase(GENDER).fitted(reranker, candidates())
    fair = reranker.with_policy(policy, 0.0)
    if beside_the_weights:
        policy.save(folder / MAP_FILE)
        about = onnx_export.export_onnx(load(folder, device="cpu"), tmp_path / "graph")
    else:
        about = onnx_export.export_onnx(fair, tmp_path / "graph")
    assert about["erased_by_erase_alpha"] == {"policy": "erase_leace", "attribute": "gender"}

    session = onnxruntime.InferenceSession(str(tmp_path / "graph" / "model.onnx"))
    tokenizer = Tokenizer.from_file(str(tmp_path / "graph" / "tokenizer.json"))
    pairs = [("the doctor", "he saw a nurse"), ("the doctor", "she saw a nurse"), ("who", "")]
    encoded = tokenizer.encode_batch(pairs)
    given = {
        "input_ids": np.array([encoding.ids for encoding in encoded]),
        "attention_mask": np.array([encoding.attention_mask for encoding in encoded]),
    }
    for name, (_, size) in about["inputs"].items():
        if name not in given:
            given[name] = np.ones((len(pairs), int(size)), dtype=np.float32)
    changes = []
    for alpha in (1.0, 0.6, 0.0):
        given["erase_alpha"][:] = alpha
        (scores,) = session.run(None, given)
        expected = fair.predict(pairs, alpha=alpha)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        changes.append(scores)
    assert np.abs(changes[2] - changes[0]).max() > 1e-3
