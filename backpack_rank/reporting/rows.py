"""What a comparison found: means of systems by measures, with letters of significance."""

from __future__ import annotations

from dataclasses import dataclass

from backpack_rank.reporting.table import number


@dataclass(frozen=True)
class Mean:
    """A system's mean of one measure.

    Attributes:
        mean: over queries; None for a system that was not compared on this measure.
        best: whether no system is better.
        letters: of the systems that this one is significantly better than (or differs from).
    """

    mean: float | None
    best: bool = False
    letters: tuple[str, ...] = ()

    @property
    def figure(self) -> str:
        """The mean with 4 decimals."""
        return number(self.mean)

    @property
    def raised(self) -> str:
        """The letters in one word, with commas where one of them is longer than a letter."""
        return ("," if any(len(letter) > 1 for letter in self.letters) else "").join(self.letters)


@dataclass(frozen=True)
class ComparisonTable:
    """Means that fit a page.

    Attributes:
        title: what the figures are of.
        measures: headings of the columns.
        lines: (letter, system, one mean per measure).
    """

    title: str
    measures: tuple[str, ...]
    lines: tuple[tuple[str, str, tuple[Mean, ...]], ...]


Cell = Mean
"""The name under which the page imports it."""
