"""Late-interaction encoders: vectors and scores are those of the libraries that save them."""

from __future__ import annotations

import json
import shutil
import string

import library_encoders
import numpy as np
import pytest
import torch
from foreign_rankers import WORDS
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    BertConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
)

from backpack_rank.reranking.load import load

pytest.importorskip("sentence_transformers")
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

QUERY = "the doctor saw , a nurse"
DOCUMENTS = ["he saw a nurse", "she saw , a nurse .", "", "bread and fish " * 20, "the"]
SIZES = {
    **library_encoders.SIZES,
    "vocab_size": len(WORDS) + 9,
    "max_position_embeddings": 64,
}


def tokenizer():
    made = library_encoders.bert_tokenizer_without_types(mask_token="[MASK]")
    backend = json.loads(made.backend_tokenizer.to_str())
    vocabulary = backend["model"]["vocab"]
    # BERT has words that stand for nothing, and marks of punctuation.
    for word in ("[unused0]", "[unused1]", ",", "."):
        vocabulary[word] = len(vocabulary)
    as_made = type(made.backend_tokenizer).from_str(json.dumps(backend))
    return PreTrainedTokenizerFast(
        tokenizer_object=as_made,
        model_max_length=48,
        mask_token="[MASK]",
        **library_encoders.BERT_TOKENS,
    )


CONFIGURATIONS = {
    "bert": BertConfig(**SIZES),
    "xlm-roberta": XLMRobertaConfig(type_vocab_size=1, **SIZES),
    "mpnet": MPNetConfig(**SIZES),
    "modernbert": ModernBertConfig(
        local_attention=8,
        global_attn_every_n_layers=2,
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
        **{**SIZES, "num_hidden_layers": 3},
    ),
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Folders of encoders."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("encoders")
    for name, config in CONFIGURATIONS.items():
        AutoModel.from_config(config).save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)
    return folder


def dense(size=16):
    identity = torch.nn.Identity()
    return Dense(size, 8, False, identity, module_input_name="token_embeddings")


def of_sentence_transformers(encoder, folder, similarity="maxsim", skipped=(), **options):
    """As its version 6 saves it."""
    modules = [Transformer(str(encoder), **options), dense(), MultiVectorMask(list(skipped))]
    modules.append(Normalize(module_input_name="token_embeddings"))
    MultiVectorEncoder(
        modules=modules,
        device="cpu",
        similarity_fn_name=similarity,
        prompts={"query": "b ", "document": "a "},
    ).save_pretrained(str(folder))


def of_pylate(encoder, folder, **settings):
    """Files as PyLate writes them: a transformer, a linear layer, and settings of its own."""
    folder.mkdir(exist_ok=True)
    shutil.copytree(encoder, folder, dirs_exist_ok=True)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 29}')
    (folder / "1_Dense").mkdir(exist_ok=True)
    layer = {"in_features": 16, "out_features": 8, "bias": False}
    layer["activation_function"] = "torch.nn.modules.linear.Identity"
    (folder / "1_Dense" / "config.json").write_text(json.dumps(layer))
    torch.manual_seed(1)
    save_file({"linear.weight": torch.randn(8, 16)}, folder / "1_Dense" / "model.safetensors")
    model = {
        "prompts": {},
        "similarity_fn_name": "cosine",
        "query_prefix": "[unused0]",
        "document_prefix": "[unused1]",
        "query_length": 12,
        "document_length": 30,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
        **settings,
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(model))


def of_stanford(encoder, folder, **metadata):
    folder.mkdir(exist_ok=True)
    shutil.copytree(encoder, folder, dirs_exist_ok=True)
    weights = load_file(folder / "model.safetensors")
    named = {f"bert.{name}": weight for name, weight in weights.items()}
    torch.manual_seed(2)
    named["linear.weight"] = torch.randn(8, 16)
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    settings = {"query_maxlen": 14, "doc_maxlen": 26, "mask_punctuation": True, **metadata}
    (folder / "artifact.metadata").write_text(json.dumps(settings))


