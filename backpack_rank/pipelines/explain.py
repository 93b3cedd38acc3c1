"""``explain.*``: where the score of a pair comes from, and what alpha changes about it.

A pair is a query and a document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.models.prompted_ranker import PromptTemplate
from backpack_rank.pipelines.alpha import AUTO
from backpack_rank.pipelines.chosen_data import ChosenData
from backpack_rank.pipelines.chosen_ranker import ChosenRanker
from backpack_rank.pipelines.pair_to_explain import PairToExplain
from backpack_rank.pipelines.saved_options import SavedOptions
from backpack_rank.pipelines.tasks import EvaluationTask
from backpack_rank.reporting.explanation import print_explanation, write_explanations
from backpack_rank.reranking.scorer import ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policies import Policy


class ExplainScore(EvaluationTask):
    """Use it to see which senses and words one score of a ranker comes from, or what words do."""

    chosen_by: ClassVar[str] = "explain.*"
    # Nothing is swapped to explain a score, so swap=false asks for nothing else.
    without: ClassVar[Mapping[str, Any]] = {"swap": False}

    def __init__(
        self,
        *,
        saved: SavedOptions,
        explain: PairToExplain,
        data: Mapping[str, Any] | None = None,
        first_stage: Mapping[str, Any] | None = None,
        attribute: Attribute,
        policy: Policy,
        alpha: float | str = 1.0,
        checkpoint: str | None = None,
        output: str = "outputs",
        split_attribute: bool = True,
        template: PromptTemplate | None = None,
        labels: Sequence[str] | None = None,
        scoring: ScoringSettings | None = None,
        cache: SenseCache | None = None,
    ) -> None:
        """Every argument is an option of ``conf/evaluate.yaml``, which describes it.

        Raises:
            ValueError: only one of query and document is given, or ``alpha=auto``.
        """
        explain.check()
        if isinstance(alpha, str):
            raise ValueError(
                f"an explanation is of one position of the dial: give alpha a number, not {AUTO}"
            )
        self.saved = saved
        self.pair = explain
        self.data = ChosenData(data, first_stage)
        self.ranker = ChosenRanker(
            checkpoint,
            output,
            attribute=attribute,
            scoring=scoring,
            cache=cache,
            split_attribute=split_attribute,
            template=template,
            labels=labels,
        )
        self.policy = policy
        self.alpha = alpha

    def find_ranker(self) -> Path | str:
        return self.ranker.find()

    def run(self, folder: Path, quiet: bool = False) -> None:
        """Print the explanation of the score and write it to ``explanation.json``.

        Raises:
            ValueError: an id that the data do not have, or ``explain.by=senses`` where the score
                does not split into senses.
        """
        checkpoint = self.ranker.find()
        query, document = self.pair.texts(lambda: self.data.of(checkpoint))
        reranker = self.ranker.load(checkpoint).with_policy(self.policy, self.alpha)
        explanation = reranker.explain(query, document, by=self.pair.by)
        self.saved.write(folder)
        write_explanations(folder / "explanation.json", [explanation])
        print_explanation(explanation)
