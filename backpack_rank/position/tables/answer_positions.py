"""Where answers stand in the original and the rotated passages of collections.

Figure 1 of Hofstätter et al. 2021.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from backpack_rank.constructors import Length, OneOf, PathText, Range
from backpack_rank.data.answers import Answers, load_answers
from backpack_rank.data.rotation import Rotation
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.passages.answer_position_report import (
    CollectionPositions,
    PositionHistogram,
    print_answer_positions,
    write_answer_positions,
)
from backpack_rank.position.passages.answer_positions import (
    MATCHES,
    AnswerPositions,
    answer_positions,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnswerPositionStudy(Experiment):
    """Shows whether a collection's answers stand at the beginning of its passages.

    It is the ``task`` of ``evaluate.py experiment=answer_positions``.

    Attributes:
        sources: BEIR folders with ``answers.jsonl``, files of SQuAD, ir_datasets ids; see
            :func:`~backpack_rank.data.answers.load_answers`.
        title: texts of BEIR folders begin with their titles.
        match: ``offsets`` (the places given, a search where there are none) or ``all`` (a search,
            every match counts, as the paper did).
        certain_only: leave out answers whose given place is only the likeliest of several.
        bins: of the histogram.
    """

    sources: Annotated[Sequence[PathText], Length(1)]
    title: bool = False
    match: Annotated[str, OneOf(MATCHES)] = "offsets"
    certain_only: bool = False
    bins: Annotated[int, Range(least=1, most=10_000)] = 20

    def __post_init__(self) -> None:
        if isinstance(self.sources, str):
            object.__setattr__(self, "sources", (self.sources,))
        if not self.sources:
            raise ValueError(
                "task.sources names nothing: give "
                "task.sources=[FOLDER,train-v1.1.json,msmarco-qna/train]"
            )
        if self.match not in MATCHES:
            raise ValueError(f"task.match={self.match}: use one of {', '.join(MATCHES)}")
        if self.bins < 1:
            raise ValueError(f"task.bins={self.bins} must be at least 1")

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Measure all sources, write files and print a table.

        The files are ``answer_positions.json``, ``.csv``, ``.png`` and ``.svg``.
        """
        rotation = settings.rotation
        collections = []
        for source in self.sources:
            answers = load_answers(source, title=self.title)
            log.info("%s: %d answers", answers.name, len(answers.rows))
            collections.append(self._measured(answers, rotation))
        settings.save(folder)
        write_answer_positions(folder, collections)
        if not quiet:
            print_answer_positions(collections)
            print(f"Written to {folder}")

    def _measured(self, answers: Answers, rotation: Rotation) -> CollectionPositions:
        original, rotated = answer_positions(
            answers, (None, rotation), self.match, self.certain_only
        )
        uncertain = 0
        if not self.certain_only:
            uncertain = sum(not row.certain for row in answers.rows)
        return CollectionPositions(
            name=answers.name,
            answers=original.answers,
            unmatched=original.unmatched,
            unanswered=answers.unanswered,
            uncertain=uncertain,
            match=self.match,
            histograms=(
                _histogram("original", original, self.bins),
                _histogram(rotation.label, rotated, self.bins),
            ),
        )


def _histogram(label: str, positions: AnswerPositions, bins: int) -> PositionHistogram:
    matches = len(positions.starts)
    mean = uniform_distance = None
    if matches:
        mean = float(positions.relative.mean())
        uniform_distance = positions.uniform_distance
    return PositionHistogram(
        passages=label,
        matches=matches,
        cut=positions.cut,
        mean=mean,
        uniform_distance=uniform_distance,
        histogram=tuple(positions.histogram(bins).tolist()),
    )
