"""Cross-encoders of others: ``backpack_rank.load(folder).predict`` beside ``CrossEncoder.predict``.

    python -m benchmarks.foreign                      # MiniLM, XLM-R and ModernBERT shapes
    python -m benchmarks.foreign --weights FOLDER     # MiniLM with real weights (and a random head)
    python -m benchmarks.foreign --dtype bfloat16 --threads 2

Both read one folder, in one process, in turns, BM25's candidates of TREC DL 2019 (the folder named by
BACKPACK_RANK_DATA). Tokenisation is in the time of both.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    ModernBertConfig,
    PreTrainedTokenizerBase,
    XLMRobertaConfig,
)

from backpack_rank.reranking.load import load
from benchmarks.timing import in_turns

MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "num_labels": 1,
}


def shapes(tokenizer: PreTrainedTokenizerBase, weights: str | None) -> dict[str, torch.nn.Module]:
    """A classifier of each shape; random weights but those of MiniLM where they are given."""
    common = {**MINILM, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    modern = {**common, "intermediate_size": 576, "cls_token_id": tokenizer.cls_token_id}
    for name in ("bos_token_id", "eos_token_id", "sep_token_id"):
        modern[name] = tokenizer.sep_token_id
    configs = {
        "MiniLM-L6": BertConfig(**common),
        "XLM-R": XLMRobertaConfig(**{**common, "max_position_embeddings": 514}),
        "ModernBERT": ModernBertConfig(**modern),
    }
    made = {}
    for name, config in configs.items():
        torch.manual_seed(0)
        made[name] = AutoModelForSequenceClassification.from_config(config)
    if weights is not None:
        config = AutoConfig.from_pretrained(weights, num_labels=1)
        made["MiniLM-L6"] = AutoModelForSequenceClassification.from_pretrained(
            weights, config=config
        )
    return made


def candidate_pairs(queries: int, depth: int) -> list[tuple[str, str]]:
    """Queries and BM25's first documents of TREC DL 2019."""
    folder = Path(os.environ["BACKPACK_RANK_DATA"], "dl19")
    query_texts = _texts(folder / "queries.jsonl")
    document_texts = _texts(folder / "corpus.jsonl")
    pairs: list[tuple[str, str]] = []
    taken: dict[str, int] = {}
    for line in (folder / "candidates" / "bm25.trec").read_text(encoding="utf-8").splitlines():
        query_id, _, doc_id, *_ = line.split()
        if query_id not in taken and len(taken) == queries:
            continue
        taken[query_id] = taken.get(query_id, 0) + 1
        if taken[query_id] <= depth:
            pairs.append((query_texts[query_id], document_texts[doc_id]))
    return pairs


def _texts(path: Path) -> dict[str, str]:
    texts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        texts[record["_id"]] = record["text"]
    return texts


def measured(folder: Path, pairs: list[tuple[str, str]], dtype: str, repeats: int) -> dict:
    """Seconds of both in turns, their ratio, and the largest difference of the logits."""
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(
        str(folder), device="cpu", model_kwargs={"dtype": getattr(torch, dtype)}, max_length=512
    )
    ours = load(folder, device="cpu", dtype=dtype)

    def predict_theirs() -> np.ndarray:
        scores = theirs.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
        return np.asarray(scores)

    def predict_ours() -> np.ndarray:
        return ours.predict(pairs)

    # Before they are timed, which also warms both up.
    difference = predict_theirs().astype(np.float64) - predict_ours()
    jobs = {"CrossEncoder": predict_theirs, "backpack_rank": predict_ours}
    times = in_turns(jobs, repeats, folder.name, "cpu")
    return {
        "seconds": times.seconds,
        "faster": times.speedup("backpack_rank", over="CrossEncoder"),
        "pairs_per_second": len(pairs) / times.median("backpack_rank"),
        "largest_difference": float(np.abs(difference).max()),
    }


def main() -> None:
    """Time every shape and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", required=True, help="folder of a BERT tokenizer")
    parser.add_argument("--weights", default=None, help="folder of MiniLM's weights")
    parser.add_argument("--queries", type=int, default=5)
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--output", default="benchmarks/results/foreign-cpu.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    pairs = candidate_pairs(options.queries, options.depth)
    path = Path(options.output)
    results = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name, model in shapes(tokenizer, options.weights).items():
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            result = measured(Path(folder), pairs, options.dtype, options.repeats)
        print(
            f"{name}, {options.dtype}, {options.threads} threads: {result['faster']:.2f} times "
            f"CrossEncoder.predict, {result['pairs_per_second']:.0f} pairs/s, largest difference "
            f"{result['largest_difference']:.1e}",
            flush=True,
        )
        results[f"{name} {options.dtype} {options.threads} threads"] = result
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
