"""How a notebook shows rerankers, rankings, sweeps, explanations, results and collections.

All texts are escaped. Tables take the colours of the notebook, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from html import escape
from pathlib import Path
from typing import Any

from backpack_rank.data.collection import Collection
from backpack_rank.evaluation.result_table import BIAS, EFFECTIVENESS, ResultTable
from backpack_rank.files import atomic_path, write_text
from backpack_rank.reporting.charts import Line, lines
from backpack_rank.reporting.explanation import EXPLANATION_CSS, explanation_html
from backpack_rank.reporting.overview import overview_table
from backpack_rank.reporting.table import Table, number
from backpack_rank.reporting.tradeoff import tradeoff_of
from backpack_rank.reporting.vega import Spec, svg_of, with_look
from backpack_rank.reporting.writers import dump_json
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rankings import AlphaSweep, Ranking
from backpack_rank.reranking.rerankers import Reranker
from backpack_rank.senses.attribution import Explanation

_CHARACTERS = 120
"""Of a text in a table."""
_ROWS = 20
"""Of a ranking in a notebook; more are counted."""


class Chart:
    """A Vega-Lite chart: Jupyter, VS Code and Colab draw it, other programs show its SVG.

        chart = table.plot()
        chart                       # the last line of a cell
        chart.save("tradeoff.png")  # or .svg, .json

    Attributes:
        spec: the chart in Vega-Lite, a dictionary with its data.
    """

    def __init__(self, spec: Spec, width: int = 480) -> None:
        """
        Args:
            spec: chart in Vega-Lite.
            width: in pixels.
        """
        self.spec = with_look(spec, width=width)

    def svg(self) -> str:
        """The drawing."""
        return svg_of(self.spec)

    def save(self, path: str | Path) -> None:
        """Write it, as the ending of the path says: .svg, .png or .json (Vega-Lite).

        Raises:
            ValueError: another ending.
        """
        path = Path(path)
        if path.suffix == ".svg":
            write_text(path, self.svg())
        elif path.suffix == ".json":
            write_text(path, dump_json(self.spec))
        elif path.suffix == ".png":
            import vl_convert

            with atomic_path(path) as temporary:
                temporary.write_bytes(vl_convert.svg_to_png(self.svg(), scale=2))
        else:
            raise ValueError(f"{path}: a chart is saved as .svg, .png or .json")

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> dict[str, str | Spec]:
        """What IPython asks for: the chart, and its drawing for programs that cannot draw it."""
        return {"application/vnd.vegalite.v6+json": self.spec, "image/svg+xml": self.svg()}


@singledispatch
def html_of(shown: object) -> str | None:
    """How an object is shown; None leaves it its text."""
    return None


@singledispatch
def chart_of(drawn: object, **options: Any) -> Chart:
    """The chart of an object."""
    raise TypeError(f"{type(drawn).__name__} has no chart")


@html_of.register
def _(reranker: Reranker) -> str:
    return _facts(reranker.name, {})


@html_of.register
def _(reranker: PointwiseReranker) -> str:
    policy = reranker.hook.policy
    facts = {
        "policy": "none: the ranker as it was trained" if policy is None else policy.name,
        "alpha": f"{reranker.hook.alpha:g}",
        "attribute": reranker.attribute.name,
        "policies that fit": ", ".join(reranker.policies),
    }
    return _facts(reranker.scorer.ranker.label, facts)


@html_of.register
def _(ranking: Ranking) -> str:
    rows = []
    for rank, row in enumerate(ranking[:_ROWS], start=1):
        text = row.get("text", "")
        if not text and row["corpus_id"] < len(ranking.documents):
            text = ranking.documents[row["corpus_id"]]
        rows.append((str(rank), number(row["score"]), str(row["corpus_id"]), _beginning(text)))
    left = len(ranking) - len(rows)
    note = f"{left} more documents" if left > 0 else ""
    return _table(ranking.query, ("rank", "score", "corpus_id", "document"), rows, [note])


@html_of.register
def _(sweep: AlphaSweep) -> str | None:
    if not sweep.alphas:
        return None  # a part of a sweep is an array like any other
    rows = []
    for place, document in enumerate(sweep.documents[:_ROWS]):
        scores = [number(float(score)) for score in sweep[:, place]]
        rows.append((*scores, _beginning(document)))
    left = len(sweep.documents) - len(rows)
    note = f"{left} more documents" if left > 0 else ""
    headings = [f"alpha {alpha:g}" for alpha in sweep.alphas]
    return _table(sweep.query, (*headings, "document"), rows, [note])


@html_of.register
def _(explanation: Explanation) -> str:
    return f"<style>{EXPLANATION_CSS}</style>{explanation_html(explanation)}"


@html_of.register
def _(table: ResultTable) -> str:
    if not table.systems:
        return _table("no system", (), [])
    return table_html(overview_table(table.report(), table.compare()))


@html_of.register
def _(collection: Collection) -> str:
    judged = sum(bool(collection.qrels.get(query_id)) for query_id in collection.queries)
    facts = {
        "documents": f"{len(collection.documents):,}",
        "queries": f"{len(collection.queries):,}, {judged:,} of them judged",
    }
    if collection.candidates is not None:
        facts["candidates"] = f"of {len(collection.candidates):,} queries"
    for query_id, text in list(collection.queries.items())[:1]:
        facts["first query"] = f"{query_id}: {_beginning(text)}"
    return _facts(collection.name, facts)


@chart_of.register
def _(table: ResultTable, measure: str = "", bias: str = "") -> Chart:
    """Effectiveness against bias of every system, the positions of a dial joined by a line.

    Args:
        table: of :func:`backpack_rank.evaluate`.
        measure: of effectiveness; empty takes the first one.
        bias: measure of bias; empty takes the first one.

    Raises:
        ValueError: no system has both.
    """
    rows = table.report().rows
    measure = measure or _first_measure(table, EFFECTIVENESS)
    bias = bias or _first_measure(table, BIAS)
    drawn = tradeoff_of(rows, measure, bias) if measure and bias else None
    if drawn is None:
        raise ValueError(
            f"no system has both a measure of effectiveness ({measure or 'none'}) and one of bias "
            f"({bias or 'none'}): name them as plot(measure=..., bias=...)"
        )
    return Chart(drawn[0])


@chart_of.register
def _(sweep: AlphaSweep) -> Chart:
    """The score of each document along alpha."""
    if not sweep.alphas:
        raise ValueError("a part of a sweep has no alphas: draw the sweep itself")
    drawn = []
    for place, document in enumerate(sweep.documents):
        scores = [float(score) for score in sweep[:, place]]
        drawn.append(Line(_beginning(document, 40), list(sweep.alphas), scores))
    return Chart(lines(drawn, "alpha", "score"))


def table_html(table: Table) -> str:
    """Show any table in a notebook, with its sections and notes."""
    rows: list[tuple[str, ...]] = []
    headings = (*table.labels, *table.headings)
    for section in table.sections:
        if section.heading:
            rows.append((section.heading, *[""] * (len(headings) - 1)))
        for row in section.rows:
            figures = [f"{cell.text} {cell.raised}".strip() for cell in row.cells]
            rows.append((*row.labels, *figures))
    return _table(table.title, headings, rows, table.notes)


def _first_measure(table: ResultTable, query_set: str) -> str:
    for system in table.systems:
        if query_set in system.values:
            return system.values[query_set].measures[0]
    return ""


def _facts(title: str, facts: Mapping[str, str]) -> str:
    return _table(title, (), list(facts.items()))


def _table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> str:
    parts = [f"<strong>{escape(title)}</strong>", "<table>"]
    if headings:
        cells = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
        parts.append(f"<thead><tr>{cells}</tr></thead>")
    parts.append("<tbody>")
    for row in rows:
        cells = "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row)
        parts.append(f"<tr>{cells}</tr>")
    parts.append("</tbody></table>")
    for note in notes:
        if note:
            parts.append(f"<p>{escape(note)}</p>")
    return f"<div>{''.join(parts)}</div>"


def _beginning(text: str, characters: int = _CHARACTERS) -> str:
    on_one_line = " ".join(text.split())
    if len(on_one_line) <= characters:
        return on_one_line
    return on_one_line[: characters - 1] + "…"
