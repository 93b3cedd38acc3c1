"""Saved rankers with what they were trained on, read from the configurations of their runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from omegaconf import DictConfig, OmegaConf

from backpack_rank.pipelines.common import CONFIG, RANKER, rotation_of

log = logging.getLogger(__name__)
_LONGEST = 10  # runs that begin with one another


@dataclass(frozen=True)
class Stage:
    """One training: name of the data, and whether (and how) its passages were rotated."""

    data: str
    rotation: str | None = None  # None, word or sentence


Stages: TypeAlias = tuple[Stage, ...]
"""What a ranker was trained on, the last training last."""


@dataclass(frozen=True)
class TrainedRun:
    """A saved ranker.

    Attributes:
        ranker: its folder.
        model: name of the model, such as ``tk``; the class of the ranker where the run does not say.
        stages: what it was trained on, the last training last.
        seed: of the last training.
    """

    ranker: Path
    model: str
    stages: Stages
    seed: int

    @property
    def config(self) -> DictConfig:
        """Of the last training."""
        return _config(self.ranker.parent / CONFIG)


def trained_runs(folders: Sequence[str]) -> list[TrainedRun]:
    """Every saved ranker below these folders whose run's configuration lies beside it, the oldest first.

    Of rankers that differ in nothing that is known (model, stages, seed) only the newest is kept.

    Raises:
        FileNotFoundError: a folder that does not exist, or that holds no such ranker.
    """
    found: dict[Path, float] = {}
    for folder in folders:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise FileNotFoundError(f"task.runs: there is no folder {root}")
        here = [path for path in root.glob(f"**/{RANKER}/config.json") if (path.parents[1] / CONFIG).is_file()]
        if not here:
            raise FileNotFoundError(f"task.runs: no run of train.py with a saved ranker lies in {root}")
        found |= {path.parent.resolve(): path.stat().st_mtime for path in here}
    newest: dict[tuple[str, Stages, int], TrainedRun] = {}
    for ranker in sorted(found, key=lambda path: found[path]):
        run = trained_run(ranker)
        key = (run.model, run.stages, run.seed)
        if key in newest:
            log.warning("%s is left out: %s is newer and differs in no option that counts", newest[key].ranker, ranker)
        newest[key] = run
    return list(newest.values())


def trained_run(ranker: Path) -> TrainedRun:
    """What the run of a saved ranker says about it, and what the runs say that it goes on from."""
    config = _config(ranker.parent / CONFIG)
    return TrainedRun(ranker, _model(ranker, config), tuple(_stages(config)), int(config.seed))


def grouped(runs: Iterable[TrainedRun]) -> dict[tuple[str, Stages], list[TrainedRun]]:
    """Runs that differ in their seeds only, by model and stages."""
    groups: dict[tuple[str, Stages], list[TrainedRun]] = {}
    for run in runs:
        groups.setdefault((run.model, run.stages), []).append(run)
    return groups


def _stages(config: DictConfig) -> list[Stage]:
    stages: list[Stage] = []
    current: DictConfig | None = config
    while current is not None and len(stages) < _LONGEST:
        rotation = rotation_of(current.data, "train")
        stages.insert(0, Stage(str(current.data.name), None if rotation is None else rotation.level))
        before = current.get("checkpoint")
        file = None if before is None else Path(before).parent / CONFIG
        if file is not None and not file.is_file():
            log.warning("%s is missing: what %s was trained on before is not known", file, before)
            stages.insert(0, Stage("unknown"))
            break
        current = None if file is None else _config(file)
    return stages


def _model(ranker: Path, config: DictConfig) -> str:
    if config.model.get("name"):
        return str(config.model.name)
    choices = ranker.parent / ".hydra" / "hydra.yaml"
    if choices.is_file():
        return str(_config(choices).hydra.runtime.choices.model)
    return str(_config(ranker / "config.json").architectures[0])


def _config(path: Path) -> DictConfig:
    loaded = OmegaConf.load(path)
    assert isinstance(loaded, DictConfig)
    return loaded
