"""Knowledge distillation: scores of a teacher, and the term of the loss that uses them.

Scores come from run files, or from a ranker that scores once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Protocol

from filelock import FileLock
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from backpack_rank.constructors import (
    Count,
    Length,
    Note,
    OneOf,
    PathText,
    Positive,
    Workers,
    checked,
)
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.datamodule import ListBatch, Teacher
from backpack_rank.data.teacher_scores import (
    Coverage,
    TeacherRun,
    TrainingPairs,
    drawn_pairs,
    read_runs,
    training_pairs,
)
from backpack_rank.data.text_files import numbered_lines
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.data.trec import read_run, write_run
from backpack_rank.digests import digest, with_lengths
from backpack_rank.files import intact, seal
from backpack_rank.models.finding import find_ranker
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.number_formats import FORMATS, resolved_format
from backpack_rank.models.rankers import Ranker, RankerOutput
from backpack_rank.models.utils import pick_device
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.cache import weights_digest
from backpack_rank.training.losses import AuxiliaryLoss, listwise_kl, margin_mse

KINDS = ("margin_mse", "listwise_kl")
log = logging.getLogger(__name__)
TEACHER_RUN = "teacher.trec"


@checked("teacher", kind="loss")
class Distillation:
    """A term of the loss that draws scores to a teacher's.

        RankingModule(ranker, optimisation, dev, terms=[Distillation("listwise_kl")])

    It is an :class:`~backpack_rank.training.losses.AuxiliaryLoss`. Documents without a teacher's
    score, and lists with too few of them, have no effect.
    """

    name = "distillation"

    def __init__(
        self,
        kind: Annotated[str, OneOf(KINDS)] = "margin_mse",
        weight: Annotated[Positive, Note("(teacher=none trains without a teacher)")] = 1.0,
        temperature: Positive = 1.0,
    ) -> None:
        """
        Args:
            kind: ``margin_mse`` (differences of scores between relevant and other documents) or
                ``listwise_kl`` (the list as a distribution, whatever the labels).
            weight: factor of the term.
            temperature: of both softmaxes of ``listwise_kl``; higher looks more at the lower
                documents.

        Raises:
            ValueError: an unknown kind, or a weight or temperature that is not above 0.
        """
        self.kind = kind
        self.weight = weight
        self.temperature = temperature

    def loss(
        self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor
    ) -> Tensor:
        """The distance to the teacher's scores; 0 where the batch has none of them.

        Raises:
            ValueError: the batch was made without a teacher.
        """
        if batch.teacher is None:
            raise ValueError("the batch has no teacher's scores: give RankingData a teacher")
        if self.kind == "margin_mse":
            loss, _ = margin_mse(scores, batch.teacher, batch.labels, batch.mask)
        else:
            loss, _ = listwise_kl(scores, batch.teacher, batch.mask, self.temperature)
        return loss


@dataclass(frozen=True)
class StudentData:
    """What a student is trained on, for its teacher.

    Attributes:
        collection: of the training queries.
        candidates: of its queries.
        lists: drawn from both.
        epochs: of training at most.
        folder: of the training run.
        device: where a teacher computes, as in
            :class:`~backpack_rank.reranking.text_scorer.ScoringSettings`.
    """

    collection: Collection
    candidates: Run
    lists: TrainingLists
    epochs: int
    folder: Path
    device: str = "auto"

    @cached_property
    def pairs(self) -> TrainingPairs:
        """Relevant documents and candidates of every training query."""
        return training_pairs(self.lists, self.collection, self.candidates)


class TeacherSource(Protocol):
    """Implement it for another source of a teacher's scores; :class:`RunTeacher` is an example."""

    @property
    def term(self) -> Distillation:
        """The term of the student's loss."""
        ...

    def run(self, material: StudentData) -> Run:
        """Scores of training pairs; a pair may be absent."""
        ...


class NoTeacher:
    """Trains with labels alone (``teacher=none``)."""


@checked("teacher")
class RunTeacher:
    """A teacher with scores in TREC runs of the training queries (``teacher=run``).

        RunTeacher(files=["scores.trec"], loss="margin_mse")

    Attributes:
        term: of the student's loss.
        paths: of the runs.
    """

    def __init__(
        self,
        *,
        files: PathText | Annotated[Sequence[PathText], Length(1)],
        loss: Annotated[str, OneOf(KINDS)] = "margin_mse",
        weight: Positive = 1.0,
        temperature: Positive = 1.0,
    ) -> None:
        """
        Args:
            files: one run or several that have no pair in common; queries and documents not trained
                on are left out.
            loss: ``margin_mse`` or ``listwise_kl``.
            weight: factor of the term.
            temperature: of ``listwise_kl``.

        Raises:
            ValueError: no file, or an option of the term is wrong.
            FileNotFoundError: a file is missing.
        """
        names = [files] if isinstance(files, str) else files
        self.paths = list(map(Path, names))
        if not self.paths:
            raise ValueError("teacher.files=[] names no file; give teacher.files=[scores.trec]")
        for path in self.paths:
            if not path.is_file():
                raise FileNotFoundError(f"teacher.files: there is no file {path}")
        self.term = Distillation(loss, weight, temperature)

    def run(self, material: StudentData) -> Run:
        """The files' scores of the training queries."""
        return read_runs(self.paths, material.lists.query_ids)


