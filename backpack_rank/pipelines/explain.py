"""``explain.query=... explain.document=...``: where a score comes from, and what alpha changes about it."""

from __future__ import annotations

from pathlib import Path

from backpack_rank.pipelines.settings import AUTO, EvaluationSettings
from backpack_rank.reporting.explanation import print_explanation, write_explanations


def explain(settings: EvaluationSettings, folder: Path) -> None:
    """Print the explanation of one score and write it to ``explanation.json``.

    Raises:
        ValueError: only one of query and document is given, ``alpha=auto``, or the ranker has no senses.
    """
    query, document = settings.explain or (None, None)
    if query is None or document is None:
        raise ValueError("an explanation needs both texts: explain.query='...' explain.document='...'")
    if settings.alpha == AUTO:
        raise ValueError("an explanation is of one position of the dial: give alpha a number, not auto")
    reranker = settings.reranker(settings.find_ranker()).with_policy(settings.policy, settings.alpha)  # type: ignore[arg-type]
    row = reranker.explain(str(query), str(document))
    settings.save(folder)
    write_explanations(folder / "explanation.json", [row])
    print_explanation(row)
