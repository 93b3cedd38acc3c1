"""A new table of a paper needs no Python: a file of its figures and one of the experiment, for every
shape of a table.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import configured
from listwise_example import saved_ranker
from omegaconf import OmegaConf

from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.loading import save_ranker
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.run_folder import save_overrides

SMALL = ["data=synthetic", "+data.test.test_queries=4", "+data.test.documents=20"]
COLLECTION = """defaults: [{/data@task.collections.Tiny: synthetic}]
task:
  _recursive_: false
  collections: {Tiny: {test: {test_queries: 4, documents: 20}}}
"""
SHAPES = {
    "fair_retrieval": (
        """columns: [nDCG@10, RaB(tf)@10]
known_as: {Mine: [alpha=1]}
rows: |
  BM25 | .31 .045
  Mine | .35 -
""",
        """task:
  _target_: backpack_rank.experiments.fair_retrieval.FairRetrievalTable
  alphas: [1.0]
""",
        "| Mine | 0.35 |",
    ),
    "reranking_grid": (
        """scale: 100
columns: [Tiny, DL19]
rows: |
  Theirs | 12.3 45.6
""",
        COLLECTION
        + """  _target_: backpack_rank.position.tables.reranking_grid.RerankingGrid
  rows: {Base: {}, Reversed: {listwise: {input: {order: reversed}}}}
  baseline: Base
""",
        "| Theirs | 12.3 | 45.6 |",
    ),
    "sorting": (
        """scale: 100
labels: [model]
columns: [MathSort Orig., MathSort PSC]
rows: |
  Theirs | 12.3 45.6
""",
        """task:
  _target_: backpack_rank.position.tables.sorting.SortingTask
  _recursive_: false
  ways: {Orig.: {}, Reversed: {listwise: {input: {order: reversed}}}}
  tasks: [mathsort]
  number: 3
  size: 4
""",
        "| Theirs | 12.3 | 45.6 | - |",
    ),
    "sorting_by_method": (
        """scale: 100
labels: [method]
columns: [MathSort]
rows: |
  Theirs (PSC) | 12.3
""",
        """task:
  _target_: backpack_rank.position.tables.sorting.SortingTask
  _recursive_: false
  ways: {Orig.: {}}
  tasks: [mathsort]
  number: 3
  size: 4
""",
        "| Theirs (PSC) | 12.3 |",
    ),
    "rotation_effect": (
        """columns: [MRR@10 original, MRR@10 rotated]
data: their passages
rows: |
  Theirs | As it is | .432 .395
  Theirs | Turned   | .416 .415
""",
        """task:
  _target_: backpack_rank.position.tables.rotation.RotationEffect
""",
        "| As it is | paper | 0.432 | 0.395 | -9.4% |",
    ),
    "rotation_transfer": (
        """columns: [MRR@10]
data: their passages
rows: |
  Theirs | alone  | a | .31
  Theirs | after  | b | .32:a
  Theirs | turned | c | .33
""",
        """task:
  _target_: backpack_rank.position.tables.rotation.RotationTransfer
""",
        "| after | b | paper | 0.320<sup>a</sup> |",
    ),
    "rotation_similarity": (
        """columns: [Theirs MATS, Theirs Std.dev.]
data: their passages
known_as: {Mine: [backpack]}
rows: |
  Mine | As it is | .176 .046
  Mine | Turned   | .021 .006
""",
        """task:
  _target_: backpack_rank.position.tables.rotation_similarity.RotationSimilarity
  models: null
  similarity:
    _target_: backpack_rank.position.tables.term_similarity.TermSimilarity
    documents: null
    terms: null
    max_distance: 6
""",
        "| Turned | paper | 0.021 | 0.006 | - | - |",
    ),
}
"""By shape: what the paper prints, the experiment, and a row of the table that is written."""
LISTWISE = ("reranking_grid", "sorting", "sorting_by_method")
HERE = {
    "fair_retrieval": ("| Mine | 0.35 | 0.",),
    "reranking_grid": ("**Measured: ", "| Base | ", "| Reversed | "),
    "sorting": ("| listwise LM | ", "MathSort Reversed"),
    "sorting_by_method": (r"| listwise LM (Orig.) | ",),
    "rotation_effect": ("**Mine**", "| As it is | here | 0.", "| Turned | here | - |"),
    "rotation_transfer": ("**Mine**", "| synthetic(Original) | a | here | 0."),
    "rotation_similarity": ("| As it is | here | - | - | 0.", "synthetic MATS"),
}
"""What stands there of the ranker that is measured."""


@pytest.fixture
def mine(tmp_path: Path, make_backpack, tokenizer) -> Path:
    """A Backpack as train.py leaves it."""
    run = tmp_path / "output" / "train" / "mine"
    save_ranker(run / "ranker", make_backpack(positions=160), PairTokenizer(tokenizer, 160))
    config = OmegaConf.to_container(configured("evaluate", *SMALL).data, resolve=True)
    OmegaConf.save(
        OmegaConf.create(
            {"data": config, "model": {"name": "Mine"}, "seed": 0, "checkpoint": None}
        ),
        run / "config.yaml",
    )
    save_overrides(run, SMALL)
    return run / "ranker"


@pytest.fixture
def listwise(tmp_path: Path, sentences) -> Path:
    """A listwise ranker as train.py leaves it."""
    words = "query [A] [B] [C] [D] > 1 2 3 4 5 6 7 8 9 + - * /"
    return saved_ranker(tmp_path / "lm", sentences, 4, positions=1024, words=words)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_two_files_make_a_table(shape: str, tmp_path: Path, request) -> None:
    figures, experiment, printed = SHAPES[shape]
    paper = tmp_path / "mine_table1.yaml"
    paper.write_text(
        f'# Table 1.\npaper: "Me et al., Rankings"\ntable: Table 1\ntitle: My table\n{figures}'
        "layout: {sentences: [As I found it.]}\n"
    )
    file = tmp_path / "conf" / "experiment" / "mine" / "table1.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"# @package _global_\n{experiment}  published: {paper}\n")
    ranker = request.getfixturevalue("listwise" if shape in LISTWISE else "mine")
    overrides = [
        f"hydra.searchpath=[file://{tmp_path / 'conf'}]",
        *SMALL,
        "experiment=mine/table1",
        f"output={tmp_path / 'output'}",
        f"cache.folder={tmp_path / 'cache'}",
    ]
    if not shape.startswith("rotation"):
        overrides.append(f"checkpoint={ranker}")
    if shape in LISTWISE:
        overrides += ["listwise=trained", "listwise.depth=4"]
    evaluate(configured("evaluate", *overrides), tmp_path / "out", quiet=True)
    markdown = (tmp_path / "out" / "mine_table1.md").read_text("utf-8")
    assert "### My table" in markdown
    assert markdown.rstrip().count("As I found it.") == 1
    plain = markdown.replace("\\", "").replace("**0.", "0.")
    for words in (printed, *HERE[shape]):
        assert words in plain
    for ending in ("tex", "csv"):
        assert (tmp_path / "out" / f"mine_table1.{ending}").is_file()
