"""The small trained ranker of the end-to-end tests, and a working folder with the files that the
pages name.
"""

from __future__ import annotations

import csv

import pytest
from in_process import trained_in
from workplace import SMALL, Workplace, built_once

from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import write_run
from backpack_rank.pipelines.output_folder import link_latest


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with a trained small ranker, two runs of the small synthetic collection, and a
    word list.
    """
    return built_once(tmp_path_factory, "documented", _build)


def _build(place: Workplace) -> None:
    small = [option for option in SMALL if option.startswith(("+data.", "model."))]
    trained_in(
        place,
        "listwise",
        "task=listwise",
        "model=listwise_tiny",
        "task.size=4",
        "task.epochs=1",
        *small,
    )
    trained_in(place, "pointwise", *SMALL, "training.epochs=1")
    link_latest(place.output, "train", place.newest("train"))
    collection = load_synthetic("test", test_queries=12, documents=80)
    run = Bm25(depth=20, cache=False).candidates(collection)
    rotated = {
        query: {doc: -score for doc, score in scores.items()} for query, scores in run.items()
    }
    write_run(place.folder / "runs" / "bm25.trec", run, "bm25")
    write_run(place.folder / "runs" / "mine.trec", rotated, "mine")
    write_run(place.folder / "runs" / "mine_seed1.trec", run, "mine")
    regions = [
        f"{doc_id}\t{('asia', 'europe')[doc_id[-1] in '02468']}\n" for doc_id in collection.groups
    ]
    (place.folder / "regions.tsv").write_text("id\tregion\n" + "".join(regions))
    audit = place.folder / "audit"
    write_run(audit / "mine.trec", rotated, "mine")
    for name, texts in (("corpus", collection.documents), ("queries", collection.queries.items())):
        write_jsonl(audit / f"{name}.jsonl", ({"_id": key, "text": text} for key, text in texts))
    with open(place.folder / "pairs.csv", "w", newline="") as handle:
        pairs = csv.writer(handle)
        pairs.writerow(["search", "passage", "our_score", "relevant"])
        for query, scores in run.items():
            for doc, text in collection.documents.get_many(scores).items():
                label = collection.qrels.get(query, {}).get(doc, 0)
                pairs.writerow([collection.queries[query], text, scores[doc], label])
    words = "word,group\nremote,remote\nhome,remote\noffice,onsite\nsite,onsite\n"
    (place.folder / "words.csv").write_text(words)
    (place.folder / "query.txt").write_text("who can rewire a house?\n")
    (place.folder / "document.txt").write_text("She is an electrician.\n")