FIXED = {"strategy": "fixed", "length": 12}
SAVED = {
    "of sentence-transformers": lambda bare, folder: of_sentence_transformers(
        bare / "bert", folder, skipped=[",", "no word"], query_expansion=FIXED
    ),
    "that sees its expansion": lambda bare, folder: of_sentence_transformers(
        bare / "modernbert", folder, query_expansion={**FIXED, "attend": True}
    ),
    "with a floor": lambda bare, folder: of_sentence_transformers(
        bare / "bert",
        folder,
        query_expansion={"strategy": "min", "length": 5, "token": "bread"},
        query_length=7,
    ),
    "without an expansion": lambda bare, folder: of_sentence_transformers(
        bare / "xlm-roberta", folder, "meanmaxsim", query_length=5, document_length=9
    ),
    "of another kind": lambda bare, folder: of_sentence_transformers(
        bare / "mpnet", folder, query_expansion=FIXED
    ),
    "of PyLate": lambda bare, folder: of_pylate(bare / "bert", folder, model_type="ColBERT"),
    "of an older PyLate": lambda bare, folder: of_pylate(bare / "xlm-roberta", folder),
    "of PyLate, all seen": lambda bare, folder: of_pylate(
        bare / "modernbert", folder, model_type="ColBERT", attend_to_expansion_tokens=True
    ),
    "of PyLate, none": lambda bare, folder: of_pylate(
        bare / "bert", folder, model_type="ColBERT", do_query_expansion=False, skiplist_words=[]
    ),
    "of Stanford": lambda bare, folder: of_stanford(bare / "bert", folder),
    "of Stanford, all seen": lambda bare, folder: of_stanford(
        bare / "bert", folder, attend_to_mask_tokens=True, mask_punctuation=False
    ),
}


def best_matches(query, document):
    """As PyLate writes it: the best match of each token of the query, added."""
    return float(torch.einsum("sh,th->st", query, document).max(axis=-1).values.sum(axis=-1))


@pytest.mark.parametrize("save", SAVED.values(), ids=SAVED.keys())
def test_scores_are_those_of_the_library(save, bare, tmp_path):
    save(bare, tmp_path / "saved")
    model = MultiVectorEncoder(str(tmp_path / "saved"), device="cpu")
    query = model.encode_query([QUERY])[0]
    documents = model.encode_document(DOCUMENTS)
    expected = np.array([best_matches(query, document) for document in documents])
    if model.similarity_fn_name == "meanmaxsim":
        expected /= len(query)
    np.testing.assert_allclose(model.similarity([query], documents)[0], expected, atol=1e-5)
    assert np.ptp(expected) > 0.1
    scores = load(tmp_path / "saved").predict([(QUERY, document) for document in DOCUMENTS])
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_the_dial_is_the_mean_of_scores(bare, tmp_path):
    of_pylate(bare / "bert", tmp_path / "saved")
    reranker = load(tmp_path / "saved")
    assert reranker.policies == ("paired_tokens", "renditions")
    she_and_he = ["she saw a nurse", "he saw a nurse"]
    scores = reranker.sweep(QUERY, [*she_and_he, "bread"], alphas=[1, 0.5, 0])
    neutral = scores[0, :2].mean()
    np.testing.assert_allclose(scores[2, :2], neutral, rtol=1e-5)
    np.testing.assert_allclose(scores[1, :2], (scores[0, :2] + neutral) / 2, rtol=1e-5)
    assert scores[2, 0] == scores[2, 1] != scores[0, 0]
    assert len(set(scores[:, 2])) == 1


@pytest.mark.parametrize(
    ("file", "change", "why"),
    [
        ("sentence_bert_config.json", {"query_expansion": {"length": 5}}, "needs a strategy"),
        (
            "sentence_bert_config.json",
            {"query_expansion": {"strategy": "fixed", "length": 999}},
            "length=999 is more than the 64 tokens",
        ),
        (
            "sentence_bert_config.json",
            {"query_expansion": {**FIXED, "token": "[Q]"}},
            r"token=\[Q\] is no token",
        ),
        ("config_sentence_transformers.json", {"query_length": 0}, "query_length=0"),
        ("1_Dense/config.json", {"in_features": 12}, "12"),
    ],
)
def test_damaged_folders_are_refused(file, change, why, bare, tmp_path):
    of_pylate(bare / "bert", tmp_path / "saved")
    path = tmp_path / "saved" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=why):
        load(tmp_path / "saved")
