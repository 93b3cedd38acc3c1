"""Measures of the exposure of groups on run files: given groups, and several rankings as one."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest
from in_process import configured

from backpack_rank.checks import UsageError
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import read_run, write_run
from backpack_rank.evaluation.document_groups import DocumentGroups
from backpack_rank.evaluation.group_exposure import GroupExposure
from backpack_rank.evaluation.measure_names import parse_measures
from backpack_rank.pipelines.evaluate import evaluate, task_of

NAMES = ["AWRF_JS(group)@20", "AWRF_JS(region)@20", "EE-L(group x region)@20"]
COLLECTION = ["data=synthetic"]


@pytest.fixture(scope="module")
def folder_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of three seeds, and regions of nine in ten documents."""
    folder = tmp_path_factory.mktemp("groups")
    collection = load_synthetic("test")
    candidates = Bm25(depth=20, cache=False).candidates(collection)
    for seed in range(3):
        rng = random.Random(seed)
        run = {}
        for query_id, scores in candidates.items():
            run[query_id] = {doc_id: score + rng.gauss(0, 1) for doc_id, score in scores.items()}
        write_run(folder / f"a_seed{seed}.trec", run, "a")
    rng = random.Random(0)
    lines = ["id\tregion\n"]
    for doc_id, _ in collection.documents:
        if rng.random() < 0.9:
            lines.append(f"{doc_id}\t{rng.choice(['africa', 'asia', 'europe'])}\n")
    (folder / "regions.tsv").write_text("".join(lines))
    return folder


@pytest.mark.slow
def test_given_groups_are_measured_for_seeds_as_one_system(folder_of_runs: Path, capsys) -> None:
    runs = [str(folder_of_runs / f"a_seed{seed}.trec") for seed in range(3)]
    out = folder_of_runs / "out"
    options = [
        f"run=[{','.join(runs)}]",
        "system=a",
        *COLLECTION,
        f"bias.groups=[field:group,{folder_of_runs / 'regions.tsv'}]",
        "bias.families=[RaB]",
        "bias.cutoffs=[10]",
        "measures=['nDCG@10','AWRF_JS@20','EE-L(group x region)@20']",
    ]
    report = evaluate(configured("evaluate", *options), out)
    (row,) = report.rows
    assert row.label == "a"

    # The same from Python, from the run files that the evaluation wrote.
    collection = load_synthetic("test")
    regions = {}
    for line in (folder_of_runs / "regions.tsv").read_text().splitlines()[1:]:
        doc_id, region = line.split("\t")
        regions[doc_id] = region
    groups = {
        "group": DocumentGroups.of(collection.groups),
        "region": DocumentGroups.of(regions),
    }
    expected = GroupExposure(groups, collection.qrels).measure(
        [read_run(run) for run in runs], parse_measures(NAMES)
    )
    for name in NAMES:
        assert row.bias.figures[name].mean == pytest.approx(expected.mean(name), abs=1e-12)

    shown = capsys.readouterr().out
    assert "Systems of several rankings" in shown
    assert "Groups of region: africa, asia, europe;" in shown
    with open(out / "rankings.csv") as handle:
        records = list(csv.DictReader(handle))
    of_seeds = [float(r["mean"]) for r in records if r["measure"] == "AWRF_JS(group)@20"]
    assert sum(of_seeds) / 3 == pytest.approx(row.bias.figures["AWRF_JS(group)@20"].mean, abs=1e-12)
    with open(out / "per_query.csv") as handle:
        measured = {record["measure"] for record in csv.DictReader(handle)}
    assert set(NAMES) <= measured
    assert len(list((out / "runs").iterdir())) == 3
    assert "AWRF_JS(group)@20" in (out / "report.html").read_text()
    notes = json.loads((out / "measures.json").read_text())["about"]["notes"]
    assert any("documents are of no known group and take no part" in note for note in notes)


@pytest.mark.slow
def test_a_name_for_each_run_or_one_for_all(folder_of_runs: Path) -> None:
    run = f"run=[{folder_of_runs / 'a_seed0.trec'},{folder_of_runs / 'a_seed1.trec'}]"
    with pytest.raises(ValueError, match=r"names 3 systems for 2 runs"):
        task_of(configured("evaluate", run, "system=[a,b,c]", *COLLECTION))
    with pytest.raises(ValueError, match=r"names 1 system for 2 runs"):
        task_of(configured("evaluate", run, "system=[a]", *COLLECTION))
    with pytest.raises((ValueError, UsageError), match="system=a does nothing to aggregate"):
        task_of(configured("evaluate", run, "system=a", "aggregate=borda", *COLLECTION))
