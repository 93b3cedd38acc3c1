"""A data folder in the layout of the real collections, with few short texts, and a tiny encoder as
the hub has them.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers.implementations import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, BertTokenizerFast

OCCUPATIONS = ("nurse", "pilot", "baker", "teacher", "doctor", "farmer", "lawyer", "painter")
SENTENCES = (
    ("The {} says that he works at night and his day is long.", 3),
    ("She is a {} and she likes her work.", 2),
    ("A {} needs training and a licence.", 1),
    ("Bread is sold in the market, and the {} is not there.", 0),
)
WORDINGS = {
    "M": ("he", "his", "man"),
    "F": ("she", "her", "woman"),
    "N": ("they", "their", "person"),
}
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

Judged = Mapping[str, Mapping[str, int]]


def write_data(root: Path) -> Path:
    """Folders dl19, dl20, squad_train, msmarco_dev600, trec_dl, gender_bias_ir and grep_biasir."""
    documents = {}
    queries = {}
    labels: dict[str, dict[str, int]] = {}
    for place, name in enumerate(OCCUPATIONS):
        query = str(100 + place)
        queries[query] = f"what does a {name} do"
        labels[query] = {}
        for kind, (sentence, label) in enumerate(SENTENCES):
            documents[f"{place}{kind}"] = sentence.format(name)
            labels[query][f"{place}{kind}"] = label
    # The judged documents of a query come first, then every fifth of all.
    candidates = {}
    for query, judged in labels.items():
        others = [document for document in list(documents)[::5] if document not in judged]
        candidates[query] = [*judged, *others]
    for year in ("dl19", "dl20"):
        _write(root / year, documents, queries, {"test": labels}, {"bm25": candidates})
        lines = []
        for query, judged in labels.items():
            for document, label in judged.items():
                lines.append(f"{query} Q0 {document} {label}\n")
        _text(root / "trec_dl" / f"qrels.{year}-passage.txt", "".join(lines))
    _text(
        root / "gender_bias_ir" / "trecdeep19_passage.fair.tsv",
        "".join(f"{key}\t{text}\n" for key, text in list(queries.items())[:6]),
    )
    splits = {"train": list(labels)[:4], "dev": list(labels)[4:6], "test": list(labels)[6:]}
    parts = {}
    runs = {}
    for split, query_ids in splits.items():
        # As in MS MARCO, a passage is relevant or is not.
        parts[split] = {}
        for query in query_ids:
            grades = labels[query].items()
            parts[split][query] = {document: min(label, 1) for document, label in grades}
        runs[split] = {query: candidates[query] for query in query_ids}
    _write(root / "msmarco_dev600", documents, queries, parts, runs)
    _write(
        root / "squad_train",
        documents,
        queries,
        {"train": labels, "dev": parts["dev"]},
        ending=".gz",
    )
    worded = {}
    content = {}
    judged_by_query: dict[str, dict[str, int]] = {query: {} for query in queries}
    for query, name in zip(queries, OCCUPATIONS, strict=True):
        for label, text in (
            (1, "The {} says that {} likes {} work."),
            (0, "The {} is a {} and {} bread is good."),
        ):
            for group, (pronoun, possessive, noun) in WORDINGS.items():
                document = f"{query}{group}{label}"
                worded[document] = text.format(name, pronoun if label else noun, possessive)
                content[document] = {"content_gender": group}
                judged_by_query[query][document] = label
    _write(root / "grep_biasir", worded, queries, {"test": judged_by_query}, metadata=content)
    return root


def write_encoder(folder: Path) -> Path:
    """Two layers of BERT with a vocabulary of whole words and letters: config.json, weights,
    tokenizer files.
    """
    folder.mkdir(parents=True)
    text = " ".join([*OCCUPATIONS, "what does do", *(sentence for sentence, _ in SENTENCES)])
    words = set(re.findall("[a-z]+", text.lower())).union(
        *WORDINGS.values(), ["him", "hers", "girl", "boy", "likes"]
    )
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary = [
        *SPECIALS,
        *letters,
        *(f"##{letter}" for letter in letters),
        ".",
        ",",
        *sorted(words - set(letters)),
    ]
    backend = BertWordPieceTokenizer({word: place for place, word in enumerate(vocabulary)})
    BertTokenizerFast(tokenizer_object=backend._tokenizer, model_max_length=256).save_pretrained(
        folder
    )
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    config = BertConfig(
        vocab_size=len(vocabulary), max_position_embeddings=256, initializer_range=0.2, **shape
    )
    BertModel(config).save_pretrained(folder)
    return folder


def _write(
    folder: Path,
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    labels: Mapping[str, Judged],
    candidates: Mapping[str, Mapping[str, list[str]]] | None = None,
    metadata: Mapping[str, dict] | None = None,
    ending: str = "",
) -> None:
    """One collection in BEIR's layout; ``ending`` ``.gz`` compresses all of it."""
    rows = []
    for key, text in documents.items():
        row: dict[str, Any] = {"_id": key, "title": "", "text": text}
        if metadata:
            row["metadata"] = metadata[key]
        rows.append(row)
    _text(folder / f"corpus.jsonl{ending}", "".join(f"{json.dumps(row)}\n" for row in rows))
    rows = [{"_id": key, "text": text} for key, text in queries.items()]
    _text(folder / f"queries.jsonl{ending}", "".join(f"{json.dumps(row)}\n" for row in rows))
    for split, judged in labels.items():
        lines = ["query-id\tcorpus-id\tscore\n"]
        for query, labels_of_query in judged.items():
            for document, label in labels_of_query.items():
                lines.append(f"{query}\t{document}\t{label}\n")
        _text(folder / "qrels" / f"{split}.tsv{ending}", "".join(lines))
    for name, run in (candidates or {}).items():
        lines = []
        for query, ranked in run.items():
            for rank, document in enumerate(ranked, start=1):
                lines.append(f"{query} Q0 {document} {rank} {100 - rank} bm25\n")
        _text(folder / "candidates" / f"{name}.trec", "".join(lines))


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
