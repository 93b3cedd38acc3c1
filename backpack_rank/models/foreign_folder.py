"""Folders of others, looked at before transformers reads them: what is missing, in a sentence.

The libraries' own errors come from deep inside and name no file. Most of what people bring by
mistake can be told by the names of files and a few keys of ``config.json``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING
from transformers import __version__ as transformers_version

from backpack_rank.commands import program
from backpack_rank.data.json_lines import json_object_file

_PICKLED = "pytorch_model.bin"
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SHARD = re.compile(r"(model|pytorch_model)-\d+-of-\d+\.(safetensors|bin)")
_QUANTISED = ("quantization_config", "compression_config")
"""Keys of ``config.json`` that say that weights are integers, or in some other way not numbers."""
_TASKS = {
    "ForMaskedLM": "fills in words that were masked",
    "ForPreTraining": "fills in words that were masked",
    "ForQuestionAnswering": "finds the place of an answer in a text",
    "ForTokenClassification": "labels the words of a text",
    "ForMultipleChoice": "chooses among several texts",
    "ForNextSentencePrediction": "says whether one sentence follows another",
    "LMHeadModel": "predicts the next word",
    "Model": "gives vectors of texts",
    "Encoder": "gives vectors of texts",
}
"""What models do that are taken for rerankers, by the ends of their classes' names; a ranker can be
trained over their weights.
"""
_OTHER_TASKS = {
    "ForConditionalGeneration": "writes a text, as monoT5 does with encoder and decoder",
}
"""Those over whose weights none can be trained."""
RUN_ADVICE = "rank with the model's own library, and measure its run: run=FILE"
RANKERS_ARE = (
    "rankers are classifiers of transformers with one label (...ForSequenceClassification), "
    "cross-encoders of sentence-transformers, language models with a template (...ForCausalLM), "
    f"and what {program('train')} saves"
)


def what_is_there(folder: Path) -> str:
    """Names of the files and folders in a folder, the first eight.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "reranker-q4.gguf").write_bytes(b"")
    ...     what_is_there(Path(folder))
    'reranker-q4.gguf'
    """
    names = []
    for path in sorted(folder.iterdir()):
        names.append(f"{path.name}/" if path.is_dir() else path.name)
    more = ", ..." if len(names) > 8 else ""
    return ", ".join(names[:8]) + more if names else "no file"


def check_has_weights(folder: Path) -> None:
    """Before transformers loads a folder's weights: they must all be there.

    Raises:
        FileNotFoundError: there are none of a format that is read, or shards are missing; what is
            there is named.
    """
    if not folder.is_dir():
        return  # an id of the hub
    for name in _INDICES:
        if (folder / name).is_file():
            _check_shards(folder, folder / name)
            return
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    shards = [file.name for file in weights if _SHARD.fullmatch(file.name)]
    is_whole = any((folder / name).is_file() for name in ("model.safetensors", _PICKLED))
    if shards and not is_whole:
        raise FileNotFoundError(
            f"{folder / _INDICES[0]} is missing, which says what {shards[0]} and the other parts "
            "of the weights hold: copy it too"
        )
    if not weights:
        raise FileNotFoundError(
            f"{folder} holds no weights that are read here (model.safetensors or "
            f"{_PICKLED}); it has {what_is_there(folder)}: save the model with save_pretrained of "
            "transformers"
        )


def _check_shards(folder: Path, index: Path) -> None:
    shards = json_object_file(index).get("weight_map")
    if not isinstance(shards, dict):
        raise ValueError(f"{index} is damaged, copy it again: it has no weight_map")
    missing = sorted({name for name in shards.values() if not (folder / str(name)).is_file()})
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing[:6])}, which {index.name} names: copy all parts of "
            "the weights"
        )


def check_not_quantised(file: Path, config: Mapping[str, Any]) -> None:
    """On a ``config.json``: it refuses weights that another program has quantised.

    Raises:
        ValueError: it names a method, such as bitsandbytes, GPTQ or AWQ.
    """
    for key in _QUANTISED:
        settings = config.get(key)
        if settings:
            method = settings.get("quant_method") if isinstance(settings, dict) else None
            raise ValueError(
                f"{file}: the weights are quantised ({method or key}), and quantised weights are "
                "not read: take the model in float32, bfloat16 or float16"
            )


def quantised(file: Path, name: str, number_format: str) -> ValueError:
    """Weights that are no floats of 16 bits or more: the error says which."""
    return ValueError(
        f"{file}: {name} is quantised ({number_format}), and quantised weights are not read: take "
        "the model in float32, bfloat16 or float16"
    )


def check_model_type(file: Path, config: Mapping[str, Any]) -> None:
    """On a ``config.json``: transformers must know its kind of model.

    Raises:
        ValueError: it names none, or one that needs another version of transformers, or code.
    """
    model_type = config.get("model_type")
    if model_type is None:
        raise ValueError(f"{file} names no model_type, such as bert: copy the model's own config")
    if model_type not in CONFIG_MAPPING and config.get("auto_map"):
        raise ValueError(
            f"{file} names code (auto_map) for a model of type {model_type}, which transformers "
            f"does not know, and no code of a model is run; {RUN_ADVICE}"
        )
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"{file}: model_type={model_type} is not known to transformers {transformers_version}; "
            "a newer version may know it, and code of a model is not run"
        )


def check_code(file: Path, config: Mapping[str, Any], architecture: str) -> None:
    """On a ``config.json``: its class must be one of transformers, not of the folder.

    Raises:
        ValueError: the class is code of the folder (``auto_map``), which is not run.
    """
    if config.get("auto_map") and not hasattr(transformers, architecture):
        raise ValueError(
            f"{file} names code (auto_map) for a {architecture}, which transformers does not have, "
            f"and no code of a model is run; {RUN_ADVICE}"
        )


def not_a_ranker(file: Path, architecture: str) -> ValueError:
    """A model of another task: the error says what the model does.

    Args:
        file: its ``config.json``.
        architecture: class of transformers, the first of ``architectures``.
    """
    text = f"{file}: architecture {architecture} is not a ranker"
    advice = ""
    for end, task in (_TASKS | _OTHER_TASKS).items():
        if architecture.endswith(end):
            text += f", it {task}"
            if end in _TASKS:
                advice = (
                    "; with pooling=mean, first or last it ranks by the cosine of its vectors"
                    f". To train one over such weights, give the folder to {program('train')} as "
                    "model.ranker.name"
                )
            break
    if not advice:
        advice = f"; {RUN_ADVICE}"
    return ValueError(f"{text}; {RANKERS_ARE}{advice}")
