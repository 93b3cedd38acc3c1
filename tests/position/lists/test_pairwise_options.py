"""evaluate.py pairwise=...: rankings by comparisons with a real model, what is counted, Table 8,
mistakes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from listwise_evaluation import evaluated, notes_of, run_of
from listwise_example import DEPTH, composed, options, saved_ranker
from read_back import csv_rows

from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.position.lists.list_runs import lists_of
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.saved import load_listwise


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory, sentences) -> Path:
    """A listwise ranker that was made for lists of four."""
    return saved_ranker(
        tmp_path_factory.mktemp("lm"), sentences, 4, words="query [A] [B] [C] [D] [E] [F] > "
    )


def winners(ranker: Path, passages: PassageList) -> dict[frozenset[int], int | None]:
    """For every pair of positions the one that the model puts first in both orders, each asked
    alone.
    """
    model, preferred = load_listwise(ranker), {}

    def front(*places: int) -> int:
        (ranking,) = model.rank([passages.select(places)])
        return places[ranking.order[0]]

    for low in range(len(passages)):
        for high in range(low + 1, len(passages)):
            forth, back = front(low, high), front(high, low)
            preferred[frozenset((low, high))] = forth if forth == back else None
    return preferred


def bubbled(
    preferred: dict[frozenset[int], int | None], size: int, passes: int
) -> tuple[list[int], set]:
    order, asked = list(range(size)), set()
    for _ in range(passes):
        for place in reversed(range(1, size)):
            pair = frozenset(order[place - 1 : place + 1])
            asked.add(pair)
            if preferred[pair] == order[place]:
                order[place - 1 : place + 1] = order[place], order[place - 1]
    return order, asked


@pytest.mark.slow
def test_candidates_are_sorted_by_comparisons_of_the_model(ranker, tmp_path) -> None:
    config = composed(*options(ranker, "pairwise=sliding", "pairwise.passes=2"))
    report = evaluate(config, tmp_path, quiet=True)
    # A comparison shows two, so the whole list is sorted, not windows of the four that the model
    # was made for.
    assert report.rows[-1].label == "listwise LM PRP sliding 2"
    reranked = run_of(tmp_path)
    dataset = dataset_of(config.data)
    comparisons = ties = 0
    for passages in lists_of(dataset.candidates("test")[1], dataset.split("test"), depth=None):
        shown = passages.select(range(min(DEPTH, len(passages))))
        preferred = winners(ranker, shown)
        order, asked = bubbled(preferred, len(shown), 2)
        expected = [shown.ids[place] for place in order] + list(passages.ids[DEPTH:])
        assert list(reranked[passages.query_id]) == expected
        comparisons += len(asked)
        ties += sum(preferred[pair] is None for pair in asked)
    assert 0 < ties < comparisons
    notes = notes_of(report)
    assert f"{2 * comparisons} lists, {2 * comparisons} forward passes" in notes
    assert f"{comparisons} comparisons, each in both orders; {ties} of them" in notes


@pytest.mark.slow
def test_saved_rankings_depend_on_comparisons_and_are_taken_up_again(ranker, tmp_path) -> None:
    report = evaluated(ranker, tmp_path, "pairwise=all_pairs")
    assert report.rows[-1].label == "listwise LM PRP all pairs"
    # Six queries, ten pairs of five candidates, two orders.
    assert "120 lists" in notes_of(report)
    again = evaluated(ranker, tmp_path, "pairwise=all_pairs")
    assert "nothing was ranked anew" in notes_of(again)
    assert "comparisons" not in notes_of(again)
    other = evaluated(ranker, tmp_path, "pairwise=sliding", "pairwise.passes=3")
    assert "lists," in notes_of(other)


@pytest.mark.slow
def test_calibration_is_inside_and_permutations_are_outside(ranker, tmp_path) -> None:
    more = ["pairwise=all_pairs", "listwise.window.size=3", "calibration=capcal"]
    more += ["permutation=psc", "permutation.permutations=2"]
    report = evaluated(ranker, tmp_path, *more)
    assert report.rows[-1].label == "listwise LM CapCal PRP all pairs PSC 2 kemeny"
    (note,) = [note for note in report.about.notes if "comparisons" in note]
    # Six queries, two shuffles, ten pairs of five candidates; no windows.
    assert note.startswith("120 comparisons")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["pairwise=sliding"], "pairwise=... is for listwise rankers: add listwise=trained"),
        (
            ["listwise=trained", "pairwise=sliding", "run=a.trec"],
            "run=a.trec does nothing to listwise=...",
        ),
    ],
)
def test_comparisons_need_a_listwise_ranker(overrides, message, tmp_path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluate(composed(*overrides), tmp_path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["pairwise=sliding", "pairwise.passes=0"],
            "pairwise.passes=0 must be a whole number of at least 1",
        ),
        (
            ["+prompt@listwise.ranker.prompt=pairwise"],
            "prompt pairwise shows 2 passages at most, not 4",
        ),
    ],
)
def test_options_out_of_range_are_named(ranker, more, message, tmp_path) -> None:
    with pytest.raises(Exception, match=message):  # Hydra wraps what a target raises
        evaluated(ranker, tmp_path, *more)


@pytest.mark.slow
def test_a_prompt_for_two_ranks_lists_by_comparisons(ranker, tmp_path) -> None:
    more = ["pairwise=sliding", "pairwise.passes=1", "+prompt@listwise.ranker.prompt=pairwise"]
    report = evaluated(ranker, tmp_path, *more)
    # One pass over five candidates is four comparisons.
    assert re.search(r"\b24 comparisons, each in both orders", notes_of(report))


MATH_SORT = ["task.tasks=[mathsort]", "task.files=null"]


@pytest.mark.slow
def test_table_8_has_comparisons_beside_permutations(ranker, tmp_path) -> None:
    more = [*MATH_SORT, "task.number=4", "task.size=4", "task.options.psc.permutations=3"]
    ways = ["task.options.prp.passes=2", "+task.ways.once={}"]
    evaluated(ranker, tmp_path, "experiment=lists/psc_table8", *more, *ways, quiet=False)
    measured = csv_rows(tmp_path / "sorting_methods.csv", source="here")
    here = {row["kind"]: float(row["tau"]) for row in measured}
    assert list(here) == ["PRP", "PSC", "once"]
    assert {row["model"] for row in measured} == {"listwise LM"}
    published = {
        (row["model"], row["kind"], row["task"]): float(row["tau"])
        for row in csv_rows(tmp_path / "sorting_methods.csv", source="paper")
    }
    assert published["GPT-4", "PRP", "GSM8KSort"] == pytest.approx(0.799)
    assert len(published) == 12
    text = (tmp_path / "sorting_methods.md").read_text()
    assert f"listwise LM (PRP) | {100 * here['PRP']:.1f} | - | - |" in text
    assert "GPT-3.5 (PRP) | 46.7 | 82.2 | 64.0 |" in text
    # Four lists of four, two passes: at most five comparisons of each, in two orders.
    (note,) = re.findall(r"MathSort, PRP: 4 lists; (\d+) lists", text)
    assert 2 * 4 * 3 <= int(note) <= 2 * 4 * 5
    # The plain way of ranking is that of Table 3.
    evaluated(ranker, tmp_path, "experiment=lists/psc_table3", *more)
    measured = csv_rows(tmp_path / "sorting.csv", source="here")
    third = {row["kind"]: float(row["tau"]) for row in measured}
    assert third == {"Orig.": here["once"], "PSC": here["PSC"]}


@pytest.mark.slow
def test_one_way_of_the_table_may_have_a_prompt_of_its_own(ranker, tmp_path) -> None:
    more = [*MATH_SORT, "task.number=2", "task.size=3", "task.options.psc.permutations=2"]
    prompt = "+prompt@task.ways.PRP.listwise.ranker.prompt=pairwise"
    evaluated(ranker, tmp_path, "experiment=lists/psc_table8", *more, prompt)
    text = (tmp_path / "sorting_methods.md").read_text()
    # The texts of that prompt are longer than "query: " of the ranker's own.
    tokens = {
        way: int(count.replace(",", ""))
        for way, count in re.findall(r"MathSort, (\w+):.*?([\d,]+) tokens", text)
    }
    lists = {
        way: int(count)
        for way, count in re.findall(r"MathSort, (\w+): \d+ lists; (\d+) lists", text)
    }
    assert tokens["PRP"] / lists["PRP"] > 2 * tokens["PSC"] / lists["PSC"]
