"""``explain.*``: where the score of a query and a document comes from, and what alpha changes about it."""

from __future__ import annotations

from pathlib import Path

from backpack_rank.pipelines.settings import AUTO, EvaluationSettings
from backpack_rank.reporting.explanation import print_explanation, write_explanations


def explain(settings: EvaluationSettings, folder: Path) -> None:
    """Print the explanation of one score and write it to ``explanation.json``.

    Raises:
        ValueError: only one of query and document is given, an id that the data does not have, ``alpha=auto``, or the
            ranker has no senses.
    """
    assert settings.explain is not None
    settings.explain.check()
    if settings.alpha == AUTO:
        raise ValueError("an explanation is of one position of the dial: give alpha a number, not auto")
    checkpoint = settings.find_ranker()
    query, document = settings.explain.texts(lambda: settings.dataset(checkpoint))
    reranker = settings.reranker(checkpoint).with_policy(settings.policy, settings.alpha)  # type: ignore[arg-type]
    row = reranker.explain(query, document)
    settings.save(folder)
    write_explanations(folder / "explanation.json", [row])
    print_explanation(row)
