"""Saved rankers with what they were trained on, read from the configurations of their runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from backpack_rank.data.dataset import Dataset
from backpack_rank.files import RANKER
from backpack_rank.pipelines.chosen_data import dataset_of, rotation_of
from backpack_rank.pipelines.run_folder import CONFIG, plain_values, run_config
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.published import PublishedTable

log = logging.getLogger(__name__)
_LONGEST = 10
"""Runs that go on from one another, at most, so that runs that name each other come to an end."""


@dataclass(frozen=True)
class TrainingStage:
    """A training on a collection.

    Attributes:
        data: name of the collection.
        rotation: level at which its passages were rotated, ``word`` or ``sentence``; None where
            they were not.
    """

    data: str
    rotation: str | None = None


Stages: TypeAlias = tuple[TrainingStage, ...]
"""What a ranker was trained on, the last training last."""


@dataclass(frozen=True)
class Checkpoint:
    """A saved ranker and what it was trained on; :func:`find_checkpoints` finds them.

    Attributes:
        ranker: its folder.
        model: name of the model, such as ``tk``; the class of the ranker where the run does not
            say.
        stages: what it was trained on, the last training last.
        seed: of the last training.
    """

    ranker: Path
    model: str
    stages: Stages
    seed: int

    def dataset(self) -> Dataset:
        """Of the last training. Raises ``ValueError`` where the run does not name it."""
        return dataset_of(run_config(self.ranker.parent, only=("data",)).data)


def find_checkpoints(folders: Sequence[str]) -> list[Checkpoint]:
    """Find every saved ranker below some folders, the oldest first::

        for checkpoint in find_checkpoints(["outputs/train"]):
            print(checkpoint.model, checkpoint.stages, checkpoint.seed)

    A ranker counts where its run's configuration lies beside it. Of rankers that differ in nothing
    that is known (model, stages, seed) only the newest is kept.

    Raises:
        FileNotFoundError: a folder that does not exist, or that holds no such ranker.
    """
    saved_at: dict[Path, float] = {}
    for folder in folders:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise FileNotFoundError(f"task.runs: there is no folder {root}")
        configs = root.glob(f"**/{RANKER}/config.json")
        of_runs = [path for path in configs if (path.parents[1] / CONFIG).is_file()]
        if not of_runs:
            raise FileNotFoundError(
                f"task.runs: no training run with a saved ranker lies in {root}"
            )
        for path in of_runs:
            saved_at[path.parent.resolve()] = path.stat().st_mtime
    newest: dict[tuple[str, Stages, int], Checkpoint] = {}
    for ranker in sorted(saved_at, key=lambda path: saved_at[path]):
        run = trained_run(ranker)
        key = (run.model, run.stages, run.seed)
        if key in newest:
            log.warning(
                "%s is left out: %s is newer and differs in no option that counts",
                newest[key].ranker,
                ranker,
            )
        newest[key] = run
    return list(newest.values())


def trained_run(ranker: Path) -> Checkpoint:
    """A saved ranker's model, seed and training stages, read from its run.

    Earlier stages are read from the runs that it goes on from.
    """
    run = plain_values(ranker.parent)
    if "data" not in run or "seed" not in run:
        raise ValueError(f"{ranker.parent / CONFIG} does not say what the ranker was trained on")
    return Checkpoint(ranker, _model(ranker, run), tuple(_stages(run)), int(run["seed"]))


def group_by_seed(runs: Iterable[Checkpoint]) -> dict[tuple[str, Stages], list[Checkpoint]]:
    """Put runs together that differ in their seeds only, by model and stages."""
    groups: dict[tuple[str, Stages], list[Checkpoint]] = {}
    for run in runs:
        groups.setdefault((run.model, run.stages), []).append(run)
    return groups


def chosen_runs(
    folders: str | Sequence[str] | None,
    models: Sequence[str] | None,
    settings: EvaluationSettings,
    table: PublishedTable,
    stages: Sequence[Stages] | None = None,
) -> list[Checkpoint]:
    """Find the saved rankers of some models and training stages; None for any.

    Models have the names of their configurations, or those of the published table. There are none
    when nothing was trained in ``output`` yet.

    Raises:
        FileNotFoundError: a folder that is named does not exist or holds no ranker.
    """
    output = Path(settings.output) / "train"
    if folders is None and not output.is_dir():
        return []
    if folders is None:
        folders = str(output)
    if isinstance(folders, str):
        folders = [folders]
    runs = find_checkpoints(list(folders))
    kept = []
    for run in runs:
        of_model = models is None or run.model in models or table.label_of(run.model) in models
        of_stages = stages is None or run.stages in stages
        if of_model and of_stages:
            kept.append(run)
    if len(kept) < len(runs):
        log.info(
            "%d of %d saved rankers are of another model or training data",
            len(runs) - len(kept),
            len(runs),
        )
    return kept


def trainings_on(
    table: PublishedTable, source: str, settings: EvaluationSettings
) -> dict[Stages, str]:
    """The paper's two trainings: on original passages of a collection, and on rotated.

    Returns:
        Name of the training by its stages, of which there is one.
    """
    original, debiased = table.labels_at(1)
    return {
        (TrainingStage(source),): original,
        (TrainingStage(source, settings.rotation.level),): debiased,
    }


def ranker_notes(table: PublishedTable, runs: Sequence[Checkpoint]) -> list[str]:
    """Say below a table which rankers it has, of which training data and seeds."""
    lines = []
    for (model, stages), runs_of_seeds in group_by_seed(runs).items():
        data = []
        for stage in stages:
            data.append(stage.data if stage.rotation is None else f"{stage.data}, rotated")
        seeds = ", ".join(str(run.seed) for run in runs_of_seeds)
        figures = f"seed {seeds}" if len(runs_of_seeds) == 1 else f"means over seeds {seeds}"
        folders = ", ".join(str(run.ranker.parent) for run in runs_of_seeds)
        lines.append(f"{table.label_of(model)} ({' -> '.join(data)}): {figures}; {folders}.")
    return lines


def _stages(run: dict[str, Any]) -> list[TrainingStage]:
    """The stages of a run, the last training last; earlier ones are read from earlier runs."""
    stages: list[TrainingStage] = []
    current: dict[str, Any] | None = run
    while current is not None and len(stages) < _LONGEST:
        data = current["data"]
        # "test" rotates what the ranker is tested on, which is no part of its training.
        level = None
        if (data.get("rotation") or "none") in ("train", "both"):
            level = rotation_of(data).level
        stages.insert(0, TrainingStage(str(data["name"]), level))
        before = current.get("checkpoint")
        folder = None if before is None else Path(before).parent
        if folder is not None and not (folder / CONFIG).is_file():
            log.warning(
                "%s is missing: what %s was trained on before is not known", folder / CONFIG, before
            )
            stages.insert(0, TrainingStage("unknown"))
            break
        current = None if folder is None else plain_values(folder)
    return stages


def _model(ranker: Path, run: dict[str, Any]) -> str:
    """The model's name in the run's configuration, or the class of the saved ranker."""
    name = run.get("model", {}).get("name")
    if name:
        return str(name)
    config = json.loads((ranker / "config.json").read_text(encoding="utf-8"))
    return str(config["architectures"][0])
