"""What an evaluation writes beside its averages: gaps by topic and stereotype, counts of words that a policy moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backpack_rank.data.word_classes import count_class_words
from backpack_rank.evaluation.score_gaps import summaries_by
from backpack_rank.files import write_text
from backpack_rank.pipelines.workload import Workload
from backpack_rank.pipelines.yardstick import WORDINGS, Results
from backpack_rank.reporting.tables import csv_text
from backpack_rank.senses.paired_tokens import PairedTokens
from backpack_rank.senses.subject import Policy
from backpack_rank.senses.tokens import TokenClasses


def write_gaps_by(folder: Path, results: Sequence[Results], work: Workload) -> None:
    """``gaps_by.csv``: the measures of wordings for every topic and every expected stereotype of the queries."""
    if work.worded is None:
        return
    wordings = work.worded.wordings
    lines = []
    for result in results:
        if WORDINGS not in result.kinds:
            continue
        for attribute, labels in (("stereotype", wordings.stereotypes), ("topic", wordings.topics)):
            for label, summary in summaries_by(result.kinds[WORDINGS], labels).items():
                for measure, figure in summary.figures.items():
                    numbers = (figure.mean, figure.low, figure.high, summary.queries)
                    lines.append((result.system.label, attribute, label, measure, *numbers))
    header = ("system", "attribute", "label", "measure", "mean", "low", "high", "queries")
    write_text(folder / "gaps_by.csv", csv_text(header, lines))


def write_class_counts(folder: Path, policy: Policy, classes: TokenClasses | None, work: Workload) -> None:
    """``word_classes.csv``: how often each word of the policy's classes stands in the bias set's candidates.

    ``token`` says whether the word is one: ``yes``, ``no`` (several tokens) or ``alone`` (no partner of its kind).
    """
    if not isinstance(policy, PairedTokens):
        return
    words = policy.words()
    ids = dict.fromkeys(doc_id for documents in work.bias_candidates.values() for doc_id in documents)
    counts = count_class_words(work.bias.documents.get_many(ids).values(), words)
    apart = set(classes.in_parts) if classes is not None else set()
    alone = set(classes.alone) if classes is not None else set()
    lines = [
        (one.name, word, counts[word], "no" if word in apart else "alone" if word in alone else "yes")
        for one in words.classes
        for word in one.words
    ]
    write_text(folder / "word_classes.csv", csv_text(("class", "word", "count", "token"), lines))


def swap_notes(work: Workload) -> list[str]:
    """A sentence that says how much a swap changes."""
    if work.swapped is None:
        return []
    counts = work.swapped.counts
    return [
        f"Swap: {len(counts.changed)} of {counts.documents} candidates change, {counts.words} words; "
        f"{counts.names} first names are left alone"
    ]
