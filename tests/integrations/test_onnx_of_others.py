"""Classifiers that were trained elsewhere, exported: onnxruntime gives the scores of Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_rankers import SHAPE, WORDS, bert, tokenizer_of, xlm_roberta
from foreign_rankers import saved as save
from tokenizers import Tokenizer
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    RobertaConfig,
)

import backpack_rank
from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.integrations.onnx_graph import ClassifierGraph, graph_of
from backpack_rank.reranking.load import load
from backpack_rank.senses.erase import Erase
from backpack_rank.senses.policies import PairedTokens

QUERY = "the doctor saw"
# Neither query asks for a group: who does not turn the dial for those gives alpha = 1 to a graph.
LONG = "I saw a nurse and a doctor and bread and fish " * 4
TEXTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20, "she"]
PAIRS = [(query, text) for query in (QUERY, LONG) for text in TEXTS]


def of(config_class, template: str = "<s> $A </s>|<s> $A </s> </s> $B </s>", **options):
    """Makes a classifier of a type, over a tokenizer with that template."""

    def make():
        names = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
        names |= {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        tokenizer = tokenizer_of(names, template, "input_ids", "attention_mask")
        config = config_class(vocab_size=len(tokenizer), pad_token_id=0, **options)
        return AutoModelForSequenceClassification.from_config(config), tokenizer

    return make


MODERN = {
    **SHAPE,
    "num_hidden_layers": 3,
    "max_position_embeddings": 32,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
}
DISTIL = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "initializer_range": 0.4}
KINDS = {
    "BERT": bert,
    "XLM-R": xlm_roberta,
    "RoBERTa": of(RobertaConfig, max_position_embeddings=26, type_vocab_size=1, **SHAPE),
    "ELECTRA": of(ElectraConfig, max_position_embeddings=32, embedding_size=8, **SHAPE),
    "DistilBERT": of(DistilBertConfig, max_position_embeddings=32, num_labels=1, **DISTIL),
    "ModernBERT, first token": of(ModernBertConfig, classifier_pooling="cls", **MODERN),
    "ModernBERT, mean": of(ModernBertConfig, classifier_pooling="mean", **MODERN),
}


def padded(reranker, pairs, longer: int = 3) -> dict[str, torch.Tensor]:
    """Token ids with words at padding, which nobody may read."""
    read = []
    for query, document in pairs:
        read += reranker.local_scorer.pair_tokenizer.pairs(query, [document])
    shape = len(read), max(map(len, read)) + longer
    ids, mask = np.full(shape, len(WORDS)), np.zeros(shape, dtype=np.int64)
    for row, token_ids in enumerate(read):
        ids[row, : len(token_ids)], mask[row, : len(token_ids)] = token_ids, 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def fitted_erase(reranker) -> Erase:
    documents = {
        f"d{n}": f"{word} saw a {WORDS[n % 9]}" for n, word in enumerate(["he", "she"] * 9)
    }
    collection = Collection("dev", MemoryStore(documents), {"q": QUERY}, {})
    pairs = Pairs.from_run({"q": dict.fromkeys(documents, 0.0)}, collection)
    return Erase(Attribute.named("gender")).fitted(reranker, pairs)


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_the_network_to_export_gives_the_scores_of_the_ranker_at_every_dial(kind, tmp_path):
    save(KINDS[kind], tmp_path)
    reranker = load(tmp_path, device="cpu")
    ranker = reranker.local_scorer.ranker
    before = reranker.predict(PAIRS)
    words = PairedTokens.of(reranker.attribute).words()
    shift = reranker.hook.context.token_shift(words, "weights", 1.0)
    erase = fitted_erase(reranker)
    graph = graph_of(ranker, 0, shift, erase.fitted_map).eval()
    assert isinstance(graph, ClassifierGraph)
    changed = {}
    for name, policy in (("alpha", "paired_tokens"), ("erase_alpha", erase)):
        for alpha in (1.0, 0.5, 0.0):
            dials = {"alpha": torch.ones(len(PAIRS), 1), "erase_alpha": torch.ones(len(PAIRS), 1)}
            dials[name] = torch.full((len(PAIRS), 1), alpha)
            scores = graph(**padded(reranker, PAIRS), **dials).numpy()
            expected = reranker.predict(PAIRS, alpha=alpha, policy=policy)
            # In standard deviations: random weights make scores of 0 and of 70.
            np.testing.assert_allclose(scores, expected, atol=1e-5 * max(1, expected.std()))
        changed[name] = np.abs(scores - before).max()
    assert min(changed.values()) > 1e-3
    # The ranker still reads without padding, and its weights are not there twice.
    assert reranker.predict(PAIRS).tolist() == before.tolist()
    of_graph = {id(weights) for weights in graph.parameters()}
    assert of_graph == {id(weights) for weights in ranker.parameters()}


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["XLM-R", "ModernBERT, mean"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_cross_encoder_in_modules_can_be_exported_too(kind, pooling, tmp_path):
    """As sentence-transformers 5.5 and later save them: pooling and layers behind an encoder."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Pooling

    classifier, tokenizer = save(KINDS[kind], tmp_path / "classifier")
    AutoModel.from_config(classifier.config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    head = Dense(16, 1, activation_function=torch.nn.Tanh(), module_output_name="scores")
    modules = [Transformer(str(tmp_path / "encoder")), Pooling(16, pooling), head]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(tmp_path / "theirs"))

    reranker = load(tmp_path / "theirs", device="cpu")
    erase = fitted_erase(reranker)
    graph = graph_of(reranker.local_scorer.ranker, 0, pooled_map=erase.fitted_map).eval()
    for alpha in (1.0, 0.0):
        dial = torch.full((len(PAIRS), 1), alpha)
        scores = graph(**padded(reranker, PAIRS), erase_alpha=dial).numpy()
        expected = reranker.predict(PAIRS, alpha=alpha, policy=erase)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert np.ptp(scores) > 0.02


