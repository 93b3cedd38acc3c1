"""The tables of :mod:`benchmarks.real_collections`: means over seeds, their spread, intervals,
differences.

A value of a query is its mean over the seeds; intervals are bootstrap intervals over the queries of
these. A difference is taken query by query against alpha 1 of the same ranker. It is given in
percent too where the interval of the value
at alpha 1 leaves out 0: a share of nearly nothing says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backpack_rank.evaluation.bootstrap import bootstrap_intervals

COLLECTIONS = {"dl19": "TREC DL 2019", "dl20": "TREC DL 2020"}
MODELS = {
    "attribute_senses": "Backpack with attribute senses",
    "attribute_senses_last": "Backpack with attribute senses, keys=last (the default before)",
    "backpack": "Backpack without, keys=last",
    "cross_encoder": "cross-encoder",
    "specialised": "specialised Backpack (an option until version 0.2)",
}
ALPHAS = (1.0, 0.5, 0.0)
"""What the tables of policies show; others were chosen by ``alpha=auto``."""
UNCHANGED, FIRST_STAGE = "unchanged", "BM25"
MEASURES = {
    "nDCG@10": "nDCG@10",
    "swap change/std (swapped)": "Change of the score when gendered words are swapped, of the documents that a swap "
    "changes, in standard deviations of the scores",
    "|gap|/std": "Gap between male and female wording of the relevant documents of Grep-BiasIR, absolute, in standard "
    "deviations of the scores",
    "gap/std": "The same gap with its sign: above 0 the male wording scores higher",
    "RaB(tf)@10": "RaB(tf)@10",
    "ARaB(tf)@10": "ARaB(tf)@10",
    "NFaiRR@10": "NFaiRR@10",
}
"""Headings, in order."""
GAP = "|gap|/std"
SWAP = "swap change/std (swapped)"
AUTO_MEASURES = ("nDCG@10", SWAP)


@dataclass(frozen=True)
class Row:
    """One policy at one alpha.

    Attributes:
        model, policy, alpha: of the ranker.
        seeds: for each seed ``{measure: {query id: value}}``.
    """

    model: str
    policy: str
    alpha: float
    seeds: Sequence[Mapping[str, Mapping[str, float]]]

    def array(self, measure: str) -> np.ndarray:
        """Values of a measure. [seeds, queries]"""
        return stacked(self.seeds, measure)


def stacked(seeds: Sequence[Mapping[str, Mapping[str, float]]], measure: str) -> np.ndarray:
    """Values of a measure, queries in the order of their ids. [seeds, queries]

    Raises:
        ValueError: seeds have values of different queries.
    """
    queries = sorted(seeds[0][measure])
    if any(sorted(one[measure]) != queries for one in seeds):
        raise ValueError(
            f"{measure}: seeds have values of different queries; were the collections the same?"
        )
    return np.array([[one[measure][query] for query in queries] for one in seeds])


def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """All tables as Markdown."""
    by_collection = {
        name: [row for row in rows_of(records, name) if row.alpha in ALPHAS] for name in COLLECTIONS
    }
    parts = [overview(by_collection)]
    for measure, heading in MEASURES.items():
        for name, rows in by_collection.items():
            shown = [row for row in rows if measure in row.seeds[0]]
            if any(row.policy != FIRST_STAGE for row in shown):
                where = "" if "gap" in measure else f", {COLLECTIONS[name]}"
                parts.append(f"### {heading}{where}\n\n{measure_table(shown, measure)}")
    parts.append(between_rankers(by_collection))
    parts += [split_gaps(records, by_collection["dl19"]), costs(records), chosen(records)]
    return "\n\n".join(part for part in parts if part) + "\n"


def overview(by_collection: Mapping[str, Sequence[Row]]) -> str:
    """The main measures side by side: means over seeds, and what they are of alpha 1."""
    columns = [
        *(
            (name, "nDCG@10", f"nDCG@10, {where} [difference]")
            for name, where in COLLECTIONS.items()
        ),
        *((name, SWAP, f"swap change / std, {where}") for name, where in COLLECTIONS.items()),
        ("dl19", GAP, "abs. gap / std, Grep-BiasIR"),
    ]
    found = {
        (name, row.model, row.policy, row.alpha): row
        for name, rows in by_collection.items()
        for row in rows
    }
    lines = []
    for model, policy, alpha in dict.fromkeys(
        (row.model, row.policy, row.alpha) for row in by_collection["dl19"]
    ):
        seeds = len(found["dl19", model, policy, alpha].seeds)
        line = [
            MODELS.get(model, ""),
            policy,
            f"{alpha:g}" if model else "",
            str(seeds) if model else "",
        ]
        for name, measure, _ in columns:
            row, base = (
                found.get((name, model, policy, alpha)),
                found.get((name, model, UNCHANGED, 1.0)),
            )
            line.append(_beside(row, base, measure))
        lines.append(line)
    heads = ["ranker", "policy", "alpha", "seeds", *(head for _, _, head in columns)]
    return f"### All policies\n\n{markdown(heads, lines)}" if lines else ""


def _beside(row: Row | None, base: Row | None, measure: str) -> str:
    """The mean, with the interval of the difference (nDCG@10) or the difference in percent
    (others).
    """
    if row is None or measure not in row.seeds[0]:
        return ""
    values = row.array(measure)
    mean = _number(values[:1].mean() if base is None else values.mean())
    if base is None or row.policy == UNCHANGED or len(base.seeds) != len(row.seeds):
        return mean
    if measure == "nDCG@10":
        low, high = bootstrap_intervals((values - base.array(measure)).mean(axis=0)[None])[0]
        return f"{mean} [{_number(low, True)}, {_number(high, True)}]"
    return f"{mean} ({_percent(values, base.array(measure))})"


def rows_of(records: Sequence[Mapping[str, Any]], collection: str) -> list[Row]:
    """Everything measured on a collection, by ranker, policy and alpha; BM25 once.

    A policy has the seeds that it was measured with.
    """
    keys: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for record in records:
        for key, values in record.items():
            name, _, setting = key.partition(" ")
            if name == collection:
                policy, alpha = setting.rsplit(" ", 1)
                model = "" if policy == FIRST_STAGE else record["model"]
                keys.setdefault((model, policy, float(alpha)), []).append(values)
    models = ["", *MODELS]
    return sorted(
        (Row(*key, own) for key, own in keys.items()), key=lambda row: models.index(row.model)
    )


def measure_table(rows: Sequence[Row], measure: str) -> str:
    """A row for each policy and alpha."""
    heads = [
        "ranker",
        "policy",
        "alpha",
        "mean over seeds [95% over queries]",
        "seeds",
        "difference to alpha 1",
    ]
    lines = []
    base: dict[str, np.ndarray] = {
        row.model: row.array(measure) for row in rows if row.policy == UNCHANGED
    }
    for row in rows:
        values = row.array(measure)
        if row.policy == FIRST_STAGE:
            lines.append([FIRST_STAGE, "", "", _mean(values[:1]), "", ""])
            continue
        change = "" if row.policy == UNCHANGED else difference(values, base[row.model])
        lines.append(
            [
                MODELS[row.model],
                row.policy,
                f"{row.alpha:g}",
                _mean(values),
                _spread(values),
                change,
            ]
        )
    return markdown(heads, lines)


def between_rankers(by_collection: Mapping[str, Sequence[Row]]) -> str:
    """nDCG@10 of the default Backpack at alpha 1, less that of each other ranker."""
    default = next(iter(MODELS))
    lines: dict[str, list[str]] = {}
    for rows in by_collection.values():
        unchanged = {row.model: row.array("nDCG@10") for row in rows if row.policy == UNCHANGED}
        for model, values in unchanged.items():
            # Seeds are averaged query by query, so both need the same ones.
            if default in unchanged and model != default and len(values) == len(unchanged[default]):
                line = lines.setdefault(model, [MODELS[model]])
                line.append(_mean(unchanged[default] - values, sign=True))
    if not lines:
        return ""
    heads = ["ranker", *COLLECTIONS.values()]
    table = markdown(heads, list(lines.values()))
    return (
        f"### nDCG@10 at alpha 1 of the {MODELS[default]}, less that of another ranker\n\n{table}"
    )


def difference(values: np.ndarray, base: np.ndarray) -> str:
    """Difference of the means with its interval, and in percent where that says something. Both
    [seeds, queries]
    """
    if len(values) != len(base):
        return "seeds differ"
    change = _mean(values - base, sign=True)
    low, high = bootstrap_intervals(base.mean(axis=0)[None])[0]
    if low <= 0 <= high:
        return change
    return f"{change}, {_percent(values, base)}"


def split_gaps(records: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> str:
    """The gap on Grep-BiasIR where both wordings have one canonical form, and on the other pairs."""
    known = [record["equal forms"] for record in records if "equal forms" in record]
    shown = [row for row in rows if GAP in row.seeds[0]]
    if not known or not shown:
        return ""
    forms = {name: set(queries) for name, queries in known[0].items()}
    queries = sorted(shown[0].seeds[0][GAP])
    heads = ["ranker", "policy", "alpha"]
    for name, equal in forms.items():
        heads += [f"`{name}`: the {len(equal)} equal", f"the {len(queries) - len(equal)} others"]
    lines = []
    for row in shown:
        means = dict(zip(queries, row.array(GAP).mean(axis=0), strict=True))
        line = [MODELS[row.model], row.policy, f"{row.alpha:g}"]
        for equal in forms.values():
            for part in (
                [q for q in queries if q in equal],
                [q for q in queries if q not in equal],
            ):
                line.append(
                    _number(float(np.mean([means[query] for query in part]))) if part else ""
                )
        lines.append(line)
    return f"### The gap on Grep-BiasIR by whether both wordings have one canonical form\n\n{markdown(heads, lines)}"


def costs(records: Sequence[Mapping[str, Any]]) -> str:
    """What scoring takes: passes and CPU time, without any cache, medians of the seeds."""
    found: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for record in records:
        for key, cost in record.items():
            kind, _, policy = key.partition(" ")
            if kind == "cost":
                found.setdefault((record["model"], policy), []).append(cost)
    if not found:
        return ""
    lines = []
    for (model, policy), own in found.items():
        passes = [one["turned passes"] / one["unchanged passes"] for one in own]
        times = [one["turned ms"] / one["unchanged ms"] for one in own]
        seconds = [one["turned ms"] for one in own]
        lines.append(
            [
                MODELS[model],
                policy,
                *(f"{float(np.median(values)):.2f}" for values in (passes, seconds, times)),
            ]
        )
    heads = [
        "ranker",
        "policy",
        "passes per document",
        "CPU seconds per 1,000 documents",
        "times alpha 1",
    ]
    return f"### Cost at alpha 0 (TREC DL 2019)\n\n{markdown(heads, lines)}"


def chosen(records: Sequence[Mapping[str, Any]]) -> str:
    """What ``alpha=auto`` chose on dev, and what that alpha does to the test collections."""
    settings: dict[tuple[str, str], list[tuple[Mapping[str, Any], float]]] = {}
    budget = ""
    for record in records:
        for key, auto in record.items():
            kind, _, policy = key.partition(" ")
            if kind == "auto":
                settings.setdefault((record["model"], policy), []).append((record, auto["alpha"]))
                budget = auto["budget"]
    if not settings:
        return ""
    lines = []
    for (model, policy), own in settings.items():
        line = [MODELS[model], policy, ", ".join(f"{alpha:g}" for _, alpha in own)]
        for name in COLLECTIONS:
            keys = [f"{name} {policy if alpha != 1 else UNCHANGED} {alpha:g}" for _, alpha in own]
            known = all(key in record for key, (record, _) in zip(keys, own, strict=True))
            for measure in AUTO_MEASURES:
                if not known:
                    line.append("")
                    continue
                values = stacked(
                    [record[key] for key, (record, _) in zip(keys, own, strict=True)], measure
                )
                base = stacked([record[f"{name} {UNCHANGED} 1"] for record, _ in own], measure)
                line.append(difference(values, base))
        lines.append(line)
    heads = ["ranker", "policy", "alpha of each seed"]
    heads += [
        f"{measure}, {where}"
        for where in COLLECTIONS.values()
        for measure in ("nDCG@10", "swap change")
    ]
    return f"### `alpha=auto` with `{budget}` on msmarco_dev600's dev split\n\n{markdown(heads, lines)}"


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _mean(values: np.ndarray, sign: bool = False) -> str:
    mean = values.mean(axis=0)
    low, high = bootstrap_intervals(mean[None])[0]
    return f"{_number(mean.mean(), sign)} [{_number(low, sign)}, {_number(high, sign)}]"


def _percent(values: np.ndarray, base: np.ndarray) -> str:
    share = 100 * (values.mean() / base.mean() - 1)
    return f"{share:+.1f}%" if -100 < share < -98.95 else f"{share:+.0f}%"  # nearly all is not all


def _spread(values: np.ndarray) -> str:
    """From the lowest seed to the highest."""
    means = values.mean(axis=1)
    return (
        _number(means[0])
        if len(means) == 1
        else f"{_number(means.min())} to {_number(means.max())}"
    )


def _number(value: float, sign: bool = False) -> str:
    shown = f"{value:+.4f}" if sign else f"{value:.4f}"
    return shown.replace("0.", ".", 1) if abs(value) < 1 else shown
