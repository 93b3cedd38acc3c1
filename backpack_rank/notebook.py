"""What notebooks show of rerankers, rankings and results."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# By its name, because what is shown stands below what draws it.
_DRAWING = "backpack_rank.reporting.notebook"


class ShownInNotebooks:
    """Derive from it to be shown as HTML by Jupyter, VS Code or Colab.

    :func:`backpack_rank.reporting.notebook.html_of` says how an object of each kind is shown.
    """

    def _repr_html_(self) -> str | None:
        """What IPython asks an object for; None leaves it its text."""
        html: str | None = import_module(_DRAWING).html_of(self)
        return html


class PlottedInNotebooks(ShownInNotebooks):
    """Derive from it to be drawn, too."""

    def plot(self, **options: Any) -> Any:
        """A chart, which a notebook shows where it is the last line of a cell.

            chart = table.plot()
            chart.save("tradeoff.svg")

        Args:
            options: of the chart, see :func:`backpack_rank.reporting.notebook.chart_of`.

        Raises:
            ValueError: there is nothing to draw.
        """
        return import_module(_DRAWING).chart_of(self, **options)
