"""Whether the folder of a saved ranker holds what was saved: checksums, and checks after loading.

Half a vocabulary, or weights of zeros, load without an error and give scores that look like scores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from backpack_rank.data.json_lines import json_object_file
from backpack_rank.data.model_files import READ_FOLDERS, check_settings, folders_of
from backpack_rank.data.pretrained import no_panic
from backpack_rank.digests import digest
from backpack_rank.files import read_text
from backpack_rank.models.foreign_folder import check_not_quantised, quantised
from backpack_rank.models.pooled_map import MAP_FILE
from backpack_rank.models.utils import input_embeddings

CHECKSUMS = "checksums.json"
FORMAT = "backpack_rank checksums 1"
_CHANGED = f"put back what was saved, or delete {CHECKSUMS} beside it if the change is meant"
_OF_SENTENCE_TRANSFORMERS = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
_NOT_COVERED = (
    CHECKSUMS,
    "README.md",
    ".gitattributes",
    "listwise.json",
    "calibration.json",
    MAP_FILE,
    *_OF_SENTENCE_TRANSFORMERS,
)
# Libraries read files of a model's folder that end like this, or lie in one of these folders. Other
# files, such as pictures and ONNX graphs, may be added to it.
_READ_SUFFIXES = (
    ".json",
    ".safetensors",
    ".bin",
    ".pt",
    ".model",
    ".txt",
    ".jinja",
    ".tiktoken",
    ".spm",
    ".py",
    ".gguf",
)
_FOR_PEOPLE = re.compile(r"(readme|licen[sc]e|notice|changelog|requirements)\b.*", re.IGNORECASE)
_LAST_LAYERS = re.compile(r"head\.|classifier\.(classifier|score|modules_behind)\b")
"""Names of the weights that make a score of a vector."""
_SHARE = 0.9
"""Of the rows of an embedding table that must have a token; tables are padded to round numbers."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How a file begins that stands for one which Git LFS has not fetched."""


