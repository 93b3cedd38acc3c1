"""Every Python block of docs/other-libraries.md runs with the real libraries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "other-libraries.md"
BLOCKS = [
    block
    for block in re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    # test_onnx.py runs those of ONNX Runtime, and a download is none of a test.
    if not re.search(r"^# needs (onnxruntime|the internet)", block, re.MULTILINE)
]
pytestmark = pytest.mark.packaging


def test_the_page_has_a_block_for_each_library() -> None:
    needed = set(re.findall(r"^# needs (\S+)$", "".join(BLOCKS), re.MULTILINE))
    assert needed == {
        "sentence_transformers",
        "pyterrier",
        "rerankers",
        "langchain_core",
        "llama_index.core",
    }


@pytest.mark.parametrize("text", BLOCKS, ids=lambda text: text.splitlines()[0])
def test_a_block_runs(text: str, saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in re.findall(r"^# needs (\S+)$", text, re.MULTILINE):
        pytest.importorskip(package)
    folder, _ = saved("backpack")
    monkeypatch.chdir(tmp_path)
    exec(compile(text, PAGE.name, "exec"), {"folder": str(folder)})
