"""Folders that somebody may bring who thinks that they hold a reranker, made by the libraries
themselves: what no ranker can be made of, and what is unusual and can be read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from foreign_rankers import SHAPE, bert, saved
from prompted_models import qwen_tokenizer, save_model
from safetensors.torch import load_file, save_file
from transformers import BertConfig

SIZES = {**SHAPE, "vocab_size": 15, "max_position_embeddings": 32, "pad_token_id": 0}


def config(folder: Path, **changes: object) -> None:
    """Change ``config.json``; None takes a key out."""
    change_json(folder / "config.json", **changes)


def change_json(file: Path, **changes: object) -> None:
    content = json.loads(file.read_text()) | changes
    content = {name: value for name, value in content.items() if value is not None}
    file.write_text(json.dumps(content))


def classifier(folder: Path) -> Path:
    """A BERT with one label."""
    saved(bert, folder)
    return folder


def other_head(name: str, **options: object) -> Callable[[Path], None]:
    """A BERT that does something else than classify."""

    def save(folder: Path) -> None:
        _, tokenizer = bert()
        model = getattr(transformers, name)(BertConfig(**{**SIZES, **options}))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return save


def encoder_decoder(folder: Path) -> None:
    _, tokenizer = bert()
    shape = transformers.T5Config(
        vocab_size=15, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, pad_token_id=0
    )
    transformers.T5ForConditionalGeneration(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def encoder_decoder_classifier(folder: Path) -> None:
    _, tokenizer = bert()
    shape = transformers.BartConfig(
        vocab_size=15,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=32,
        num_labels=1,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=1,
    )
    transformers.BartForSequenceClassification(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def encoder_folder(folder: Path) -> Path:
    other_head("BertModel")(folder)
    return folder


def bi_encoder(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(encoder_folder(folder.parent / "encoder")))
    pooling = Pooling(transformer.get_embedding_dimension())
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save_pretrained(str(folder))


def modular(folder: Path) -> Path:
    """A CrossEncoder in modules."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

    transformer = Transformer(str(encoder_folder(folder.parent / "encoder")))
    modules = [transformer, Pooling(16), Dense(16, 1, module_output_name="scores")]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def static_embeddings(folder: Path) -> None:
    """Word vectors alone, as model2vec and sentence-transformers save them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    _, tokenizer = bert()
    words = StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=16)
    SentenceTransformer(modules=[words], device="cpu").save_pretrained(str(folder))


def colbert(folder: Path) -> None:
    """As the library ColBERT names its class."""
    encoder_folder(folder)
    config(folder, architectures=["HF_ColBERT"])


def several_labels(count: int) -> Callable[[Path], None]:
    return other_head("BertForSequenceClassification", num_labels=count)


def language_model(folder: Path) -> None:
    save_model("Qwen3", folder)


def lora(folder: Path, **options: object) -> Path:
    """An adapter, and its base model beside it."""
    import peft

    base = classifier(folder.parent / "base")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base)
    options = {"target_modules": ["query"], "task_type": "SEQ_CLS", **options}
    peft.get_peft_model(model, peft.LoraConfig(**options)).save_pretrained(folder)
    return folder


def lora_without_base(folder: Path) -> None:
    lora(folder)
    change_json(folder / "adapter_config.json", base_model_name_or_path="my-org/my-base")


def lora_of_an_encoder(folder: Path) -> None:
    """As for an embedding model."""
    lora(folder)
    change_json(folder / "adapter_config.json", task_type="FEATURE_EXTRACTION")
    config(folder.parent / "base", architectures=["BertModel"])


def other_adapter(folder: Path) -> None:
    import peft

    base = classifier(folder.parent / "base")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base)
    options = peft.IA3Config(
        target_modules=["query", "dense"], feedforward_modules=["dense"], task_type="SEQ_CLS"
    )
    peft.get_peft_model(model, options).save_pretrained(folder)


# What happened to the folder of a classifier.


def weights_changed(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        file = classifier(folder) / "model.safetensors"
        weights = load_file(file)
        change(weights)
        save_file(weights, file, {"format": "pt"})

    return save


def pickled(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    """Weights as older versions of transformers save them."""

    def save(folder: Path) -> None:
        file = classifier(folder) / "model.safetensors"
        weights = load_file(file)
        change(weights)
        torch.save(weights, folder / "pytorch_model.bin")
        file.unlink()

    return save


def wrong_shapes(weights: dict[str, torch.Tensor]) -> None:
    weights["bert.encoder.layer.0.intermediate.dense.weight"] = torch.zeros(12, 16)


def not_finite(weights: dict[str, torch.Tensor]) -> None:
    weights["classifier.weight"][0, 0] = float("nan")


def other_names(weights: dict[str, torch.Tensor]) -> None:
    """As DataParallel saves them."""
    for name in list(weights):
        weights[f"module.{name}"] = weights.pop(name)


def without_head(weights: dict[str, torch.Tensor]) -> None:
    del weights["classifier.weight"], weights["classifier.bias"]


def of_bytes(weights: dict[str, torch.Tensor]) -> None:
    for name, values in weights.items():
        if name.endswith("query.weight"):
            weights[name] = (values * 10).to(torch.int8)


def of_eight_bits(weights: dict[str, torch.Tensor]) -> None:
    for name, values in weights.items():
        if name.endswith("query.weight"):
            weights[name] = values.to(torch.float8_e4m3fn)


def packed_integers(weights: dict[str, torch.Tensor]) -> None:
    """As GPTQ and AWQ pack eight numbers of four bits."""
    for name in list(weights):
        if name.endswith("query.weight"):
            stem = name.removesuffix("weight")
            del weights[name]
            weights[f"{stem}qweight"] = torch.zeros(2, 16, dtype=torch.int32)
            weights[f"{stem}scales"] = torch.ones(1, 16)


def quantised(
    method: str, change=lambda weights: None, **options: object
) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        weights_changed(change)(folder)
        config(folder, quantization_config={"quant_method": method, **options})

    return save


def cut(name: str, share: float = 0.5) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        file = classifier(folder) / name
        content = file.read_bytes()
        file.write_bytes(content[: int(share * len(content))])

    return save


def replaced(name: str, content: str | bytes) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        file = classifier(folder) / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    return save


def without(*names: str) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        classifier(folder)
        for name in names:
            (folder / name).unlink()

    return save


def configured(**changes: object) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        config(classifier(folder), **changes)

    return save


def weights_of_format(name: str, content: bytes) -> Callable[[Path], None]:
    """Weights of another library alone."""

    def save(folder: Path) -> None:
        classifier(folder)
        (folder / "model.safetensors").unlink()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)

    return save


def gguf_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "reranker-q4.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))


def tokenizer_of_another(folder: Path) -> None:
    classifier(folder)
    qwen_tokenizer().save_pretrained(folder)


def smaller_tokenizer(folder: Path) -> None:
    classifier(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    content["model"]["vocab"] = {word: place for word, place in words.items() if place < 9}
    (folder / "tokenizer.json").write_text(json.dumps(content))


def shards(folder: Path) -> Path:
    model, _ = saved(bert, folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="4KB")
    return folder


def shard_missing(folder: Path) -> None:
    sorted(shards(folder).glob("model-*.safetensors"))[1].unlink()


def index_missing(folder: Path) -> None:
    (shards(folder) / "model.safetensors.index.json").unlink()


def index_broken(folder: Path) -> None:
    (shards(folder) / "model.safetensors.index.json").write_text("{")


def of_module(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """What happened to the last module of a CrossEncoder in modules."""

    def save(folder: Path) -> None:
        modules = json.loads((modular(folder) / "modules.json").read_text())
        change(folder / modules[-1]["path"])

    return save


def module_missing(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def module_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def module_without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def module_cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:40])


def module_of_other_width(folder: Path) -> None:
    change_json(folder / "config.json", in_features=8)


def modules_changed(change: Callable[[list[dict]], object]) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        file = modular(folder) / "modules.json"
        modules = json.loads(file.read_text())
        change(modules)
        file.write_text(json.dumps(modules))

    return save


def pickle_cut(folder: Path) -> None:
    file = classifier(folder) / "model.safetensors"
    torch.save(load_file(file), folder / "pytorch_model.bin")
    file.unlink()
    content = (folder / "pytorch_model.bin").read_bytes()
    (folder / "pytorch_model.bin").write_bytes(content[: len(content) // 2])


def vision(folder: Path) -> None:
    shape = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        num_labels=1,
    )
    transformers.ViTForImageClassification(shape).save_pretrained(folder)


def empty(folder: Path) -> None:
    folder.mkdir()


def one_file(folder: Path) -> None:
    """The path of a file."""
    classifier(folder.parent / "whole")
    folder.write_bytes((folder.parent / "whole" / "model.safetensors").read_bytes())


def modules_cut(folder: Path) -> None:
    file = modular(folder) / "modules.json"
    file.write_text(file.read_text()[:30])


def code_of_the_tokenizer(folder: Path) -> None:
    names = {"AutoTokenizer": ["tokenization.Tokenizer", None]}
    change_json(classifier(folder) / "tokenizer_config.json", auto_map=names)
