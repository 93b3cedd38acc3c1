"""What an evaluation writes beside its averages: gaps by topic, words of a policy, the report page."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from backpack_rank.attributes.lexicon import Lexicon, load_lexicon
from backpack_rank.attributes.word_classes import count_class_words
from backpack_rank.checks import located
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.trec import ranking
from backpack_rank.evaluation.result_table import VARIANTS, ResultTable
from backpack_rank.evaluation.results import Report
from backpack_rank.evaluation.score_gaps import summaries_by
from backpack_rank.evaluation.significance import Comparison
from backpack_rank.files import write_text
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.metrics import SystemRuns
from backpack_rank.pipelines.saved_options import SavedOptions
from backpack_rank.reporting.answer import sentence
from backpack_rank.reporting.comparison import comparison_tables
from backpack_rank.reporting.explanation import explanation_html, write_profiles
from backpack_rank.reporting.page.build import comparison_table, page_of_rows, sense_panel
from backpack_rank.reporting.page.data import (
    Answer,
    Attribution,
    ChangedQuery,
    Changes,
    Gallery,
    Missing,
    Page,
    RankedDocument,
    SensePanel,
)
from backpack_rank.reporting.page.pictures import write_pictures
from backpack_rank.reporting.page.provenance import provenance
from backpack_rank.reporting.page.render import write_page
from backpack_rank.reporting.page.text import mark_words
from backpack_rank.reporting.writers import csv_text
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policies import PairedTokens, Policy
from backpack_rank.senses.profiles import sense_profiles
from backpack_rank.senses.renditions import MeanOfRenditions


def write_gaps_by(folder: Path, table: ResultTable, data: EvaluationData) -> None:
    """``gaps_by.csv``: the measures of variants for every topic and every expected stereotype of the queries."""
    if data.variants is None:
        return
    variants = data.variants.variants
    lines = []
    for system in table.systems:
        if VARIANTS not in system.values:
            continue
        for attribute, labels in (("stereotype", variants.stereotypes), ("topic", variants.topics)):
            for label, summary in summaries_by(system.values[VARIANTS], labels).items():
                for measure, estimate in summary.figures.items():
                    numbers = (estimate.mean, estimate.low, estimate.high, summary.queries)
                    lines.append((system.label, attribute, label, measure, *numbers))
    header = ("system", "attribute", "label", "measure", "mean", "low", "high", "queries")
    write_text(folder / "gaps_by.csv", csv_text(header, lines))


def write_class_counts(folder: Path, reranker: PointwiseReranker, policy: Policy, data: EvaluationData) -> None:
    """``word_classes.csv``: how often each word of the policy's classes stands in the bias set's candidates.

    ``token`` says whether the word is one: ``yes``, ``no`` (several tokens), ``alone`` (no partner of its kind) or
    ``spaced`` (behind a space alone).
    """
    if not isinstance(policy, PairedTokens):
        return
    words = policy.words()
    ids = dict.fromkeys(doc_id for documents in data.bias_candidates.values() for doc_id in documents)
    counts = count_class_words(data.bias.documents.get_many(ids).values(), words)
    shift = reranker.hook.views[0].token_shift
    kinds: dict[str, str] = {}
    if shift is not None:
        classes = shift.classes
        for kind, found in (
            ("no", classes.several_tokens),
            ("alone", classes.unpaired),
            ("spaced", classes.behind_space_alone),
        ):
            kinds |= dict.fromkeys(found, kind)
    lines = [(one.name, word, counts[word], kinds.get(word, "yes")) for one in words.classes for word in one.words]
    write_text(folder / "word_classes.csv", csv_text(("class", "word", "count", "token"), lines))


def rendition_notes(policy: Policy, data: EvaluationData, cut: Callable[[str], str] | None = None) -> list[str]:
    """A sentence that says what renditions cost; none for other policies. ``cut`` gives what is read of a text."""
    if not isinstance(policy, MeanOfRenditions):
        return []
    pairs, rewritings = Pairs.from_run(data.candidates, data.test), policy.rewritings
    keep = policy.attribute.renditions(wide=policy.wide)  # with merge, all words are of one group
    with_words = both = 0
    further: set[tuple[str, str]] = set()
    for query, document in pairs.texts():
        text = document if cut is None else cut(document)
        form = policy.renditions.canonical(text)
        if form.moved and policy.covers(query):
            with_words += 1
            both += any(symbol.label for symbol in keep.canonical(text).symbols)
            further |= {rendition(query, text) for rendition in rewritings} - {(query, text)}
    lacking = [f"{name} ({', '.join(groups)})" for name, groups in policy.renditions.incomplete.items()]
    stay = [f"Renditions: classes that lack a group stay as they are: {', '.join(lacking)}"] if lacking else []
    return [
        *stay,
        f"Renditions: {with_words} of {len(pairs)} candidates have class words, {both} of them of several groups; "
        f"{1 + len(further) / max(1, len(pairs)):.2f} times the passes of alpha=1, for all other alphas together",
    ]


def swap_notes(data: EvaluationData) -> list[str]:
    """A sentence that says how much a swap changes."""
    if data.swapped is None:
        return []
    counts = data.swapped.counts
    return [
        f"Swap: {len(counts.changed)} of {counts.documents} candidates change, {counts.words} words; "
        f"{counts.names} first names are left alone"
    ]


log = logging.getLogger(__name__)
QUERIES, FURTHER, DOCUMENTS, PAIRS, SAMPLE = 10, 3, 10, 3, 128


@dataclass(frozen=True)
class RankingPair:
    """Two rankings of the same queries to show side by side.

    Attributes:
        before: label of the first.
        after: label of the second.
        runs: both rankings.
        collection: queries and texts.
    """

    before: str
    after: str
    runs: tuple[Run, Run]
    collection: Collection


def write_evaluation_page(
    folder: Path,
    settings: SavedOptions,
    report: Report,
    systems: Sequence[SystemRuns],
    data: EvaluationData,
    tests: Sequence[Comparison],
    reranker: PointwiseReranker | None,
) -> Path:
    """``report.html`` of one evaluation, with its figures as PNG and SVG in ``figures/``."""
    page = page_of_rows("Evaluation", {"": report.rows}, report.about)
    page = replace(page, answer=answer_of(report, tests))
    first, last = systems[0 if len(systems) < 3 or reranker is None else -2], systems[-1]
    turn = RankingPair(first.label, last.label, (first.bias, last.bias), data.bias) if first is not last else None
    page = replace(page, comparison=tuple(map(comparison_table, comparison_tables(tests, width=8))))
    turns = [] if turn is None else [turn]
    return write_with_texts(folder, page, settings, report, turns, reranker if last.alpha is not None else None)


def answer_of(report: Report, tests: Sequence[Comparison]) -> Answer | None:
    """What the dial does, from the ranker as it is and the last position of the dial; None without both."""
    dial = [row for row in report.rows if row.alpha is not None]
    if len(dial) < 2 or dial[0].alpha != 1:
        return None
    base, row = dial[0], dial[-1]

    def significant(measure: str) -> bool | None:
        for comparison in tests:
            for compared in comparison.measures:
                for test in compared.tests if compared.measure == measure else ():
                    if {test.first, test.second} == {base.label, row.label} and test.average == compared.average:
                        return test.p_holm < comparison.level
        return None

    return Answer(sentence(report.about.policy, base, row, significant))


def write_with_texts(
    folder: Path,
    page: Page,
    settings: SavedOptions,
    report: Report,
    turns: Sequence[RankingPair],
    reranker: PointwiseReranker | None,
) -> Path:
    """Add what needs documents and the ranker to a page, and write it.

    Args:
        folder: of the page.
        page: what is there already.
        settings: configuration that is shown.
        report: systems and how they were measured.
        turns: rankings to show side by side, the one of ``reranker`` first.
        reranker: at the alpha and under the policy whose senses are shown.
    """
    with located("bias.lexicon"):
        lexicon = load_lexicon(settings.lexicon)
    page = replace(page, groups=lexicon.group_names)
    if turns:
        changed = [changed_queries(turn, lexicon, QUERIES if turn is turns[0] else FURTHER) for turn in turns]
        known = tuple(one for one in changed if isinstance(one, Changes))
        page = replace(page, changes=known or next(one for one in changed if isinstance(one, Missing)))
    if reranker is not None and reranker.sensitivity is not None and turns:
        turn = turns[0]
        page = replace(
            page,
            senses=senses_of(folder, reranker, turn.collection, turn.runs[0], lexicon),
            attribution=attributions(reranker, turn, lexicon),
        )
    page = replace(
        page,
        configuration=settings.text,
        provenance=provenance(report.about, [note for note in report.about.notes if note.startswith("Ranker: ")]),
    )
    path = write_page(folder / "report.html", page)
    write_pictures(folder / "figures", replace(page, tradeoff=_at_ten(page.tradeoff), cutoffs=_at_ten(page.cutoffs)))
    return path


def changed_queries(turn: RankingPair, lexicon: Lexicon, count: int = QUERIES) -> Changes | Missing:
    """The ``count`` queries whose first documents change most, with texts.

    Change is the sum over documents of |1/log2(1 + rank before) - 1/log2(1 + rank after)|, 0 past the first ten.
    """
    before, after = turn.runs
    moved = {query_id: _moved(before[query_id], after[query_id]) for query_id in before if query_id in after}
    chosen = [query_id for query_id in sorted(moved, key=lambda q: -moved[q]) if moved[query_id] > 0][:count]
    if not chosen:
        return Missing(f"No query has other documents, or another order, in its first {DOCUMENTS} places.")
    tops = {q: [ranking(run[q])[:DOCUMENTS] for run in turn.runs] for q in chosen}
    ids = {doc_id for lists in tops.values() for top in lists for doc_id in top}
    known = [doc_id for doc_id in ids if doc_id in turn.collection.documents]
    texts = turn.collection.documents.get_many(known)

    def documents(query_id: str, run: Run, top: list[str]) -> tuple[RankedDocument, ...]:
        spans = {doc_id: mark_words(texts[doc_id], lexicon) for doc_id in top if doc_id in texts}
        return tuple(RankedDocument(doc_id, spans.get(doc_id), run[query_id][doc_id]) for doc_id in top)

    queries = tuple(
        ChangedQuery(
            query_id,
            turn.collection.queries[query_id],
            documents(query_id, before, tops[query_id][0]),
            documents(query_id, after, tops[query_id][1]),
        )
        for query_id in chosen
    )
    order = f"Chosen by how far documents move in the first {DOCUMENTS} places, high ranks counting more."
    return Changes(turn.before, turn.after, queries, order)


def senses_of(
    folder: Path, reranker: PointwiseReranker, collection: Collection, run: Run, lexicon: Lexicon
) -> SensePanel | Missing:
    """What each sense is about, over the first documents of the rankings; all of it goes to ``senses.json``."""
    pairs = _sample(collection, run)
    found, scorer = reranker.sensitivity, reranker.local_scorer
    assert found is not None
    try:
        profiles = sense_profiles(
            scorer.ranker, scorer.pair_tokenizer, pairs, lexicon, sensitivity=found.values, count=6
        )
    except ValueError as error:
        return Missing(f"Senses could not be looked at: {error}.")
    counts = ", ".join(f"{count} {group}" for group, count in profiles.documents.items())
    write_profiles(folder / "senses.json", profiles.senses)
    weights = reranker.hook.views[0].sense_weights
    caption = f"Contributions at alpha=1 over {len(pairs)} documents of the rankings ({counts})."
    return sense_panel(profiles.senses, None if weights is None else weights.tolist(), caption)


def attributions(reranker: PointwiseReranker, turn: RankingPair, lexicon: Lexicon) -> tuple[Attribution, ...]:
    """The pairs whose score the control changes most; without a control the first documents.

    A score of several texts does not split into words: then they are explained as the ranker scores them at alpha = 1.
    """
    explained = reranker if reranker.hook.reads_one_text else reranker.at(1.0)
    before, after = turn.runs
    changes = [
        (abs(after[query_id][doc_id] - score), query_id, doc_id)
        for query_id, scores in before.items()
        for doc_id, score in scores.items()
        if doc_id in after.get(query_id, {})
    ]
    found, seen = [], set()
    for _, query_id, doc_id in sorted(changes, key=lambda change: -change[0]):
        if query_id in seen:
            continue
        seen.add(query_id)
        text = turn.collection.documents.get_many([doc_id])[doc_id]
        row = explained.explain(turn.collection.queries[query_id], text, lexicon)
        title = f"{turn.collection.queries[query_id]} ({query_id}): document {doc_id}"
        found.append(Attribution(title, Markup(explanation_html(row))))
        if len(found) == PAIRS:
            break
    return tuple(found)


def _at_ten(gallery: Gallery | None) -> Gallery | None:
    """The gallery's charts at cut-off 10, if it has cut-offs: files of every cut-off would be dozens."""
    if gallery is None:
        return None
    at_ten = tuple(panel for panel in gallery.panels if "10" in panel.choice)
    return replace(gallery, panels=at_ten, first=0) if at_ten else gallery


def _moved(before: dict[str, float], after: dict[str, float]) -> float:
    places = [{doc: rank for rank, doc in enumerate(ranking(run)[:DOCUMENTS], start=1)} for run in (before, after)]
    shares = [{doc: 1 / math.log2(1 + rank) for doc, rank in place.items()} for place in places]
    return sum(abs(shares[0].get(doc, 0.0) - shares[1].get(doc, 0.0)) for doc in {**shares[0], **shares[1]})


def _sample(collection: Collection, run: Run) -> list[tuple[str, str]]:
    """(query, document) texts of first documents, rank by rank, until there are enough."""
    tops = {query_id: ranking(scores)[:DOCUMENTS] for query_id, scores in run.items()}
    rows = [(query_id, top[rank]) for rank in range(DOCUMENTS) for query_id, top in tops.items() if rank < len(top)]
    texts = collection.documents.get_many(doc_id for _, doc_id in rows[:SAMPLE])
    return [(collection.queries[query_id], texts[doc_id]) for query_id, doc_id in rows[:SAMPLE]]
