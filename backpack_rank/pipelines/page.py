"""From an evaluation to its ``report.html``: texts, senses and attributions joined to the measures."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup
from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.formats import ranking
from backpack_rank.data.lexicon import Lexicon, load_lexicon
from backpack_rank.pipelines.explain import explained
from backpack_rank.pipelines.turned import TurnedRanker
from backpack_rank.pipelines.workload import Workload
from backpack_rank.pipelines.yardstick import Results
from backpack_rank.reporting.comparison import describe_comparison, grids
from backpack_rank.reporting.explanation import explanation_html, write_profiles
from backpack_rank.reporting.page.build import comparison_table, page_of_rows, sense_panel
from backpack_rank.reporting.page.data import (
    Attribution,
    ChangedQuery,
    Changes,
    Gallery,
    Missing,
    Page,
    RankedDocument,
    SensePanel,
    Table,
)
from backpack_rank.reporting.page.pictures import write_pictures
from backpack_rank.reporting.page.provenance import provenance
from backpack_rank.reporting.page.render import write_page
from backpack_rank.reporting.page.text import mark_words
from backpack_rank.reporting.rows import Comparison, Report
from backpack_rank.senses.control import Control
from backpack_rank.senses.meaning import sense_profiles

log = logging.getLogger(__name__)
QUERIES, DOCUMENTS, PAIRS, SAMPLE = 10, 10, 3, 128


@dataclass(frozen=True)
class Turn:
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
    config: DictConfig,
    report: Report,
    results: Sequence[Results],
    work: Workload,
    tests: Sequence[Comparison],
    turned: TurnedRanker | None,
) -> Path:
    """``report.html`` of one evaluation, with its figures as PNG and SVG in ``figures/``."""
    page = page_of_rows("Evaluation", {"": report.rows}, report.about)
    first, last = results[0 if len(results) < 3 or turned is None else -2].system, results[-1].system
    turn = Turn(first.label, last.label, (first.bias_run, last.bias_run), work.bias) if first is not last else None
    control = turned.control(last.alpha) if turned is not None and last.alpha is not None else None
    page = replace(page, comparison=comparison_tables(tests))
    return write_with_texts(folder, page, config, report, turn, turned, control)


def write_with_texts(
    folder: Path,
    page: Page,
    config: DictConfig,
    report: Report,
    turn: Turn | None,
    turned: TurnedRanker | None,
    control: Control | None,
) -> Path:
    """Add what needs documents and the ranker to a page, and write it."""
    lexicon = load_lexicon(config.bias.lexicon)
    changed = changed_queries(turn, lexicon) if turn is not None else None
    page = replace(page, groups=lexicon.group_names, changes=changed)
    if turned is not None and control is not None and turned.has_senses and turn is not None:
        page = replace(
            page,
            senses=senses_of(folder, turned, control, turn.collection, turn.runs[0], lexicon),
            attribution=attributions(turned, control, turn, lexicon.name if lexicon.path is None else lexicon.path),
        )
    page = replace(
        page,
        configuration=OmegaConf.to_yaml(config, resolve=True),
        provenance=provenance(report.about, [str(turned.checkpoint)] if turned is not None else []),
    )
    path = write_page(folder / "report.html", page)
    write_pictures(folder / "figures", replace(page, tradeoff=_at_ten(page.tradeoff), cutoffs=_at_ten(page.cutoffs)))
    return path


def comparison_tables(tests: Sequence[Comparison]) -> tuple[Table, ...]:
    """The tables with significance letters as the page takes them; what they mean stands below the last."""
    tables = [comparison_table(grid) for grid in grids(tests, width=8)]
    if not tables:
        return ()
    return (*tables[:-1], replace(tables[-1], notes=tuple(describe_comparison(tests))))


def changed_queries(turn: Turn, lexicon: Lexicon) -> Changes | Missing:
    """The queries whose first documents change most, with texts.

    Change is the sum over documents of |1/log2(1 + rank before) - 1/log2(1 + rank after)|, 0 past the first ten.
    """
    before, after = turn.runs
    moved = {query_id: _moved(before[query_id], after[query_id]) for query_id in before if query_id in after}
    chosen = [query_id for query_id in sorted(moved, key=lambda q: -moved[q]) if moved[query_id] > 0][:QUERIES]
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
    folder: Path, turned: TurnedRanker, control: Control, collection: Collection, run: Run, lexicon: Lexicon
) -> SensePanel | Missing:
    """What each sense is about, over the first documents of the rankings; all of it goes to ``senses.json``."""
    pairs = _sample(collection, run)
    found = turned.sensitivity
    assert found is not None
    try:
        profiles = sense_profiles(
            turned.scorer.ranker, turned.scorer.encoder, pairs, lexicon, sensitivity=found.values, count=6
        )
    except ValueError as error:
        return Missing(f"Senses could not be looked at: {error}.")
    counts = ", ".join(f"{count} {group}" for group, count in profiles.documents.items())
    write_profiles(folder / "senses.json", profiles.senses)
    caption = f"Contributions at alpha=1 over {len(pairs)} documents of the rankings ({counts})."
    return sense_panel(profiles.senses, None if control.weights is None else control.weights.tolist(), caption)


def attributions(turned: TurnedRanker, control: Control, turn: Turn, lexicon: str | Path) -> tuple[Attribution, ...]:
    """The pairs whose score the control changes most; without a control the first documents."""
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
        row = explained(turned, control, turn.collection.queries[query_id], text, str(lexicon))
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
