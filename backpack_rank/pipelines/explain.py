"""``explain.*``: where the score of a pair comes from, and what alpha changes about it.

A pair is a query and a document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.pipelines.alpha import AUTO
from backpack_rank.pipelines.chosen_ranker import RankerOptions
from backpack_rank.pipelines.pair_to_explain import PairToExplain
from backpack_rank.pipelines.tasks import EvaluationTask
from backpack_rank.reporting.explanation import print_explanation, write_explanations


@dataclass(kw_only=True, eq=False)
class ExplainScore(RankerOptions, EvaluationTask):
    """Shows which senses and words one score of a ranker comes from, or what words do."""

    chosen_by: ClassVar[str] = "explain.*"
    # Nothing is swapped to explain a score, so swap=false asks for nothing else.
    without: ClassVar[Mapping[str, Any]] = {"swap": False}
    explain: PairToExplain

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a query or a document alone, and for ``alpha=auto``."""
        super().__post_init__()
        self.explain.check()
        if isinstance(self.alpha, str):
            raise ValueError(
                f"an explanation is of one position of the dial: give alpha a number, not {AUTO}"
            )

    def run(self, folder: Path, quiet: bool = False) -> None:
        """Print the explanation of the score and write it to ``explanation.json``.

        Raises:
            ValueError: an id that the data do not have, or ``explain.by=senses`` where the score
                does not split into senses.
        """
        checkpoint = self.find_ranker()
        query, document = self.explain.texts(lambda: self.chosen_data.of(checkpoint))
        reranker = self.load_ranker(checkpoint).with_policy(self.policy, self.alpha)  # type: ignore[arg-type]  # no text but auto is an alpha
        explanation = reranker.explain(query, document, by=self.explain.by)
        self.saved.write(folder)
        write_explanations(folder / "explanation.json", [explanation])
        print_explanation(explanation)
