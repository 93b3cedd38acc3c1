"""Encoders of others: their vectors are those of sentence-transformers, and so are their scores."""

from __future__ import annotations

import json

import library_encoders as encoders
import numpy as np
import pytest
import torch
from transformers import AutoModel, T5Config, T5EncoderModel

from backpack_rank.data.wordings import Wordings
from backpack_rank.reranking.load import load

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

QUERY = "the doctor saw a nurse"
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20, "[SEP] she", " the"]
PAIRS = [(QUERY, document) for document in DOCUMENTS]


def t5_encoder():
    config = T5Config(
        vocab_size=encoders.SIZES["vocab_size"],
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        initializer_factor=2.0,
        eos_token_id=2,
    )
    return T5EncoderModel(config)


# Each shape: the transformer, its tokenizer, and what stands behind it.
SHAPES = {
    "BERT, mean and Normalize": lambda: (
        AutoModel.from_config(encoders.bert()),
        encoders.bert_tokenizer_without_types(),
        [Pooling(16, "mean"), Normalize()],
    ),
    "BERT, first token": lambda: (
        AutoModel.from_config(encoders.bert()),
        encoders.bert_tokenizer_without_types(),
        [Pooling(16, "cls")],
    ),
    "XLM-R, Dense": lambda: (
        AutoModel.from_config(encoders.xlm_roberta()),
        encoders.roberta_tokenizer(),
        [Pooling(16, "mean"), Dense(16, 8), Normalize()],
    ),
    "MPNet, two poolings": lambda: (
        AutoModel.from_config(encoders.mpnet()),
        encoders.roberta_tokenizer(),
        [Pooling(16, ("max", "mean_sqrt_len_tokens")), LayerNorm(32)],
    ),
    "DistilBERT, weighted mean": lambda: (
        AutoModel.from_config(encoders.distilbert()),
        encoders.bert_tokenizer_without_types(),
        [Pooling(16, "weightedmean")],
    ),
    "ModernBERT, mean": lambda: (
        AutoModel.from_config(encoders.modern_bert()),
        encoders.bert_tokenizer_without_types(),
        [Pooling(16, "mean"), Normalize()],
    ),
    "T5 encoder, as GTR": lambda: (
        t5_encoder(),
        encoders.roberta_tokenizer("$A </s>"),
        [
            Pooling(16, "mean"),
            Dense(16, 12, bias=False, activation_function=torch.nn.Identity()),
            Normalize(),
        ],
    ),
    "Qwen3, last token": lambda: (
        AutoModel.from_config(encoders.qwen3()),
        encoders.roberta_tokenizer("$A </s>"),
        [Pooling(16, "lasttoken"), Normalize()],
    ),
}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Saved by sentence-transformers; options are those of ``SentenceTransformer``."""

    def make(shape, max_seq_length=None, **options):
        torch.manual_seed(0)
        transformer, tokenizer, behind = SHAPES[shape]()
        folder = tmp_path_factory.mktemp("encoder")
        transformer.save_pretrained(folder / "bare")
        tokenizer.save_pretrained(folder / "bare")
        first = Transformer(str(folder / "bare"), max_seq_length=max_seq_length)
        model = SentenceTransformer(modules=[first, *behind], device="cpu", **options)
        model.save_pretrained(str(folder / "model"))
        return folder

    return make


def library_scores(folder, query=QUERY, documents=DOCUMENTS):
    model = SentenceTransformer(str(folder), device="cpu")
    vectors = model.encode_document(documents)
    return model.similarity(model.encode_query([query]), vectors)[0].numpy()


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_those_of_the_library(shape, folder_of):
    folder = folder_of(shape)
    reranker = load(folder / "model")
    scores = reranker.predict(PAIRS)
    expected = library_scores(folder / "model")
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"prompts": {"query": "the doctor ", "document": "bread and "}},
        {"prompts": {"query": "a fish ", "passage": "bread "}, "default_prompt_name": "query"},
        {"similarity_fn_name": "dot"},
        {"truncate_dim": 5},
        {"max_seq_length": 9},
    ],
    ids=str,
)
def test_prompts_lengths_and_similarities_are_those_of_the_library(options, folder_of):
    folder = folder_of("BERT, first token", **options)
    reranker = load(folder / "model")
    scores = reranker.predict(PAIRS)
    np.testing.assert_allclose(scores, library_scores(folder / "model"), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "mode"), [("mean", "mean"), ("first", "cls"), ("last", "lasttoken")]
)
def test_an_encoder_without_modules_is_pooled_as_asked_for(pooling, mode, folder_of):
    folder = folder_of("ModernBERT, mean")
    modules = [Transformer(str(folder / "bare")), Pooling(16, mode)]
    model = SentenceTransformer(modules=modules, device="cpu")
    expected = model.similarity(model.encode([QUERY]), model.encode(DOCUMENTS))[0].numpy()
    reranker = load(folder / "bare", pooling=pooling)
    scores = reranker.predict(PAIRS)
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_the_dial_is_the_unit_vector_of_the_mean_over_renditions(folder_of):
    folder = folder_of("XLM-R, Dense")
    model = SentenceTransformer(str(folder / "model"), device="cpu")
    reranker = load(folder / "model")
    she, he, none = "she saw a nurse", "he saw a nurse", "bread and fish"
    query, *vectors = model.encode([QUERY, she, he], normalize_embeddings=True)
    mean = np.mean(vectors, axis=0)
    neutral = query @ mean / np.linalg.norm(mean)
    scores = reranker.sweep(QUERY, [she, he, none], alphas=[1, 0.5, 0])
    expected = [query @ vectors[0], query @ vectors[1]]
    np.testing.assert_allclose(scores[0, :2], expected, atol=1e-5)
    np.testing.assert_allclose(scores[1, :2], (np.array(expected) + neutral) / 2, atol=1e-5)
    np.testing.assert_allclose(scores[2, :2], neutral, atol=1e-5)
    assert scores[2, 0] == scores[2, 1]
    assert len(set(scores[:, 2])) == 1
    # A query that asks for a group is scored as if there were no dial.
    asking = "she saw a doctor"
    kept = reranker.predict([(asking, she), (asking, he)], alpha=0.0)
    np.testing.assert_array_equal(kept, reranker.predict([(asking, she), (asking, he)]))


def test_chunks_of_all_wordings_stand_together(folder_of):
    """The best of two chunks at alpha = 0, by hand: each chunk's vectors are averaged."""
    folder = folder_of("BERT, mean and Normalize", max_seq_length=6)
    model = SentenceTransformer(str(folder / "model"), device="cpu")
    # Four words fit between [CLS] and [SEP]; the last chunk begins earlier than its turn.
    document = "she saw a fish she saw"
    chunks = [
        ("she saw a fish", "he saw a fish"),
        ("a fish she saw", "a fish he saw"),
    ]
    query = model.encode(QUERY)
    expected = []
    for wordings in chunks:
        mean = model.encode(list(wordings)).mean(axis=0)
        expected.append(query @ mean / np.linalg.norm(mean))
    reranker = load(folder / "model").reading("chunks")
    (score,) = reranker.predict([(QUERY, document)], alpha=0.0)
    assert score == pytest.approx(max(expected), abs=1e-5)


