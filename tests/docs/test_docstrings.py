"""The examples in docstrings run and give what they show, and what a user calls first has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest
import transformers

import backpack_rank
from backpack_rank.data.batching import Pairs
from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.trec import write_run
from backpack_rank.evaluation.result_table import ResultTable
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer

ROOT = Path(__file__).resolve().parents[2]
RANKER = "outputs/train/DATE/ranker"

MODULES: dict[str, str] = {}
for path in sorted((ROOT / "backpack_rank").rglob("*.py")):
    text = path.read_text(encoding="utf-8")
    if ">>> " in text:
        parts = path.relative_to(ROOT).with_suffix("").parts
        MODULES[".".join(parts).removesuffix(".__init__")] = text

OPTIONAL = {
    "rerankers",
    "langchain_core",
    "llama_index",
    "pyterrier",
    "sentence_transformers",
}
"""Packages that some modules need and that not every installation has."""

NEEDS_MORE = {
    "push_to_hub": "uploads",
    "PointwiseReranker.policies": "downloads a ranker",
    "save_pretrained": "shows the folder of a sweep in the card",
    "BackpackReranker": "follows a first stage of PyTerrier",
    "fairness_measures": "follows a first stage of PyTerrier",
}
"""Skipped examples that a small ranker and a few texts are not enough for."""


def imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in OPTIONAL:
            raise
        pytest.skip(f"{name} needs the package {package}")


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    return doctest.DocTestFinder(exclude_empty=True).find(module)


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tests = examples_of(imported(name))
    assert any(test.examples for test in tests), f"doctest does not see the example of {name}"
    report: list[str] = []
    for test in tests:
        doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(
            test, out=report.append
        )
    assert not report, "".join(report)


@pytest.fixture(scope="module")
def example_folder(make_backpack, pair_tokenizer, tmp_path_factory) -> Path:
    """A folder with a small ranker and a small collection, where examples look for them."""
    folder = tmp_path_factory.mktemp("examples")
    save_ranker(folder / RANKER, make_backpack(), pair_tokenizer)
    (folder / "folder").symlink_to(folder / RANKER)
    collection = folder / "my_collection"
    texts = {
        "d1": "A nurse explains what it costs, and he listens.",
        "d2": "She is an electrician.",
    }
    write_jsonl(
        collection / "corpus.jsonl", ({"_id": key, "text": text} for key, text in texts.items())
    )
    write_jsonl(collection / "queries.jsonl", [{"_id": "q1", "text": "nurse or electrician"}])
    (collection / "qrels").mkdir()
    (collection / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t1\n")
    write_run(folder / "bm25.trec", {"q1": {"d1": 2.0, "d2": 1.0}}, "bm25")
    return folder


@pytest.mark.parametrize("name", [name for name, text in MODULES.items() if "+SKIP" in text])
def test_skipped_examples_run_with_a_small_ranker(
    name: str, example_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they show is made up, but the names, arguments and order of their calls are true."""
    module = imported(name)
    monkeypatch.chdir(example_folder)
    ranker, pair_tokenizer = load_ranker(RANKER)
    collection = load_beir("my_collection", "test")
    query, document = "who can rewire a house?", "She is an electrician."
    given = {
        "backpack_rank": backpack_rank,
        "folder": RANKER,
        "reranker": backpack_rank.load(RANKER),
        "scorer": Scorer(ranker, pair_tokenizer),
        "ranker": ranker,
        "pair_tokenizer": pair_tokenizer,
        "tokenizer": pair_tokenizer.tokenizer,
        "query": query,
        "document": document,
        "documents": [document, "He sells flowers."],
        "pairs": [(query, document)],
        "collection": collection,
        "candidates": {"q1": {"d1": 2.0, "d2": 1.0}},
        "Pairs": Pairs,
        "fill": lambda array: array.fill(0),
        "AutoModel": transformers.AutoModel,
        "AutoModelForSequenceClassification": transformers.AutoModelForSequenceClassification,
    }
    for test in examples_of(module):
        if test.name.removeprefix(f"{name}.") in NEEDS_MORE:
            continue
        known = {**vars(module), **given}
        for example in test.examples:
            exec(compile(example.source, test.name, "single"), known)


@pytest.mark.parametrize("name", [name for name in backpack_rank.__all__ if name != "__version__"])
def test_public_names_have_an_example(name: str) -> None:
    assert has_example(getattr(backpack_rank, name)), f"backpack_rank.{name} has no example"


def test_names_in_the_page_of_python_have_an_example() -> None:
    text = (ROOT / "docs" / "from-python.md").read_text(encoding="utf-8")
    functions = set(re.findall(r"from (backpack_rank[\w.]+) import (\w+)", text))
    functions |= set(re.findall(r"`(backpack_rank[\w.]+)\.(\w+)[`(]", text))
    named = {
        f"{module}.{name}": pkgutil.resolve_name(f"{module}.{name}") for module, name in functions
    }
    for name in re.findall(r"\b(?:reranker|fair)\.(\w+)", text):
        named[f"reranker.{name}"] = getattr(PointwiseReranker, name)
    for name in re.findall(r"\btable\.(\w+)", text):
        named[f"table.{name}"] = getattr(ResultTable, name)
    assert len(named) > 10
    without = [name for name, thing in named.items() if not has_example(thing)]
    assert not without, f"docs/from-python.md names them, and they have no example: {without}"


def has_example(thing: object) -> bool:
    """An example is a doctest, or an indented block of code."""
    text = inspect.getdoc(thing) or ""
    return ">>>" in text or "\n\n    " in text
