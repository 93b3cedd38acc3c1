"""Folders that are no rerankers, or damaged ones: the error says what is missing, in two sentences
at most, and takes none of its words from the depths of a library.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import folders_of_strangers as folders
import pytest
from foreign_rankers import saved, xlm_roberta
from prompted_models import save_model
from safetensors.torch import load_file, save_file

import backpack_rank

pytest.importorskip("sentence_transformers")
pytest.importorskip("peft")
Build = Callable[[Path], object]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
CODE = {"AutoModel": "modeling.TheirModel", "AutoModelForCausalLM": "modeling.TheirModel"}


def body_alone(folder: Path) -> None:
    """An encoder whose configuration is that of a classifier."""
    folders.encoder_folder(folder)
    folders.config(folder, architectures=["BertForSequenceClassification"], num_labels=1)


def more_than_numbers(weights: dict[str, object]) -> None:
    weights["path"] = Path("somewhere")


def coded(build: Build, architecture: str, **changes: object) -> tuple[Build, str]:
    """A model whose class is code of its folder, and what is said of it."""

    def save(folder: Path) -> None:
        build(folder)
        folders.config(folder, architectures=[architecture], auto_map=CODE, **changes)

    return save, rf"names code \(auto_map\) for a {architecture}.*run=FILE"


def flash_weights(folder: Path) -> None:
    """XLM-R with code of its own and another layout of weights, as jina-reranker-v2 has it."""
    saved(xlm_roberta, folder)
    code = {"AutoModelForSequenceClassification": "modeling_xlm_roberta.FlashModel"}
    folders.config(folder, auto_map=code)
    weights = load_file(folder / "model.safetensors")
    renamed = {name.replace("self.query", "mixer.Wqkv"): part for name, part in weights.items()}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})


def quantised_language_model(folder: Path) -> None:
    save_model("Qwen3", folder)
    folders.config(folder, quantization_config={"quant_method": "compressed-tensors"})


WEIGHTS: dict[str, tuple[Build, str]] = {
    "a wrong shape": (
        folders.weights_changed(folders.wrong_shapes),
        r"not those of its config\.json: 1 key of another shape: bert\.encoder\.layer\.0\."
        r"intermediate\.dense\.weight \(12, 16\) instead of \(24, 16\)",
    ),
    "values that are not finite": (
        folders.weights_changed(folders.not_finite),
        r"classifier\.weight holds values that are not finite",
    ),
    "names of DataParallel": (
        folders.weights_changed(folders.other_names),
        r"lacks weights .*bert\.embeddings\.LayerNorm\.bias.* it has module\.bert\.embeddings",
    ),
    "no head": (
        folders.weights_changed(folders.without_head),
        r"lacks weights .*: classifier\.bias, classifier\.weight; it was not trained to rank",
    ),
    "those of a body": (
        body_alone,
        "lacks weights of BertForSequenceClassification: classifier",
    ),
    "those of another model": (
        folders.configured(model_type="roberta"),
        r"lacks weights of RobertaForSequenceClassification.* it has bert\.embeddings",
    ),
    "integers": (folders.weights_changed(folders.of_bytes), r"query\.weight is quantised \(I8\)"),
    "floats of eight bits": (
        folders.weights_changed(folders.of_eight_bits),
        r"query\.weight is quantised \(F8_E4M3\)",
    ),
    "packed integers": (
        folders.weights_changed(folders.packed_integers),
        r"query\.qweight is quantised \(I32\)",
    ),
    "pickled integers": (
        folders.pickled(folders.of_bytes),
        r"pytorch_model\.bin: .*query\.weight is quantised \(int8\)",
    ),
    "pickled floats of eight bits": (
        folders.pickled(folders.of_eight_bits),
        r"pytorch_model\.bin: .*query\.weight is quantised \(float8_e4m3fn\)",
    ),
    "bitsandbytes": (
        folders.quantised("bitsandbytes", folders.of_bytes, load_in_8bit=True),
        r"config\.json: the weights are quantised \(bitsandbytes\).*float32",
    ),
    "GPTQ": (folders.quantised("gptq", folders.packed_integers, bits=4), r"quantised \(gptq\)"),
    "AWQ": (folders.quantised("awq", folders.packed_integers, bits=4), r"quantised \(awq\)"),
    "an unknown method": (folders.quantised("their_own"), r"quantised \(their_own\)"),
    "cut": (folders.cut("model.safetensors"), r"model\.safetensors cannot be read .*copy or save"),
    "empty": (folders.cut("model.safetensors", 0), r"model\.safetensors cannot be read"),
    "a page of the web": (
        folders.replaced("model.safetensors", "<html>not found</html>"),
        r"model\.safetensors cannot be read",
    ),
    "none": (folders.without("model.safetensors"), r"holds no weights .*it has config\.json"),
    "a pickle that is cut": (folders.pickle_cut, r"\(pytorch_model\.bin\) cannot be read"),
    "a pickle of code": (
        folders.pickled(more_than_numbers),
        "hold more than numbers; copy them again",
    ),
    "a pointer of Git LFS": (
        folders.replaced("model.safetensors", POINTER),
        "is a pointer of Git LFS .* git lfs pull",
    ),
    "GGUF": (folders.weights_of_format("q4.gguf", b"GGUF"), r"holds no weights .*q4\.gguf"),
    "GGUF alone": (folders.gguf_alone, r"no config\.json.*it has reranker-q4\.gguf"),
    "ONNX": (
        folders.weights_of_format("onnx/model.onnx", b"x"),
        "holds no weights .*onnx/.*save_pretrained",
    ),
    "TensorFlow": (folders.weights_of_format("tf_model.h5", b"x"), r"no weights .*tf_model\.h5"),
    "a part is missing": (
        folders.shard_missing,
        r"lacks model-00002-of-\d+\.safetensors, which model\.safetensors\.index\.json names",
    ),
    "parts without their index": (folders.index_missing, r"index\.json is missing.*copy it"),
    "a broken index": (folders.index_broken, r"index\.json is damaged, copy it again"),
}
TASKS: dict[str, tuple[Build, str]] = {
    "masked words": (folders.other_head("BertForMaskedLM"), "fills in words that were masked"),
    "answers": (folders.other_head("BertForQuestionAnswering"), "finds the place of an answer"),
    "tokens": (folders.other_head("BertForTokenClassification"), "labels the words of a text"),
    "next sentence": (folders.other_head("BertForNextSentencePrediction"), "one sentence follows"),
    "multiple choice": (folders.other_head("BertForMultipleChoice"), "chooses among several"),
    "encoder and decoder": (folders.encoder_decoder, "is not a ranker, it writes a text.*run=FILE"),
    "encoder": (folders.encoder_folder, "gives vectors of texts.* train .*model.ranker.name"),
    "pictures": (folders.vision, "ViTForImageClassification is not a ranker; rankers are"),
    "ColBERT without its layer": (folders.colbert, r"lacks linear\.weight"),
    "word vectors": (folders.static_embeddings, "first module is StaticEmbedding and must be"),
    "three labels": (folders.several_labels(3), r"3 labels \(LABEL_0, LABEL_1, LABEL_2\).*has one"),
    "two labels": (folders.several_labels(2), r"nothing says which one means relevant.*labels="),
    "no template": (folders.language_model, "is a language model.*give template=qwen3_reranker"),
    "no base model": (
        folders.lora_without_base,
        r"my-org/my-base is not on this machine: fetch it \(hf download my-org/my-base\)",
    ),
    "adapter of an encoder": (folders.lora_of_an_encoder, "an adapter of a BertModel is no ranker"),
    "IA3": (
        folders.other_adapter,
        "peft_type=IA3 is not read here, LORA alone.*merge_and_unload",
    ),
    "code": (
        folders.configured(
            model_type="new",
            architectures=["NewForSequenceClassification"],
            auto_map={"AutoModelForSequenceClassification": "modeling.NewModel"},
        ),
        r"names code \(auto_map\).*, and no code of a model is run; rank with the model's own.*"
        "run=FILE",
    ),
    "code for a known kind": (
        folders.configured(auto_map={"AutoModel": "modeling.NewModel"}),
        r"names code \(auto_map\).* take auto_map out of the file",
    ),
    "code of the tokenizer": (folders.code_of_the_tokenizer, r"tokenizer_config\.json names code"),
}
FILES: dict[str, tuple[Build, str]] = {
    "config.json is cut": (folders.cut("config.json"), r"config\.json is damaged, copy it again"),
    "config.json is empty": (folders.cut("config.json", 0), r"config\.json is damaged"),
    "config.json is a list": (folders.replaced("config.json", "[]"), r"must hold a JSON object"),
    "config.json says nothing": (folders.replaced("config.json", "{}"), "names no architecture"),
    "config.json is binary": (folders.replaced("config.json", b"\xff\xfe\0"), "not UTF-8 text"),
    "no config.json": (
        folders.without("config.json"),
        r"no config\.json\); it has model\.safetensors, tokenizer\.json",
    ),
    "no kind": (folders.configured(model_type=None), r"config\.json names no model_type"),
    "a kind of tomorrow": (
        folders.configured(model_type="bert9", architectures=["Bert9ForSequenceClassification"]),
        r"model_type=bert9 is not known to transformers \d.*a newer version may know it",
    ),
    "one architecture": (
        folders.configured(architectures="BertForSequenceClassification"),
        "must be a list of names",
    ),
    "heads that do not divide": (folders.configured(num_attention_heads=3), "attention heads"),
    "layers in words": (folders.configured(num_hidden_layers="two"), "num_hidden_layers"),
    "no tokenizer": (
        folders.without("tokenizer.json", "tokenizer_config.json"),
        "has no tokenizer: save the one that belongs to the model into it",
    ),
    "no rules of the tokenizer": (
        folders.without("tokenizer.json"),
        r"no rules of its tokenizer .*put the tokenizer\.json of the model into it",
    ),
    "tokenizer.json is cut": (folders.cut("tokenizer.json"), r"tokenizer\.json is damaged"),
    "tokenizer_config.json is cut": (
        folders.cut("tokenizer_config.json"),
        r"tokenizer_config\.json is damaged",
    ),
    "another tokenizer": (
        folders.tokenizer_of_another,
        "tokenizer has 355 tokens and the weights have embeddings for 15: it is not the tokenizer",
    ),
    "a smaller tokenizer": (folders.smaller_tokenizer, "has 9 tokens and the weights .* 15"),
    "nothing": (folders.empty, r"no config\.json\); it has no file"),
    "a file": (folders.one_file, "is a file: give the folder that it is in"),
}
MODULES: dict[str, tuple[Build, str]] = {
    "modules.json is cut": (folders.modules_cut, r"modules\.json is damaged, copy it again"),
    "a folder is missing": (
        folders.of_module(folders.module_missing),
        r"2_Dense.config\.json is missing, and .*modules\.json names this module: copy its folder",
    ),
    "a folder that never was": (
        folders.modules_changed(lambda modules: modules[-1].update(path="7_Dense")),
        r"7_Dense.config\.json is missing",
    ),
    "no weights": (
        folders.of_module(folders.module_without_weights),
        r"2_Dense.model\.safetensors is missing: the module has weights",
    ),
    "no settings": (
        folders.of_module(folders.module_without_config),
        r"2_Dense.config\.json is missing",
    ),
    "weights that are cut": (
        folders.of_module(folders.module_cut),
        r"the weights of .*2_Dense.* cannot be read",
    ),
    "another width": (
        folders.of_module(folders.module_of_other_width),
        r"2_Dense are not those of its config\.json: 1 key of another shape: linear\.weight",
    ),
    "no scores": (
        folders.modules_changed(lambda modules: modules.pop()),
        r"modules\.json: no module gives 'scores'; the last one must give",
    ),
    "a module of somebody": (
        folders.modules_changed(lambda modules: modules[-1].update(type="theirs.Dense")),
        r"module theirs\.Dense is not known here.*rank with sentence-transformers itself",
    ),
}
# Rerankers that many use and that only their own code reads.
IN_USE: dict[str, tuple[Build, str]] = {
    "jina-reranker-v1": coded(folders.classifier, "JinaBertForSequenceClassification"),
    "jina-reranker-v2": (flash_weights, "run=FILE"),
    "jina-reranker-v3": coded(partial(save_model, "Qwen3"), "JinaForRanking"),
    "jina-reranker-m0": coded(partial(save_model, "Qwen2"), "JinaVLForRanking"),
    "bge-reranker-v2.5-gemma2": coded(partial(save_model, "Gemma2"), "CostWiseGemmaForCausalLM"),
    "bge-reranker-v2-minicpm": coded(
        partial(save_model, "Llama"), "LayerWiseMiniCPMForCausalLM", model_type="minicpm"
    ),
    "contextual-rerank": (
        quantised_language_model,
        "the weights are quantised.*take the model in float32",
    ),
}
KINDS = {
    f"{group}: {name}": build_and_words
    for group, table in {
        "weights": WEIGHTS,
        "task": TASKS,
        "file": FILES,
        "modules": MODULES,
        "in use": IN_USE,
    }.items()
    for name, build_and_words in table.items()
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_cannot_rank_is_refused_in_plain_words(tmp_path: Path, kind: str) -> None:
    build, words = KINDS[kind]
    folder = tmp_path / "folder"
    build(folder)
    with pytest.raises((ValueError, OSError), match=words) as refused:
        backpack_rank.load(folder)
    text = str(refused.value)
    assert str(tmp_path) in text
    assert "\n" not in text
    assert len(re.split(r"\. (?=[A-Z])", text)) <= 2
    assert not re.search(r"Traceback|KeyError|AttributeError|state_dict|__init__", text)
    assert "weights_only" not in text
    # bge-reranker-v2-minicpm was told to give a template, which was then refused.
    assert ("give template=" in text) == ("give template=" in words)
    if "holds no weights that are read" in text:
        assert isinstance(refused.value, FileNotFoundError)
