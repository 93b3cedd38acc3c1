"""The sense quality report as table, JSON and Markdown."""

import io
import json

from rich.console import Console

from backpack_rank.reporting.explanation import RelatedWord
from backpack_rank.reporting.sense_quality import (
    Correlation,
    ListQuality,
    SenseQualityReport,
    by_word,
    print_sense_quality,
    write_sense_quality,
)

QUALITY = ListQuality(
    name="rg_65",
    pairs=65,
    unknown=(("a", "b"),),
    one_token=0.75,
    embeddings=Correlation(0.1234, -0.12, 0.36),
    mean=Correlation(0.5, 0.3, 0.7),
    highest=Correlation(None),
    lowest=Correlation(0.25),
    per_sense=(Correlation(0.4, 0.2, 0.6), Correlation(-0.3, -0.5, -0.1)),
)
NEAR = ({"he": (RelatedWord("she", 0.9), RelatedWord("him", 0.8))}, {"he": (RelatedWord("a|b", 0.7),)})


def report(predicted=()):
    return SenseQualityReport("runs/a_b", (QUALITY,), by_word(["he", "zz", "he"], NEAR, predicted))


def test_the_terminal_shows_every_figure():
    text = io.StringIO()
    print_sense_quality(report(), Console(file=text, width=140))
    shown = text.getvalue()
    for part in ("rg_65 (65)", "0.123 (-0.12 to 0.36)", "sense 1", "-0.300 (-0.50 to -0.10)", "she, him", "a|b", "75%"):
        assert part in shown
    assert "1 pairs are unknown" in shown
    assert "predicted" not in shown


def test_json_has_all_digits_and_markdown_the_same_tables(tmp_path):
    write_sense_quality(tmp_path, report(({"he": (RelatedWord("was", 3.0),)}, {"he": ()})))
    found = json.loads((tmp_path / "sense_quality.json").read_text())
    assert found["format"] == "backpack_rank sense quality 1"
    assert found["lists"][0]["embeddings"] == {"value": 0.1234, "low": -0.12, "high": 0.36}
    assert found["lists"][0]["highest"]["value"] is None
    assert [word["word"] for word in found["words"]] == ["he"]
    assert found["words"][0]["nearest"][0][1] == {"word": "him", "value": 0.8}
    lines = (tmp_path / "sense_quality.md").read_text().splitlines()
    assert lines[0] == "## Sense quality of runs/a\\_b"
    assert "| word embeddings | 0.123 (-0.12 to 0.36) |" in lines
    assert "| highest of any sense | - |" in lines
    assert "| lowest of any sense | 0.250 |" in lines
    assert "| sense | nearest words | predicted words |" in lines
    assert "| 0 | she, him | was |" in lines
    assert "| 1 | a\\|b |  |" in lines
