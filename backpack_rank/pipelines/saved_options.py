"""``config.yaml``: the options of an evaluation as they are saved beside its results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backpack_rank.files import write_text
from backpack_rank.pipelines.chosen_data import ChosenData
from backpack_rank.pipelines.nodes import looked_up, plain_options, yaml_of
from backpack_rank.pipelines.option_checks import check_evaluation
from backpack_rank.pipelines.run_folder import CONFIG


class SavedOptions:
    """Use it to write down what an evaluation was asked for.

    Attributes:
        values: all options, as plain values.
        looked_up: which options the rows of an experiment look up, by place of the row.
    """

    def __init__(
        self, values: Mapping[str, Any], looked_up: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.values = values
        self.looked_up = looked_up or {}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> SavedOptions:
        """Of an evaluation as composed from ``conf/evaluate.yaml``, each option looked at.

        Raises:
            ValueError: an option that is wrong in itself.
        """
        check_evaluation(config)
        return cls(plain_options(config), looked_up(config, "task"))

    @property
    def text(self) -> str:
        """All options as YAML."""
        return yaml_of(self.values)

    @property
    def lexicon(self) -> str:
        """Words that measures of bias count: a name in ``lexicons/`` or a path."""
        return str(self.values["bias"]["lexicon"])

    def text_of(self, checkpoint: Path | str | None) -> str:
        """The same with the data of a checkpoint, where the options name no data."""
        chosen = ChosenData(self.values.get("data"), self.values.get("first_stage"))
        if checkpoint is None or chosen.dataset is not None:
            return self.text
        data, first_stage = chosen.nodes_of(checkpoint)
        return yaml_of({**self.values, "data": data, "first_stage": first_stage})

    def write(self, folder: str | Path, checkpoint: Path | str | None = None) -> None:
        """Write ``config.yaml``."""
        write_text(Path(folder) / CONFIG, self.text_of(checkpoint))

    def place_of(self, option: str, name: str) -> str:
        """Where a row stands, with the options that it looks up.

        For example ``task.rows.PSC with task.options.psc``.
        """
        place = f"{option}.{name}"
        others = self.looked_up.get(place, ())
        return f"{place} with {', '.join(others)}" if others else place
