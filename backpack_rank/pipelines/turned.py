"""A trained ranker with its dial: from alpha to the rankings of everything in a workload."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.lexicon import load_pairs
from backpack_rank.data.pairs import Pairs
from backpack_rank.files import cache_dir, write_text
from backpack_rank.models.build import load_ranker
from backpack_rank.models.interaction import InteractionForRanking
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.pipelines.workload import Workload
from backpack_rank.scoring import Scorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.control import UNTOUCHED, Control
from backpack_rank.senses.fitted import SwappedSenses
from backpack_rank.senses.policy import check_alpha
from backpack_rank.senses.sensitivity import Sensitivity, sensitivity
from backpack_rank.senses.subject import Policy, Subject

Ranked: TypeAlias = Callable[[Run, Collection], list[Run]]
"""Candidates and their collection to one run for each position of the dial."""

log = logging.getLogger(__name__)
_FIT_DOCUMENTS = 2000


@dataclass(frozen=True)
class System:
    """Something that ranks: its label in the tables, its dial, and its rankings.

    Attributes:
        label: name in the tables.
        alpha: position of the dial, None without one.
        test_run: rankings of the effectiveness set.
        bias_run: rankings of the bias set.
        swapped_run: the bias set's candidates scored in their swapped wording, or None.
        worded_run: scores of the documents in every wording, or None.
    """

    label: str
    alpha: float | None
    test_run: Run
    bias_run: Run
    swapped_run: Run | None = None
    worded_run: Run | None = None


class TurnedRanker:
    """A saved ranker, the policy that its dial drives, and the cache that makes turning it cheap."""

    def __init__(self, config: DictConfig, checkpoint: Path, fit_on: Callable[[], Workload] | None = None) -> None:
        """Load the ranker.

        Args:
            config: of the evaluation.
            checkpoint: folder of a saved ranker.
            fit_on: gives the workload (dev) that fitted policies learn from.
        """
        ranker, encoder = load_ranker(checkpoint)
        self.checkpoint = checkpoint
        self.scorer = Scorer(ranker, encoder, instantiate(config.scoring))
        self.policy: Policy = instantiate(config.policy, _convert_="all")
        self.pairs = load_pairs(config.attribute.pairs, tuple(config.attribute.sides))
        self._fit_on = fit_on
        self._controls: dict[float, Control] = {}
        folder = Path(config.cache.folder).expanduser() if config.cache.folder else cache_dir() / "senses"
        self.cache = SenseCache(folder, config.cache.max_gb) if self.has_senses else None

    @property
    def has_senses(self) -> bool:
        return isinstance(self.scorer.ranker, BackpackForRanking)

    @cached_property
    def sensitivity(self) -> Sensitivity | None:
        """s_l of the senses (eq. 4), None without senses."""
        ranker = self.scorer.ranker
        if not isinstance(ranker, BackpackForRanking):
            return None
        return sensitivity(ranker.backpack, self.scorer.encoder.tokenizer, self.pairs.pairs)

    @cached_property
    def _subject(self) -> Subject:
        """One for all alphas: what a policy is fitted to is kept with it."""
        values = self.sensitivity.values if self.sensitivity is not None else None
        return Subject(self.scorer.ranker, self.scorer.encoder.tokenizer, values, self._swapped_senses)

    def control(self, alpha: float) -> Control:
        """The policy's control at that alpha; untouched at 1.

        Raises:
            ValueError: alpha is not a number >= 0, or the ranker has no senses and the policy needs them.
        """
        if check_alpha(alpha) == 1:
            return UNTOUCHED
        if alpha not in self._controls:
            self._controls[alpha] = self._new_control(alpha)
        return self._controls[alpha]

    def _new_control(self, alpha: float) -> Control:
        try:
            control = self.policy.control(self._subject, alpha)
        except TypeError as error:
            raise ValueError(f"alpha={alpha:g}, policy {self.policy.name}: {error}") from error
        if control.tokens is not None and control.tokens.where != "weights" and not self.has_senses:
            name = type(self.scorer.ranker).__name__
            raise ValueError(
                f"alpha={alpha:g}, policy {self.policy.name}: {name} has no sense vectors; "
                "policy.where=weights moves what it reads"
            )
        return control

    def systems(self, work: Workload, alphas: Sequence[float]) -> list[System]:
        """The ranker at each alpha, over everything in the workload."""
        controls = [self.control(alpha) for alpha in alphas]

        def rank(candidates: Run, collection: Collection) -> list[Run]:
            return self.scorer.rank_controls(candidates, collection, controls, self.cache)

        tests = rank(work.candidates, work.test)
        if work.separate:
            biases = rank(work.bias_candidates, work.bias)
        else:
            biases = [{q: run[q] for q in work.bias_candidates} for run in tests]
        swapped = self._swapped_runs(work, biases, rank)
        worded: Sequence[Run | None] = [None] * len(alphas)
        if work.worded is not None:
            worded = rank(work.worded.candidates, work.worded.collection)
        return [
            System(self.label(alpha), float(alpha) if self._dial else None, test, bias, swap, words)
            for alpha, test, bias, swap, words in zip(alphas, tests, biases, swapped, worded, strict=True)
        ]

    def label(self, alpha: float) -> str:
        """Name in the tables."""
        ranker = self.scorer.ranker
        own = ranker.label if isinstance(ranker, InteractionForRanking) else type(ranker).__name__
        return f"alpha={alpha:g}" if self._dial else own

    @property
    def _dial(self) -> bool:
        """Whether turning alpha does anything to this ranker."""
        return self.has_senses or getattr(self.policy, "where", None) == "weights"

    def write_senses(self, path: Path, control: Control) -> None:
        """Sensitivities, the policy and its weights as JSON; nothing for a ranker without senses."""
        found = self.sensitivity
        if found is None:
            return
        tokens = control.tokens
        weights = [1.0] * len(found.values) if control.weights is None else control.weights.tolist()
        details = {
            "pairs": self.pairs.name,
            "pairs_used": found.pairs,
            "words_in_parts": found.in_parts,
            "pairs_unknown_to_the_tokenizer": found.unknown,
            "sensitivity": found.values.tolist(),
            "policy": self.policy.name,
            "alpha": control.alpha,
            "weights": weights,
            "moved_tokens": [] if tokens is None else list(tokens.classes.names),
            "words_without_a_token": [] if tokens is None else list(tokens.classes.in_parts),
            "words_without_a_partner": [] if tokens is None else list(tokens.classes.alone),
        }
        write_text(path, json.dumps(details, indent=2) + "\n")

    def notes(self, control: Control) -> list[str]:
        """Sentences about the ranker, its senses and what the control does."""
        lines = [f"Ranker: {self.checkpoint}"]
        if (found := self.sensitivity) is not None:
            lowest = sorted(range(len(found.values)), key=lambda sense: float(found.values[sense]))[:2]
            shown = ", ".join(f"s_{sense}={found.values[sense]:.3f}" for sense in lowest)
            lines.append(
                f"Sensitivity from {found.pairs} token pairs of {self.pairs.name}: lowest {shown}, "
                f"mean {found.values.mean():.3f}"
            )
        if control.tokens is not None:
            classes = control.tokens.classes
            members = sum(map(len, classes.members))
            left = len(classes.in_parts) + len(classes.alone)
            lines.append(
                f"{members} tokens in {len(classes.members)} classes are moved; {left} words of the classes are not "
                "single tokens and stay as they are"
            )
        return lines

    def _swapped_runs(self, work: Workload, biases: list[Run], rank: Ranked) -> Sequence[Run | None]:
        """Scores of the bias set's candidates in swapped wording; what a swap leaves alone keeps its score."""
        if work.swapped is None:
            return [None] * len(biases)
        if not work.swapped.candidates:
            return biases
        changed = rank(work.swapped.candidates, work.swapped.collection)
        return [
            {query_id: {**scores, **swapped.get(query_id, {})} for query_id, scores in run.items()}
            for run, swapped in zip(biases, changed, strict=True)
        ]

    def _swapped_senses(self) -> SwappedSenses:
        """Sense vectors of the fitting set's candidates, and of the swapped wordings of those that a swap changes."""
        work = self._fit_on() if self._fit_on is not None else None
        if work is None or work.swapped is None or not work.swapped.candidates:
            raise ValueError(
                f"policy {self.policy.name} is fitted on documents of the dev split that a lexicon swap changes: "
                "it needs swap=true, data with a dev split, and gendered words in its candidates"
            )
        candidates = _first_documents(work.bias_candidates, _FIT_DOCUMENTS)
        original = Pairs.from_run(candidates, work.bias)
        changed = work.swapped.counts.changed
        rows = np.array([row for row, doc_id in enumerate(original.doc_ids) if doc_id in changed], dtype=np.int64)
        swapped = Pairs(
            work.swapped.collection,
            tuple(original.query_ids[row] for row in rows),
            tuple(original.doc_ids[row] for row in rows),
        )
        groups = np.repeat(np.arange(len(candidates)), [len(documents) for documents in candidates.values()])
        return SwappedSenses(self._senses(original), self._senses(swapped), groups, rows)

    def _senses(self, pairs: Pairs) -> np.ndarray:
        ranker = self.scorer.ranker
        assert isinstance(ranker, BackpackForRanking)
        out = np.empty((len(pairs), ranker.config.num_senses, ranker.config.hidden_size), dtype=np.float32)
        self.scorer.fill_senses(pairs, out)
        return out


def _first_documents(run: Run, count: int) -> Run:
    """Whole lists from the start of a run, up to that many documents (one list at least)."""
    kept: Run = {}
    for query_id, documents in run.items():
        if kept and sum(map(len, kept.values())) + len(documents) > count:
            break
        kept[query_id] = documents
    return kept