@checked("teacher")
class RankerTeacher:
    """A teacher that is a saved ranker (``teacher=ranker``).

        RankerTeacher(checkpoint="outputs/train/large/ranker", candidates_per_query=30)

    It scores once, and its scores are kept in the training run's folder.

    Attributes:
        term: of the student's loss.
    """

    def __init__(
        self,
        *,
        checkpoint: PathText,
        candidates_per_query: Count | None = None,
        dtype: Annotated[str, OneOf(FORMATS)] = "float32",
        tokens_per_batch: Count | None = None,
        workers: Workers = 0,
        loss: Annotated[str, OneOf(KINDS)] = "margin_mse",
        weight: Positive = 1.0,
        temperature: Positive = 1.0,
    ) -> None:
        """
        Args:
            checkpoint: folder of the ranker or of the run that trained it.
            candidates_per_query: None scores every relevant document and candidate; a number only
                what the lists draw, and at most so many documents per query that are not relevant,
                those that are drawn first.
            dtype, tokens_per_batch, workers: as in
                :class:`~backpack_rank.reranking.text_scorer.ScoringSettings`.
            loss: ``margin_mse`` or ``listwise_kl``.
            weight: factor of the term.
            temperature: of ``listwise_kl``.

        Raises:
            ValueError: ``candidates_per_query`` below 1, or an option of the scoring or the term is
                wrong.
            FileNotFoundError: there is no ranker in the folder.
        """
        self.term = Distillation(loss, weight, temperature)
        try:
            self._ranker_folder = find_ranker(checkpoint, "")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"teacher.{error}") from error
        self._candidates_per_query = candidates_per_query
        self._dtype = dtype
        self._tokens_per_batch = tokens_per_batch
        self._workers = workers
        self._settings("cpu")  # raises for a wrong option now, and not after the data are loaded

    def run(self, material: StudentData) -> Run:
        """The ranker's scores, read from the folder where an earlier call has written the same.

        They are the same if ranker, number format and texts are.
        """
        path = material.folder / TEACHER_RUN
        material.folder.mkdir(parents=True, exist_ok=True)
        # Several processes train in one folder: the first scores, the others read. isolate_rng:
        # the student draws the random numbers that it would draw without a teacher.
        with FileLock(material.folder / f".{TEACHER_RUN}.lock"), isolate_rng():
            ranker, pair_tokenizer = load_ranker(self._ranker_folder)
            pairs = self._pairs(material)
            device = pick_device(material.device, "teacher.device")
            dtype = resolved_format(self._dtype, device, "teacher.dtype")
            tag = f"{type(ranker).__name__}-{_fingerprint(ranker, pair_tokenizer, pairs, dtype)}"
            if intact(path) and _tag(path) == tag:
                log.info("teacher: scores of %d pairs taken from %s", len(pairs), path)
            else:
                if path.exists():
                    log.warning(
                        "teacher: %s is of another ranker or other texts; scoring again", path
                    )
                log.info("teacher: scoring %d pairs with %s", len(pairs), self._ranker_folder)
                scorer = Scorer(ranker, pair_tokenizer, self._settings(material.device))
                write_run(path, pairs.to_run(scorer.scores(pairs)), tag)
                seal(path)
            # A new file is read too: writing sets equal scores apart.
            return read_run(path)

    def _pairs(self, material: StudentData) -> Pairs:
        doc_ids_by_query = material.pairs
        if self._candidates_per_query is not None:
            doc_ids_by_query = drawn_pairs(
                doc_ids_by_query, material.lists, material.epochs, self._candidates_per_query
            )
        # Pairs are made from a run; the scores of this one are not looked at.
        run = {}
        for query_id, doc_ids in doc_ids_by_query.items():
            run[query_id] = dict.fromkeys(doc_ids, 0.0)
        return Pairs.from_run(run, material.collection)

    def _settings(self, device: str) -> ScoringSettings:
        try:
            return ScoringSettings(device, self._dtype, self._tokens_per_batch, self._workers)
        except ValueError as error:
            raise ValueError(str(error).replace("scoring.", "teacher.")) from error


def prepare_teacher(
    source: TeacherSource | NoTeacher, material: StudentData
) -> tuple[Teacher | None, tuple[AuxiliaryLoss, ...]]:
    """Before a training: the teacher for the lists and the term for the loss.

        teacher, terms = prepare_teacher(RunTeacher(files="scores.trec"), student_data)

    Both are empty, (None, ()), without a teacher.

    Raises:
        ValueError: too few training pairs have a score for the term to ever be other than 0.
    """
    if isinstance(source, NoTeacher):
        return None, ()
    run = source.run(material)
    term = source.term
    coverage = Coverage.of(run, material.pairs, material.collection)
    log.info("teacher: %s", coverage)
    if coverage.scored == 0:
        raise ValueError(
            f"none of the {coverage.pairs} training pairs of {material.collection.name} has a "
            "teacher's score: do the runs of teacher.files hold other queries or documents?"
        )
    if term.kind == "margin_mse":
        usable = coverage.comparable
        needed = "a relevant and for another document"
    else:
        usable = coverage.several
        needed = "two documents"
    if not usable:
        raise ValueError(
            f"teacher.loss={term.kind} can use no query of {material.collection.name}, because "
            f"none has a teacher's score for {needed} among its relevant documents and candidates "
            f"({coverage})"
        )
    return TeacherRun(run), (term,)


def _fingerprint(ranker: Ranker, pair_tokenizer: PairTokenizer, pairs: Pairs, dtype: str) -> str:
    """Digest of ranker, tokenizer, number format, and texts with their ids."""
    rows = chain(zip(pairs.query_ids, pairs.doc_ids, strict=True), pairs.texts())
    config = ranker.config.to_json_string()
    settings = repr((weights_digest(ranker), config, pair_tokenizer.fingerprint, dtype))
    return digest(chain([settings], with_lengths(rows)))


def _tag(path: Path) -> str | None:
    """The tag of a run file; None when there is no such file."""
    if not path.is_file():
        return None
    for _, line in numbered_lines(path):
        return line.split()[-1]
    return None
