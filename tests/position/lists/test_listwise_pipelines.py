"""evaluate.py listwise=...: rankings of candidates, remedies, going on, tables, instruments,
mistakes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from listwise_evaluation import evaluated, notes_of, run_of
from listwise_example import DEPTH, composed, options, saved_ranker
from omegaconf import OmegaConf
from read_back import csv_rows
from scipy.stats import kendalltau

from backpack_rank.data.trec import read_run
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.list_runs import lists_of
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.ranking_cache import RankingCache
from backpack_rank.position.lists.saved import load_listwise
from backpack_rank.position.lists.settings import ListwiseSettings, RankerFactory
from backpack_rank.position.lists.sources import ListwiseDataConfig
from backpack_rank.position.tables.first_stages import FirstStages
from backpack_rank.position.tables.reranking_grid import RerankingGrid


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory, sentences) -> Path:
    """A listwise ranker with large random weights, so that its order is not the input's."""
    return saved_ranker(
        tmp_path_factory.mktemp("lm"), sentences, 20, words="query [A] [B] [C] [D] [E] [F] > "
    )


@pytest.mark.slow
def test_the_first_candidates_are_reordered_as_the_model_says_and_the_others_stay(ranker, tmp_path):
    config = composed(*options(ranker))
    report = evaluate(config, tmp_path, quiet=True)
    assert report.rows[0].label == "BM25"
    dataset = dataset_of(config.data)
    test, candidates = dataset.split("test"), dataset.candidates("test")[1]
    model = load_listwise(ranker)
    reranked = run_of(tmp_path)
    assert set(reranked) == set(candidates)
    moved = 0
    for passages in lists_of(candidates, test, depth=None):
        (ranking,) = model.rank([passages.select(range(min(DEPTH, len(passages))))])
        expected = [passages.ids[place] for place in ranking.order] + list(passages.ids[DEPTH:])
        assert list(reranked[passages.query_id]) == expected
        moved += expected != list(passages.ids)
    assert moved


@pytest.mark.slow
def test_a_job_goes_on_where_it_was_interrupted(ranker, tmp_path) -> None:
    evaluated(ranker, tmp_path)
    file, before = tmp_path / "rankings.jsonl", run_of(tmp_path)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:3]) + lines[3][:20])
    report = evaluated(ranker, tmp_path)
    assert len(file.read_text().splitlines()) == len(lines) == 6
    assert run_of(tmp_path) == before
    assert "3 lists, 3 forward passes" in notes_of(report)
    # Other options are other rankings.
    report = evaluated(ranker, tmp_path, "listwise.input.order=reversed")
    assert "6 lists, 6 forward passes" in notes_of(report)


SLOW_HARMS = [pytest.param(name, marks=pytest.mark.slow) for name in ("zeroed", "another order")]


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["nonsense", "no checksum", *SLOW_HARMS])
def test_damaged_rankings_are_left_out_and_ranked_again(ranker, tmp_path, caplog, harm) -> None:
    evaluated(ranker, tmp_path)
    file, before = tmp_path / "rankings.jsonl", run_of(tmp_path)
    lines = file.read_text().splitlines(keepends=True)
    row = json.loads(lines[2])
    changed = {**row, "order": row["order"][::-1]}
    if harm == "no checksum":  # of an older version: taken as it is
        changed = {name: value for name, value in row.items() if name != "checksum"}
    damages = {"nonsense": "nonsense\n", "zeroed": "\0" * len(lines[2])}
    lines[2] = damages.get(harm, json.dumps(changed) + "\n")
    file.write_text("".join(lines))
    report = evaluated(ranker, tmp_path)
    assert run_of(tmp_path) == before
    # Zeros take the line behind them along.
    again = {"zeroed": " 2 lists", "no checksum": ""}.get(harm, " 1 lists")
    assert again in notes_of(report)
    assert ("damaged lines are left out" in caplog.text) == (harm != "no checksum")


@pytest.mark.slow
def test_input_orders_are_those_that_are_shown(ranker, tmp_path) -> None:
    config = composed(*options(ranker, "listwise.input.order=reversed"))
    evaluate(config, tmp_path, quiet=True)
    dataset = dataset_of(config.data)
    model = load_listwise(ranker)
    reranked = run_of(tmp_path)
    for passages in lists_of(dataset.candidates("test")[1], dataset.split("test"), depth=DEPTH):
        shown = passages.select(range(len(passages) - 1, -1, -1))
        (ranking,) = model.rank([shown])
        expected = [shown.ids[place] for place in ranking.order]
        assert list(reranked[passages.query_id])[: len(passages)] == expected


