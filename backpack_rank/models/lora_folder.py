"""LoRA adapters of rankers, in folders as peft saves them: read with the base model they name.

Such a folder holds few weights and ``adapter_config.json``, which says whose updates they are. The
updates are added to the weights of the base model (``merge_and_unload`` of peft), so that the
ranker computes as much as the base model does, and everything else sees an ordinary classifier or
language model.
"""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from safetensors import safe_open
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)
from transformers.utils import logging as transformers_logging

from backpack_rank.commands import install
from backpack_rank.data.json_lines import json_object_file
from backpack_rank.data.model_files import read_settings
from backpack_rank.data.pretrained import ADAPTER, from_pretrained
from backpack_rank.models.checkpoint import key_problems
from backpack_rank.models.folder_checks import check_files
from backpack_rank.models.foreign_folder import check_has_weights

log = logging.getLogger(__name__)

WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_BASE = "base_model_name_or_path"
_PREFIX = "base_model.model."
"""Before the names of all weights in an adapter's file."""
CLASSIFIER, LANGUAGE_MODEL = "ForSequenceClassification", "ForCausalLM"
_KINDS = {"SEQ_CLS": CLASSIFIER, "CAUSAL_LM": LANGUAGE_MODEL}
"""Ends of the names of transformers' classes, by the task of an adapter."""
_BUFFERS = ("position_ids", "token_type_ids", "masked_bias", "attn.bias", "rotary_emb.inv_freq")
"""Ends of names that older versions saved, and that are made anew."""
_NOTHING: tuple[Any, ...] = (None, False, [], {}, "")


def is_lora(folder: str | Path) -> bool:
    """Whether a folder holds an adapter, and no model beside it."""
    folder = Path(folder)
    return (folder / ADAPTER).is_file() and not (folder / "config.json").is_file()


def is_classifier(architecture: str) -> bool:
    """Whether a class of transformers classifies texts."""
    return architecture.endswith(CLASSIFIER)


def is_language_model(architecture: str) -> bool:
    """Whether a class of transformers predicts the next token."""
    names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()  # some have older names, such as GPT-2
    return architecture.endswith(LANGUAGE_MODEL) or architecture in names


def is_encoder_decoder(architecture: str) -> bool:
    """Whether a class of transformers reads a text with an encoder and writes with a decoder."""
    return architecture in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values()


def load_network(
    loader: Any,
    folder: str | Path,
    optional: tuple[str, ...] = (),
    of_others: tuple[str, ...] = (),
) -> Any:
    """Load a model that was trained elsewhere, in float32; adapters are merged.

    Args:
        loader: an automatic class of transformers.
        folder: of a model or of an adapter.
        optional: beginnings of the names of weights that may be missing, as nothing reads them.
        of_others: beginnings of the names of weights that belong to something else.

    Raises:
        FileNotFoundError: the folder holds no weights of a format that is read, or a part of them.
        ValueError: the weights cannot be read as numbers alone, some are missing, or of another
            shape; they are named.
    """
    unexpected: list[str] = []
    if is_lora(folder):
        model, missing = LoraFolder(folder).load(loader)
    else:
        model, info = _load_whole(loader, Path(folder).expanduser())
        missing = sorted(info["missing_keys"])
        unexpected = [name for name in info["unexpected_keys"] if not name.endswith(_BUFFERS)]
        if info["mismatched_keys"]:
            (problem,) = key_problems(mismatched=info["mismatched_keys"])
            raise ValueError(
                f"the weights of {folder} are not those of its config.json: {problem}; copy both "
                "from one place"
            )
    missing = [name for name in missing if not name.startswith(optional)]
    unexpected = [name for name in unexpected if not name.startswith(of_others)]
    if missing:
        raise _lacks_weights(folder, model, missing, unexpected)
    if unexpected:
        (problem,) = key_problems(unexpected=sorted(unexpected))
        log.warning("%s: %s has no place for these weights: %s", folder, _name(model), problem)
    return model


