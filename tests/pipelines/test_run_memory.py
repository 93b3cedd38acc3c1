"""``run_memory``: what stays on disk has the measures of what is read into memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from in_process import TEST_SPLIT, configured

from backpack_rank.data.stored_run import StoredRun
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import write_run
from backpack_rank.pipelines.evaluate import evaluate

FEW = ["bias.families=[RaB]", "bias.cutoffs=[10]", "measures=[nDCG@10,R@10]"]


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """Two runs, as the option names them."""
    collection = load_synthetic("test", test_queries=12, documents=80)
    rng = random.Random(0)
    paths = []
    for name in ("a", "b"):
        run = {}
        for query_id in collection.queries:
            run[query_id] = {doc_id: rng.gauss(0, 1) for doc_id, _ in collection.documents}
        paths.append(str(tmp_path / f"{name}.trec"))
        write_run(Path(paths[-1]), run, name)
    return f"run=[{','.join(paths)}]"


@pytest.mark.slow
@pytest.mark.parametrize("aggregated", [[], ["aggregate=borda"]])
def test_runs_on_disk_have_the_measures_of_runs_in_memory(
    runs: str, aggregated: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: list[bool] = []

    class SeenRun(StoredRun):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            on_disk.append(True)

    monkeypatch.setattr("backpack_rank.data.stored_run.StoredRun", SeenRun)
    texts = []
    for megabytes in ("128", "0"):
        on_disk.clear()
        folder = tmp_path / megabytes
        options = [runs, *TEST_SPLIT, *FEW, *aggregated, f"run_memory={megabytes}"]
        evaluate(configured("evaluate", *options), folder, quiet=True)
        texts.append((folder / "per_query.csv").read_bytes())
        assert bool(on_disk) == (megabytes == "0")
    assert texts[0] == texts[1]


def test_without_runs_it_does_nothing_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"run_memory=1 does nothing"):
        evaluate(configured("evaluate", "run_memory=1", "checkpoint=nowhere"), tmp_path)