@pytest.mark.slow
def test_remedies_and_windows_are_put_around_one_another(ranker, tmp_path) -> None:
    more = ["permutation=psc", "permutation.permutations=3", "calibration=capcal"]
    more += ["listwise.depth=8", "listwise.window.size=4", "listwise.window.stride=2"]
    report = evaluated(ranker, tmp_path, *more)
    label = report.rows[-1].label
    assert re.search(r"CapCal PSC 3 kemeny windows 4/2$", label)
    (note,) = [note for note in report.about.notes if "forward passes" in note]
    # Six queries, three windows of 4 in 8 candidates, three shuffles each; the priors of six
    # queries come on top.
    assert "54 lists" in note
    passes = int(re.search(r"(\d+) forward passes", note)[1])
    assert 54 < passes <= 54 + 6 * 1


@pytest.mark.slow
def test_orders_are_averaged_over_renditions(ranker, tmp_path) -> None:
    plain = evaluated(ranker, tmp_path)
    averaged = ["alpha=0", "policy=renditions"]
    report = evaluated(ranker, tmp_path, *averaged)
    assert report.rows[-1].label == f"{plain.rows[-1].label} renditions_keep borda"
    (note,) = [note for note in report.about.notes if "forward passes" in note]
    assert int(re.search(r"(\d+) lists", note)[1]) > 6, "lists with a class word are ranked twice"
    kemeny = evaluated(ranker, tmp_path, *averaged, "aggregate=kemeny")
    assert kemeny.rows[-1].label.endswith("renditions_keep kemeny")


