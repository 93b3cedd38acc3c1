"""Options of an evaluation that do not go together, refused before data and rankers are loaded."""

from __future__ import annotations

from backpack_rank.pipelines.settings import AUTO, EvaluationSettings


def check_together(settings: EvaluationSettings) -> None:
    """Raise ``ValueError`` for an option that would be ignored beside another."""
    if settings.alpha != AUTO and settings.budget is not None:
        raise ValueError(f"budget={settings.budget} is for alpha=auto: add it, or leave out the budget")
    if settings.certificate:
        _check_certificate(settings)
    if settings.runs is not None:
        _check_runs(settings)


def refuse_beside(given: dict[str, object], beside: str) -> None:
    """Raise ``ValueError`` for the first of these options that has a value; ``beside`` is what it does not go with."""
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{option}=... and {beside} do not go together: leave one of them out")


def explain_options(settings: EvaluationSettings) -> dict[str, object]:
    """The options below ``explain`` that are given."""
    return {} if settings.explain is None else dict.fromkeys(settings.explain.options, True)


def _check_certificate(settings: EvaluationSettings) -> None:
    beside: dict[str, object] = {"run": settings.runs, "recalibrate.run": settings.recalibration}
    refuse_beside({**beside, **explain_options(settings)}, "certificate=true")
    if settings.alpha == AUTO:
        raise ValueError("certificate=true is about alpha=0, and alpha=auto chooses another: give alpha=0")


def _check_runs(settings: EvaluationSettings) -> None:
    if settings.explain is not None:
        raise ValueError("an explanation is of a ranker's score, not of a run: leave out run=... or explain.*")
    if settings.alpha != 1 or settings.variants is not None:
        option = "variants=..." if settings.alpha == 1 else f"alpha={settings.alpha}"
        raise ValueError(f"{option} needs a ranker and does nothing to run files: leave out it or run=...")
