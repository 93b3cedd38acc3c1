"""What transformers reads of a folder or the hub, by one function, so that none of it can be code.

A folder with a model may come from anybody. transformers asks on the terminal whether to run code
that a configuration names (``auto_map``), unless ``trust_remote_code`` is False. Here it always
is, and a folder that names code, or sizes that no model has, is refused before transformers sees
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backpack_rank.data.model_files import (
    check_number,
    check_settings,
    folders_of,
)
from backpack_rank.files import hub_or_folder, read_text

ADAPTER = "adapter_config.json"
ADDED_TOKENS = 10_000
"""What a tokenizer may have: ten times as many as the largest published ones."""
LARGEST = 256 * 10**6
"""Bytes of such a file at most."""
# A key of a configuration whose value names classes in Python files of the folder.
_CODE = "auto_map"
# Implementations of attention may be names of packages on the hub, which transformers downloads and
# runs.
_KERNELS = re.compile("_?(attn|experts)_implementation|attention")
_NO_CONFIGURATION = ("vocab.json", "model.safetensors.index.json")
"""Tables of words and of weights, which may be large and in which a word may be called anything."""
_READ = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
)
"""Files that transformers reads; others may lie beside them."""
_TABLE_OF_TOKENS = "tokenizer.json"
_ADDED = (
    "added_tokens",
    "added_tokens_decoder",
    "additional_special_tokens",
    "extra_special_tokens",
)


def from_pretrained(loader: Any, name: str | Path, *arguments: Any, **options: Any) -> Any:
    """Everything that transformers loads: it runs no code of a folder or hub id.

    >>> from transformers import AutoModelForSequenceClassification
    >>> from_pretrained(AutoModelForSequenceClassification, "folder")  # doctest: +SKIP

    Args:
        loader: an automatic class of transformers, or a class of models, configurations or
            tokenizers.
        name: folder or hub id; ``~`` is the home folder.
        arguments, options: for it.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: the folder or the hub id names code, what :func:`check_folder` refuses, or an
            adapter beside the weights of a model.
    """
    source = hub_or_folder(name)
    if Path(source).is_dir():
        folder = Path(source)
        check_folder(folder)
        # A tokenizer is the same with and without an adapter.
        if "Tokenizer" not in getattr(loader, "__name__", "") and (folder / ADAPTER).is_file():
            raise ValueError(
                f"{folder / ADAPTER}: an adapter beside the weights changes scores, and only where "
                "peft is installed: merge it into the weights (merge_and_unload) and save these, "
                "or remove it"
            )
    options["trust_remote_code"] = False
    with no_panic(name):
        try:
            return loader.from_pretrained(source, *arguments, **options)
        except ValueError as error:
            if "trust_remote_code" not in str(error):
                raise
            # Of a hub id, whose files were not looked at before; the library's advice is an option
            # that is not here.
            raise ValueError(
                f"{name} can only be read by code of its own, and no code of a model is run"
            ) from error


def check_folder(folder: Path) -> None:
    """On a folder with a model before transformers reads it: it refuses what is harmful.

        check_folder(Path("downloads/ranker"))

    The folders that ``modules.json`` names are looked at too.

    Raises:
        ValueError: a file names code or sizes that no model has, holds what :data:`FILES
            <backpack_rank.data.model_files.FILES>` does not allow, adds too many tokens, or is
            none. It is named.
    """
    for part in folders_of(folder):
        for file in sorted(part.glob("*.json")):
            if file.name not in _NO_CONFIGURATION and file.is_file():
                _check_file(file)
    check_settings(folder)


def _check_file(file: Path) -> None:
    content = _content(file)
    if not isinstance(content, dict):
        return
    _check_added(file, content)
    if file.name != _TABLE_OF_TOKENS:
        _check_configuration(file, content)


@contextmanager
def no_panic(where: object) -> Iterator[None]:
    """Around calls of a tokenizer: a panic of its library becomes a ``ValueError``.

        with no_panic("folder"):
            tokenizer("a text")

    The library's panic is no ``Exception``, so a program that catches those would end.

    Args:
        where: the folder or hub id, for the sentence.
    """
    try:
        yield
    except BaseException as error:
        # The class is made by the library and cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        message = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{where}: the tokenizer cannot read texts ({message}): its rules are damaged"
        ) from error


def _content(file: Path) -> Any:
    """None for a file of other programs that is no JSON."""
    text = read_text(file, LARGEST)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if file.name in _READ:
            raise ValueError(f"{file} is damaged, copy it again: {error}") from error
        return None


def _check_configuration(file: Path, content: dict[str, Any]) -> None:
    if content.get(_CODE) and not _is_published_backpack(file, content):
        raise ValueError(
            f"{file} names code ({_CODE}), and no code of a model is run; if transformers knows "
            f"this kind of model without it, take {_CODE} out of the file, else rank with the "
            "model's own library, and measure its run: run=FILE"
        )
    # The words of added tokens may be called anything; they are counted by _check_added.
    checked = dict(content)
    checked.pop("added_tokens_decoder", None)
    for name, value in _entries(checked, top=True):
        if name == _CODE and value:
            raise ValueError(
                f"{file} names code ({_CODE}) within another entry, and no code of a model is run"
            )
        if _KERNELS.fullmatch(name) and "/" in str(value):
            raise ValueError(
                f"{file}: {name}={str(value)[:80]!r} names code of the hub, and no code of a model "
                "is run: take it out of the file"
            )
        if isinstance(value, int) and not isinstance(value, bool):
            check_number(file, name, value)


def _is_published_backpack(file: Path, content: dict[str, Any]) -> bool:
    """Whether this is the layout of stanfordnlp/backpack-gpt2, which this package can read.

    It names code, which is not run: the package has its own.
    """
    return (
        file.name == "config.json"
        and content.get("model_type") == "gpt2"
        and "num_senses" in content
    )


def _check_added(file: Path, content: dict[str, Any]) -> None:
    """Each added token costs the tokenizer some time, and fifty thousand cost minutes."""
    tables: list[Any] = [content]
    if file.name != "added_tokens.json":
        tables = [content.get(name) for name in _ADDED]
    count = 0
    for table in tables:
        if isinstance(table, (list, dict)):
            count = max(count, len(table))
    if count > ADDED_TOKENS:
        raise ValueError(
            f"{file} adds {count} tokens to the vocabulary, and at most {ADDED_TOKENS} are read: "
            "words belong into the vocabulary itself"
        )


def _entries(content: Any, top: bool = False) -> Iterator[tuple[str, Any]]:
    """Names and values at every depth; of the outermost ones ``auto_map`` has been looked at."""
    # A list of what is left to visit in place of recursion: files may be nested thousands deep.
    waiting: list[tuple[Any, bool]] = [(content, top)]
    while waiting:
        node, outermost = waiting.pop()
        if isinstance(node, list):
            for child in node:
                waiting.append((child, False))
        if isinstance(node, dict):
            for name, value in node.items():
                if not (outermost and name == _CODE):
                    yield str(name), value
                    waiting.append((value, False))
