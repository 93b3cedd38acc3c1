"""Every ranker on the same candidates and training lists in one run: ``python -m benchmarks.rankers``.

Each ranker is made as ``train.py model=NAME`` makes it, with random weights; those over a pretrained encoder take one
of MiniLM-L6's size (6 layers of 384), so that times are comparable. Times include reading the texts (tokenisation).
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rich.console import Console
from transformers import BertConfig, BertModel
from transformers.utils import logging as transformers_logging

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.datamodule import ListBatch, RankingData
from backpack_rank.data.lists import TrainingLists
from backpack_rank.data.pairs import Pairs
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.bm25_ranker import Bm25ForRanking
from backpack_rank.models.build import Ranker
from backpack_rank.pipelines.common import candidates_of, load_split, register_resolvers
from backpack_rank.pipelines.train import build
from backpack_rank.scoring import Scorer, ScoringSettings
from backpack_rank.training.losses import listwise_softmax, scatter_lists
from backpack_rank.training.module import Optimisation
from benchmarks.report import machine, print_table, write_record
from benchmarks.timing import Times, in_turns
from benchmarks.workload import word_pieces

ROOT = Path(__file__).resolve().parents[1]
OVER_ENCODER = ("bert_cat", "backpack", "bert_dot")
WORDS = ("tk", "conv_knrm", "pacrr", "match_pyramid", "knrm")
MODELS = ("bm25", *WORDS, "backpack_tiny", "gpt2_tiny", *OVER_ENCODER)


def main() -> None:
    """Time all rankers, print a table, write the JSON file."""
    options = _options()
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    register_resolvers()
    console = Console(width=118)
    record: dict[str, object] = {
        "command": "python -m benchmarks.rankers " + shlex.join(sys.argv[1:]),
        "machine": machine("cpu"),
        "data": options.data,
    }
    with tempfile.TemporaryDirectory() as folder, initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        configs = {name: compose("train", [f"data={options.data}", *_model(name, folder)]) for name in options.models}
        data = next(iter(configs.values())).data
        train, test = load_split(data, "train"), load_split(data, "test")
        _small_encoder(train, Path(folder))
        pairs = _pairs(data, test, options.documents)
        candidates = candidates_of(data, "train", train)[1]
        made = {name: build(config, train) for name, config in configs.items()}
    for ranker, encoder in made.values():
        if isinstance(ranker, Bm25ForRanking):
            ranker.count((text for _, text in train.documents), encoder)  # type: ignore[arg-type]
    scoring = in_turns({name: _scoring(*one, pairs) for name, one in made.items()}, options.repeats, "scoring", "cpu")
    trained = {name: one for name, one in made.items() if not isinstance(one[0], Bm25ForRanking)}
    steps = {name: _training(*one, train, candidates, options) for name, one in trained.items()}
    for step in steps.values():
        step()
    training = in_turns(steps, options.repeats, "training", "cpu")
    record |= _figures(made, pairs, scoring, training, options)
    columns = ["ranker", "parameters, millions", "documents/s", "lists/s in training"]
    rows = [
        [name, f"{row['parameters'] / 1e6:.2f}", f"{row['documents_per_second']:.0f}", _shown(row["lists_per_second"])]
        for name, row in record["rankers"].items()  # type: ignore[attr-defined]
    ]
    title = f"{len(pairs)} candidates of {options.data}; lists of {options.list}; fp32, {options.threads} threads"
    print_table(console, title, columns, rows)
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rankers", description=__doc__)
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--data", default="embedded", help="one of conf/data; dl19, squad ... read $BACKPACK_RANK_DATA")
    add("--documents", type=int, default=500, help="candidates to score")
    add("--lists", type=int, default=4, help="lists of a training step")
    add("--list", type=int, default=10, help="documents of a list")
    add("--repeats", type=int, default=5, help="rounds; medians are reported")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--output", type=Path, default=ROOT / "benchmarks" / "results" / "rankers-cpu.json")
    return parser.parse_args()


def _model(name: str, folder: str) -> list[str]:
    over = [f"model.ranker.name={folder}", "max_length=192"] if name in OVER_ENCODER else []
    return [f"model={name}", *over]


def _small_encoder(collection: Collection, folder: Path) -> None:
    """A BERT of MiniLM-L6's size with random weights and a WordPiece vocabulary of the collection's text."""
    words = word_pieces(collection)
    words.save_pretrained(folder)
    shape = BertConfig(vocab_size=len(words), hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
    BertModel(shape, add_pooling_layer=False).save_pretrained(folder)


def _pairs(data: DictConfig, test: Collection, count: int) -> Pairs:
    pairs = Pairs.from_run(candidates_of(data, "test", test)[1], test)
    return Pairs(pairs.collection, pairs.query_ids[:count], pairs.doc_ids[:count])


def _scoring(ranker: Ranker, encoder: PairEncoder, pairs: Pairs) -> Callable[[], object]:
    scorer = Scorer(ranker, encoder, ScoringSettings(device="cpu"))
    return lambda: scorer.ranker.eval() and scorer.scores(pairs)


def _training(
    ranker: Ranker, encoder: PairEncoder, train: Collection, candidates: Run, options: argparse.Namespace
) -> Callable[[], None]:
    """Reading of the lists, forward, listwise softmax, backward, AdamW, with dropout as in training."""
    lists = TrainingLists(train, candidates, size=options.list, seed=0)
    data = RankingData(lists, train, Pairs(train, (), ()), encoder, lists_per_batch=options.lists)
    batches = itertools.cycle(data.train_dataloader())
    optimizer = Optimisation(1e-6).optimizer(ranker)

    def step() -> None:
        ranker.train()
        batch: ListBatch = next(batches)
        scores = scatter_lists(ranker(batch.texts).scores, batch.mask)
        listwise_softmax(scores, batch.labels, batch.mask)[0].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _figures(
    made: dict[str, tuple[Ranker, PairEncoder]],
    pairs: Pairs,
    scoring: Times,
    training: Times,
    options: argparse.Namespace,
) -> dict[str, object]:
    rows = {
        name: {
            "parameters": sum(parameter.numel() for parameter in ranker.parameters()),
            "documents_per_second": len(pairs) / scoring.median(name),
            "lists_per_second": options.lists / training.median(name) if name in training.seconds else None,
        }
        for name, (ranker, _) in made.items()
    }
    seconds = {"scoring": scoring.seconds, "training": training.seconds}
    return {"documents": len(pairs), "lists": options.lists, "list": options.list, "rankers": rows, "seconds": seconds}


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