def _load_whole(loader: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """A model that is no adapter, and the loading info of transformers."""
    check_has_weights(folder)
    level = transformers_logging.get_verbosity()
    # transformers prints a table of keys that do not fit; the caller says it in a sentence.
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    try:
        loaded: tuple[Any, dict[str, Any]] = from_pretrained(
            loader,
            folder,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        return loaded
    except (UnpicklingError, EOFError, RuntimeError, OSError) as error:
        pickles = sorted(file.name for file in folder.glob("*.bin"))
        if not pickles or any(folder.glob("*.safetensors")):
            raise
        # Not torch's own words: they advise to run what is in the file.
        raise ValueError(
            f"the weights of {folder} ({pickles[0]}) cannot be read: they are damaged, or hold "
            "more than numbers; copy them again, or save them as safetensors"
        ) from error
    finally:
        transformers_logging.set_verbosity(level)


def _lacks_weights(
    folder: str | Path, model: Any, missing: list[str], unexpected: list[str]
) -> ValueError:
    text = f"{folder} lacks weights of {_name(model)}: {', '.join(missing[:6])}"
    if len(missing) > 6:
        text += f" and {len(missing) - 6} more"
    body = f"{model.base_model_prefix}."
    if unexpected:
        text += f"; it has {', '.join(sorted(unexpected)[:3])} ..., for which there is no place"
    elif not any(name.startswith(body) for name in missing):
        text += "; it was not trained to rank"
    return ValueError(text)


def _name(model: Any) -> str:
    return type(model).__name__


class LoraFolder:
    """Reads an adapter together with its base model.

    ::

        model, missing = LoraFolder(folder).load(AutoModelForSequenceClassification)

    Attributes:
        folder: of the adapter.
        base: folder of the base model on this machine.
    """

    def __init__(self, folder: str | Path) -> None:
        """
        Raises:
            ValueError: the adapter is of another kind than LoRA, or its base model is not on this
                machine.
        """
        self.folder = Path(folder)
        self._file = self.folder / ADAPTER
        self._settings = read_settings(self._file)
        kind = self._settings.get("peft_type")
        if kind != "LORA":
            raise ValueError(
                f"{self._file}: peft_type={kind} is not read here, LORA alone is; merge it into "
                "the weights (merge_and_unload of peft) and save these"
            )
        self.base = self._find_base()

    @property
    def tokenizer_folder(self) -> Path:
        """The adapter's folder where it has a tokenizer of its own, else that of the base model."""
        names = ("tokenizer.json", "tokenizer_config.json")
        has_tokenizer = any((self.folder / name).is_file() for name in names)
        return self.folder if has_tokenizer else self.base

    @property
    def architecture(self) -> str:
        """Class of transformers that the adapter's task asks for, else the one it was made for."""
        names = json_object_file(self.base / "config.json").get("architectures")
        base = str(names[0]) if isinstance(names, list) and names else "model"
        task = self._settings.get("task_type")
        if task in _KINDS:
            return re.sub(r"(For[A-Z]\w*|(LMHead)?Model)$", "", base) + _KINDS[task]
        # Without a task, peft notes the class that was adapted.
        noted = self._settings.get("auto_mapping")
        return str(noted.get("base_model_class", base)) if isinstance(noted, dict) else base

    def load(self, loader: Any) -> tuple[Any, list[str]]:
        """The base model with the adapter's updates in its weights, in float32.

        Args:
            loader: an automatic class of transformers.

        Returns:
            The model, and the names of weights that neither of the two folders holds.

        Raises:
            ValueError: peft is not installed, or the adapter is not one of this base model.
        """
        peft = self._peft()
        config = self._peft_config(peft)
        given = self._saved_modules()
        options: dict[str, Any] = {}
        labels = _rows_of_head(given)
        if labels is not None and is_classifier(loader.__name__):
            options["num_labels"] = labels
        # A head that the adapter replaces may have another number of labels in the base model.
        base, info = from_pretrained(
            loader,
            self.base,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
        missing = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
        if not given:
            # peft would ask for a head in the file of every classifier's adapter. What add_adapter
            # of transformers and sentence-transformers makes leaves the base model's head.
            config.task_type = None
        # get_peft_model warns where the name in the file is another than that of the base model.
        config.base_model_name_or_path = base.name_or_path
        with warnings.catch_warnings():
            # Of fan_in_fan_out, which peft sets as the layers need it.
            warnings.simplefilter("ignore")
            adapted = peft.get_peft_model(base, config)
        try:
            result = adapted.load_adapter(str(self.folder), "default", torch_device="cpu")
        except (KeyError, RuntimeError) as error:
            message = " ".join(str(error).split())[:300]
            raise ValueError(
                f"{self.folder}: its adapter does not fit the base model {self.base}: {message}"
            ) from error
        for problem, names in (
            ("lacks weights of the adapter", result.missing_keys),
            ("has weights that the base model has no place for", result.unexpected_keys),
        ):
            if names:
                raise ValueError(
                    f"{self.folder} {problem}: {', '.join(sorted(names)[:6])}; the base model is "
                    f"{self.base}"
                )
        return adapted.merge_and_unload().eval(), sorted(missing - given.keys())

    def _find_base(self) -> Path:
        name = self._settings.get(_BASE)
        if not isinstance(name, str) or not name:
            raise ValueError(f"{self._file} names no base model: put its folder there as {_BASE}")
        for place in (Path(name).expanduser(), self.folder / name):
            if (place / "config.json").is_file():
                check_files(place)
                return place
        try:
            revision = self._settings.get("revision")
            cached = Path(snapshot_download(name, revision=revision, local_files_only=True))
            if (cached / "config.json").is_file():
                check_files(cached)
                return cached
        except (HFValidationError, LocalEntryNotFoundError):
            pass
        raise ValueError(
            f"{self._file}: the base model {name} is not on this machine: fetch it (hf download "
            f"{name}), or put the folder where it is there as {_BASE}"
        )

    def _peft(self) -> ModuleType:
        try:
            import peft
        except ImportError as error:
            raise ValueError(
                f"{self.folder} is a LoRA adapter, and reading it needs peft: {install('lora')}"
            ) from error
        return peft

    def _peft_config(self, peft: ModuleType) -> Any:
        """The adapter's options as peft has them.

        Raises:
            ValueError: it names code, is too large, or has an option that this version of peft does
                not know and would leave out.
        """
        if self._settings.get("megatron_config") not in _NOTHING:
            # peft would import the module that megatron_core names.
            raise ValueError(f"{self._file}: megatron_config is not read here")
        known = peft.LoraConfig.__dataclass_fields__
        options = {}
        for name, value in self._settings.items():
            if name in known:
                options[name] = value
            elif value not in _NOTHING:
                raise ValueError(
                    f"{self._file}: peft {peft.__version__} does not know {name}={value}; scores "
                    "could be wrong, so take a newer peft"
                )
        return peft.LoraConfig(**options)

    def _saved_modules(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights that are saved as a whole, such as those of a head, by name."""
        for name in WEIGHTS:
            file = self.folder / name
            if file.is_file():
                break
        else:
            raise ValueError(f"{self.folder / WEIGHTS[0]} is missing: the adapter has no weights")
        shapes = {}
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as tensors:
                for key in tensors.keys():  # noqa: SIM118
                    shapes[key] = tuple(tensors.get_slice(key).get_shape())
        else:
            for key, values in torch.load(file, map_location="cpu", weights_only=True).items():
                shapes[key] = tuple(values.shape)
        saved = {}
        for key, shape in shapes.items():
            if "lora_" not in key:
                saved[key.removeprefix(_PREFIX)] = shape
        return saved


def _rows_of_head(saved: dict[str, tuple[int, ...]]) -> int | None:
    """Labels of the head among the modules of an adapter, whose last layer is the narrowest."""
    rows = [shape[0] for name, shape in saved.items() if len(shape) == 2 and "embed" not in name]
    return min(rows, default=None)
