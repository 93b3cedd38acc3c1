"""``explain.query=... explain.document=...``: where a score comes from, and what alpha changes about it."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.data.lexicon import load_lexicon
from backpack_rank.pipelines.common import find_ranker, save_config
from backpack_rank.pipelines.turned import TurnedRanker
from backpack_rank.reporting.explanation import Explanation, print_explanation, write_explanations
from backpack_rank.senses.attribution import attribute, explanation
from backpack_rank.senses.control import Control, applied


def explain(config: DictConfig, folder: Path) -> None:
    """Print the explanation of one score and write it to ``explanation.json``.

    Raises:
        ValueError: only one of query and document is given, ``alpha=auto``, or the ranker has no senses.
    """
    query, document = config.explain.query, config.explain.document
    if query is None or document is None:
        raise ValueError("an explanation needs both texts: explain.query='...' explain.document='...'")
    if config.alpha == "auto":
        raise ValueError("an explanation is of one position of the dial: give alpha a number, not auto")
    turned = TurnedRanker(config, find_ranker(config.checkpoint, config.output))
    row = explained(turned, turned.control(config.alpha), str(query), str(document), config.attribute.lexicon)
    save_config(folder, config)
    write_explanations(folder / "explanation.json", [row])
    print_explanation(row)


def explained(
    turned: TurnedRanker, control: Control, query: str, document: str, lexicon: str, title: str = ""
) -> Explanation:
    """The contributions to a score under a control; with a control, what it changes.

    Raises:
        ValueError: the ranker has no senses, or the query is empty or too long.
    """
    scorer, found_senses = turned.scorer, turned.sensitivity
    if found_senses is None:
        name = type(scorer.ranker).__name__
        raise ValueError(f"{name} has no sense vectors, so its score does not split into senses")
    plain = attribute(scorer.ranker, scorer.encoder, query, document)
    found = plain
    if control.weights is not None or control.tokens is not None:
        with applied(scorer.ranker, control):
            found = attribute(scorer.ranker, scorer.encoder, query, document)
    return explanation(
        found,
        title=title or f"{turned.label(control.alpha)}" + (f", {control.name}" if control.name else ""),
        lexicon=load_lexicon(lexicon),
        sensitivity=found_senses.values,
        weights=control.weights,
        before=None if found is plain else plain,
    )
