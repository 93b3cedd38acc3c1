"""Loading checkpoints so that nothing is silently left out or made up."""

from __future__ import annotations

import logging
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
    """Mixin for ``PreTrainedModel``: ``from_pretrained`` names every key it did not find or did not
    use.

    ``new_parts`` are key prefixes that a checkpoint may lack where ``new_head=True`` says so (a
    ranking head on a language model); ``unused_parts`` are prefixes that a checkpoint may have in
    excess (the language-model head). ``renamed_parts`` are patterns of keys with other names in
    published files, and what they are called here.
    """

    new_parts: ClassVar[tuple[str, ...]] = ()
    renamed_parts: ClassVar[dict[str, str]] = {}
    unused_parts: ClassVar[tuple[str, ...]] = ("lm_head.",)

    @classmethod
    def is_custom_code(cls) -> bool:
        """No: every network here fills its tensors in the ways of transformers.

        Of custom code transformers passes over modules without tensors of their own. Some backbones
        (Falcon-H1) fill buffers that no file holds from there, which would then have whatever stood
        in memory.
        """
        return False

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **options):
        """Load from a folder or a hub id, safetensors or ``.bin`` (read with ``weights_only``), no
        remote code.

        ``new_head=True`` gives random values to ``new_parts`` that the checkpoint lacks, to be
        trained.

        Raises:
            ValueError: the checkpoint is damaged, names code, or is of another architecture or
                size; missing, unexpected and mismatched keys are named.
            OSError: there is no such folder or hub id.
        """
        wants_info = options.pop("output_loading_info", False)
        new_parts = cls.new_parts if options.pop("new_head", False) else ()
        # The library's own choice is that of the file's first weights, for all of them; files may
        # mix formats.
        if "torch_dtype" not in options:
            options.setdefault("dtype", torch.float32)
        level = transformers_logging.get_verbosity()
        # Transformers prints the differences as a table and goes on; they are judged below.
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
        _judge(cls, str(pretrained_model_name_or_path), info, _untied(model), new_parts)
        if (
            cls.renamed_parts
        ):  # the library would turn patterns around, and save keys under names that are none
            model._weight_conversions = []
        return (model, info) if wants_info else model


def _untied(model: PreTrainedModel) -> list[str]:
    """Keys whose values differ in the checkpoint, although the architecture shares them."""
    return [
        f"{key} and {source}"
        for key, source in model.get_expanded_tied_weights_keys(all_submodels=True).items()
        if model.get_parameter(key) is not model.get_parameter(source)
    ]


def _judge(
    cls: type[StrictLoading], source: str, info: dict, untied: list[str], new_parts: tuple[str, ...]
) -> None:
    missing = sorted(
        key for key in info["missing_keys"] if not key.startswith(new_parts or ("\0",))
    )
    unexpected = sorted(
        key for key in info["unexpected_keys"] if not key.startswith(cls.unused_parts or ("\0",))
    )
    mismatched = [
        f"{key} {tuple(found)} instead of {tuple(own)}"
        for key, found, own in info["mismatched_keys"]
    ]
    problems = [
        f"{len(keys)} keys {what}: {', '.join(keys[:6])}{', ...' if len(keys) > 6 else ''}"
        for what, keys in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", mismatched),
            ("different that must be equal", untied),
        )
        if keys
    ]
    if problems:
        hint = ""
        if (
            missing
            and all(key.startswith(cls.new_parts or ("\0",)) for key in missing)
            and len(problems) == 1
        ):
            hint = f"; a head to be trained is made by {program('train')} model.ranker.name=FOLDER, or new_head=True"
        raise ValueError(
            f"{source} is not a checkpoint of {cls.__name__}: {'; '.join(problems)}{hint}"
        )
    new = sorted(info["missing_keys"])
    if new:
        log.info("%s: %s start from random values", source, ", ".join(new))