def write_checksums(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """After saving a ranker: it writes ``checksums.json``, which loading checks.

    The file holds the number of tokens, and length and SHA-256 of every file; but not of
    ``README.md`` and ``listwise.json``, which people edit, nor of ``calibration.json``, which is
    made later, nor of files that sentence-transformers alone reads, and writes anew when it saves a
    ranker that it has loaded.
    """
    files = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name not in _NOT_COVERED:
            name = file.relative_to(folder).as_posix()
            files[name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    content = {"format": FORMAT, "tokens": len(tokenizer), "files": files}
    (folder / CHECKSUMS).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_files(folder: str | Path) -> None:
    """Before loading a ranker: it compares the folder with its checksums.

    A folder without checksums, as other libraries save it, is accepted.

    Raises:
        ValueError: a file is missing, cut, changed or added; weights are integers, or cannot be
            read; or what :func:`~backpack_rank.data.model_files.check_settings` refuses. It is
            named.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return  # an id of the hub
    check_settings(folder)
    known = _saved(folder / CHECKSUMS)
    for name, saved in known.items():
        file = folder / name
        if not file.is_file():
            raise ValueError(f"{file} is missing: {_CHANGED}")
        size = file.stat().st_size
        if size != saved["bytes"]:
            raise ValueError(
                f"{file} has {size} bytes and was saved with {saved['bytes']}: {_CHANGED}"
            )
        if _sha256(file) != saved["sha256"]:
            raise ValueError(f"{file} is not what was saved (another checksum): {_CHANGED}")
    if known:
        _check_added(folder, known)
    for part in folders_of(folder):
        config_file = part / "config.json"
        if config_file.is_file():
            check_not_quantised(config_file, json_object_file(config_file))
        safetensors = sorted(part.glob("*.safetensors"))
        for file in safetensors:
            _check_formats(file)
        if not safetensors:  # beside them, nobody reads pickled weights
            for file in sorted(part.glob("pytorch_model*.bin")):
                _check_pickled_formats(file)


def check_model(folder: str | Path, model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> None:
    """After loading a ranker: it checks weights and tokens.

    Raises:
        ValueError: weights that are not finite, word embeddings or a head of zeros, another number
            of tokens than rows of embeddings, a token without a row, no end token where the model
            has one, or a BPE without merges.
    """
    # A head that adds to a similarity begins at 0, and scores are the similarity then.
    has_similarity = getattr(model.config, "similarity", None) is not None
    for name, values in model.named_parameters():
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"{folder}: {name} holds values that are not finite")
        makes_scores = not has_similarity and _LAST_LAYERS.match(name) and values.ndim > 1
        if makes_scores and not bool(values.any()):
            raise ValueError(f"{folder}: {name} is all zeros, so every score is the same")
    _check_embeddings(folder, model, tokenizer)
    _check_end(folder, model.config, tokenizer)
    _check_merges(folder, tokenizer)


@contextmanager
def readable(folder: str | Path) -> Iterator[None]:
    """Around loading: other libraries' errors become a ``ValueError`` with the folder."""
    try:
        with no_panic(folder):
            yield
    except (MemoryError, FileNotFoundError):
        raise
    except Exception as error:  # the tokenizers library raises the bare type
        message = " ".join(str(error).split())
        if isinstance(error, (ValueError, OSError)) and str(folder) in message:
            raise
        # The message of a KeyError is the key alone.
        what = (
            "one of its files lacks" if isinstance(error, KeyError) else f"{type(error).__name__}:"
        )
        raise ValueError(f"{folder} cannot be loaded: {what} {message[:300]}") from error


def _saved(file: Path) -> dict[str, dict[str, Any]]:
    """Length and checksum by file name; empty where there is no ``checksums.json``."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(read_text(file))
        known = {}
        for name, saved in content["files"].items():
            known[name] = {"bytes": saved["bytes"], "sha256": saved["sha256"]}
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{file} does not hold checksums ({error}): delete it, or put back what was saved"
        ) from error
    # A name that leads out of the folder would have any file of the machine read.
    leads_outside = any(Path(name).is_absolute() or ".." in Path(name).parts for name in known)
    if content.get("format") != FORMAT or leads_outside:
        raise ValueError(
            f"{file} is not of the form {FORMAT!r}: delete it, or put back what was saved"
        )
    return known


def _check_added(folder: Path, known: Collection[str]) -> None:
    """Refuse files that were not saved with the ranker and that a library would read.

    An adapter beside the weights, for example, would change every score.
    """
    files = [file for file in folder.iterdir() if file.suffix.lower() in _READ_SUFFIXES]
    for name in READ_FOLDERS:
        files += (folder / name).rglob("*")
    for file in sorted(files):
        listed = file.relative_to(folder).as_posix() in known or file.name in _NOT_COVERED
        if not listed and not file.is_dir() and not _FOR_PEOPLE.fullmatch(file.name):
            raise ValueError(
                f"{file} was not saved with this ranker: take it away, or delete {CHECKSUMS} "
                "beside it if it is meant"
            )


def _check_formats(file: Path) -> None:
    try:
        with safe_open(file, framework="pt") as tensors:
            names = list(tensors.keys())
            formats = {name: tensors.get_slice(name).get_dtype() for name in names}
    except (SafetensorError, OSError) as error:
        if _begins_with(file, _LFS_POINTER):
            raise ValueError(
                f"{file} is a pointer of Git LFS and holds no weights: run git lfs pull in its "
                "folder"
            ) from error
        why = str(error).partition("\n")[0]
        raise ValueError(
            f"the weights of {file} cannot be read ({why}); copy or save them again"
        ) from error
    for name, number_format in formats.items():
        # I8, U8, I32 ..., and floats of eight bits, which need scales that transformers leaves out.
        if name.endswith("weight") and number_format[:2] not in ("F1", "F3", "F6", "BF"):
            raise quantised(file, name, number_format)


def _check_pickled_formats(file: Path) -> None:
    try:
        # "meta": names, shapes and formats alone; and nothing of the file is run.
        weights = torch.load(file, map_location="meta", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError):
        return  # whoever loads it says what is wrong with it
    if not isinstance(weights, Mapping):
        return
    for name, values in weights.items():
        if not isinstance(values, Tensor) or not str(name).endswith("weight"):
            continue
        if not values.is_floating_point() or values.element_size() < 2:
            raise quantised(file, name, str(values.dtype).removeprefix("torch."))


def _check_embeddings(
    folder: str | Path, model: nn.Module, tokenizer: PreTrainedTokenizerBase
) -> None:
    table = getattr(input_embeddings(model), "weight", None)
    if table is None:
        return
    if not bool(table.any()):
        raise ValueError(f"{folder}: the word embeddings are all zeros: the weights were not saved")
    # Rankers over words have rows for unknown words behind those of the vocabulary.
    tokens = len(tokenizer) + getattr(model.config, "unknown_buckets", 0)
    if not _SHARE * len(table) <= tokens <= len(table):
        raise ValueError(
            f"{folder}: the tokenizer has {tokens} tokens and the weights have embeddings for "
            f"{len(table)}: it is not the tokenizer of this ranker, or a part of it is missing"
        )
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= len(table):
        raise ValueError(
            f"{folder}: the tokenizer has a token of number {largest} and the weights have "
            f"embeddings for numbers below {len(table)}: it is not the tokenizer of this "
            "ranker, or was changed"
        )


def _check_end(folder: str | Path, config: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer that lacks the end token of a decoder.

    Another token would take its place, and every score would change.
    """
    backbone_config = (getattr(config, "backbone_config", None) or config).get_text_config()
    # Encoders end with their separator, and their configurations may name an end token by default.
    if backbone_config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return
    # Configurations of rankers over words have no end token, and the default of a model type may be
    # beyond a vocabulary.
    end_id = None
    for source in (config, backbone_config):  # the backbone's counts, where it has one
        number = getattr(source, "eos_token_id", None)
        if isinstance(number, int) and number < len(tokenizer):
            end_id = number
    if end_id is not None and tokenizer.eos_token_id is None and tokenizer.sep_token_id != end_id:
        raise ValueError(
            f"{folder}: the model was trained with an end token (eos_token_id={end_id}) and the "
            "tokenizer has none: put back eos_token in tokenizer_config.json"
        )


def _check_merges(folder: str | Path, tokenizer: PreTrainedTokenizerBase) -> None:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return
    model = json.loads(backend.to_str())["model"]
    # 256 bytes and a few special tokens: a vocabulary of these alone needs no merges.
    bytes_alone = 300
    if model.get("type") == "BPE" and not model["merges"] and len(model["vocab"]) > bytes_alone:
        raise ValueError(
            f"{folder}: the tokenizer has {len(model['vocab'])} tokens and no merges, so it would "
            "cut every text into single letters: put back its merges (tokenizer.json or "
            "merges.txt)"
        )


def _sha256(file: Path) -> str:
    with open(file, "rb") as handle:
        return digest(handle, algorithm="sha256")


def _begins_with(file: Path, beginning: bytes) -> bool:
    with file.open("rb") as handle:
        return handle.read(len(beginning)) == beginning
