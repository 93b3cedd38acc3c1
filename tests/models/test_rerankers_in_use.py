"""The forms in which the most used rerankers lie on the hub: a tiny random folder of each.

Scores are those of the library that each is used with, or the folder is refused by a sentence that
leads somewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from chat_classifiers import TEMPLATES, classifier
from foreign_rankers import SHAPE, tokenizer_of
from prompted_models import save_model
from safetensors.torch import load_file, save_file

from backpack_rank.reranking.load import load

pytest.importorskip("sentence_transformers")
from sentence_transformers import CrossEncoder

PAIRS = [
    ("the doctor", "he saw a nurse and bread"),
    ("a nurse", "she saw the doctor"),
    ("the doctor", "fish and bread " * 9),
    ("bread", "a"),
]
BERT = (
    {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"},
    "[CLS] $A [SEP]|[CLS] $A [SEP] $B:1 [SEP]:1",
    *("input_ids", "token_type_ids", "attention_mask"),
)
ROBERTA = (
    {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"},
    "<s> $A </s>|<s> $A </s> </s> $B </s>",
    *("input_ids", "attention_mask"),
)


def encoder(name: str, joins: tuple, **options: object) -> Callable[[Path], None]:
    """A classifier of transformers over an encoder."""

    def save(folder: Path) -> None:
        torch.manual_seed(0)
        tokenizer = tokenizer_of(*joins)
        config_class = getattr(transformers, f"{name}Config")
        shape = {**SHAPE, "max_position_embeddings": 32, **options}
        config = config_class(vocab_size=len(tokenizer), pad_token_id=0, **shape)
        getattr(transformers, f"{name}ForSequenceClassification")(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return save


def decoder(kind: str, **changes: object) -> Callable[[Path], None]:
    """A language model, with whatever its config.json says beside it."""

    def save(folder: Path) -> None:
        save_model(kind, folder)
        change(folder / "config.json", **changes)

    return save


def change(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def conversion(name: str) -> Callable[[Path], None]:
    """A classifier that was made of a language model, with its chat template."""
    return lambda folder: classifier("Qwen3", folder, TEMPLATES[name])


def in_modules(folder: Path) -> None:
    """A cross-encoder as sentence-transformers saves it since 5.4."""
    encoder("ModernBert", BERT[:2] + ROBERTA[2:])(folder / "plain")
    CrossEncoder(str(folder / "plain"), device="cpu").save_pretrained(str(folder))


def changed(build: Callable[[Path], None], **changes: object) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        build(folder)
        change(folder / "config.json", **changes)

    return save


def flash_weights(folder: Path) -> None:
    """XLM-R with code of its own and another layout of weights, as jina-reranker-v2 has it."""
    encoder("XLMRoberta", ROBERTA)(folder)
    code = {"AutoModelForSequenceClassification": "modeling_xlm_roberta.FlashModel"}
    change(folder / "config.json", auto_map=code)
    weights = load_file(folder / "model.safetensors")
    renamed = {name.replace("self.query", "mixer.Wqkv"): part for name, part in weights.items()}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})


def text_to_text(folder: Path) -> None:
    config = transformers.T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=24, num_layers=1)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer_of(*ROBERTA).save_pretrained(folder)


READ = {
    "ms-marco-MiniLM, TinyBERT": encoder("Bert", BERT),
    "ms-marco-electra": encoder("Electra", BERT, embedding_size=16),
    "stsb-roberta, quora-roberta": encoder("Roberta", ROBERTA, max_position_embeddings=34),
    "bge-reranker, mMiniLM, bce-reranker": encoder(
        "XLMRoberta", ROBERTA, max_position_embeddings=34
    ),
    "bge-reranker-v2-m3, more positions": encoder(
        "XLMRoberta", ROBERTA, max_position_embeddings=130
    ),
    "mxbai-rerank-v1": encoder(
        "DebertaV2",
        BERT,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
    ),
    "distilroberta, distilbert": encoder(
        "DistilBert",
        (*BERT[:2], "input_ids", "attention_mask"),
        dim=16,
        hidden_dim=24,
        n_layers=2,
        n_heads=2,
    ),
    "gte-reranker-modernbert, granite": encoder("ModernBert", (*BERT[:2], *ROBERTA[2:])),
    "camembert-reranker": encoder("Camembert", ROBERTA, max_position_embeddings=34),
    "mpnet": encoder("MPNet", ROBERTA, max_position_embeddings=34),
    "Qwen3-Reranker-seq-cls": conversion("query first"),
    "a conversion with the document first": conversion("document first"),
    "a conversion without a template": lambda folder: classifier("Qwen3", folder, None),
    "CrossEncoder, saved": in_modules,
}


@pytest.mark.parametrize("name", READ)
def test_scores_are_those_of_its_library(tmp_path: Path, name: str) -> None:
    READ[name](tmp_path)
    model = CrossEncoder(str(tmp_path), device="cpu")
    expected = model.predict(PAIRS, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    scores = load(tmp_path).predict(PAIRS)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert np.ptp(scores) > 1e-4


PROMPTED = {
    "Qwen3-Reranker": ("Qwen3", "qwen3_reranker"),
    "mxbai-rerank-v2": ("Qwen2", "mxbai_rerank_v2"),
    "bge-reranker-v2-gemma": ("Gemma", "bge_reranker_gemma"),
}


@pytest.mark.parametrize("name", PROMPTED)
def test_language_models_are_asked_by_their_templates(tmp_path: Path, name: str) -> None:
    kind, template = PROMPTED[name]
    save_model(kind, tmp_path)
    with pytest.raises(ValueError, match="give template=qwen3_reranker"):
        load(tmp_path)
    # Values: tests/models/test_prompted_ranker.py, by the published code of each.
    assert np.ptp(load(tmp_path, template=template).predict(PAIRS)) > 1e-4


CODE = {"AutoModel": "modeling.TheirModel", "AutoModelForCausalLM": "modeling.TheirModel"}
ELSEWHERE = r"run=FILE"
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "jina-reranker-v3": (
        decoder("Qwen3", architectures=["JinaForRanking"], auto_map=CODE),
        rf"code \(auto_map\) for a JinaForRanking.*{ELSEWHERE}",
    ),
    "jina-reranker-m0": (
        decoder("Qwen2", architectures=["JinaVLForRanking"], auto_map=CODE),
        rf"code \(auto_map\) for a JinaVLForRanking.*{ELSEWHERE}",
    ),
    "jina-reranker-v2": (flash_weights, ELSEWHERE),
    "jina-reranker-v1": (
        changed(
            encoder("Bert", BERT),
            architectures=["JinaBertForSequenceClassification"],
            auto_map=CODE,
        ),
        rf"code \(auto_map\).*{ELSEWHERE}",
    ),
    "bge-reranker-v2-minicpm-layerwise": (
        decoder(
            "Llama",
            architectures=["LayerWiseMiniCPMForCausalLM"],
            model_type="minicpm",
            auto_map=CODE,
        ),
        rf"code \(auto_map\) for a LayerWiseMiniCPMForCausalLM.*{ELSEWHERE}",
    ),
    "bge-reranker-v2.5-gemma2-lightweight": (
        decoder("Gemma2", architectures=["CostWiseGemmaForCausalLM"], auto_map=CODE),
        rf"code \(auto_map\) for a CostWiseGemmaForCausalLM.*{ELSEWHERE}",
    ),
    "gte-multilingual-reranker": (
        changed(
            encoder("Bert", BERT),
            architectures=["NewForSequenceClassification"],
            model_type="new",
            auto_map=CODE,
        ),
        rf"code \(auto_map\).*{ELSEWHERE}",
    ),
    "llama-nemotron-rerank": (
        changed(
            encoder("Bert", BERT),
            architectures=["LlamaBidirectionalForSequenceClassification"],
            model_type="llama_bidirec",
            auto_map=CODE,
        ),
        rf"code \(auto_map\).*{ELSEWHERE}",
    ),
    "monoT5": (text_to_text, rf"writes a text.*{ELSEWHERE}"),
    "contextual-rerank, quantised": (
        decoder("Qwen3", quantization_config={"quant_method": "compressed-tensors"}),
        "the weights are quantised.*take the model in float32",
    ),
    "monoBERT, mBERT of two labels": (
        encoder("Bert", BERT, num_labels=2),
        "nothing says which one means relevant.*labels=",
    ),
    "nli-deberta": (encoder("Bert", BERT, num_labels=3), "3 labels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_by_a_sentence_that_leads_somewhere(
    tmp_path: Path, name: str
) -> None:
    build, message = REFUSED[name]
    build(tmp_path)
    with pytest.raises(ValueError, match=message) as refusal:
        load(tmp_path)
    # bge-v2-minicpm was told to give a template, which was then refused.
    assert "give template=" not in str(refusal.value)
