"""Folders of listwise rankers.

They hold a model and a tokenizer of transformers, and how they rank (``listwise.json``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from backpack_rank.checks import one_of
from backpack_rank.constructors import Count, FilePath, Name, NonNegative, OneOf, Seed
from backpack_rank.data.model_files import read_settings
from backpack_rank.data.pretrained import from_pretrained
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.files import atomic_path, hub_or_folder
from backpack_rank.models.folder_checks import check_files, check_model, readable, write_checksums
from backpack_rank.models.number_formats import FLOATS, resolved_format
from backpack_rank.models.utils import pick_device
from backpack_rank.position.lists.causal_lm import (
    MODES,
    Calibration,
    CausalLmRanker,
    ListwiseMode,
    position_limit,
)
from backpack_rank.position.lists.prompt import Prompt, PromptTokenizer

LISTWISE_FILE = "listwise.json"
"""In the folder of a listwise ranker, beside the weights."""
FORMAT, VERSION = "backpack_rank listwise ranker", 1
MAX_LENGTH = 4096
"""Tokens of a prompt and its answer where neither the caller nor the model sets a limit below it.
"""


def save_listwise(
    folder: str | Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: Prompt,
    mode: ListwiseMode,
    passages: int | None,
    max_length: int | None = None,
) -> None:
    """Save a listwise ranker, with its tokenizer and prompt, to a folder.

    ``save_listwise("my_ranker", model, tokenizer, prompt, "first_token", passages=20)``

    :func:`load_listwise` and transformers' Auto classes read it. An interruption leaves no half of
    a folder.

    Args:
        prompt: that it was trained with.
        mode: that it is meant for, ``first_token`` or ``generate``.
        passages: that it was trained to rank at once, or None.
        max_length: of a prompt with its answer, in tokens; None: what the model has positions for.

    Raises:
        ValueError: an unknown mode.
    """
    settings = {
        "format": FORMAT,
        "version": VERSION,
        "prompt": prompt.as_dict(),
        "mode": _known(mode),
        "passages": passages,
        "max_length": max_length,
    }
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        text = json.dumps(settings, indent=2, ensure_ascii=False)
        (temporary / LISTWISE_FILE).write_text(text + "\n", encoding="utf-8")
        write_checksums(temporary, tokenizer)


def load_listwise(
    name: FilePath | None,
    *,
    prompt: Prompt | Mapping[str, Any] | None = None,
    mode: ListwiseMode | None = None,
    dtype: Annotated[str, OneOf((*FLOATS, "auto"))] = "float32",
    device: Name = "auto",
    calibration: Calibration | None = None,
    max_length: Count | None = None,
    tokens_per_batch: Count | None = None,
    label: Name | None = None,
    temperature: NonNegative = 0.0,
    seed: Seed = 0,
) -> CausalLmRanker:
    """Load a saved listwise ranker, or a causal LM to be asked by a prompt::

        ranker = load_listwise("outputs/train/DATE/ranker")
        ranker = load_listwise("castorini/rank_zephyr_7b_v1_full", prompt=prompt)

    The causal LM is any folder of transformers, or an id of the hub.

    Args:
        prompt: None takes that of the folder.
        mode: None takes that of the folder, or ``first_token``.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: bfloat16 where the device
            computes in it.
        max_length: of a prompt with its answer, in tokens; None: that of the folder, or the model's
            positions, at most 4096.
        tokens_per_batch: of prompts that are read at once; None chooses by device.
        label: in tables; None: ``listwise LM`` for a folder of :func:`save_listwise`, else the
            model's name.
        temperature: above 0, rankings are drawn
            (:class:`~backpack_rank.position.lists.causal_lm.CausalLmRanker`).
        seed: of the draws.

    Raises:
        ValueError: there is no prompt, an unknown mode or dtype, a temperature below 0, a model
            that is no causal LM, a ``max_length`` above its positions, a broken ``listwise.json``.
        FileNotFoundError: a folder without a model or without a tokenizer.
        OSError: there is no such hub id.
    """
    if name is None:
        raise ValueError("listwise.ranker.name=null names no model: give a folder or a hub id")
    one_of("dtype", dtype, (*FLOATS, "auto"))
    dtype = resolved_format(
        dtype, pick_device(device, "listwise ranker: device"), "listwise ranker: dtype"
    )
    name = hub_or_folder(name)
    settings = _settings(Path(name))
    if prompt is None and "prompt" not in settings:
        raise ValueError(
            f"{name} has no {LISTWISE_FILE}, so a prompt is needed: choose a file of conf/prompt "
            "(prompt=rank_zephyr)"
        )
    given = settings["prompt"] if prompt is None else prompt
    known = _known(mode or settings.get("mode") or MODES[0])
    _check_model_file(Path(name))
    with readable(name):
        check_files(name)
        tokenizer = load_tokenizer(name)  # quickly refused, unlike what follows
        model = _model(name, dtype)
        check_model(name, model, tokenizer)
    if not max_length:
        longest = min(position_limit(model) or MAX_LENGTH, MAX_LENGTH)
        max_length = settings.get("max_length") or longest
    if not isinstance(given, Prompt):
        given = Prompt.of(given)
    if not label and settings:
        label = "listwise LM"
    return CausalLmRanker(
        model,
        PromptTokenizer(tokenizer, given, max_length),
        mode=known,
        calibration=calibration,
        device=device,
        tokens_per_batch=tokens_per_batch,
        label=label or None,
        passages=settings.get("passages"),
        temperature=temperature,
        seed=seed,
    )


def _known(mode: str) -> ListwiseMode:
    one_of("listwise ranker: mode", mode, MODES)
    return cast(ListwiseMode, mode)


def _settings(folder: Path) -> dict[str, Any]:
    """What ``listwise.json`` says; nothing where there is none."""
    file = folder / LISTWISE_FILE
    if not file.is_file():
        return {}
    settings = read_settings(file)
    if settings.get("format") != FORMAT:
        raise ValueError(f"{file} does not describe a listwise ranker: format is not {FORMAT!r}")
    if settings.get("version") != VERSION:
        raise ValueError(
            f"{file} is of version {settings.get('version')}, and this package reads version "
            f"{VERSION}: use the package that wrote it, or save the ranker again"
        )
    missing = [key for key in ("prompt", "mode") if key not in settings]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}; save the ranker again")
    return settings


def _check_model_file(folder: Path) -> None:
    """A folder must hold a model; a name that is no folder is taken for a hub id."""
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder / 'config.json'} is missing: {folder} is not the folder of a model"
        )


def _model(name: str, dtype: str) -> PreTrainedModel:
    config = from_pretrained(AutoConfig, name)
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise ValueError(
            f"{name} is a model of type {config.model_type!r}, which is no causal language model: "
            "a listwise ranker writes identifiers; use a decoder (GPT-2, Llama, Qwen ...)"
        )
    return from_pretrained(
        AutoModelForCausalLM, name, config=config, dtype=getattr(torch, dtype)
    ).eval()


def is_listwise(folder: str | Path) -> bool:
    """Whether a folder was written by :func:`save_listwise`."""
    return (Path(folder) / LISTWISE_FILE).is_file()