def test_requests_of_rank_llm_are_ranked_and_results_written_in_their_form(ranker, tmp_path):
    texts = ("the doctor works in the ward", "a bridge was built", "soup for many guests")
    candidates = [
        {"docid": f"d{number}", "score": 3.0 - number, "doc": {"text": text}}
        for number, text in enumerate(texts)
    ]
    request = {"query": {"text": "who works in a ward", "qid": "7"}, "candidates": candidates}
    file = tmp_path / "requests.jsonl"
    file.write_text(json.dumps(request) + "\n")
    more = ["listwise=trained", f"checkpoint={ranker}", "data=rank_llm", f"data.test.path={file}"]
    evaluate(composed(*more), tmp_path / "out", quiet=True)
    (ranking,) = load_listwise(ranker).rank([PassageList("who works in a ward", texts)])
    (line,) = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    result = json.loads(line)
    assert result["query"] == request["query"]
    for candidate, place in zip(result["candidates"], ranking.order, strict=True):
        assert candidate["docid"] == f"d{place}"
        assert candidate["doc"] == candidates[place]["doc"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["permutation=psc"], "permutation=... is for listwise rankers: add listwise=trained"),
        (["calibration=capcal"], "calibration=... is for listwise rankers"),
        (["listwise=trained", "alpha=0.5"], "alpha=0.5 turns the senses of a Backpack"),
        (
            ["listwise=trained", "alpha=0.5", "policy=renditions"],
            "alpha=0.5: orders are averaged in full or not at all",
        ),
        (
            ["listwise=trained", "alpha=0", "policy=renditions", "certificate=true"],
            "certificate=true does nothing",
        ),
        (["listwise=trained", "run=a.trec"], "run=a.trec does nothing to listwise=..."),
        (
            ["listwise=trained", "listwise.depth=0"],
            "listwise.depth=0 must be a whole number of at least 1",
        ),
        (
            ["listwise=trained", "listwise.input.order=up"],
            "listwise.input.order=up: use one of first_stage, reversed",
        ),
        (
            ["listwise=openai", "calibration=capcal", "listwise.ranker.model=m", "data=synthetic"],
            "a server gives only",
        ),
        (
            ["listwise=hugging_face", "listwise.ranker.name=m"],
            "this needs the collection to rank: add data=",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(overrides, message, tmp_path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluate(composed(*overrides), tmp_path)


def test_the_option_that_a_server_needs_is_named_as_it_is_given() -> None:
    with pytest.raises(ValueError, match=r"listwise.* has no value: give ") as refused:
        ListwiseSettings.of(composed("listwise=openai"))
    option = str(refused.value).rpartition("give ")[2].removesuffix("...")
    settings = ListwiseSettings.of(composed("listwise=openai", f"{option}gpt-4o"))
    assert settings.label == "gpt-4o"


def test_a_ranker_that_is_not_there_or_is_none_is_named(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"run `.*train.* task=listwise` first"):
        evaluate(composed("listwise=trained", f"output={tmp_path}"), tmp_path)
    message = r"neither a run's folder nor a saved listwise ranker \(no listwise"
    with pytest.raises(FileNotFoundError, match=message):
        evaluate(composed("listwise=trained", f"checkpoint={tmp_path}"), tmp_path)


def test_a_listwise_ranker_is_not_taken_for_a_pointwise_one(ranker, tmp_path) -> None:
    with pytest.raises(ValueError, match="is a listwise ranker: add listwise=trained"):
        evaluate(composed("data=synthetic", f"checkpoint={ranker}"), tmp_path)
    with pytest.raises(FileNotFoundError, match="are listwise: add listwise=trained"):
        evaluate(composed("data=synthetic", f"output={ranker.parents[2]}"), tmp_path)


def test_rankings_are_kept_by_everything_they_depend_on(tmp_path) -> None:
    passages = PassageList("query", ("a", "b"), ("1", "2"), "q")
    file = tmp_path / "rankings.jsonl"
    ranking = Ranking(np.array([1, 0]), np.array([0.5, 2.0]), 1)
    RankingCache(file, {"mode": "x"}).add([passages], [ranking])
    known = RankingCache(file, {"mode": "x"})
    assert passages in known
    assert known[passages].order.tolist() == [1, 0]
    assert (known[passages].scores.tolist(), known[passages].num_ranked) == ([0.5, 2.0], 1)
    assert passages.select([1, 0]) not in known
    assert PassageList("query", ("a", "c"), ("1", "2"), "q") not in known
    assert passages not in RankingCache(file, {"mode": "y"})


@pytest.mark.slow
def test_a_papers_table_has_measured_figures_above_the_published_ones(ranker, tmp_path) -> None:
    config = composed(*options(ranker))
    synthetic = OmegaConf.to_container(config.data, resolve=True)
    capcal = OmegaConf.to_container(composed("calibration=capcal").calibration)
    rows = {
        "Base": {},
        "CapCal": {"calibration": capcal},
        "Top 2": {"data": {"first_stage": {"depth": 2}}},
    }
    table = RerankingGrid("capcal_table3", {"DL19": synthetic}, rows, baseline="Base")
    table.run(EvaluationSettings.of(config), tmp_path, quiet=True)
    lines = csv_rows(tmp_path / "capcal_table3.csv", source="measured")
    measured = {line["row"]: float(line["nDCG@10"]) for line in lines}
    assert list(measured) == ["BM25 (first stage)", "Base", "CapCal", "Top 2"]
    # The same ranker by the plain way.
    report = evaluate(config, tmp_path / "plain", quiet=True)
    first_stage, *_, base = [row.effectiveness.figures["nDCG@10"].mean for row in report.rows]
    assert measured["Base"] == pytest.approx(base)
    assert measured["BM25 (first stage)"] == pytest.approx(first_stage)
    assert measured["Top 2"] < measured["Base"]  # relevant documents behind the second are lost
    published = {"source": "published", "row": "Fixed String", "column": "DL20"}
    (line,) = csv_rows(tmp_path / "capcal_table3.csv", **published)
    assert line["nDCG@10"] == "41.26"  # as printed in the paper
    markdown = (tmp_path / "capcal_table3.md").read_text()
    assert f"{100 * measured['Base']:.2f}" in markdown
    message = "none: there is no such published table; use one of capcal_table1"
    with pytest.raises(ValueError, match=message):
        RerankingGrid("none", {}, {})
    with pytest.raises(ValueError, match=r"task\.baseline=x is none of the rows Base"):
        RerankingGrid("capcal_table3", {}, {"Base": {}}, baseline="x")


@pytest.mark.slow
def test_position_bias_is_reported_for_every_remedy(ranker, tmp_path) -> None:
    more = ["experiment=lists/bias", "task.lists=collection", "task.size=4", "task.number=3"]
    more += ["task.shuffles=2", "task.options.psc.permutations=2", "~task.rows.CapCal_PSC"]
    evaluated(ranker, tmp_path, *more, quiet=False)
    rows = {row["system"]: row for row in csv_rows(tmp_path / "remedies.csv")}
    assert list(rows) == ["plain", "CapCal", "PSC"]
    systems = json.loads((tmp_path / "controlled_positions.json").read_text())["systems"]
    curves = {system["label"]: system["curves"] for system in systems}
    for label, row in rows.items():
        values = curves[label][0]["values"]
        assert float(row["range"]) == pytest.approx(max(values) - min(values))
        assert float(row["mean"]) == pytest.approx(sum(values) / 4)
    ranked = int(rows["PSC"]["ranked"])
    assert (int(rows["plain"]["passes"]), int(rows["PSC"]["passes"])) == (ranked, 2 * ranked)
    page = (tmp_path / "report.html").read_text()
    for heading in ("over input positions", "Robustness to the input order"):
        assert heading in page
    for heading in ("Evenness of input", "Reversed pairs"):
        assert heading in page
    assert page.count("data:image/svg+xml;base64,") == 4
    assert "http://" not in re.sub(r"data:[^\"]+", "", page)


@pytest.mark.slow
def test_first_stages_are_reranked_and_so_is_their_fusion(ranker, tmp_path) -> None:
    config = composed(*options(ranker))
    synthetic = OmegaConf.to_container(config.data, resolve=True)
    stages = {"BM25": {}, "Steep": {"first_stage": {"k1": 4.0, "b": 0.9}}}
    settings = EvaluationSettings.of(config)
    FirstStages({"synthetic": synthetic}, stages).run(settings, tmp_path, quiet=True)
    rows = csv_rows(tmp_path / "first_stages.csv")
    assert {row["first_stage"] for row in rows} == {"BM25", "Steep", "RRF"}
    report = evaluate(config, tmp_path / "plain", quiet=True)
    measured = {(row["first_stage"], row["ranking"]): float(row["value"]) for row in rows}
    before, after = (row.effectiveness.figures["nDCG@10"].mean for row in report.rows)
    # The same candidates, of which the study measures the first five alone.
    assert measured["BM25", "before"] <= before
    reranked = read_run(tmp_path / "runs" / "BM25__synthetic.run")
    plain = run_of(tmp_path / "plain")
    assert all(list(reranked[query]) == list(plain[query])[:DEPTH] for query in reranked)
    assert measured["BM25", "after"] <= after
    assert "data:image/svg+xml;base64," in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_sorting_tasks_are_ranked_once_and_consistently(ranker, tmp_path) -> None:
    more = ["experiment=lists/psc_table3", "task.tasks=[mathsort]", "task.files=null"]
    more += ["task.number=4", "task.size=4"]
    evaluated(ranker, tmp_path, *more, "task.options.psc.permutations=3", quiet=False)
    (file,) = tmp_path.glob("*.csv")
    rows = csv_rows(file, source="here")
    kinds = [(row["task"], row["kind"]) for row in rows]
    assert kinds == [("MathSort", "Orig."), ("MathSort", "PSC")]
    assert {row["model"] for row in rows} == {"listwise LM"}
    saved = load_listwise(ranker)
    lists = ListwiseDataConfig("mathsort", 4, 4, held_out=4).held_out_lists(None)
    ranked = saved.rank([item.passages for item in lists])
    taus = [
        kendalltau(ranking.ranks(), item.relevance_levels).statistic
        for ranking, item in zip(ranked, lists, strict=True)
    ]
    assert float(rows[0]["tau"]) == pytest.approx(np.mean(taus))
    with pytest.raises(ValueError, match="gsm8ksort is read from its file"):
        evaluated(ranker, tmp_path, *more, "task.tasks=[gsm8ksort]")


def test_published_sorting_lists_are_read(ranker, tmp_path, real_data) -> None:
    more = ["experiment=lists/psc_table3", "task.number=2", "task.options.psc.permutations=2"]
    evaluated(ranker, tmp_path, *more)
    assert "GSM8KSort, PSC: 2 lists" in next(iter(tmp_path.glob("*.md"))).read_text()


@pytest.mark.parametrize("task", ["lists/bias", "lists/psc_table3", "lists/capcal_table1"])
def test_experiments_need_a_listwise_ranker(task, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", str(tmp_path))
    config = composed(f"experiment={task}")
    OmegaConf.set_struct(config, False)
    config.pop("listwise", None)
    with pytest.raises(ValueError, match="listwise"):
        evaluate(config, tmp_path)


def test_rankers_that_differ_in_remedies_share_the_model_and_count_on_their_own(ranker) -> None:
    factory = RankerFactory()

    def built(*more: str):
        return factory.build(ListwiseSettings.of(composed(*options(ranker, *more)))).ranker

    plain, calibrated = built(), built("calibration=capcal")
    assert calibrated.model is plain.model
    assert plain.calibration is None
    shown = PassageList("which is best", ("one", "two", "three"))
    (alone,) = load_listwise(ranker).rank([shown])
    calibrated.rank([shown])
    (beside,) = plain.rank([shown])
    assert beside.order.tolist() == alone.order.tolist()
    assert (plain.usage.passes, calibrated.usage.passes) == (1, 2)
    assert built("listwise.ranker.dtype=bfloat16").model is not plain.model


@pytest.mark.parametrize(
    "option", ["explain.query=who", "explain.document=he", "recalibrate.run=a.trec"]
)
def test_options_of_pointwise_rankers_are_refused(option, ranker, tmp_path) -> None:
    message = rf"{option.split('=')[0]}=\.\.\. does nothing to listwise"
    with pytest.raises(ValueError, match=message):
        evaluated(ranker, tmp_path, option)
