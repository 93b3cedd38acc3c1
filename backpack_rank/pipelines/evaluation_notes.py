"""Sentences of an evaluation on what a policy or a swap does to texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backpack_rank.data.batching import Pairs
from backpack_rank.evaluation.document_groups import WORDS, DocumentGroups
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policies import Policy
from backpack_rank.senses.renditions import MeanOfRenditions

_SHOWN_GROUPS = 12
_SHOWN_QUERIES = 5


def rendition_notes(
    policy: Policy, data: EvaluationData, cut: Callable[[str], str] | None = None
) -> list[str]:
    """What renditions cost; no sentence for other policies.

    Args:
        policy: of the evaluation.
        data: its candidates.
        cut: gives what the ranker reads of a text; None for all of it.
    """
    if not isinstance(policy, MeanOfRenditions):
        return []
    pairs = Pairs.from_run(data.candidates, data.test)
    groups_kept = None
    if policy.own is None:
        # With merge, all words are of one group.
        groups_kept = policy.attribute.renditions(wide=policy.wide, names=policy.names)
    with_words = 0
    with_several_groups = 0
    rewritten: set[tuple[str, str]] = set()
    for query, document in pairs.texts():
        text = document if cut is None else cut(document)
        kept_names = policy.renditions.kept_names(query)
        if not policy.covers(query) or not policy.renditions.moves(text, kept_names):
            continue
        with_words += 1
        if groups_kept is not None:
            symbols = groups_kept.canonical(text, kept_names).symbols
            with_several_groups += any(symbol.label for symbol in symbols)
        for rewrite in policy.rewritings:
            pair = rewrite(query, text)
            # The pair itself is read anyway.
            if pair != (query, text):
                rewritten.add(pair)
    passes = 1 + len(rewritten) / max(1, len(pairs))
    notes = []
    lacking = []
    for name, groups in policy.renditions.incomplete.items():
        lacking.append(f"{name} ({', '.join(groups)})")
    if lacking:
        notes.append(
            f"Renditions: classes that lack a group stay as they are: {', '.join(lacking)}"
        )
    have = "are rewritten"
    if policy.own is None:
        have = f"have class words, {with_several_groups} of them of several groups"
    notes.append(
        f"Renditions: {with_words} of {len(pairs)} candidates {have}; "
        f"{passes:.2f} times the passes of alpha=1, for all other alphas together"
    )
    return notes


def group_query_notes(reranker: PointwiseReranker, data: EvaluationData) -> list[str]:
    """Which queries ask for a group and are scored as if there were no dial; empty without one."""
    if reranker.hook.alpha == 1:
        return []
    kept = []
    for query_id, query in data.test.queries.items():
        if reranker.policy_that_acts(query) is None:
            kept.append(query_id)
    if not kept:
        return []
    shown = ", ".join(kept[:_SHOWN_QUERIES])
    more = ", ..." if len(kept) > _SHOWN_QUERIES else ""
    return [
        f"{len(kept)} of {len(data.test.queries)} queries ask for a group and keep their scores of "
        f"alpha=1 ({shown}{more})"
    ]


def swap_notes(data: EvaluationData) -> list[str]:
    """How much a swap changes; no sentence without one."""
    if data.swapped is None:
        return []
    counts = data.swapped.counts
    return [
        f"Swap: {len(counts.changed)} of {counts.documents} candidates change, "
        f"{counts.words} words; {counts.names} first names are left alone"
    ]


def notes_on_groups(
    groups: Mapping[str, DocumentGroups], doc_ids: Sequence[str], bias: FairnessMeasures
) -> tuple[str, ...]:
    """Groups of every attribute, how many documents have none, and the target."""
    notes: list[str] = []
    for attribute, of_attribute in groups.items():
        names = ", ".join(of_attribute.names[:_SHOWN_GROUPS])
        if len(of_attribute.names) > _SHOWN_GROUPS:
            names += f" and {len(of_attribute.names) - _SHOWN_GROUPS} more"
        unknown = of_attribute.unknown(doc_ids)
        reason = "are of no known group"
        if attribute == WORDS:
            reason = f"have no word of {bias.lexicon}"
        notes.append(
            f"Groups of {attribute}: {names}; {unknown:,} of {len(doc_ids):,} documents {reason} "
            "and take no part"
        )
    target = bias.target
    if not isinstance(target, str):
        target = ", ".join(f"{group} {share}" for group, share in target.items())
    notes.append(f"Target of AWRF_JS, EE and NDKL: {target}")
    return tuple(notes)
