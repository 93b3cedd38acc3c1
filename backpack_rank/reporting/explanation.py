"""Why a document has its score: contributions of senses and words, as text, JSON and HTML.

Of a ranker without senses, words are left out instead.

Words that raise the score stand on blue, words that lower it on orange, a pair that readers with
any common form of colour blindness can distinguish; words of the lexicon are underlined. Every
number is there as text too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from backpack_rank.files import write_text
from backpack_rank.progress import printable
from backpack_rank.reporting.writers import dump_json
from backpack_rank.senses.attribution import (
    ExplainedGroup,
    ExplainedSense,
    ExplainedWord,
    Explanation,
)
from backpack_rank.senses.profiles import SenseProfile

FORMAT = "backpack_rank explanations 1"
SENSES_FORMAT = "backpack_rank senses 1"
UP, DOWN = (86, 180, 233), (230, 159, 0)
"""Blue and orange of Okabe and Ito's palette."""


def print_explanation(
    row: Explanation, console: Console | None = None, strongest: int = 10
) -> None:
    """Print the score, the text in colours, the strongest words and all senses.

    By words, groups of listed words stand in place of the senses.

    Args:
        row: what is explained.
        console: where to, default the terminal.
        strongest: how many words.
    """
    console = console or Console()
    if row.title:
        console.print(Text(printable(row.title), style="bold"))
    console.print(Text(score_sentence(row)))
    for segment in ("query", "document"):
        console.print(coloured_text(row, segment))
    console.print(words_table(row, strongest))
    if not row.by_words:
        console.print(senses_table(row))
    elif row.groups:
        console.print(groups_table(row))


def score_sentence(row: Explanation) -> str:
    """Score, empty score and their difference in words; the change by alpha, and what was cut.

    By words there is no empty score, and there is what the words of the attribute did.
    """
    if row.empty_score is None:
        text = (
            f"Score {row.score:.4f}. The number of a word is what the score loses without it; "
            "numbers of several words need not add up."
        )
        text += _rendition_sentence(row)
    else:
        contributions = row.score - row.empty_score
        text = (
            f"Score {row.score:.4f} = {row.empty_score:.4f} (empty mix) "
            f"{contributions:+.4f} (contributions)."
        )
    if row.score_before is not None:
        change = row.score - row.score_before
        text += f" At alpha 1: {row.score_before:.4f}, a change of {change:+.4f}."
    if row.cut:
        text += f" The last {row.cut} tokens of the document did not fit and had no part in it."
    return text


def _rendition_sentence(row: Explanation) -> str:
    group = row.renditions
    if group is None:
        return " The query itself has words of the attribute, so the pair has no renditions."
    if not group.words:
        return f" The document has no {group.name} words that renditions change."
    text = (
        f" What its {group.words} {group.name} words did by their group: "
        f"{group.contribution:+.4f}, the score less the mean of its renditions"
    )
    if group.change is not None:
        text += f" (changed by {group.change:+.4f})"
    return f"{text}."


def coloured_text(row: Explanation, segment: str) -> Text:
    """The words of a segment: blue raises the score, orange lowers it; a lexicon's underlined."""
    text = Text(f"{segment}: ", style="bold")
    scale = _scale(row)
    words = _words_of(row, segment)
    for index, word in enumerate(words):
        if word.space and index:
            text.append(" ", style=Style(bold=False))
        contribution = word.contribution or 0.0
        strength = abs(contribution) / scale
        style = Style(bold=False, underline=bool(word.group))
        if strength >= 0.05:
            end = UP if contribution > 0 else DOWN
            # Mixed with white, at least a little of the colour: terminals have no transparency.
            share = 0.2 + 0.8 * strength
            red, green, blue = [round(255 + (channel - 255) * share) for channel in end]
            style += Style.parse(f"black on rgb({red},{green},{blue})")
        text.append(printable(word.text), style=style)
    if not words:
        text.append("(empty)", style=Style(bold=False, italic=True))
    return text


def words_table(row: Explanation, strongest: int = 10) -> Table:
    """The words with the largest contributions, equal spellings of a segment added up."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    for word in row.words:
        if word.contribution is not None:
            key = word.text, word.segment, word.group
            sums.setdefault(key, []).append(word.contribution)
    strongest_first = sorted(sums, key=lambda key: -abs(sum(sums[key])))
    table = Table(title="Words with the largest contributions")
    for name in ("word", "in", "group"):
        table.add_column(name, overflow="fold")
    for name in ("times", "contribution"):
        table.add_column(name, justify="right")
    for key in strongest_first[:strongest]:
        cells = [Text(printable(cell)) for cell in key]
        table.add_row(*cells, str(len(sums[key])), f"{sum(sums[key]):+.4f}")
    return table


def senses_table(row: Explanation) -> Table:
    """All senses: contribution, change by alpha where there is one, sensitivity and weight."""
    table = Table(
        title="Senses",
        caption="low sensitivity: the sense tells the groups apart",
        caption_justify="left",
    )
    for name in _sense_columns(row):
        table.add_column(name, justify="right")
    for sense in row.senses:
        table.add_row(*_sense_cells(sense, row.score_before is not None))
    return table


def groups_table(row: Explanation) -> Table:
    """What the listed words of each group do together; change by alpha where there is one."""
    table = Table(
        title="Listed words of the document",
        caption="what the score loses without all words of the group",
        caption_justify="left",
    )
    for name in _group_columns(row):
        table.add_column(name, justify="left" if name == "group" else "right")
    for group in row.groups:
        table.add_row(*_group_cells(group, row.score_before is not None))
    return table


def write_explanations(path: str | Path, rows: Sequence[Explanation]) -> None:
    """Write explanations as JSON with all digits; the file is complete or absent.

    Layout: ``{"format": "backpack_rank explanations 1", "explanations": [{...}]}`` with the
    attributes of :class:`~backpack_rank.senses.attribution.Explanation`.

    Raises:
        ValueError: a number is not finite.
    """
    payload = {"format": FORMAT, "explanations": list(map(asdict, rows))}
    write_text(path, dump_json(payload))


def write_profiles(path: str | Path, profiles: Sequence[SenseProfile]) -> None:
    """Write profiles of senses as JSON with all digits.

    Layout: ``{"format": "backpack_rank senses 1", "senses": [{...}]}``.

    Raises:
        ValueError: a number is not finite.
    """
    payload = {"format": SENSES_FORMAT, "senses": list(map(asdict, profiles))}
    write_text(path, dump_json(payload))


EXPLANATION_CSS = """\
.explanation{--explain-up:86 180 233;--explain-down:230 159 0;margin:1em 0}
.explanation p{line-height:1.8;margin:.4em 0;overflow-wrap:anywhere}
.explanation details{overflow-x:auto}
.explanation span{border-radius:.2em;padding:.1em 0;\
-webkit-box-decoration-break:clone;box-decoration-break:clone;
  -webkit-print-color-adjust:exact;print-color-adjust:exact}
