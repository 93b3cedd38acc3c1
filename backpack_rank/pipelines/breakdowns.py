"""Measures and words in parts: gaps by topic, words of a policy by how often they stand."""

from __future__ import annotations

from pathlib import Path

from backpack_rank.attributes.word_classes import count_class_words
from backpack_rank.evaluation.result_table import VARIANTS, ResultTable
from backpack_rank.evaluation.score_gaps import summaries_by
from backpack_rank.files import write_text
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.reporting.writers import csv_text
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policies import PairedTokens, Policy

GAPS_COLUMNS = ("system", "attribute", "label", "measure", "mean", "low", "high", "queries")
WORDS_COLUMNS = ("class", "word", "count", "token")


def write_gaps_by(folder: Path, table: ResultTable, data: EvaluationData) -> None:
    """Write ``gaps_by.csv``: measures of variants for every topic and every expected stereotype.

    Nothing is written without variants.
    """
    if data.variants is None:
        return
    variants = data.variants.variants
    labels_by_attribute = {"stereotype": variants.stereotypes, "topic": variants.topics}
    lines = []
    for system in table.systems:
        if VARIANTS not in system.values:
            continue
        for attribute, labels in labels_by_attribute.items():
            for label, summary in summaries_by(system.values[VARIANTS], labels).items():
                for measure, figure in summary.figures.items():
                    numbers = (figure.mean, figure.low, figure.high, summary.queries)
                    lines.append((system.label, attribute, label, measure, *numbers))
    write_text(folder / "gaps_by.csv", csv_text(GAPS_COLUMNS, lines))


def write_class_counts(
    folder: Path, reranker: PointwiseReranker, policy: Policy, data: EvaluationData
) -> None:
    """Write ``word_classes.csv``: how often each word of the policy's classes stands in documents.

    They are the candidates of the bias set. ``token`` says whether the word is one: ``yes``, ``no``
    (several tokens), ``alone`` (no partner of its kind) or ``spaced`` (behind a space alone).
    Nothing is written for policies without paired tokens.
    """
    if not isinstance(policy, PairedTokens):
        return
    doc_ids: dict[str, None] = {}
    for candidates in data.bias_candidates.values():
        doc_ids |= dict.fromkeys(candidates)
    words = policy.words()
    counts = count_class_words(data.bias.documents.get_many(doc_ids).values(), words)
    tokens = _kinds_of_tokens(reranker)
    lines = []
    for word_class in words.classes:
        for word in word_class.words:
            lines.append((word_class.name, word, counts[word], tokens.get(word, "yes")))
    write_text(folder / "word_classes.csv", csv_text(WORDS_COLUMNS, lines))


def _kinds_of_tokens(reranker: PointwiseReranker) -> dict[str, str]:
    """What stands in the way of moving a word, for each word that something does."""
    shift = reranker.hook.views[0].token_shift
    kinds: dict[str, str] = {}
    if shift is not None:
        kinds |= dict.fromkeys(shift.classes.several_tokens, "no")
        kinds |= dict.fromkeys(shift.classes.unpaired, "alone")
        kinds |= dict.fromkeys(shift.classes.behind_space_alone, "spaced")
    return kinds
