"""``evaluate.py experiment=propensities``: where a frozen ranker sends each input position."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from backpack_rank.constructors import Count, OneOf, Range, Seed
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.lists.evaluate import ListTask, needed_listwise
from backpack_rank.position.lists.position_matrices import write_heat_map
from backpack_rank.position.lists.propensity import (
    FILE,
    FLOOR,
    Propensities,
    Transitions,
    estimate_propensities,
)
from backpack_rank.position.lists.settings import RankerFactory
from backpack_rank.position.lists.sources import (
    KINDS,
    ListSize,
    ListwiseDataConfig,
    dataset_of_lists,
    trained_lists,
)

log = logging.getLogger(__name__)
STEM = "propensity_map"


@dataclass(frozen=True)
class PropensityEstimation(ListTask):
    """Before training with inverse propensities (DebiasFirst, section 4.1, eq. 5).

    It is the ``task`` of ``evaluate.py experiment=propensities``.

    Attributes:
        lists: ``collection``, ``mathsort`` or ``wordsort``; None: those that the ranker was trained
            on.
        size: passages of a list; None: as the ranker was trained.
        number: lists at most.
        shuffles: of each list.
        floor: least propensity as a share of the even one, 1 / size^2, so that no weight is
            infinite.
        seed: of the shuffles, and of a sorting task's lists.
    """

    lists: Annotated[str, OneOf(KINDS)] | None = None
    size: ListSize | None = None
    number: Count = 3000
    shuffles: Count = 10
    floor: Annotated[float, Range(above=0, most=1)] = FLOOR
    seed: Seed = 0

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Write ``propensities.json``, a table and a picture.

        Training reads the file as ``task.propensities``.

        Raises:
            ValueError: no listwise ranker, or it is not known which lists are meant.
        """
        listwise = needed_listwise(settings, "propensities are of a listwise ranker")
        checkpoint = listwise.trained()
        kind, size = trained_lists(checkpoint, self.lists, self.size)
        source = ListwiseDataConfig(kind, size, self.number, seed=self.seed)
        dataset = dataset_of_lists(settings, checkpoint, kind)
        ranker = RankerFactory().build(listwise)
        lists = [item.passages for item in source.source(dataset).lists(0)]
        propensities = estimate_propensities(
            ranker, lists, source.size, self.shuffles, self.seed, self.floor
        )
        settings.save(folder, checkpoint)
        propensities.save(folder / FILE)
        write_heat_map(
            folder,
            STEM,
            propensities.counts / propensities.counts.sum(),
            title=f"Propensities of {ranker.name}",
            rows="input position",
            columns="output position",
            value="share of all transitions",
            centre=1 / propensities.size**2,
            notes=[in_words(propensities)],
        )
        log.info(in_words(propensities))
        if not quiet:
            print(f"{in_words(propensities)}\nFor training: task.propensities={folder / FILE}")


def in_words(propensities: Propensities) -> str:
    """How far from no bias the transitions are, and how many cells are floored."""
    transitions = Transitions(propensities.counts)
    left_out = ""
    if propensities.left_out:
        left_out = f"; {propensities.left_out} lists of other sizes left out"
    return (
        f"{propensities.lists} lists of {propensities.size} passages, each shuffled "
        f"{propensities.shuffles} times{left_out}. Distance of the transitions from even: "
        f"{transitions.total_variation:.3f} (by chance {transitions.chance:.3f}); "
        f"{propensities.floored} of {propensities.size**2} cells below the floor of "
        f"{propensities.floor:g} of the even share"
    )
