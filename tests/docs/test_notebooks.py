"""The notebooks of docs/notebooks run from the first cell to the last, and show tables and charts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from foreign_rankers import bert
from hub_server import hub_server

nbformat = pytest.importorskip("nbformat", reason="notebooks need the extra docs")
nbclient = pytest.importorskip("nbclient", reason="notebooks need the extra docs")
pytestmark = pytest.mark.packaging

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "notebooks"
SMALL_TRAINING = [
    *("training.epochs=1", "lists.per_epoch=6", "lists.size=4", "pretraining.epochs=0"),
    *("+data.train.documents=80", "+data.train.train_queries=12"),
    *("+data.dev.documents=80", "+data.dev.dev_queries=4"),
]
SMALL_TEST = {"test_queries": 12, "documents": 80}
SMALL = {
    "quick_start": f"TRAINING = {SMALL_TRAINING}\nTEST = {SMALL_TEST}",
    "audit_your_runs": f"TEST = {SMALL_TEST}",
    "turn_your_reranker": f'MODEL = "cross-encoder/ms-marco-MiniLM-L6-v2"\nTEST = {SMALL_TEST}',
    "certify_a_ranking": f"TRAINING = {SMALL_TRAINING}\n"
    'TEST = ["data=synthetic", "+data.test.test_queries=12", "+data.test.documents=80"]',
}
"""What takes the place of the first cell, so that a test takes seconds."""


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    (parameters,) = [
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    ]
    parameters.source = SMALL[name]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with hub_server() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        hub.branches["cross-encoder/ms-marco-MiniLM-L6-v2"] = {
            "main": saved_bert(tmp_path / "bert")
        }
        work = tmp_path / "work"
        work.mkdir()
        client = nbclient.NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": str(work)}},
        )
        client.execute()
    shown = outputs(notebook)
    assert not [output for output in shown if output.output_type == "error"]
    assert any("text/html" in output.get("data", {}) for output in shown)


def saved_bert(folder: Path) -> dict[str, bytes]:
    """Files of a small classifier as they lie on the hub."""
    for part in bert():
        part.save_pretrained(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("name", sorted(set(SMALL) - {"turn_your_reranker"}))
def test_what_a_notebook_holds_is_to_be_looked_at(name: str) -> None:
    """Its outputs are saved; the one that needs a download is saved without."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    shown = outputs(notebook)
    assert any("text/html" in output.get("data", {}) for output in shown)
    for output in shown:
        data = output.get("data", {})
        assert " object at 0x" not in data.get("text/plain", "") or len(data) > 1
