"""A Backpack over a backbone against the plain cross-encoder over the same weights:
``python -m benchmarks.backbones``.

Scoring and training steps in turns in one run. The backbones have random weights of published
sizes; both rankers have
the same backbone weights, texts, batches and head. The texts have nothing in common, or are those
of a collection: the candidates and the training lists that ``train.py data=NAME`` draws.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.utils import logging as transformers_logging

from backpack_rank.data.batching import CPU_TOKENS, GPU_TOKENS, Pairs, pack_by_length
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.models.configuration import (
    SENSE_KEYS,
    BackpackConfig,
    CrossEncoderConfig,
)
from backpack_rank.models.pooled_layer import default_sense_keys
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking, Ranker
from backpack_rank.models.sense_network import TokenStateCache
from backpack_rank.models.utils import eval_mode
from backpack_rank.training.losses import listwise_softmax
from backpack_rank.training.module import OptimizerConfig
from benchmarks.report import Goal, command_line, machine, print_table, write_record
from benchmarks.timing import Times, in_turns
from benchmarks.workload import Size, dataset, token_sequences, word_pieces

ROOT = Path(__file__).resolve().parents[1]
GOAL = 0.92
LIST = 10
"""Texts of a training list."""
BACKBONES: dict[str, tuple[str, dict]] = {
    "minilm-l6": ("bert", {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}),
    "bert-base": ("bert", {}),
    "gpt2": ("gpt2", {"attn_pdrop": 0.0}),
    "qwen3-0.6b": (
        "qwen3",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "intermediate_size": 3072,
        }
        | {"num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True},
    ),
    "tiny": (
        "bert",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 128,
        },
    ),
}


def main() -> None:
    """Run the chosen backbones, print a table, write the JSON file."""
    options = _options()
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    console = Console(width=118)
    record: dict[str, object] = {
        "command": command_line("backbones"),
        "machine": machine(options.device),
        "dtype": options.dtype,
        "documents": options.documents,
        "list": options.list,
        "data": options.data,
    }
    console.print(record["machine"])
    rows, goals, found = [], [], {}
    of_collection = None if options.data is None else _collection_texts(options)
    for name in options.backbones:
        config = AutoConfig.for_model(BACKBONES[name][0], **BACKBONES[name][1])
        texts, one_list = of_collection or _independent_texts(config, options)
        times = _measure(
            name, _rankers(config, options), texts, one_list.to(options.device), options
        )
        distinct = one_list.input_ids.unique().numel() / one_list.input_ids.numel()
        console.print(f"{name}: distinct tokens / tokens of a training step: {distinct:.2f}")
        found[name] = {
            "distinct": distinct,
            "seconds": {job: part.seconds for job, part in times.items()},
            "ratio": {},
        }
        for job, part in times.items():
            ratio = part.speedup("backpack", "cross_encoder")
            found[name]["ratio"][job] = ratio
            per_second = [
                f"{options.count(job) / part.median(ranker):.1f}"
                for ranker in ("backpack", "cross_encoder")
            ]
            rows.append([f"{name}, {job}", *per_second, f"{ratio:.3f}"])
            goals.append(
                Goal(
                    f"{name}, {job}, Backpack over cross-encoder",
                    ratio,
                    options.goal,
                    True,
                    not options.quick,
                )
            )
    record |= {"backbones": found, "goals": [goal.as_record() for goal in goals]}
    columns = ["", "Backpack texts/s", "cross-encoder texts/s", "ratio"]
    print_table(console, f"{options.dtype}, {options.threads} threads", columns, rows)
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backbones", description=__doc__)
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="a tiny backbone and few texts: checks that all runs, judges no goal",
    )
    add(
        "--backbones",
        nargs="+",
        choices=list(BACKBONES),
        default=None,
        help="minilm-l6 bert-base; quick: tiny",
    )
    add(
        "--data",
        default=None,
        help="one of conf/data, whose candidates and training lists are read (independent texts)",
    )
    add("--documents", type=int, default=None, help="texts to score (200; quick 20)")
    add("--list", type=int, default=40, help="texts of a training step: four lists of ten")
    add(
        "--repeats",
        type=int,
        default=None,
        help="rounds; the median of their ratios is reported (7; quick 2)",
    )
    add("--goal", type=float, default=GOAL, help=f"least ratio ({GOAL})")
    add("--senses", type=int, default=16)
    add(
        "--keys",
        choices=SENSE_KEYS,
        default=None,
        help="of the sense weights; as train.py: below_last where the backbone can",
    )
    add(
        "--scale",
        type=int,
        default=4,
        help="width of the sense network's last hidden layer, in hidden sizes",
    )
    add("--threads", type=int, default=torch.get_num_threads())
    add("--device", default="cpu", help="cpu, cuda, cuda:1")
    add(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of scoring; training uses autocast",
    )
    add(
        "--output",
        type=Path,
        default=None,
        help="JSON file (benchmarks/results/backbones-DEVICE.json)",
    )
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {options.device}, but torch sees no GPU; use --device cpu")
    if options.data is not None and options.list % LIST:
        parser.error(
            f"--list {options.list} with --data {options.data}: lists have {LIST} texts; give a "
            "multiple"
        )
    options.backbones = options.backbones or (
        ["tiny"] if options.quick else ["minilm-l6", "bert-base"]
    )
    options.documents = options.documents or (20 if options.quick else 200)
    options.repeats = options.repeats or (2 if options.quick else 7)
    default = ROOT / "benchmarks" / "results" / f"backbones-{options.device.replace(':', '')}.json"
    options.output = options.output or default
    options.count = lambda job: options.documents if job == "scoring" else options.list
    return options


def _measure(
    name: str,
    rankers: dict[str, Ranker],
    texts: list[np.ndarray],
    one_list: PackedBatch,
    options: argparse.Namespace,
) -> dict[str, Times]:
    limit = CPU_TOKENS if options.device == "cpu" else GPU_TOKENS
    batches = [batch for _, batch in pack_by_length(np.arange(len(texts)), texts, limit)]
    training = {job: _training_step(ranker, one_list, options) for job, ranker in rankers.items()}
    for step in training.values():
        step()
    times = {"training": in_turns(training, options.repeats, f"{name} training", options.device)}
    for ranker in rankers.values():
        ranker.zero_grad(set_to_none=True)
        ranker.to(getattr(torch, options.dtype))  # type: ignore[call-arg]
    scoring = {job: _scoring(ranker, batches, options.device) for job, ranker in rankers.items()}
    for score in scoring.values():
        score()
    return times | {
        "scoring": in_turns(scoring, options.repeats, f"{name} scoring", options.device)
    }


def _independent_texts(
    config: PreTrainedConfig, options: argparse.Namespace
) -> tuple[list[np.ndarray], PackedBatch]:
    """Texts that share frequent words alone: to score, and of a training step."""
    size = Size("", 0, config.hidden_size, 0, options.senses, 512, config.vocab_size)
    texts = token_sequences(max(options.documents, options.list), size)
    return texts[: options.documents], PackedBatch.from_sequences(texts[: options.list])


def _collection_texts(options: argparse.Namespace) -> tuple[list[np.ndarray], PackedBatch]:
    """Candidates of test queries to score, and the first training lists, which share queries and
    subjects.
    """
    data = dataset(options.data)
    train, test = data.split("train"), data.split("test")
    tokenizer = word_pieces(train)
    pair_tokenizer = PairTokenizer(tokenizer, max_length=192, start_id=tokenizer.cls_token_id)
    lists = TrainingLists(train, data.candidates("train", train)[1], size=LIST, seed=0)
    pairs = Pairs.from_run(data.candidates("test", test)[1], test)
    batches = RankingData(
        lists, train, Pairs(train, (), ()), pair_tokenizer, lists_per_batch=options.list // LIST
    )
    scored = [
        pair_tokenizer.pairs(query, [text])[0]
        for query, text in itertools.islice(pairs.texts(), options.documents)
    ]
    if len(scored) < options.documents:
        raise SystemExit(
            f"--documents {options.documents}: data={options.data} has {len(scored)} candidates; "
            "ask for less"
        )
    return scored, next(iter(batches.train_dataloader())).texts


def _rankers(config: PreTrainedConfig, options: argparse.Namespace) -> dict[str, Ranker]:
    torch.manual_seed(0)
    with torch.device("meta"):  # no weights, to learn its type alone
        keys = options.keys or default_sense_keys(AutoModel.from_config(config))
    backpack = BackpackForRanking(
        BackpackConfig(
            backbone_config=config,
            separator_id=0,
            num_senses=options.senses,
            sense_intermediate_scale=options.scale,
            sense_keys=keys,
        )
    )
    plain = CrossEncoderForRanking(CrossEncoderConfig(backbone_config=config, separator_id=0))
    plain.backbone.load_state_dict(backpack.backpack.backbone.state_dict())
    rankers: dict[str, Ranker] = {"backpack": backpack, "cross_encoder": plain}
    return {name: ranker.to(options.device) for name, ranker in rankers.items()}  # type: ignore[misc,arg-type]


def _scoring(ranker: Ranker, batches: list[PackedBatch], device: str) -> Callable[[], None]:
    # As the Scorer does it: on a GPU computing is cheaper than looking up.
    states: dict[str, TokenStateCache] = {}
    if isinstance(ranker, BackpackForRanking) and device == "cpu":
        states["token_states"] = TokenStateCache(ranker.backpack)

    def score() -> None:
        with torch.inference_mode(), eval_mode(ranker):
            scores = [ranker(batch.to(device), **states).scores for batch in batches]
            torch.cat(scores).float().cpu()

    return score


def _training_step(
    ranker: Ranker, batch: PackedBatch, options: argparse.Namespace
) -> Callable[[], None]:
    """Forward, listwise softmax, backward, AdamW, with dropout as in training."""
    optimizer = OptimizerConfig(1e-6).optimizer(ranker)
    labels = torch.zeros(1, len(batch), device=options.device)
    labels[0, 0] = 1.0
    mask = torch.ones_like(labels, dtype=torch.bool)
    kind = torch.device(options.device).type

    def step() -> None:
        ranker.train()
        with torch.autocast(kind, torch.bfloat16, enabled=options.dtype == "bfloat16"):
            scores = ranker(batch).scores
        listwise_softmax(scores[None].float(), labels, mask)[0].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