.explanation .up{background-color:rgb(var(--explain-up)/calc(var(--strength)*.6))}
.explanation .down{background-color:rgb(var(--explain-down)/calc(var(--strength)*.6))}
.explanation u{text-decoration-thickness:.12em;text-underline-offset:.2em}
.explanation .explain-mark{font-size:.8em;opacity:.8}
.explanation table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.explanation th,.explanation td{padding:.1em .4em;text-align:right}
"""
"""Once per page; a page may set ``--explain-up`` and ``--explain-down`` (red green blue) anew."""


def explanation_html(row: Explanation) -> str:
    """One explanation as an HTML fragment, styled by :data:`EXPLANATION_CSS`.

    A ``span`` per word has its strength, 0 to 1, in the custom property ``--strength`` and its
    number in ``title``. Backgrounds are transparent colours over the page's own, so it serves light
    and dark pages. All text is escaped.
    """
    scale = _scale(row)
    lines = ['<div class="explanation">']
    if row.title:
        lines.append(f"<h4>{escape(row.title)}</h4>")
    lines.append(f"<p>{escape(score_sentence(row))}</p>")
    for segment in ("query", "document"):
        words = _words_of(row, segment)
        spans = ""
        for number, word in enumerate(words):
            if word.space and number > 0:
                spans += " "
            spans += _span(word, scale)
        lines.append(f"<p><b>{segment}</b> {spans or '<i>(empty)</i>'}</p>")
    marks = []
    for word in row.words:
        if word.segment not in ("query", "document"):
            marks.append(_span(word, scale))
    marks_in_front = f"marks: {' '.join(marks)} · " if marks else ""
    lines.append(
        f'<p class="explain-mark">{marks_in_front}'
        '<span class="up" style="--strength:1">raises the score</span>'
        ' <span class="down" style="--strength:1">lowers it</span></p>'
    )
    with_change = row.score_before is not None
    if not row.by_words:
        cells = [_sense_cells(sense, with_change) for sense in row.senses]
        lines.append(_folded_table("Contribution of each sense", _sense_columns(row), cells))
    elif row.groups:
        cells = [_group_cells(group, with_change) for group in row.groups]
        lines.append(_folded_table("Listed words of each group", _group_columns(row), cells))
    lines.append("</div>")
    return "\n".join(lines)


def _folded_table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    header = "".join(f'<th scope="col">{name}</th>' for name in columns)
    lines = []
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    body = "\n".join(lines)
    table = f"<table><thead><tr>{header}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f"<details><summary>{title}</summary>\n{table}\n</details>"


def _span(word: ExplainedWord, scale: float) -> str:
    contribution = word.contribution or 0.0
    note = f"{contribution:+.4f}"
    if word.contribution is None:
        note = "a query needs a word, so its only one is not left out"
    if word.change is not None:
        note += f", changed by {word.change:+.4f}"
    if word.group:
        note += f", {word.group} word"
    text = f"<u>{escape(word.text)}</u>" if word.group else escape(word.text)
    side = "up" if contribution > 0 else "down"
    strength = abs(contribution) / scale
    style = f"--strength:{strength:.3f}"
    return f'<span class="{side}" style="{style}" title="{escape(note)}">{text}</span>'


def _sense_columns(row: Explanation) -> list[str]:
    change = ["change"] if row.score_before is not None else []
    return ["sense", "contribution", *change, "sensitivity", "weight"]


def _sense_cells(sense: ExplainedSense, with_change: bool) -> list[str]:
    change = [_number(sense.change, "{:+.4f}")] if with_change else []
    numbers = (_number(sense.sensitivity, "{:.3f}"), f"{sense.weight:g}")
    return [sense.name, f"{sense.contribution:+.4f}", *change, *numbers]


def _group_columns(row: Explanation) -> list[str]:
    change = ["change"] if row.score_before is not None else []
    return ["group", "words", "contribution", *change]


def _group_cells(group: ExplainedGroup, with_change: bool) -> list[str]:
    change = [_number(group.change, "{:+.4f}")] if with_change else []
    return [group.name, str(group.words), f"{group.contribution:+.4f}", *change]


def _number(value: float | None, layout: str) -> str:
    return "-" if value is None else layout.format(value)


def _words_of(row: Explanation, segment: str) -> list[ExplainedWord]:
    return [word for word in row.words if word.segment == segment]


def _scale(row: Explanation) -> float:
    """The largest contribution of a word, which has the full colour."""
    return max((abs(word.contribution or 0.0) for word in row.words), default=0.0) or 1.0
