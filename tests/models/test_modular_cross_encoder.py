"""Cross-encoders in modules: their scores are those of sentence-transformers, which saved them."""

from __future__ import annotations

import json

import library_encoders as encoders
import numpy as np
import pytest
import torch
from ranker_checks import assert_the_dial_acts
from transformers import AutoModel, DebertaV2Config, RobertaConfig

from backpack_rank.reranking.load import load

pytest.importorskip("sentence_transformers")
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.modules import Dense
from sentence_transformers.sentence_transformer.modules import LayerNorm, Normalize, Pooling

QUERIES = ["the doctor saw", "he saw a nurse and a doctor and bread and fish " * 3]
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20, "she"]
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]


def scores_of(width: int, activation: torch.nn.Module | None = None) -> Dense:
    return Dense(
        width, 1, activation_function=activation or torch.nn.Identity(), module_output_name="scores"
    )


# Each shape: the transformer's configuration, its tokenizer, and what stands behind it.
SHAPES = {
    "BERT, first token": lambda: (
        encoders.bert(),
        encoders.bert_tokenizer(),
        [Pooling(16, "cls"), scores_of(16)],
    ),
    "ModernBERT, as Ettin rerankers": lambda: (
        encoders.modern_bert(),
        encoders.bert_tokenizer_without_types(),
        [
            Pooling(16, "cls"),
            Dense(16, 16, bias=False, activation_function=torch.nn.GELU()),
            LayerNorm(16),
            scores_of(16),
        ],
    ),
    "XLM-R, mean": lambda: (
        encoders.xlm_roberta(),
        encoders.roberta_tokenizer(),
        [Pooling(16, "mean"), Dense(16, 8), Normalize(), scores_of(8)],
    ),
    "RoBERTa, two kinds of pooling": lambda: (
        RobertaConfig(type_vocab_size=1, **encoders.BEHIND_PADDING),
        encoders.roberta_tokenizer(),
        [Pooling(16, ("max", "mean_sqrt_len_tokens")), scores_of(32, torch.nn.Tanh())],
    ),
    "MPNet, weighted mean": lambda: (
        encoders.mpnet(),
        encoders.roberta_tokenizer(),
        [Pooling(16, "weightedmean"), scores_of(16)],
    ),
    "DistilBERT, residual": lambda: (
        encoders.distilbert(),
        encoders.bert_tokenizer_without_types(),
        [
            Pooling(16, "mean"),
            Dense(16, 16, use_residual=True),
            Dense(16, 8, use_residual=True),
            scores_of(8),
        ],
    ),
    "DeBERTa, first token": lambda: (
        DebertaV2Config(max_position_embeddings=32, type_vocab_size=0, **encoders.SIZES),
        encoders.bert_tokenizer_without_types(),
        [Pooling(16, "cls"), scores_of(16)],
    ),
    "Qwen3, last token": lambda: (
        encoders.qwen3(),
        encoders.roberta_tokenizer(),
        [Pooling(16, "lasttoken"), scores_of(16)],
    ),
}


def save_shape(name, folder, activation=None, **options):
    """A cross-encoder of that shape with large random weights, saved by its library."""
    from sentence_transformers.base.modules import Transformer

    torch.manual_seed(0)
    config, tokenizer, modules = SHAPES[name]()
    AutoModel.from_config(config).save_pretrained(folder / "transformer")
    tokenizer.save_pretrained(folder / "transformer")
    transformer = Transformer(str(folder / "transformer"), **options)
    model = CrossEncoder(modules=[transformer, *modules], activation_fn=activation, device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(str(folder / "ranker"))
    return folder / "ranker"


@pytest.fixture(params=SHAPES)
def saved(request, tmp_path):
    """The folder of a cross-encoder of each shape."""
    return save_shape(request.param, tmp_path)


def predicted(folder, pairs=PAIRS):
    """Scores by sentence-transformers."""
    return CrossEncoder(str(folder), device="cpu").predict(pairs, show_progress_bar=False)


def test_scores_are_those_of_sentence_transformers(saved):
    scores = load(saved).predict(PAIRS)
    np.testing.assert_allclose(scores, predicted(saved), atol=1e-5)
    assert np.ptp(scores) > 0.02


@pytest.mark.parametrize("activation", [torch.nn.Identity(), torch.nn.Sigmoid(), torch.nn.Tanh()])
def test_the_saved_activation_is_put_on_the_scores(tmp_path, activation):
    folder = save_shape("BERT, first token", tmp_path, activation)
    np.testing.assert_allclose(load(folder).predict(PAIRS), predicted(folder), atol=1e-5)


def test_texts_are_cut_where_the_folder_says(tmp_path):
    folder = save_shape("BERT, first token", tmp_path, max_seq_length=12)
    reranker = load(folder)
    np.testing.assert_allclose(reranker.predict(PAIRS), predicted(folder), atol=1e-5)
    long, longer = reranker.predict([("he saw", "bread " * 8), ("he saw", "bread " * 8 + "fish")])
    assert long == longer


def changed(folder, file, change):
    """The folder with one of its JSON files changed."""
    path = folder / file
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return folder


def entry_of(name):
    return {"idx": 9, "name": "9", "path": "", "type": f"sentence_transformers.x.{name}"}


MISTAKES = {
    "no cross-encoder": (
        "config_sentence_transformers.json",
        lambda content: content.update(model_type="StaticEncoder"),
        r"model_type=StaticEncoder is not read here",
    ),
    "prompt before queries": (
        "config_sentence_transformers.json",
        lambda content: content.update(default_prompt_name="query"),
        r"default_prompt_name=query puts a prompt before every query",
    ),
    "activation that is code": (
        "config_sentence_transformers.json",
        lambda content: content.update(activation_fn="their_package.Activation"),
        r"activation their_package\.Activation is not one of torch\.nn",
    ),
    "unknown module": (
        "modules.json",
        lambda content: content.append(entry_of("WordWeights")),
        r"module WordWeights is not known here; known behind Transformer are Pooling, Dense",
    ),
    "path out of the folder": (
        "modules.json",
        lambda content: content[1].update(path="../other"),
        r"path \.\./other leads out of the folder",
    ),
    "unknown pooling": (
        "1_Pooling/config.json",
        lambda content: content.update(pooling_mode="median"),
        r"pooling_mode=median is not known here; known are cls, lasttoken",
    ),
    "several scores": (
        "2_Dense/config.json",
        lambda content: content.update(out_features=2),
        r"are not those of its config\.json",
    ),
    "cut in another way": (
        "sentence_bert_config.json",
        lambda content: content.update(processing_kwargs={"text": {"truncation": "only_first"}}),
        r"texts are cut by truncation=only_first, and longest_first alone",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_read_is_refused_with_the_file(tmp_path, mistake):
    folder = save_shape("BERT, first token", tmp_path)
    file, change, reason = MISTAKES[mistake]
    with pytest.raises(ValueError, match=reason):
        load(changed(folder, file, change))


def test_the_dial_makes_he_and_she_one(tmp_path):
    reranker = load(save_shape("ModernBERT, as Ettin rerankers", tmp_path))
    for policy in ("renditions", "paired_tokens"):
        assert_the_dial_acts(reranker, policy)
