"""``backpack-rank export onnx``: a saved ranker as a folder that needs no torch.

To use it takes neither torch nor this package.

``model.onnx`` has the dial as an input, ``tokenizer.json`` joins, cuts and pads texts by itself,
``ranker.json`` says what the inputs are and what policies make of alpha. Nothing is left behind
unless the scores are those of the ranker.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# For torch's exporter: what is missing is said before the work begins.
import onnx  # noqa: F401
import onnxscript  # noqa: F401
import torch
from tokenizers import Tokenizer
from torch.export import Dim
from transformers import PreTrainedTokenizerFast

from backpack_rank import __version__
from backpack_rank.checks import UsageError
from backpack_rank.data.shared_tokenizer import shared_tokenizer
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.files import atomic_path
from backpack_rank.integrations.onnx_check import MODEL, Check
from backpack_rank.integrations.onnx_graph import (
    ClassifierGraph,
    RankerGraph,
    check_exportable,
    graph_of,
)
from backpack_rank.models.pooled_map import PooledMap
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.sequence_classifier import TemplatePairTokenizer
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.stopping import held_back
from backpack_rank.reranking.load import load, local_folder
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import Reranker
from backpack_rank.senses.erase import Erase, saved_map
from backpack_rank.senses.policies import PairedTokens

log = logging.getLogger(__name__)
ABOUT = "ranker.json"
LARGEST = 2 * 10**9
"""Bytes that one ONNX file holds, about."""


def run(options: Namespace) -> None:
    """The command. Raises ``UsageError`` where it cannot be done."""
    quiet_libraries()
    try:
        source = local_folder(options.ranker, "export onnx")
        if options.output is None and not Path(options.ranker).expanduser().exists():
            raise ValueError(
                f"{options.ranker} is no folder on this machine: say where to write, --output "
                "FOLDER"
            )
        folder = Path(options.output or source / "onnx").expanduser()
        reranker = load(source, attribute=options.attribute, device="cpu")
        about = export_onnx(reranker, folder, wide=options.wide)
    except (OSError, ValueError) as error:
        raise UsageError(f"backpack-rank export onnx: {error}") from error
    for name, figures in about["files"].items():
        differences = []
        for figure, value in figures.items():
            if figure != "bytes":
                differences.append(f"{figure.replace('_', ' ')} {value:.2g}")
        print(f"{folder / name}: {figures['bytes'] / 1e6:.1f} MB, {', '.join(differences)}")


def export_onnx(reranker: Reranker, folder: str | Path, *, wide: bool = False) -> dict[str, Any]:
    """Write the folder, complete or not at all, and give what its ``ranker.json`` says.

    Args:
        reranker: what :func:`backpack_rank.load` gives for ``device="cpu"``, in fp32.
        folder: where to write; one that is there and no earlier export stays as it is.
        wide: whether the input ``alpha``, the dial of ``policy=paired_tokens``, also moves the wide
            classes (titles, occupations, kinship). A ranker with attribute senses, on which alpha
            acts by weights per sense, has no such input, nor has one whose tokenizer has no word
            that could be moved.

    Raises:
        ValueError: the ranker does not go into a graph, or the graph's scores are not the ranker's.
    """
    folder = Path(folder)
    reranker = _check_reranker(reranker, folder)
    ranker = reranker.local_scorer.ranker
    pair_tokenizer = reranker.local_scorer.pair_tokenizer
    shift, moved = _moved_by_alpha(reranker, wide)
    pooled_map, erased = _erased(reranker)
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        save_tokenizer(temporary, pair_tokenizer)
        check = Check(reranker.local_scorer, temporary, shift, pooled_map)
        graph = graph_of(ranker, pair_tokenizer.tokenizer.pad_token_id or 0, shift, pooled_map)
        _save_graph(temporary / MODEL, graph, check)
        size = (temporary / MODEL).stat().st_size
        files = {MODEL: {"bytes": size, **check.against_torch()}}
        about = {
            "format": "backpack_rank onnx 1",
            "version": __version__,
            "ranker": ranker.label,
            "inputs": check.inputs,
            "pair": _layout(pair_tokenizer),
            "sense_weights_at_0": _sense_weights(reranker),
            "moved_by_alpha": moved,
            "erased_by_erase_alpha": erased,
            "files": files,
        }
        # A line for each key: people read this file.
        lines = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(value)}" for key, value in about.items()
        )
        (temporary / ABOUT).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return about


def _check_reranker(reranker: Reranker, folder: Path) -> PointwiseReranker:
    """The reranker, if it can be written to the folder; raises ``ValueError`` otherwise."""
    if not isinstance(reranker, PointwiseReranker):
        raise ValueError(
            f"{reranker.name} cannot be exported: it ranks lists, and a graph scores pairs"
        )
    ranker = reranker.local_scorer.ranker
    check_exportable(ranker)
    is_taken = folder.is_file() or (folder.exists() and any(folder.iterdir()))
    if is_taken and not (folder / ABOUT).is_file():
        raise ValueError(
            f"{folder} is there and no earlier export: give another --output, or remove it"
        )
    tokenizer = reranker.local_scorer.pair_tokenizer.tokenizer
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ValueError(
            f"{type(tokenizer).__name__} has no rules that a tokenizer.json could hold"
        )
    size = 4 * sum(weights.numel() for weights in ranker.parameters())  # bytes in fp32
    if size > LARGEST:
        raise ValueError(
            f"its weights have {size / 1e9:.1f} GB, and one ONNX file holds {LARGEST / 1e9:.0f} GB"
        )
    return reranker


def _moved_by_alpha(
    reranker: PointwiseReranker, wide: bool
) -> tuple[TokenShift | None, dict[str, Any] | None]:
    """The tokens that the input ``alpha`` moves, and what ``ranker.json`` says of them.

    None where there are none.
    """
    policy = PairedTokens.of(reranker.attribute, wide=wide)
    ranker = reranker.local_scorer.ranker
    if isinstance(ranker, BackpackForRanking) and ranker.backpack.attribute_senses is not None:
        return None, None  # alpha acts on these words by weights of its attribute senses
    try:
        shift = reranker.hook.context.token_shift(policy.words(), policy.scope_for(ranker), 1.0)
    except (TypeError, ValueError) as error:
        log.warning("the graph has no input alpha: %s", error)
        return None, None
    classes = dict(zip(shift.classes.names, map(list, shift.classes.members), strict=True))
    return shift, {"policy": policy.name, "attribute": reranker.attribute.name, "tokens": classes}


def _erased(reranker: PointwiseReranker) -> tuple[PooledMap | None, dict[str, str] | None]:
    """The map of the input ``erase_alpha``, and what ``ranker.json`` says of it.

    It is that of the reranker's policy, else the one beside the weights, else there is none.
    """
    policy = reranker.hook.policy
    ranker = reranker.local_scorer.ranker
    if isinstance(policy, Erase):
        return (
            policy.with_map_for(ranker).fitted_map,
            {"policy": policy.name, "attribute": policy.attribute.name},
        )
    saved = saved_map(ranker)
    if saved is None:
        return None, None
    about, pooled_map = saved
    return pooled_map, {"policy": about["policy"], "attribute": about["attribute"]}


def _sense_weights(reranker: PointwiseReranker) -> dict[str, list[float]]:
    """Weights per sense at alpha = 0, of every policy that weighs senses and fits the ranker."""
    weights_by_policy = {}
    for name in reranker.policies:
        first_view = reranker.with_policy(name, 0.0).hook.views[0]
        if first_view.sense_weights is not None:
            weights_by_policy[name] = first_view.sense_weights.tolist()
    return weights_by_policy


def _layout(pair_tokenizer: PairTokenizer) -> dict[str, Any]:
    """How ``ranker.json`` says that a pair is joined.

    Tokens of a template of others, and those between two texts that are also read apart, are
    lists: there may be several at a place.
    """
    layout: dict[str, Any] = {"max_length": pair_tokenizer.max_length}
    if isinstance(pair_tokenizer, TemplatePairTokenizer):
        layout |= {
            "start": list(pair_tokenizer.prefix),
            "separator": list(pair_tokenizer.middle),
            "end": list(pair_tokenizer.suffix),
        }
    else:
        between = list(pair_tokenizer.between)
        layout |= {
            "start": pair_tokenizer.start_id,
            "separator": between[0] if len(between) == 1 else between,
            "end": pair_tokenizer.end_id,
        }
    return {**layout, "padding": pair_tokenizer.tokenizer.pad_token_id}


def save_tokenizer(folder: Path, pair_tokenizer: PairTokenizer) -> None:
    """Write ``tokenizer.json`` and its configuration: pairs come out joined, cut and padded.

    Special tokens are no words of it, so that no text can spell one, whichever library reads the
    file.
    """
    tokenizer = pair_tokenizer.tokenizer
    if isinstance(pair_tokenizer, TemplatePairTokenizer):
        # Its own rules join a pair already. The longer text is cut first, as it was trained.
        shared = PreTrainedTokenizerFast(
            tokenizer_object=copy.deepcopy(tokenizer.backend_tokenizer),
            model_max_length=pair_tokenizer.max_length,
            model_input_names=["input_ids", "attention_mask"],
            split_special_tokens=True,
            **tokenizer.special_tokens_map,
        )
        strategy = "longest_first"
    else:
        ids = pair_tokenizer.start_id, pair_tokenizer.between, pair_tokenizer.end_id
        shared = shared_tokenizer(tokenizer, pair_tokenizer.max_length, *ids)
        strategy = "only_second"
    shared.save_pretrained(folder)
    rules = json.loads(shared.backend_tokenizer.to_str())
    rules["added_tokens"] = [token for token in rules["added_tokens"] if not token["special"]]
    backend = Tokenizer.from_str(json.dumps(rules))
    backend.enable_truncation(pair_tokenizer.max_length, strategy=strategy)
    backend.enable_padding(pad_id=tokenizer.pad_token_id or 0, pad_token=tokenizer.pad_token)
    backend.save(str(folder / "tokenizer.json"))


def _save_graph(path: Path, graph: RankerGraph | ClassifierGraph, check: Check) -> None:
    """Trace the network for any number of texts of any length."""
    batch = Dim("batch")
    length = Dim("length")
    example = {}
    shapes = {}
    for name, values in check.feed(check.pairs[:3]).items():
        example[name] = torch.from_numpy(values)
        shapes[name] = {0: batch}
        if check.inputs[name][1] == "length":
            shapes[name][1] = length
    try:
        with _quietly(), held_back("torch's export"):
            torch.onnx.export(
                graph.eval(),
                kwargs=example,
                f=str(path),
                input_names=list(example),
                output_names=["scores"],
                dynamic_shapes=shapes,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        message = str(error).strip()
        reason = message.splitlines()[0] if message else type(error).__name__
        raise ValueError(
            f"torch cannot export {graph.ranker.label} over this backbone: {reason}"
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the advice of the libraries to their own authors."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
