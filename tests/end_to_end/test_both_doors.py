"""``evaluate.py`` and ``backpack_rank.evaluate`` give one number for one thing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from in_process import configured, evaluated
from workplace import ROOT, Workplace

import backpack_rank
from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.sources.trec import load_trec
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import write_run
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.results import Report
from backpack_rank.files import read_yaml
from backpack_rank.pipelines.chosen_data import named_dataset
from backpack_rank.reranking.scorer import Scorer

SIZES = {"test_queries": 12, "documents": 80}
NAMES = sorted(path.stem for path in (ROOT / "conf" / "data").glob("*.yaml"))
NEED_OPTIONS = ("beir", "trec", "ir_datasets", "pairs", "rank_llm")


def figures(report: Report) -> dict[tuple[str, str], tuple[float, int]]:
    """Mean and number of queries by row and measure; the first row is the first stage."""
    found = {}
    for place, row in enumerate(report.rows):
        for block in row.blocks.values():
            for name, estimate in block.figures.items():
                label = row.label if place else "first stage"
                found[label, name] = (estimate.mean, block.queries)
    return found


def ranker_of(place: Workplace) -> Path:
    (folder,) = place.output.glob("train/*/ranker")
    return folder


def same(of_command: Report, of_python: Report) -> None:
    expected, found = figures(of_command), figures(of_python)
    assert found.keys() == expected.keys()
    for key, (mean, queries) in expected.items():
        assert found[key][0] == pytest.approx(mean, abs=1e-6, nan_ok=True), key
        assert found[key][1] == queries, key


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """The small test collection as a BEIR folder and as single files."""
    collection = load_synthetic("test", **SIZES)
    root = tmp_path / "files"
    (root / "qrels").mkdir(parents=True)
    with open(root / "corpus.jsonl", "w") as file:
        for doc_id, text in collection.documents:
            file.write(json.dumps({"_id": doc_id, "title": "", "text": text}) + "\n")
    with open(root / "queries.jsonl", "w") as file:
        for query_id, text in collection.queries.items():
            file.write(json.dumps({"_id": query_id, "text": text}) + "\n")
    rows = ["query-id\tcorpus-id\tscore\n"]
    for query_id, labels in collection.qrels.items():
        rows += [f"{query_id}\t{doc_id}\t{label}\n" for doc_id, label in labels.items()]
    (root / "qrels" / "test.tsv").write_text("".join(rows))
    ranked = {
        query_id: dict.fromkeys(list(labels)[:15], 1.0)
        for query_id, labels in collection.qrels.items()
    }
    write_run(root / "given.trec", ranked, "given")
    return root


def collection_of(name: str, root: Path) -> tuple[list[str], Collection]:
    """Options of the command, and the same collection in Python."""
    if name == "synthetic":
        return [], load_synthetic("test", **SIZES)
    if name == "beir":
        return ["data=beir", f"data.folder={root}"], load_beir(root, "test", name="beir")
    if name == "beir with candidates":
        options = ["data=beir", f"data.folder={root}", "+data.test.candidates=given.trec"]
        collection = load_beir(root, "test", candidates="given.trec")
        return [*options, "first_stage=given"], collection
    files = [root / "corpus.jsonl", root / "queries.jsonl", root / "qrels" / "test.tsv"]
    options = ["data=trec", f"data.collection={files[0]}", f"data.test.topics={files[1]}"]
    return [*options, f"data.test.qrels={files[2]}"], load_trec("test", *files)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic", "beir", "beir with candidates", "trec"])
def test_every_kind_of_collection(trained: Workplace, tmp_path: Path, folders: Path, name: str):
    options, collection = collection_of(name, folders)
    of_command = evaluated(trained, tmp_path / "out", "alpha=0.5", *options, quiet=False)
    reranker = backpack_rank.load(ranker_of(trained))
    dials = [reranker.with_policy("lowest_senses", alpha) for alpha in (1, 0.5)]
    table = backpack_rank.evaluate(dials, collection)
    assert [row.label for row in of_command.rows][1:] == ["alpha=1", "alpha=0.5"]
    same(of_command, table.report())


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["default", "rekabsaz2020", "rekabsaz2021"])
@pytest.mark.parametrize("attribute", ["gender", "age", "religion", "ethnicity"])
def test_every_attribute_and_preset(
    trained: Workplace, tmp_path: Path, attribute: str, preset: str
) -> None:
    if attribute != "gender" and preset != "default":
        pytest.skip("the papers' presets are of gender")
    # Documents of this collection have no words of age or religion: no query has an AWRF_JS.
    measures = ["nDCG@10", "RR(rel=2)@10", "RaB(tc)@7", "AWRF_JS@5"]
    options = [f"attribute={attribute}", f"bias={preset}", f"measures={json.dumps(measures)}"]
    of_command = evaluated(
        trained, tmp_path / "out", "alpha=0", "policy=renditions", *options, quiet=False
    )
    given = Attribute.named(attribute)
    values = read_yaml(ROOT / "conf" / "bias" / f"{preset}.yaml")
    del values["_target_"]
    if "$" in str(values["lexicon"]):
        values["lexicon"] = str(given.lexicon().path)
    if "$" in str(values["sign"]):
        values["sign"] = "_minus_".join(given.sign)
    reranker = backpack_rank.load(ranker_of(trained), attribute=attribute)
    dials = [reranker.with_policy("renditions", alpha) for alpha in (1, 0)]
    for bias in (FairnessMeasures(**values), None):
        if bias is None and preset != "default":
            continue
        table = backpack_rank.evaluate(
            dials,
            load_synthetic("test", **SIZES),
            measures=measures,
            attribute=attribute,
            bias=bias,
        )
        same(of_command, table.report())


@pytest.mark.slow
def test_without_swaps(trained: Workplace, tmp_path: Path) -> None:
    of_command = evaluated(trained, tmp_path / "out", "alpha=0.5", "swap=false", quiet=False)
    reranker = backpack_rank.load(ranker_of(trained))
    dials = [reranker.with_policy("lowest_senses", alpha) for alpha in (1, 0.5)]
    table = backpack_rank.evaluate(dials, load_synthetic("test", **SIZES), swap=False)
    same(of_command, table.report())


@pytest.mark.slow
def test_a_name_is_the_data_of_the_command_line(trained: Workplace, tmp_path: Path) -> None:
    run = tmp_path / "run.trec"
    dataset = named_dataset("synthetic")
    _, candidates = dataset.candidates("test")
    write_run(run, candidates, "t")
    of_command = evaluated(trained, tmp_path / "out", f"run={run}", "data=synthetic", quiet=False)
    (row,) = of_command.rows
    by_python = backpack_rank.evaluate([], "synthetic").report()
    found = figures(by_python)
    for key, value in figures(of_command).items():
        assert found[key] == pytest.approx(value, abs=1e-6)
    assert row.effectiveness.queries == 180


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(NEED_OPTIONS)))
def test_every_named_data_is_composed_as_hydra_does(name: str, monkeypatch, tmp_path) -> None:

    from backpack_rank.pipelines.chosen_data import dataset_of
    from backpack_rank.pipelines.nodes import plain_options

    monkeypatch.setenv("BACKPACK_RANK_DATA", os.environ.get("BACKPACK_RANK_DATA", str(tmp_path)))
    of_command = dataset_of(plain_options(configured("evaluate", f"data={name}").data))
    of_python = named_dataset(name)
    for attribute in ("name", "measures", "bias_queries", "answers", "titles", "requests"):
        assert getattr(of_python, attribute) == getattr(of_command, attribute)
    assert of_python.splits.keys() == of_command.splits.keys()
    for split in of_python.first_stages:
        first, second = of_python.first_stages[split](), of_command.first_stages[split]()
        assert vars(first) == vars(second)


@pytest.mark.parametrize("name", NEED_OPTIONS)
def test_a_data_with_options_of_its_own_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"data '{name}' needs"):
        backpack_rank.evaluate([], name)


def test_an_unknown_name_lists_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no data 'sinthetic'.*synthetic"):
        backpack_rank.evaluate([], "sinthetic")


@pytest.mark.slow
def test_a_ranker_at_several_alphas_reads_every_text_once(trained: Workplace, monkeypatch) -> None:
    read: list[int] = []
    fill = Scorer.fill_token_senses

    def counted(scorer, sequences, *arguments):
        read.append(len(sequences))
        return fill(scorer, sequences, *arguments)

    monkeypatch.setattr(Scorer, "fill_token_senses", counted)
    reranker = backpack_rank.load(ranker_of(trained))
    collection = load_synthetic("test", **SIZES)
    alphas = (1, 0.75, 0.5, 0.25, 0)
    dials = [reranker.with_policy("lowest_senses", alpha) for alpha in alphas]
    table = backpack_rank.evaluate(dials, collection)
    # 12 queries with 20 candidates at most, each in its own and perhaps a swapped wording.
    assert 0 < sum(read) <= 2 * 12 * 20
    alone = backpack_rank.evaluate(dials[2], collection)
    row = next(row for row in table.systems if row.label == "alpha=0.5")
    (of_alone,) = [row for row in alone.systems if row.label == "alpha=0.5"]
    for kind, values in row.values.items():
        for measure, by_query in values.values.items():
            expected = of_alone.values[kind].values[measure]
            assert list(by_query) == list(expected)
            assert np.allclose(list(by_query.values()), list(expected.values()), atol=1e-5)


def test_measures_of_fairness_join_those_of_bias() -> None:
    bias = FairnessMeasures(families=["NFaiRR"], cutoffs=[10])
    table = backpack_rank.evaluate(
        [], load_synthetic("test", **SIZES), measures=["nDCG@10", "RaB(tf)@10"], bias=bias
    )
    (row,) = table.systems
    assert list(row.values["bias"].values) == ["NFaiRR@10", "RaB(tf)@10"]
