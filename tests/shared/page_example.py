"""A page with every section, from small numbers that can be followed by hand."""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.evaluation.results import Estimate, RunInfo, Summary, SystemResult
from backpack_rank.reporting.answer import Answer
from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.data import (
    ChangedQuery,
    Changes,
    Page,
    RankedDocument,
    SensePanel,
)
from backpack_rank.reporting.page.figures import policy_figures, preference_figures
from backpack_rank.reporting.page.text import mark_words
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table
from backpack_rank.senses.profiles import RelatedWord, SenseProfile

LEXICON = Lexicon("tiny", {"male": ("he", "man"), "female": ("she", "woman")})
HOSTILE = '<script>alert(1)</script> & "x"'
LONG = "The man said that she knew the way. " * 30


def row(label: str, alpha: float | None, effectiveness: float, bias: float) -> SystemResult:
    names = [
        f"{name}({kind})@{cutoff}"
        for name in ("RaB", "ARaB")
        for kind in ("tf", "bool")
        for cutoff in (5, 10)
    ]
    biases = {name: Estimate(bias, abs(bias), bias - 0.01, bias + 0.01) for name in names}
    biases |= {f"NFaiRR@{cutoff}": Estimate(0.9, 0.9, 0.88, 0.92) for cutoff in (10, 50)}
    quality = {
        "nDCG@10": Estimate(
            effectiveness, effectiveness, effectiveness - 0.02, effectiveness + 0.02
        )
    }
    return SystemResult(label, alpha, Summary(quality, 10), Summary(biases, 20))


ROWS = (
    row("BM25", None, 0.30, 0.06),
    row("alpha=1", 1.0, 0.40, 0.05),
    row("alpha=0.5", 0.5, 0.38, 0.02),
    row("alpha=0", 0.0, 0.34, -0.01),
)
ABOUT = RunInfo(
    "wikiqa/test",
    "wikiqa/test: 20 gender-neutral queries",
    0.5,
    "lowest_2_senses",
    sign_in_words="male minus female: positive means towards male",
)


def changed(
    number: int = 1, documents: int = 3, text: str = LONG, query: str = HOSTILE
) -> ChangedQuery:
    """A query whose ranking is turned round; texts are different."""
    ranked = [
        RankedDocument(f"d{number}-{i}", mark_words(f"{i} {text}", LEXICON), 1.0 / i)
        for i in range(1, documents + 1)
    ]
    return ChangedQuery(f"q{number}", query, tuple(ranked), tuple(ranked[::-1]))


def policy_rows(share: float) -> list[SystemResult]:
    """A policy at three alphas, which removes a share of the gap between wordings."""
    rows = []
    for alpha in (1.0, 0.5, 0.0):
        gap = 0.05 * (1 - share * (1 - alpha))
        wordings = {
            "|gap|/std": Estimate(gap, gap, gap - 0.005, gap + 0.005),
            "prefers male": Estimate(0.5 + alpha / 5, 0.5 + alpha / 5),
            "prefers female": Estimate(0.3 - alpha / 5, 0.3 - alpha / 5),
            "prefers neither": Estimate(0.2, 0.2),
        }
        quality = Summary({"nDCG@10": Estimate(0.4, 0.4, 0.38, 0.42)}, 10)
        rows.append(SystemResult("", alpha, quality, further={"wordings": Summary(wordings, 10)}))
    return rows


POLICIES = {"lowest_2_senses": policy_rows(0.0), "paired_tokens": policy_rows(0.8)}


def with_policies(page: Page, policies: dict[str, list[SystemResult]]) -> Page:
    figures = policy_figures(policies, ("|gap|/std", "nDCG@10"))
    return replace(page, policies=tuple(figures), preferences=tuple(preference_figures(policies)))


def profile(number: int) -> SenseProfile:
    words = (RelatedWord("he", 0.9), RelatedWord(HOSTILE, 0.8))
    contributions = {"male": 0.1, "female": -0.2, "neutral": 0.0}
    return SenseProfile(number, str(number), number / 4, words, {}, (), (), contributions, {})


def full_page(queries: int = 3, documents: int = 3) -> Page:
    """Every section there is."""
    compared = [Row(("BM25",), [Cell(".3000", bold=True)]), Row((HOSTILE,), [Cell(".4")])]
    page = replace(
        page_of_rows("A report", {"": ROWS}, ABOUT),
        comparison=(
            Table(
                "", "Comparison", ("system",), [Group("", ("nDCG@10",))], [Section("", compared)]
            ),
        ),
        changes=(
            Changes(
                "alpha=1",
                "alpha=0.5",
                tuple(changed(n, documents) for n in range(1, queries + 1)),
                "Most first.",
            ),
            Changes("alpha=1", "other alpha=0", (changed(1, documents),)),
        ),
        answers=(
            Answer("paired_tokens", f"At alpha 0 of paired_tokens: {HOSTILE}", (HOSTILE,)),
            Answer("uniform (control)", "At alpha 0 of uniform (control):", ("The same.",)),
        ),
        answer_note="How it was chosen.",
        senses=SensePanel([profile(number) for number in range(4)], [0.5, 1, 1, 1]),
        attribution=(("q1 / d1", Markup('<p class="given">shown as it is</p>')),),
        configuration=f"alpha: 0.5\nname: '{HOSTILE}'\n",
        provenance=(("command", f"evaluate.py {HOSTILE}"),),
        notes=("A note.",),
    )
    return with_policies(page, POLICIES)
