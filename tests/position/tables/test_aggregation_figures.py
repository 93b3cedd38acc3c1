"""evaluate.py experiment=lists/psc_figures: files, figures against rankings by hand, going on,
mistakes.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from listwise_example import composed, saved_ranker
from read_back import csv_rows
from scipy import stats

from backpack_rank.data.trec import ranking
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.position.aggregation.aggregate import Borda
from backpack_rank.position.aggregation.run_spread import (
    AggregationScores,
    spread_chart,
    write_run_spread,
)
from backpack_rank.position.lists.permutation import PermutationSelfConsistency, rank_shuffled
from backpack_rank.position.lists.saved import load_listwise
from backpack_rank.position.lists.sources import ListwiseDataConfig
from backpack_rank.position.tables.aggregation import numbers_table, spread_table

SYNTHETIC = ["+data@task.collections.Synthetic=synthetic"]
SYNTHETIC += ["+task.collections.Synthetic.test.test_queries=6"]
SYNTHETIC += ["+task.collections.Synthetic.test.documents=40"]


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory, sentences) -> Path:
    """A listwise ranker trained on lists of 4, as far as it knows."""
    words = "query [A] [B] [C] [D] > 1 2 3 4 5 6 7 8 9 + - * /"
    return saved_ranker(tmp_path_factory.mktemp("lm"), sentences, 4, positions=512, words=words)


def figures(ranker: Path, *overrides: str):
    """The experiment's configuration, small."""
    given = ["experiment=lists/psc_figures", "listwise=trained", f"checkpoint={ranker}"]
    given += ["task.number=4", "task.size=4", "task.permutations=6", "task.numbers=[1,3]"]
    given += ["task.files=null"]
    return composed(*given, *overrides)


@pytest.fixture(autouse=True)
def data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BACKPACK_RANK_DATA", raising=False)


@pytest.mark.slow
def test_figures_are_those_of_rankings_by_hand(ranker, tmp_path) -> None:
    options = ["task.tasks=[mathsort,Synthetic]", *SYNTHETIC, "task.temperatures=[0,2]"]
    evaluate(figures(ranker, *options), tmp_path, quiet=True)
    spread = csv_rows(tmp_path / "single_runs.csv")
    measured = [(float(row["temperature"]), row["task"]) for row in spread[::3]]
    assert measured == list(itertools.product((0, 2), ("MathSort", "Synthetic")))
    items = ListwiseDataConfig("mathsort", 4, 4, held_out=4, seed=0).held_out_lists(None)
    lists, targets = [item.passages for item in items], [item.relevance_levels for item in items]
    for temperature in (0, 2):
        model = load_listwise(ranker, temperature=temperature)
        shuffled = rank_shuffled(model, lists, 6, 0)
        taus = np.zeros((6, 4))
        for number, owner in enumerate(shuffled.lists):
            places = np.argsort(shuffled.original(number))
            taus[number % 6, owner] = stats.kendalltau(places, targets[owner])[0]
        means = taus.mean(axis=1)
        of_task = {"task": "MathSort", "temperature": str(temperature)}
        (row,) = csv_rows(tmp_path / "single_runs.csv", **of_task, aggregator="borda")
        by_hand = {"minimum": means.min(), "median": np.median(means), "maximum": means.max()}
        for name, value in by_hand.items():
            assert float(row[name]) == pytest.approx(value, abs=1e-9)
        assert (row["runs"], row["lists"]) == ("6", "4")
        psc = PermutationSelfConsistency(
            load_listwise(ranker, temperature=temperature), 6, Borda(), seed=0
        )
        aggregated = zip(psc.rank(lists), targets, strict=True)
        taus_of_psc = [stats.kendalltau(each.ranks(), target)[0] for each, target in aggregated]
        expected = np.mean(taus_of_psc)
        assert float(row["aggregate"]) == pytest.approx(expected, abs=1e-9)
        assert float(row["beaten"]) == pytest.approx(np.mean(means < expected))
        of_one = csv_rows(tmp_path / "aggregated_rankings.csv", **of_task, rankings="1")
        # The first run is its own aggregate.
        assert [float(row["score"]) for row in of_one] == pytest.approx([means[0]] * 3, abs=1e-9)
    assert {row["measure"] for row in spread if row["task"] == "Synthetic"} == {"nDCG@10"}
    numbers = csv_rows(tmp_path / "aggregated_rankings.csv")
    assert {row["rankings"] for row in numbers} == {"1", "3", "6"}
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 4
    for stem in ("figure3", "figure5a", "figure5b", "figure6"):
        assert (tmp_path / f"{stem}.png").stat().st_size
        assert (tmp_path / f"{stem}.svg").stat().st_size
    markdown = (tmp_path / "single_runs.md").read_text()
    sentence = "beats all individual runs by 1 to 12%. Here: kemeny against the best single run"
    assert sentence in markdown
    assert "93.5% of the boost. Here: kemeny is ahead in" in markdown


@pytest.mark.slow
def test_candidates_are_as_many_as_the_window_holds(ranker, tmp_path) -> None:
    config = figures(ranker, "task.tasks=[Synthetic]", *SYNTHETIC, "task.temperatures=[0]")
    evaluate(config, tmp_path, quiet=True)
    kept = [json.loads(line) for line in (tmp_path / "rankings.jsonl").read_text().splitlines()]
    assert {len(line["ids"]) for line in kept} == {4}
    _, candidates = dataset_of(config.task.collections.Synthetic).candidates("test")
    for line in kept:
        assert set(line["ids"]) == set(ranking(candidates[line["query_id"]])[:4])
    assert not (tmp_path / "figure5b.svg").exists()  # one temperature


