"""How well senses agree with people on the similarity of words, and what is near in them: terminal, JSON, Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backpack_rank.files import write_text
from backpack_rank.reporting.explanation import RelatedWord
from backpack_rank.reporting.tables import dump_json

FORMAT = "backpack_rank sense quality 1"


@dataclass(frozen=True)
class Correlation:
    """Spearman's correlation with its approximate 95% interval; None where the similarities are all equal."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ListQuality:
    """Agreement with one list of judged word pairs.

    Attributes:
        name: of the list.
        pairs: that the tokenizer knows, on which the correlations are.
        unknown: pairs left out because the tokenizer does not know a word of them.
        one_token: share of the pairs whose two words are one token each; the others stand for the mean of their tokens.
        embeddings: cosines of word embeddings, the baseline.
        mean: cosines of the mean over senses.
        highest: the highest cosine of any sense; likewise ``lowest`` (Hewitt et al. 2023).
        per_sense: cosines of each sense.
    """

    name: str
    pairs: int
    unknown: tuple[tuple[str, str], ...]
    one_token: float
    embeddings: Correlation
    mean: Correlation
    highest: Correlation
    lowest: Correlation
    per_sense: tuple[Correlation, ...]


@dataclass(frozen=True)
class WordSenses:
    """What stands near a word in each sense, and what each sense of a language model predicts behind it."""

    word: str
    nearest: tuple[tuple[RelatedWord, ...], ...]
    predicted: tuple[tuple[RelatedWord, ...], ...] = ()


@dataclass(frozen=True)
class SenseQualityReport:
    """Everything about one model."""

    model: str
    lists: tuple[ListQuality, ...]
    words: tuple[WordSenses, ...]


Grid = tuple[str, list[str], list[list[str]]]
"""Title, header and rows of a table."""


def print_sense_quality(report: SenseQualityReport, console: Console | None = None) -> None:
    """Print one table of correlations and one for each word."""
    console = console or Console()
    for title, header, rows in grids(report):
        table = Table(title=Text(title))
        for place, name in enumerate(header):
            words = name in _WORD_COLUMNS
            table.add_column(Text(name), justify="left" if words or not place else "right", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for note in notes(report):
        console.print(Text(note))


def write_sense_quality(folder: str | Path, report: SenseQualityReport) -> None:
    """Write ``sense_quality.json`` with all digits, and the tables as ``sense_quality.md``.

    Layout: ``{"format": "backpack_rank sense quality 1", "model": ..., "lists": [...], "words": [...]}`` with the
    attributes of :class:`ListQuality` and :class:`WordSenses`.
    """
    payload: Mapping = asdict(report)
    write_text(Path(folder) / "sense_quality.json", dump_json({"format": FORMAT, **payload}))
    parts = [f"## Sense quality of {_plain(report.model)}"]
    for title, header, rows in grids(report):
        lines = [header, ["---"] * len(header), *rows]
        parts.append(f"### {_plain(title)}")
        parts.append("\n".join("| " + " | ".join(map(_plain, line)) + " |" for line in lines))
    write_text(Path(folder) / "sense_quality.md", "\n\n".join([*parts, *map(_plain, notes(report))]) + "\n")


def grids(report: SenseQualityReport) -> list[Grid]:
    """The tables as text."""
    found: list[Grid] = []
    if report.lists:
        header = ["cosine of", *(f"{part.name} ({part.pairs})" for part in report.lists)]
        kinds = {
            "word embeddings": [part.embeddings for part in report.lists],
            "mean of the senses": [part.mean for part in report.lists],
            "highest of any sense": [part.highest for part in report.lists],
            "lowest of any sense": [part.lowest for part in report.lists],
        }
        for sense in range(len(report.lists[0].per_sense)):
            kinds[f"sense {sense}"] = [part.per_sense[sense] for part in report.lists]
        rows = [[name, *map(_cell, values)] for name, values in kinds.items()]
        found.append(("Spearman correlation with judged similarity (95% interval)", header, rows))
    for word in report.words:
        header = ["sense", *_WORD_COLUMNS[: 2 if word.predicted else 1]]
        columns = [word.nearest, *([word.predicted] if word.predicted else [])]
        rows = [
            [str(sense), *(", ".join(related.word for related in part) for part in parts)]
            for sense, parts in enumerate(zip(*columns, strict=True))
        ]
        found.append((f"Senses of {word.word!r}", header, rows))
    return found


def notes(report: SenseQualityReport) -> list[str]:
    """Sentences below the tables."""
    lines = []
    for part in report.lists:
        left = f" {len(part.unknown)} pairs are unknown to the tokenizer and left out." if part.unknown else ""
        lines.append(
            f"{part.name}: both words are one token in {part.one_token:.0%} of {part.pairs} pairs; other words stand "
            f"for the mean of their tokens.{left}"
        )
    if report.lists:
        lines.append("The best of many senses is chosen by the same pairs: expect less of it on other lists.")
    return lines


_WORD_COLUMNS = ["nearest words", "predicted words"]


def _cell(found: Correlation) -> str:
    if found.value is None:
        return "-"
    interval = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.value:.3f}{interval}"


def _plain(text: str) -> str:
    """Text whose marks Markdown does not read."""
    return "".join(f"\\{letter}" if letter in r"\`*_[]<>|" else letter for letter in text)


def by_word(
    words: Sequence[str],
    nearest: Sequence[Mapping[str, tuple[RelatedWord, ...]]],
    predicted: Sequence[Mapping[str, tuple[RelatedWord, ...]]] = (),
) -> tuple[WordSenses, ...]:
    """Per-sense dictionaries by word; words that are in none are left out."""
    return tuple(
        WordSenses(word, tuple(sense[word] for sense in nearest), tuple(sense[word] for sense in predicted))
        for word in dict.fromkeys(words)
        if nearest and word in nearest[0]
    )
