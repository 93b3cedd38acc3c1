"""The small trained ranker of the end-to-end tests, and a working folder with the files that the pages name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "end_to_end"))

from workplace import SMALL, Workplace

from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.formats import write_run
from backpack_rank.data.sources.embedded import load_embedded


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with a trained small ranker, two runs of the small embedded collection, and a word list."""
    place = Workplace(tmp_path_factory.mktemp("documented"))
    small = [option for option in SMALL if option.startswith(("+data.", "model."))]
    place.run("train.py", "task=listwise", "model=listwise_tiny", "task.size=4", "task.epochs=1", *small)
    place.run("train.py", *SMALL, "training.epochs=1")
    collection = load_embedded("test", test_queries=12, documents=80)
    run = Bm25(depth=20, cache=False).candidates(collection)
    turned = {query: {doc: -score for doc, score in scores.items()} for query, scores in run.items()}
    write_run(place.folder / "runs" / "bm25.trec", run, "bm25")
    write_run(place.folder / "runs" / "mine.trec", turned, "mine")
    words = "word,group\nremote,remote\nhome,remote\noffice,onsite\nsite,onsite\n"
    (place.folder / "words.csv").write_text(words)
    return place
