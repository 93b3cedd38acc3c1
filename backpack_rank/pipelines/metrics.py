"""From rerankers to measures: everything is ranked once and measured on the queries of its kind.

suite = metrics_of(["nDCG@10"], bias, attribute, dataset)
table = suite.evaluate([first_stage, reranker], data)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.checks import located
from backpack_rank.data.collection import (
    Collection,
    Run,
    note_on_own,
    select_queries,
    without_own,
)
from backpack_rank.data.dataset import Dataset
from backpack_rank.evaluation.contrast import CONTRAST_MEASURES, contrast
from backpack_rank.evaluation.document_groups import WORDS
from backpack_rank.evaluation.effectiveness import check_labels, effectiveness
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.magnitudes import GroupMagnitudes
from backpack_rank.evaluation.measure_names import split_measures
from backpack_rank.evaluation.ranked_documents import shown
from backpack_rank.evaluation.result_table import (
    BIAS,
    CHANGED,
    CONTRAST,
    EFFECTIVENESS,
    SWAP,
    VARIANTS,
    ResultTable,
    SystemMetrics,
)
from backpack_rank.evaluation.results import PerQuery, RunInfo
from backpack_rank.evaluation.score_gaps import gap_measures, score_gaps, score_spread
from backpack_rank.evaluation.several_rankings import mean_over_rankings
from backpack_rank.evaluation.swap_stability import swap_measures, swap_stability
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.evaluation_notes import notes_on_groups
from backpack_rank.reranking.rerankers import Reranker
from backpack_rank.reranking.together import rerank_together

log = logging.getLogger(__name__)
_EPS = 1e-5
"""Gaps up to this share of the spread are rounding, as equal inputs have in two batches."""


@dataclass(frozen=True)
class SystemRuns:
    """Everything that a reranker ranked: what :func:`rank_all` gives.

    Attributes:
        label: name in the tables.
        alpha: of the policy, None without one.
        test: rankings of the effectiveness set.
        bias: rankings of the bias set.
        swapped: the bias set's candidates scored in their swapped wording, or None.
        variants: scores of the documents in every wording, or None.
        contrast: scores of the texts of the contrast set, or None.
        rankings: of a system of several rankings, each of them; ``test`` and ``bias`` are those of
            the first, which is what a page shows.
    """

    label: str
    alpha: float | None
    test: Run
    bias: Run
    swapped: Run | None = None
    variants: Run | None = None
    contrast: Run | None = None
    rankings: tuple[SystemRuns, ...] = ()


def rank_all(reranker: Reranker, data: EvaluationData) -> SystemRuns:
    """All rankings of a reranker that are measured.

    Swapped wordings and variants are ranked only where the reranker compares texts.
    """
    (runs,) = rank_together([reranker], data)
    return runs


def rank_together(rerankers: Sequence[Reranker], data: EvaluationData) -> list[SystemRuns]:
    """The same for several rerankers: a ranker among them at several alphas reads texts once."""

    def ranked(chosen: Sequence[Reranker], run: Run, collection: Collection) -> list[Run]:
        # Candidates come without the query's own document; a finished run may have it.
        if len(chosen) == 1:
            runs = [chosen[0].rerank(run, collection)]
        else:
            runs = rerank_together(chosen, run, collection)
        return [without_own(ranking, collection) for ranking in runs]

    test = ranked(rerankers, data.candidates, data.test)
    if data.separate:
        bias = ranked(rerankers, data.bias_candidates, data.bias)
    else:
        bias = [select_queries(run, data.bias) for run in test]

    compared = [place for place, reranker in enumerate(rerankers) if reranker.compares_texts]
    changed: dict[int, Run] = {}
    variants: dict[int, Run] = {}
    chosen = [rerankers[place] for place in compared]
    if data.swapped is not None and data.swapped.candidates:
        runs = ranked(chosen, data.swapped.candidates, data.swapped.collection)
        changed = dict(zip(compared, runs, strict=True))
    if data.variants is not None:
        runs = ranked(chosen, data.variants.candidates, data.variants.collection)
        variants = dict(zip(compared, runs, strict=True))
    contrasts: dict[int, Run] = {}
    if data.contrast is not None:
        runs = ranked(chosen, data.contrast.candidates, data.contrast.collection)
        contrasts = dict(zip(compared, runs, strict=True))

    systems: list[SystemRuns] = []
    for place, reranker in enumerate(rerankers):
        in_swapped_wording: Run | None = None
        if reranker.compares_texts and data.swapped is not None:
            # What a swap does not change keeps its score, so only changed documents are scored
            # again.
            of_changed = changed.get(place, {})
            in_swapped_wording = {}
            for query_id, scores in bias[place].items():
                in_swapped_wording[query_id] = {**scores, **of_changed.get(query_id, {})}
        system = SystemRuns(
            label=reranker.name,
            alpha=reranker.alpha,
            test=test[place],
            bias=bias[place],
            swapped=in_swapped_wording,
            variants=variants.get(place),
            contrast=contrasts.get(place),
        )
        systems.append(system)
    return systems


@dataclass(frozen=True)
class MetricSuite:
    """Which measures are taken, and what takes them: see :func:`metrics_of`.

    Attributes:
        effectiveness: ir_measures strings.
        fairness: measures of the bias set.
        groups: of the wordings whose gap is measured, first minus second.
    """

    effectiveness: tuple[str, ...]
    fairness: FairnessMeasures
    groups: tuple[str, str]

    def check(self, data: EvaluationData) -> None:
        """Before anything is ranked: what could not be measured afterwards is refused.

        Raises:
            ValueError: a measure that has no value of the labels of this data, that needs
                judgements where there are none, or a target of one group alone.
        """
        if data.test.qrels and self.effectiveness:
            with located("measures"):
                check_labels(self.effectiveness, data.test.qrels, data.test.name)
        self._check_fairness(data)

    def for_labels_of(self, data: EvaluationData) -> MetricSuite:
        """The suite without measures of effectiveness that the labels of this data cannot give.

        Dev queries may be judged in fewer grades than test queries: RR(rel=2) has no value there.
        """
        measured = []
        for name in self.effectiveness:
            try:
                check_labels([name], data.test.qrels, data.test.name)
            except ValueError as error:
                log.info("not measured on %s: %s", data.test.name, error)
            else:
                measured.append(name)
        return replace(self, effectiveness=tuple(measured))

    def _check_fairness(self, data: EvaluationData) -> None:
        if self.fairness.needs_judgements and not data.bias.qrels:
            raise ValueError(
                f"{', '.join(self.fairness.group_measures)}: measures or a target of relevant "
                f"documents, and {data.bias.name} has no judgements: leave them out"
            )
        self.fairness.check_target(data.bias)

    def evaluate(self, rerankers: Sequence[Reranker], data: EvaluationData) -> ResultTable:
        """Rank everything by every reranker and measure it."""
        self.check(data)
        return self.measure(rank_together(rerankers, data), data)

    def measure(self, systems: Sequence[SystemRuns], data: EvaluationData) -> ResultTable:
        """The values of every system of finished rankings.

        Words are counted once for all systems.
        """
        background = data.bias_candidates if self.fairness.needs_background else None
        self._check_fairness(data)
        runs: list[Run] = []
        for system in systems:
            for ranking in system.rankings or (system,):
                runs.append(ranking.bias)
        magnitudes = self._magnitudes(runs, background, data.bias)
        groups = None
        group_notes: tuple[str, ...] = ()
        if self.fairness.group_measures:
            # Not of the background: groups of a field would depend on whether NFaiRR is measured.
            doc_ids = self.fairness.documents(runs, qrels=data.bias.qrels)
            groups = self.fairness.document_groups(doc_ids, data.bias, magnitudes)
            group_notes = notes_on_groups(groups, doc_ids, self.fairness)
        elif self.fairness.groups != WORDS:
            log.warning(
                "bias.groups=%s is read by none of the measures: ask for one of them, such as "
                "measures=['AWRF_JS@20','EE-L@20']",
                self.fairness.groups,
            )
        context = self.fairness.context(
            magnitudes, background, data.bias.queries, data.bias.qrels, groups
        )

        rows = []
        measured = 0
        for system in systems:
            row = self._row(system, data, context)
            rows.append(row)
            if BIAS in row.values:
                measured = max(measured, len(row.values[BIAS].query_ids))
        info = RunInfo(
            data.test.name,
            data.bias_set_of(measured),
            notes=(
                *_ranked_for_itself(systems, data),
                *_beyond_lists(systems, self.fairness),
                *_without_background(systems, background, data),
                *group_notes,
                *_without_value(rows, self.fairness.group_measures),
            ),
        )
        names = {EFFECTIVENESS: data.test.name, BIAS: f"bias set of {data.bias.name}"}
        return ResultTable(tuple(rows), self.fairness.describe(info, data.stage), names)

    def _magnitudes(
        self, runs: Sequence[Run], background: Run | None, bias: Collection
    ) -> GroupMagnitudes:
        """Counts of words in all documents that a measure looks at."""
        doc_ids = self.fairness.documents(runs, background)
        # Judged documents stand behind the ranked ones. Complete judgements may name documents
        # that a small collection lacks.
        for doc_id in self.fairness.documents(runs, background, bias.qrels)[len(doc_ids) :]:
            if doc_id in bias.documents:
                doc_ids.append(doc_id)
        magnitudes = self.fairness.magnitudes(doc_ids, bias.documents)
        if not magnitudes.values["tc"].any():
            log.warning(
                "none of the %d ranked documents has a word of %s: measures of bias have nothing "
                "to see here",
                len(doc_ids),
                self.fairness.lexicon,
            )
        return magnitudes

    def _row(
        self, system: SystemRuns, data: EvaluationData, context: FairnessContext
    ) -> SystemMetrics:
        """Values of a system; of one of several rankings their means, and the values of each."""
        if not system.rankings:
            values = self._values(system, data, context)
            return SystemMetrics(system.label, system.alpha, values, {})
        values_of_rankings: dict[str, Mapping[str, PerQuery]] = {}
        for ranking in system.rankings:
            values_of_rankings[ranking.label] = self._values(ranking, data, context)
        means: dict[str, PerQuery] = {}
        for kind in values_of_rankings[system.rankings[0].label]:
            of_kind = [values[kind] for values in values_of_rankings.values()]
            means[kind] = mean_over_rankings(of_kind)
        # Measures of fairness that look at all rankings together are no means over them.
        runs = [ranking.bias for ranking in system.rankings]
        means[BIAS] = context.measure_rankings(runs, self.fairness.measures)
        return SystemMetrics(system.label, system.alpha, means, values_of_rankings)

    def measure_names(self, data: EvaluationData) -> list[str]:
        """Names of all measures of a ranker over this data, before anything is ranked."""
        names: list[str] = []
        if data.test.qrels:
            names += self.effectiveness
        names += self.fairness.measures
        if data.swapped is not None:
            names += swap_measures()
            if data.swapped.candidates:
                names += swap_measures(only_changed=True)
        if data.variants is not None:
            names += gap_measures(self.groups)
        if data.contrast is not None:
            names += [measure.name for measure in CONTRAST_MEASURES]
        return names

    def _values(
        self, runs: SystemRuns, data: EvaluationData, context: FairnessContext
    ) -> Mapping[str, PerQuery]:
        """Values of a system, each set of measures on queries of its own."""
        values: dict[str, PerQuery] = {}
        if data.test.qrels and self.effectiveness:
            values[EFFECTIVENESS] = effectiveness(runs.test, data.test.qrels, self.effectiveness)
        values[BIAS] = context.measure(runs.bias, self.fairness.measures)
        # Differences of scores are measured in units of the spread of the test set's scores.
        spread = None
        if runs.swapped is not None or runs.variants is not None:
            spread = score_spread(runs.test)
        if runs.swapped is not None and data.swapped is not None:
            stability = swap_stability(runs.bias, runs.swapped, data.swapped.counts.changed, spread)
            values[SWAP] = stability.every
            if stability.changed:
                values[CHANGED] = stability.swapped
        if runs.variants is not None and data.variants is not None:
            eps = _EPS if spread else 0.0
            values[VARIANTS] = score_gaps(
                runs.variants, data.variants.variants, spread, eps=eps, groups=self.groups
            )
        if runs.contrast is not None and data.contrast is not None:
            values[CONTRAST] = contrast(runs.contrast, data.contrast.collection.queries)
        return values


def metrics_of(
    measures: str | Sequence[str] | None,
    bias: FairnessMeasures,
    attribute: Attribute,
    dataset: Dataset | None,
) -> MetricSuite:
    """The measures that options ask for.

    Measures of fairness among ``measures`` join ``bias``.

    Args:
        measures: ir_measures strings; None: those of the data.
        bias: measures of the bias set.
        attribute: whose groups wordings are compared in.
        dataset: the data, or None.

    Raises:
        ValueError: a measure that does not exist; lists those that do.
    """
    given = measures
    if given is None and dataset is not None:
        given = dataset.measures
    if isinstance(given, str):
        names = [given]
    else:
        names = [str(name) for name in given or ()]
    ranking: Sequence[str] = ()
    fairness: Sequence[str] = ()
    if names:
        with located("data.measures" if measures is None else "measures"):
            ranking, fairness = split_measures(names)
    bias = replace(bias, extra=(*bias.extra, *fairness))
    return MetricSuite(tuple(ranking), bias, attribute.sign)


def _ranked_for_itself(systems: Sequence[SystemRuns], data: EvaluationData) -> list[str]:
    """A note on queries that are documents, of the first system that ranks them for themselves."""
    notes = [note_on_own(system.test, data.test) for system in systems]
    return [note for note in notes if note is not None][:1]


def _beyond_lists(systems: Sequence[SystemRuns], fairness: FairnessMeasures) -> list[str]:
    """A sentence where cut-offs lie behind the end of every ranking: presets have 40 or 50."""
    deepest = 0
    for system in systems:
        # A run that lies on disk is not read once more for this.
        if not isinstance(system.bias, dict):
            return []
        for scores in system.bias.values():
            deepest = max(deepest, len(scores))
    beyond = {measure["cutoff"] for measure in fairness.measures.values()}
    shown = ", ".join(str(cutoff) for cutoff in sorted(beyond) if cutoff > deepest)
    if not deepest or not shown:
        return []
    return [
        f"No ranking has more than {deepest} documents: measures of bias at {shown} are of these, "
        "and published ones of longer lists"
    ]


def _without_background(
    systems: Sequence[SystemRuns], background: Run | None, data: EvaluationData
) -> tuple[str, ...]:
    """A note on the queries that a system ranks and NFaiRR leaves out."""
    if background is None:
        return ()
    ranked = 0
    absent = []
    for query_id in data.bias.queries:
        if not any(system.bias.get(query_id) for system in systems):
            continue
        ranked += 1
        if not background.get(query_id):
            absent.append(query_id)
    if not absent:
        return ()
    queries = f"{len(absent)} of {ranked} queries"
    return (f"NFaiRR leaves out {queries}, of which {data.stage} has no document: {shown(absent)}",)


def _without_value(systems: Sequence[SystemMetrics], measures: Iterable[str]) -> list[str]:
    """A note on each measure of groups that has no value of queries that a system ranks."""
    notes: list[str] = []
    for measure in measures:
        counts: dict[str, int] = {}
        for system in systems:
            values = system.values[BIAS]
            lacking = len(values.query_ids) - len(values.values[measure])
            if lacking:
                counts[system.label] = lacking
        if counts:
            by_system = ", ".join(f"{number} of {label}" for label, number in counts.items())
            notes.append(f"{measure} is not defined for some ranked queries: {by_system}")
    return notes


def check_known(run: Run, data: EvaluationData, name: str) -> None:
    """Refuse a finished run of another collection before it is measured.

    Raises:
        ValueError: none of its queries is in the collection, or one of its documents is not.
    """
    known = []
    for query_id in run:
        if query_id in data.test.queries or query_id in data.bias.queries:
            known.append(query_id)
    if not known:
        raise ValueError(
            f"{name}: none of its {len(run)} queries is in {data.test.name}, for example "
            f"{list(run)[:3]}; is data= the collection that this run ranks?"
        )
    if len(known) < len(run):
        log.warning(
            "%s: left out, as not in %s: %d of %d queries",
            name,
            data.test.name,
            len(run) - len(known),
            len(run),
        )
    # Texts are needed for measures of bias alone.
    for query_id, scores in select_queries(run, data.bias).items():
        unknown = [doc_id for doc_id in scores if doc_id not in data.bias.documents]
        if unknown:
            raise ValueError(
                f"{name}: document {unknown[0]!r} of query {query_id!r} is not in "
                f"{data.bias.name} ({len(unknown)} of {len(scores)} documents of this query are "
                "not); is data= the collection that this run ranks?"
            )
