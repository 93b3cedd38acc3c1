"""Loading checkpoints so that nothing is silently left out or made up."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import ClassVar

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from backpack_rank.commands import program
from backpack_rank.data.pretrained import from_pretrained

log = logging.getLogger(__name__)


class StrictLoading:
    """A mixin for a ``PreTrainedModel`` whose checkpoints must fit exactly.

    ``from_pretrained`` then raises an error that names every missing and every unexpected key.

    Attributes:
        new_parts: key prefixes that a checkpoint may lack where ``new_head=True`` says so (a
            ranking head on a language model).
        renamed_parts: patterns of keys with other names in published files, and the names here.
        unused_parts: key prefixes that a checkpoint may have in excess (the language-model head).
    """

    new_parts: ClassVar[tuple[str, ...]] = ()
    renamed_parts: ClassVar[dict[str, str]] = {}
    unused_parts: ClassVar[tuple[str, ...]] = ("lm_head.",)

    @classmethod
    def is_custom_code(cls) -> bool:
        """No: every network here fills its tensors in the ways of transformers.

        In custom code transformers leaves out modules without tensors. Some backbones (Falcon-H1)
        fill buffers that no file holds from such modules, and would be left with whatever stood in
        memory.
        """
        return False

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **options):
        """Load from a folder or a hub id: safetensors or ``.bin``, and no remote code.

        ``new_head=True`` gives random values to ``new_parts`` that the checkpoint lacks, to be
        trained. A ``.bin`` file is read with ``weights_only``.

        Raises:
            ValueError: the checkpoint is damaged, names code, or is of another architecture or
                size; missing, unexpected and mismatched keys are named.
            OSError: there is no such folder or hub id.
        """
        wants_info = options.pop("output_loading_info", False)
        new_parts = cls.new_parts if options.pop("new_head", False) else ()
        # Without this, transformers takes the format of the file's first weights for all of them,
        # and files may mix formats.
        if "torch_dtype" not in options:
            options.setdefault("dtype", torch.float32)
        level = transformers_logging.get_verbosity()
        # Transformers prints the differences as a table and goes on; _check_keys raises below.
        transformers_logging.set_verbosity(transformers_logging.CRITICAL)
        try:
            model, info = from_pretrained(
                super(),
                pretrained_model_name_or_path,
                *args,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                key_mapping=cls.renamed_parts or None,
                **options,
            )
        except (SafetensorError, UnpicklingError) as error:
            folder = Path(str(pretrained_model_name_or_path))
            weights = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
            files = ", ".join(map(str, weights)) or str(folder)
            why = str(error).partition("\n")[0]
            if isinstance(error, UnpicklingError):  # torch advises to run what is in the file
                why = "they are damaged, or hold more than numbers"
            raise ValueError(
                f"the weights of {files} cannot be read ({why}); copy or save them again"
            ) from error
        finally:
            transformers_logging.set_verbosity(level)
        _check_keys(cls, str(pretrained_model_name_or_path), info, _untied(model), new_parts)
        # In saving, transformers would apply the patterns the other way round, and write keys that
        # are no names.
        if cls.renamed_parts:
            model._weight_conversions = []
        return (model, info) if wants_info else model


def _untied(model: PreTrainedModel) -> list[str]:
    """Keys whose values differ in the checkpoint, although the architecture shares them."""
    untied = []
    for key, source in model.get_expanded_tied_weights_keys(all_submodels=True).items():
        if model.get_parameter(key) is not model.get_parameter(source):
            untied.append(f"{key} and {source}")
    return untied


def _check_keys(
    cls: type[StrictLoading], source: str, info: dict, untied: list[str], new_parts: tuple[str, ...]
) -> None:
    """Raise ``ValueError`` for keys that are missing, unexpected, of another shape or untied.

    Args:
        cls: the class that was loaded.
        source: folder or hub id, for the error.
        info: the loading info of transformers.
        untied: what :func:`_untied` gives.
        new_parts: prefixes of keys that may be missing.
    """
    missing = _without_prefixes(info["missing_keys"], new_parts)
    unexpected = _without_prefixes(info["unexpected_keys"], cls.unused_parts)
    problems = key_problems(missing, unexpected, info["mismatched_keys"], untied)
    if problems:
        hint = ""
        only_missing = bool(missing) and len(problems) == 1
        if only_missing and not _without_prefixes(missing, cls.new_parts):
            hint = (
                f"; a head to be trained is made by {program('train')} model.ranker.name=FOLDER, "
                "or new_head=True"
            )
        raise ValueError(
            f"{source} is not a checkpoint of {cls.__name__}: {'; '.join(problems)}{hint}"
        )
    new = sorted(info["missing_keys"])
    if new:
        log.info("%s: %s start from random values", source, ", ".join(new))


def key_problems(
    missing: Sequence[str] = (),
    unexpected: Sequence[str] = (),
    mismatched: Iterable[tuple[str, Iterable[int], Iterable[int]]] = (),
    untied: Sequence[str] = (),
) -> list[str]:
    """Which weights of a file do not fit a network, a phrase for each problem.

    >>> key_problems(missing=["head.bias"], mismatched=[("head.weight", [2, 8], [1, 8])])
    ['1 key missing: head.bias', '1 key of another shape: head.weight (2, 8) instead of (1, 8)']

    Args:
        missing, unexpected: names of weights.
        mismatched: names, with the shapes in the file and in the network.
        untied: what must be equal and is not.
    """
    shapes = []
    for key, shape_in_file, shape in mismatched:
        shapes.append(f"{key} {tuple(shape_in_file)} instead of {tuple(shape)}")
    keys_by_problem = {
        "missing": missing,
        "unexpected": unexpected,
        "of another shape": sorted(shapes),
        "different that must be equal": untied,
    }
    problems = []
    for problem, keys in keys_by_problem.items():
        if keys:
            noun = "key" if len(keys) == 1 else "keys"
            more = ", ..." if len(keys) > 6 else ""
            problems.append(f"{len(keys)} {noun} {problem}: {', '.join(keys[:6])}{more}")
    return problems


def _without_prefixes(keys: Iterable[str], prefixes: tuple[str, ...]) -> list[str]:
    """Keys that begin with none of the prefixes, sorted."""
    return sorted(key for key in keys if not key.startswith(prefixes))