def test_a_text_is_read_once_whatever_it_is_compared_with(folder_of, monkeypatch):
    reranker = load(folder_of("BERT, mean and Normalize") / "model")
    ranker = reranker.scorer.ranker
    read = []
    features = ranker.network.features

    def counted(attention_mask, **inputs):
        read.append(len(attention_mask))
        return features(attention_mask, **inputs)

    monkeypatch.setattr(ranker.network, "features", counted)
    for query in ("bread", "fish", "a nurse"):
        reranker.sweep(query, ["she saw", "he saw", "bread"], alphas=[1, 0.5, 0])
    assert sum(read) == 3 + 3
    # Other number formats make other vectors.
    ranker.to(torch.bfloat16)
    reranker.predict([("bread", "fish")])
    assert sum(read) == 3 + 3 + 2


def test_wordings_are_one_text_and_no_plain_one():
    wordings = Wordings.of(["she", "he"])
    assert wordings != "she\x1ehe"
    assert wordings != Wordings(["he", "she"])
    assert len({wordings, "she\x1ehe", Wordings(["she", "he"])}) == 2


def test_words_can_be_moved_inside_the_encoder(folder_of):
    reranker = load(folder_of("XLM-R, Dense") / "model")
    assert reranker.policies == ("paired_tokens", "renditions")
    pairs = [(QUERY, "she saw a nurse"), (QUERY, "he saw a nurse"), (QUERY, "bread")]
    she, he, bread = reranker.predict(pairs, alpha=0.0, policy="paired_tokens")
    assert she == he
    assert bread == reranker.predict(pairs)[2]


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "pooling_mode=median"),
        ("1_Pooling/config.json", {"include_prompt": False}, "include_prompt=false"),
        ("modules.json", "custom_st.Transformer", "must be Transformer"),
        (
            "config_sentence_transformers.json",
            {"similarity_fn_name": "manhattan"},
            "similarity_fn_name=manhattan is not read here",
        ),
        ("config.json", {"auto_map": {"AutoModel": "code.py--Model"}}, "auto_map"),
        ("config.json", {"quantization_config": {"quant_method": "gptq"}}, "quantised"),
        (
            "sentence_bert_config.json",
            {"modality_config": {"message": {}}},
            "messages of a chat template",
        ),
    ],
)
def test_what_is_not_read_is_refused_in_a_sentence(file, change, problem, folder_of):
    folder = folder_of("BERT, mean and Normalize", prompts={"query": "the "}) / "model"
    content = json.loads((folder / file).read_text())
    if isinstance(change, str):
        content[0]["type"] = change
    else:
        content |= change
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=problem):
        load(folder)


def test_pooling_is_for_encoders_without_modules(folder_of):
    folder = folder_of("BERT, mean and Normalize")
    with pytest.raises(ValueError, match=r"pooling=mean is for encoders without modules"):
        load(folder / "model", pooling="mean")
    with pytest.raises(ValueError, match="pooling=mean, first or last"):
        load(folder / "bare")
