"""Gaps of token and specialised policies on those wordings of Grep-BiasIR that differ in words of the classes alone.

::

    python -m benchmarks.equal_wordings outputs/sweep/<date> --wordings $BACKPACK_RANK_DATA/grep_biasir

The sweep is the one of :mod:`benchmarks.policies`. Case plays no part in what counts as equal, punctuation does.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from statistics import mean

from backpack_rank.attributes.word_classes import load_all_classes
from backpack_rank.attributes.wording_variants import WordedPair, load_wordings
from backpack_rank.data.collection import Run
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.trec import read_run
from backpack_rank.evaluation.score_gaps import score_spread

_PIECE = re.compile(r"\w+|[^\w\s]")
POLICIES = {
    "paired_tokens": ["gender_classes"],
    "paired_tokens_wide": ["gender_classes", "gender_classes_wide"],
    "specialised": ["gender_classes", "gender_classes_wide"],
}


def main() -> None:
    """Print the mean absolute gap by alpha for equal and for other pairs of relevant documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="folder of the multirun")
    parser.add_argument("--wordings", type=Path, required=True, help="folder of Grep-BiasIR")
    given = parser.parse_args()
    for policy, files in POLICIES.items():
        if not any(given.sweep.glob(f"alpha-*_policy-{policy}_variants-*")):
            continue
        equal, others = split(given.wordings, files)
        for alpha in ("1", "0.5", "0"):
            (job,) = given.sweep.glob(f"alpha-{alpha}_*policy-{policy}_variants-*")
            run, spread = runs(job)
            parts = ", ".join(
                f"{gap(run, pairs) / spread:.4f} on {len(pairs)} {name}"
                for name, pairs in (("equal", equal), ("other", others))
            )
            print(f"{policy} alpha={alpha}: mean absolute gap / std {parts}")


def split(folder: Path, files: list[str]) -> tuple[list[WordedPair], list[WordedPair]]:
    """Pairs of relevant documents that are equal when words stand for their classes, and the others."""
    owner = {word: one.name for one in load_all_classes(files).classes for word in one.words}
    documents = load_beir(str(folder), "test", candidates="judged").documents
    equal: list[WordedPair] = []
    others: list[WordedPair] = []
    for pair in load_wordings(folder).pairs():
        if not pair.relevance:
            continue
        texts = documents.get_many([pair.first, pair.second])
        first, second = ([owner.get(word, word) for word in _PIECE.findall(text.lower())] for text in texts.values())
        (equal if first == second else others).append(pair)
    return equal, others


def runs(job: Path) -> tuple[Run, float]:
    """Scores of the wordings, and the spread of the ordinary candidates' scores at the same alpha."""
    by_set = {path.name.rpartition("__")[2]: path for path in (job / "runs").glob("alpha-*.run")}
    worded = by_set.pop("grep_biasir-test.run")
    (ordinary,) = by_set.values()
    return read_run(worded), score_spread(read_run(ordinary))


def gap(run: Run, pairs: list[WordedPair]) -> float:
    """Mean absolute difference of the two wordings' scores."""
    return mean(abs(run[pair.query_id][pair.first] - run[pair.query_id][pair.second]) for pair in pairs)


if __name__ == "__main__":
    main()
