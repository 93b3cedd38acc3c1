"""Every ranker on the same candidates and training lists in one run:
``python -m benchmarks.rankers``.

Each ranker is made as ``train.py model=NAME`` makes it, with random weights; those over a
pretrained encoder take one of MiniLM-L6's size (6 layers of 384), so that times are comparable.
Times include reading the texts (tokenisation).
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from rich.console import Console
from transformers import BertConfig, BertModel
from transformers.utils import logging as transformers_logging

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.datamodule import ListBatch, RankingData
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.models.rankers import Ranker
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.pipelines.train import build
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.training.losses import listwise_softmax, scatter_lists
from backpack_rank.training.module import OptimizerConfig
from benchmarks.report import command_line, machine, print_table, record_file, write_record
from benchmarks.timing import Times, in_turns
from benchmarks.workload import word_pieces

ROOT = Path(__file__).resolve().parents[1]
KEYS_LAST = "model.ranker.keys=last"
COSINES = "model.ranker.similarity=20 model.ranker.token_similarity=20"
"""As in ``recipe=minilm``."""
VARIANTS = {
    "backpack keys=last": ("backpack", KEYS_LAST),
    "cross_encoder cosines": ("cross_encoder", COSINES),
    "backpack cosines": ("backpack", COSINES),
}
"""Name to the file of conf/model and its options."""
OVER_ENCODER = ("cross_encoder", "backpack", *VARIANTS, "bert_dot")
WORDS = ("tk", "conv_knrm", "pacrr", "match_pyramid", "knrm")
MODELS = (*WORDS, "backpack_tiny", "gpt2_tiny", *OVER_ENCODER)


def main() -> None:
    """Time all rankers, print a table, write the JSON file."""
    options = _options()
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    register_resolvers()
    console = Console(width=118)
    record: dict[str, object] = {
        "command": command_line("rankers"),
        "machine": machine("cpu"),
        "data": options.data,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        initialize_config_dir(str(ROOT / "conf"), version_base="1.3"),
    ):
        settings = {
            name: TrainingSettings(
                compose("train", [f"data={options.data}", *_model(name, folder)])
            )
            for name in options.models
        }
        data = next(iter(settings.values())).dataset
        train, test = data.split("train"), data.split("test")
        _small_encoder(train, Path(folder))
        pairs = _pairs(data, test, options.documents)
        candidates = data.candidates("train", train)[1]
        made = {name: build(one, train) for name, one in settings.items()}
    scoring = in_turns(
        {name: _scoring(*one, pairs, options.alpha) for name, one in made.items()},
        options.repeats,
        "scoring",
        "cpu",
    )
    steps = {name: _training(*one, train, candidates, options) for name, one in made.items()}
    for step in steps.values():
        step()
    training = in_turns(steps, options.repeats, "training", "cpu")
    record |= _figures(made, pairs, scoring, training, options)
    columns = ["ranker", "parameters, millions", "documents/s", "lists/s in training"]
    rows = [
        [
            name,
            f"{row['parameters'] / 1e6:.2f}",
            f"{row['documents_per_second']:.0f}",
            f"{row['lists_per_second']:.1f}",
        ]
        for name, row in record["rankers"].items()  # type: ignore[attr-defined]
    ]
    title = f"{len(pairs)} candidates of {options.data}; lists of {options.list}; fp32, {options.threads} threads"
    print_table(console, title, columns, rows)
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rankers", description=__doc__)
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="three rankers, few texts, one round: checks that all runs",
    )
    add(
        "--models",
        nargs="+",
        choices=MODELS,
        default=None,
        help="all; quick: knrm, backpack_tiny, cross_encoder",
    )
    add(
        "--data",
        default="synthetic",
        help="one of conf/data; dl19, squad ... read $BACKPACK_RANK_DATA",
    )
    add("--documents", type=int, default=None, help="candidates to score (500; quick 10)")
    add("--alpha", type=float, default=1.0, help="of scoring, under each ranker's own policy")
    add("--lists", type=int, default=4, help="lists of a training step")
    add("--list", type=int, default=10, help="documents of a list")
    add("--repeats", type=int, default=None, help="rounds; medians are reported (5; quick 1)")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/")
    options = parser.parse_args()
    options.output = options.output or record_file("rankers-cpu.json", options.quick)
    options.models = options.models or (
        ["knrm", "backpack_tiny", "cross_encoder"] if options.quick else list(MODELS)
    )
    options.documents = options.documents or (10 if options.quick else 500)
    options.repeats = options.repeats or (1 if options.quick else 5)
    return options


def _model(name: str, folder: str) -> list[str]:
    over = [f"model.ranker.name={folder}", "max_length=192"] if name in OVER_ENCODER else []
    model, options = VARIANTS.get(name, (name, ""))
    return [f"model={model}", *options.split(), *over]


def _small_encoder(collection: Collection, folder: Path) -> None:
    """A BERT of MiniLM-L6's size with random weights and a WordPiece vocabulary of the collection's
    text.
    """
    words = word_pieces(collection)
    words.save_pretrained(folder)
    shape = BertConfig(
        vocab_size=len(words), hidden_size=384, num_hidden_layers=6, intermediate_size=1536
    )
    BertModel(shape, add_pooling_layer=False).save_pretrained(folder)


def _pairs(data: Dataset, test: Collection, count: int) -> Pairs:
    pairs = Pairs.from_run(data.candidates("test", test)[1], test)
    return Pairs(pairs.collection, pairs.query_ids[:count], pairs.doc_ids[:count])


def _scoring(
    ranker: Ranker, pair_tokenizer: PairTokenizer, pairs: Pairs, alpha: float
) -> Callable[[], object]:
    scorer = Scorer(ranker.eval(), pair_tokenizer, ScoringSettings(device="cpu"))
    reranker = PointwiseReranker(scorer)
    texts = list(pairs.texts())
    return lambda: scorer.ranker.eval() and reranker.predict(texts, alpha=alpha)


def _training(
    ranker: Ranker,
    pair_tokenizer: PairTokenizer,
    train: Collection,
    candidates: Run,
    options: argparse.Namespace,
) -> Callable[[], None]:
    """Reading of the lists, forward, listwise softmax, backward, AdamW, with dropout as in
    training.
    """
    lists = TrainingLists(train, candidates, size=options.list, seed=0)
    data = RankingData(
        lists, train, Pairs(train, (), ()), pair_tokenizer, lists_per_batch=options.lists
    )
    batches = itertools.cycle(data.train_dataloader())
    optimizer = OptimizerConfig(1e-6).optimizer(ranker)

    def step() -> None:
        ranker.train()
        batch: ListBatch = next(batches)
        scores = scatter_lists(ranker(batch.texts).scores, batch.mask)
        listwise_softmax(scores, batch.labels, batch.mask)[0].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _figures(
    made: dict[str, tuple[Ranker, PairTokenizer]],
    pairs: Pairs,
    scoring: Times,
    training: Times,
    options: argparse.Namespace,
) -> dict[str, object]:
    rows = {
        name: {
            "parameters": sum(parameter.numel() for parameter in ranker.parameters()),
            "documents_per_second": len(pairs) / scoring.median(name),
            "lists_per_second": options.lists / training.median(name),
        }
        for name, (ranker, _) in made.items()
    }
    seconds = {"scoring": scoring.seconds, "training": training.seconds}
    return {
        "documents": len(pairs),
        "lists": options.lists,
        "list": options.list,
        "rankers": rows,
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
