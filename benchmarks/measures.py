"""Measures of fairness over whole arrays against plain nested loops, and the counting of words in
texts.

``python -m benchmarks.measures`` writes ``benchmarks/results/measures.json``; ``--quick`` is a
tenth of the size.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from backpack_rank.attributes.lexicon import Lexicon, load_lexicon
from backpack_rank.data.collection import MemoryStore, Run
from backpack_rank.evaluation.fairness_measures import WORD_FAMILIES, FairnessMeasures
from backpack_rank.evaluation.magnitudes import MAGNITUDES, GroupMagnitudes
from backpack_rank.evaluation.results import PerQuery
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record
from benchmarks.timing import Times, in_turns

CUTOFFS = (5, 10, 20, 30, 40, 50)
BACKGROUND = 200
FIRST, LATER, LOOPS = "first run", "further run", "nested loops"
MAGNITUDES_JOB = "magnitudes, word tokens"
WORDS_PER_PASSAGE = 56
GENDERED = (0.2, 0.08)  # share of passages that have words of the list, and of the words of these

Values = dict[str, dict[str, float]]


def main() -> None:
    """Time both, compare their values, print tables and write the record."""
    options = arguments()
    facts = machine("cpu") | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}
    lexicon = load_lexicon("gender_words")
    texts = passages(lexicon, options.passages, np.random.default_rng(0))
    run, background = runs(
        list(texts), options.queries, options.documents, np.random.default_rng(1)
    )
    settings = FairnessMeasures(
        families=WORD_FAMILIES,
        cutoffs=CUTOFFS,
        kinds=MAGNITUDES,
        tokenizer="whitespace",
        background_depth=BACKGROUND,
    )
    store = MemoryStore(texts)
    magnitudes = settings.magnitudes(texts, store)
    context = settings.context(magnitudes, background)
    found = context.measure(run, settings.measures)
    jobs: dict[str, Callable[[], object]] = {
        FIRST: lambda: settings.measure(run, magnitudes, background),
        LATER: lambda: context.measure(run, settings.measures),
        LOOPS: lambda: nested_loops(run, background, magnitudes),
        "magnitudes, whitespace tokens": lambda: settings.magnitudes(texts, store),
        MAGNITUDES_JOB: lambda: FairnessMeasures().magnitudes(texts, store),
    }
    times = in_turns(jobs, options.repeats, "measures", "cpu")
    goals = goals_of(
        times, difference(found, nested_loops(run, background, magnitudes)), not options.quick
    )
    console = Console()
    print_table(
        console, "Seconds", ["job", "median"], [[job, f"{times.median(job):.3f}"] for job in jobs]
    )
    print_table(
        console, "Goals", ["what", "measured", "goal", ""], [goal.as_row() for goal in goals]
    )
    record: dict[str, object] = {
        "command": command_line("measures"),
        "machine": facts,
        "workload": {
            "queries": options.queries,
            "documents_per_query": options.documents,
            "background_per_query": BACKGROUND,
            "passages": options.passages,
            "measures_with_cutoffs": len(found.measures),
            "cutoffs": list(CUTOFFS),
        },
        "seconds": times.seconds,
        "speedups": {job: times.speedups(job, LOOPS) for job in (FIRST, LATER)},
        "goals": [goal.as_record() for goal in goals],
    }
    write_record(options.output, record)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=1765)
    parser.add_argument("--documents", type=int, default=1000, help="per query")
    parser.add_argument("--passages", type=int, default=50_000, help="of the collection")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the queries and passages")
    parser.add_argument(
        "--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/"
    )
    options = parser.parse_args()
    options.output = options.output or record_file("measures.json", options.quick)
    if options.quick:
        options.queries, options.passages = options.queries // 10, options.passages // 10
    return options


def goals_of(times: Times, furthest: float, full: bool) -> list[Goal]:
    """Figures and the bounds they are held against."""
    return [
        Goal(f"{LOOPS} over {LATER}, time", times.speedup(LATER, LOOPS), 30, True, full),
        Goal(f"{LOOPS} over {FIRST}, time", times.speedup(FIRST, LOOPS), 30, True, full),
        Goal("largest difference of a value", furthest, 1e-12, False),
        Goal("seconds for all measures, first run", times.median(FIRST), 3, False, full),
        Goal("seconds for magnitudes, word tokens", times.median(MAGNITUDES_JOB), 5, False, full),
    ]


def passages(lexicon: Lexicon, number: int, rng: np.random.Generator) -> dict[str, str]:
    """Random texts of made-up words, of which a few are words of the list."""
    plain = np.array([f"w{index}x" for index in range(20_000)])
    listed = np.array(sorted(lexicon.words))
    texts = {}
    for index in range(number):
        length = int(rng.integers(WORDS_PER_PASSAGE // 2, WORDS_PER_PASSAGE * 3 // 2))
        words = plain[rng.integers(0, len(plain), length)]
        chosen = rng.random(length) < GENDERED[1] * (rng.random() < GENDERED[0])
        words[chosen] = listed[rng.integers(0, len(listed), int(chosen.sum()))]
        texts[f"d{index:07}"] = " ".join(words.tolist())
    return texts


def runs(
    doc_ids: list[str], queries: int, documents: int, rng: np.random.Generator
) -> tuple[Run, Run]:
    """A run and a background run of its documents, sorted by score as files are; some scores are
    tied.
    """
    run: Run = {}
    background: Run = {}
    for number in range(queries):
        chosen = rng.choice(len(doc_ids), documents, replace=False)
        for target, depth in ((run, documents), (background, BACKGROUND)):
            order = [doc_ids[index] for index in rng.permutation(chosen)[:depth].tolist()]
            scores = -np.sort(-np.round(rng.gamma(4, 3, len(order)), 4))
            target[f"q{number:05}"] = dict(zip(order, scores.tolist(), strict=True))
    return run, background


def nested_loops(run: Run, background: Run, magnitudes: GroupMagnitudes) -> Values:
    """The formulas as they are written, for two groups, one value after the other; counts are
    given.
    """
    counts = {
        doc_id: magnitudes.values["tc"][row].tolist() for doc_id, row in magnitudes.rows.items()
    }
    by_kind = {
        kind: {doc_id: values[row].tolist() for doc_id, row in magnitudes.rows.items()}
        for kind, values in magnitudes.values.items()
    }
    values: Values = {}
    for query_id, scores in run.items():
        ranked = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))
        given = background[query_id]
        first = sorted(given, key=lambda doc_id: (-given[doc_id], doc_id))[:BACKGROUND]
        ideal = sorted((neutrality(*counts[doc_id]) for doc_id in first), reverse=True)
        for cutoff in CUTOFFS:
            for name, value in rank_bias(ranked, by_kind, cutoff):
                values.setdefault(f"{name}@{cutoff}", {})[query_id] = value
            for name, value in discounted(ranked, counts, ideal, cutoff):
                values.setdefault(f"{name}@{cutoff}", {})[query_id] = value
    return values


def rank_bias(
    ranked: list[str], by_kind: dict[str, dict[str, list[float]]], cutoff: int
) -> Iterator[tuple[str, float]]:
    """RaB and ARaB of every magnitude: the difference, the female and the male part."""
    for kind, by_document in by_kind.items():
        for part, weights in (("", (-1, 1)), (",female", (1, 0)), (",male", (0, 1))):
            yield f"RaB({kind}{part})", rab(ranked, by_document, weights, cutoff)
            yield f"ARaB({kind}{part})", arab(ranked, by_document, weights, cutoff)


def rab(
    ranked: list[str], by_document: dict[str, list[float]], weights: tuple[int, int], cutoff: int
) -> float:
    """Eq. 8: the mean over the first documents."""
    total = 0.0
    first = ranked[:cutoff]
    for doc_id in first:
        female, male = by_document[doc_id]
        total += weights[0] * female + weights[1] * male
    return total / len(first)


def arab(
    ranked: list[str], by_document: dict[str, list[float]], weights: tuple[int, int], cutoff: int
) -> float:
    """Eq. 9: the mean of RaB at every place."""
    total = 0.0
    places = min(cutoff, len(ranked))
    for place in range(1, places + 1):
        total += rab(ranked, by_document, weights, place)
    return total / places


def discounted(
    ranked: list[str], counts: dict[str, list[float]], ideal: list[float], cutoff: int
) -> Iterator[tuple[str, float]]:
    """FaiRR, NFaiRR and the exposures."""
    fairr = best = exposure = 0.0
    held = {"female": 0.0, "male": 0.0, "neutral": 0.0}
    for place, doc_id in enumerate(ranked[:cutoff], start=1):
        female, male = counts[doc_id]
        fairr += neutrality(female, male) / math.log2(1 + place)
        exposure += 1 / math.log2(1 + place)
        group = "female" if female > male else "male" if male > female else "neutral"
        held[group] += 1 / math.log2(1 + place)
    for place, value in enumerate(ideal[:cutoff], start=1):
        best += value / math.log2(1 + place)
    yield "FaiRR", fairr
    yield "NFaiRR", fairr / best
    for group, amount in held.items():
        yield f"Exposure({group})", amount / exposure


def neutrality(female: float, male: float) -> float:
    """omega of a document with these counts."""
    total = female + male
    return 1.0 if total <= 1 else 1 - abs(female / total - 0.5) - abs(male / total - 0.5)


def difference(found: PerQuery, expected: Values) -> float:
    """Largest absolute difference of a value; both must have the same measures and queries."""
    if set(found.measures) != set(expected):
        raise ValueError(f"measures differ: {sorted(set(found.measures) ^ set(expected))}")
    return max(
        abs(found.values[name][query_id] - value)
        for name, by_query in expected.items()
        for query_id, value in by_query.items()
    )


if __name__ == "__main__":
    main()
