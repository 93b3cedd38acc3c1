"""A BEIR folder as it comes: without judgements, without a dev split, and NFCorpus from training to
measures.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from in_process import evaluated, trained_in
from workplace import SMALL, Workplace

from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import write_run

SMALL_MODEL = [option for option in SMALL if "data." not in option]


@pytest.fixture(scope="module")
def folder_without_judgements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents, queries and a run of them, all that an auditor has."""
    folder = tmp_path_factory.mktemp("bare")
    collection = load_synthetic("test", test_queries=12, documents=80)
    write_jsonl(
        folder / "corpus.jsonl",
        ({"_id": doc, "title": "", "text": text} for doc, text in collection.documents),
    )
    write_jsonl(
        folder / "queries.jsonl",
        ({"_id": key, "text": text} for key, text in collection.queries.items()),
    )
    documents = [doc_id for doc_id, _ in collection.documents]
    run = {
        key: {doc: float(-place) for place, doc in enumerate(documents[:20])}
        for key in collection.queries
    }
    write_run(folder / "mine.trec", run, "mine")
    return folder


@pytest.mark.slow
def test_a_run_over_texts_without_judgements_is_measured_for_bias(
    folder_without_judgements: Path, trained: Workplace, tmp_path: Path
) -> None:
    report = evaluated(
        trained,
        tmp_path,
        "data=beir",
        f"data.folder={folder_without_judgements}",
        f"run={folder_without_judgements / 'mine.trec'}",
        quiet=False,
    )
    assert report is not None
    (row,) = report.rows
    assert set(row.blocks) == {"bias"}
    assert "NFaiRR@10" in row.blocks["bias"].figures
    assert (tmp_path / "report.html").is_file()


@pytest.mark.slow
def test_a_ranker_over_texts_without_judgements_is_measured_for_bias_and_swaps(
    folder_without_judgements: Path, trained: Workplace, tmp_path: Path
) -> None:
    options = [
        "data=beir",
        f"data.folder={folder_without_judgements}",
        "alpha=0",
        "policy=paired_tokens",
    ]
    report = evaluated(trained, tmp_path, *options, quiet=False)
    assert report is not None
    row = next(row for row in report.rows if row.alpha == 0)
    assert "effectiveness" not in row.blocks
    assert {"bias", "swap"} <= set(row.blocks)
    assert (tmp_path / "report.html").is_file()
    assert json.loads((tmp_path / "measures.json").read_text())["systems"]


def test_alpha_cannot_be_chosen_without_a_dev_split(
    folder_without_judgements: Path, trained: Workplace, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no .*dev\.tsv"):
        evaluated(
            trained,
            tmp_path,
            "data=beir",
            f"data.folder={folder_without_judgements}",
            "alpha=auto",
            "budget='|gap|/std<=9'",
        )


@pytest.mark.skipif(
    "BACKPACK_RANK_DATA" not in os.environ, reason="set BACKPACK_RANK_DATA to the data folder"
)
@pytest.mark.slow
def test_nfcorpus_from_training_to_measures(tmp_path: Path) -> None:
    # As it would come without dev.tsv, so that training queries are held out.
    folder, real = tmp_path / "nfcorpus", Path(os.environ["BACKPACK_RANK_DATA"]) / "nfcorpus"
    (folder / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl.gz", "queries.jsonl", "qrels/test.tsv", "qrels/train.tsv.gz"):
        (folder / name).symlink_to(real / name)
    place = Workplace(tmp_path)
    data = ["data=beir", f"data.folder={folder}", "first_stage=bm25", "first_stage.depth=10"]
    few = [
        "lists.per_epoch=16",
        "+data.dev.max_queries=8",
        "pretraining.epochs=0",
        "training.epochs=1",
    ]
    trained_in(place, "nfcorpus", *data, *SMALL_MODEL, *few)
    report = evaluated(
        place, tmp_path / "found", "alpha=0", *data, "+data.test.max_queries=20", quiet=False
    )
    assert report is not None
    first, plain, controlled = report.rows
    assert (first.label, plain.alpha, controlled.alpha) == ("BM25", 1, 0)
    # BM25's published nDCG@10 on all 323 queries is .325 (Thakur et al. 2021, with titles as a
    # field).
    assert 0.15 < first.blocks["effectiveness"].figures["nDCG@10"].mean < 0.5
    assert report.about.effectiveness_set == "nfcorpus/test"