def deberta():
    tokenizer = bert()[1]
    config = DebertaV2Config(vocab_size=len(tokenizer), max_position_embeddings=32, **SHAPE)
    return AutoModelForSequenceClassification.from_config(config), tokenizer


def test_other_classifiers_are_refused_with_what_exports_them(tmp_path):
    save(deberta, tmp_path)
    reranker = load(tmp_path, device="cpu")
    with pytest.raises(
        ValueError,
        match=r"DebertaV2ForSequenceClassification cannot be exported here: .*\(bert, electra, .*"
        r"of type deberta-v2; optimum exports it without the dial",
    ):
        graph_of(reranker.local_scorer.ranker, 0)


def scores_of(folder: Path, pairs, **dials: float) -> np.ndarray:
    """What a stranger computes with onnxruntime and tokenizers alone."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoded = tokenizer.encode_batch(pairs)
    given = {
        "input_ids": np.array([encoding.ids for encoding in encoded]),
        "attention_mask": np.array([encoding.attention_mask for encoding in encoded]),
    }
    for name in json.loads((folder / "ranker.json").read_text())["inputs"]:
        if name not in given:
            given[name] = np.full((len(pairs), 1), dials.get(name, 1.0), dtype=np.float32)
    return session.run(None, given)[0]


@pytest.mark.packaging
@pytest.mark.parametrize("kind", ["XLM-R", "ModernBERT, mean"])  # BERT: the next test
def test_onnxruntime_gives_the_scores_of_the_ranker(kind, tmp_path):
    onnx_export = pytest.importorskip("backpack_rank.integrations.onnx_export")
    save(KINDS[kind], tmp_path / "theirs")
    reranker = load(tmp_path / "theirs", device="cpu")
    erase = fitted_erase(reranker)
    about = onnx_export.export_onnx(reranker.with_policy(erase, 0.5), tmp_path / "graph")
    assert list(about["inputs"]) == ["input_ids", "attention_mask", "alpha", "erase_alpha"]
    # Each query by itself too: batches of other lengths.
    for pairs in (PAIRS, PAIRS[:2], PAIRS[4:5]):
        for alpha in (1.0, 0.4, 0.0):
            moved = scores_of(tmp_path / "graph", pairs, alpha=alpha)
            expected = reranker.predict(pairs, alpha=alpha, policy="paired_tokens")
            np.testing.assert_allclose(moved, expected, atol=1e-4)
            erased = scores_of(tmp_path / "graph", pairs, erase_alpha=alpha)
            expected = reranker.predict(pairs, alpha=alpha, policy=erase)
            np.testing.assert_allclose(erased, expected, atol=1e-4)
    # Another reader of the folder joins and cuts pairs in the same way, and gives the same inputs.
    library = AutoTokenizer.from_pretrained(tmp_path / "graph")
    exported = Tokenizer.from_file(str(tmp_path / "graph" / "tokenizer.json"))
    for query, document in [*PAIRS, (QUERY, "a [SEP] </s> nurse")]:
        encoded = library([query], [document], truncation=True)
        assert list(encoded) == ["input_ids", "attention_mask"]
        assert encoded["input_ids"][0] == exported.encode(query, document).ids


@pytest.mark.packaging
def test_the_command_exports_a_classifier_with_two_labels(tmp_path):
    pytest.importorskip("backpack_rank.integrations.onnx_export")
    from backpack_rank import cli

    def two_labels():
        model, tokenizer = bert()
        config = model.config
        config.num_labels = 2
        return type(model)(config), tokenizer

    save(two_labels, tmp_path)
    (tmp_path / "reranker_labels.yaml").write_text("relevant: LABEL_1\nnot_relevant: LABEL_0\n")
    reranker = backpack_rank.load(tmp_path, device="cpu")
    cli.main(["export", "onnx", str(tmp_path)])
    scores = scores_of(tmp_path / "onnx", PAIRS)
    np.testing.assert_allclose(scores, reranker.predict(PAIRS), atol=1e-4)
    # Its folder is still one that loads, with the graph in it.
    assert load(tmp_path).predict(PAIRS) == pytest.approx(scores, abs=1e-4)