@pytest.mark.slow
def test_an_interrupted_job_goes_on(ranker, tmp_path) -> None:
    options = ["task.tasks=[mathsort]", "task.temperatures=[0,1]", "listwise.lists_per_call=5"]
    evaluate(figures(ranker, *options), tmp_path, quiet=True)
    file = tmp_path / "rankings.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    before = (tmp_path / "single_runs.csv").read_text()
    file.write_text("".join(lines[:-7]))
    evaluate(figures(ranker, *options), tmp_path, quiet=True)
    assert len(file.read_text().splitlines()) == len(lines)
    assert (tmp_path / "single_runs.csv").read_text() == before
    notes = (tmp_path / "single_runs.md").read_text()
    assert re.search(r"T=1 windows 4/2: 7 lists, 7 forward passes", notes)
    # Another seed of the draws is another ranking; greedy ones have none, but are kept by the same
    # options.
    evaluate(figures(ranker, *options, "listwise.ranker.seed=1"), tmp_path, quiet=True)
    assert (tmp_path / "single_runs.csv").read_text() != before


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["permutation=psc"], "permutation=... would shuffle the shuffles again"),
        (["listwise.input.order=reversed"], "listwise.input.order=reversed has no effect here"),
        (
            ["task.tasks=[sorting]"],
            "task.tasks: 'sorting' is none of mathsort, wordsort, gsm8ksort",
        ),
        (["task.tasks=[]"], "task.tasks=[] must be a list"),
        (
            ["task.temperatures=[0,0.5,0.5]"],
            "task.temperatures=[0, 0.5, 0.5]: name at least one, each once",
        ),
        (
            ["task.numbers=[1,20]"],
            "task.numbers=[1, 20] must be whole numbers from 1 to task.permutations=6",
        ),
        (["task.permutations=0"], "task.permutations=0 must be a whole number"),
        (["task.tasks=[gsm8ksort]"], "gsm8ksort is read from its file"),
        (
            ["task.tasks=[mathsort]", "task.temperatures=[-1]"],
            "task.temperatures[0]=-1 must be a number of at least 0",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(overrides, message, ranker, tmp_path) -> None:
    # Hydra puts an error of an option in a sentence of its own, with the same words.
    with pytest.raises(Exception, match=re.escape(message)):
        evaluate(figures(ranker, *overrides), tmp_path, quiet=True)


def runs(task: str, temperature: float, singles, **aggregates) -> AggregationScores:
    given = (temperature, 10, tuple(singles), (1, 5, 20), aggregates)
    return AggregationScores(task, "Kendall's tau", *given)


FOUND = [
    runs("Sums", 0, [0.5, 0.6, 0.7, 0.8], kemeny=(0.5, 0.8, 0.9), rrf=(0.5, 0.7, 0.875)),
    runs("Words", 0, [0.2, 0.2, 0.3, 0.4], kemeny=(0.2, 0.25, 0.35), rrf=(0.2, 0.3, 0.36)),
    runs("Sums", 0.5, [0.4, 0.5, 0.5, 0.6], kemeny=(0.4, 0.7, 0.8), rrf=(0.4, 0.6, 0.7)),
]


def test_tables_and_sentences_are_those_worked_by_hand() -> None:
    table = spread_table(FOUND)
    headings = [heading for heading, _ in table.sections]
    assert headings == ["Sampling temperature 0", "Sampling temperature 0.5"]
    (_, (sums, words)), _ = table.sections
    # Quartiles 0.575 and 0.725; all four runs are below 0.9, three of four below 0.35.
    shown = " ".join(entry.text for entry in sums[1])
    assert shown == "50.00 65.00 80.00 15.00 90.00 87.50 100%"
    assert [entry.text for entry in words[1]][-3:] == ["35.00", "36.00", "75%"]
    text = " ".join(table.notes)
    assert "Sums +10.00 (+12.5%); Words -5.00 (-12.5%)" in text
    # Means of single runs are 0.65 and 0.275: (0.8 - 0.65) / 0.25, and a loss against the mean is
    # no gain.
    assert "five give 60.0% (Sums), -33.3% (Words) of the gain of 20" in text
    assert "-10.00 points (Sums, temperature 0.5 in place of 0)" in text
    assert "kemeny is ahead in 1 of 2 by +0.75 points on average; RRF gives 90.0% (Sums)" in text
    assert "RRF gives 90.0% (Sums), 113.3% (Words)" in text
    (_, of_first_temperature), *_ = numbers_table(FOUND).sections
    shown = [entry.text for entry in of_first_temperature[0][1]]
    assert shown == ["65.00", "50.00", "80.00", "90.00"]
    assert len(of_first_temperature) == 2


@pytest.mark.slow
def test_pictures_show_the_runs_and_are_equal_for_equal_figures(tmp_path) -> None:
    spec = spread_chart(FOUND)
    panel = spec["concat"][0]["layer"]
    values = [[row["value"] for row in spec["datasets"][layer["data"]["name"]]] for layer in panel]
    assert values[1] == pytest.approx([50, 60, 70, 80, 40, 50, 50, 60])
    assert values[2] == pytest.approx([90, 80])
    for folder in ("one", "other"):
        assert len(write_run_spread(tmp_path / folder, FOUND)) == 4
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()
    with pytest.raises(ValueError, match="there are no runs to draw"):
        write_run_spread(tmp_path, [])
