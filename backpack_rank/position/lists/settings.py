"""``evaluate.py listwise=...``: which listwise ranker is meant, and which remedies act on it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backpack_rank.commands import called
from backpack_rank.files import RANKER
from backpack_rank.models.finding import last_trained
from backpack_rank.pipelines.nodes import build, build_or_none, missing_options, plain_options
from backpack_rank.position.lists.base import ListwiseRanker
from backpack_rank.position.lists.causal_lm import CausalLmRanker
from backpack_rank.position.lists.reranker import RANKINGS_FILE, ListwiseReranker
from backpack_rank.position.lists.saved import is_listwise
from backpack_rank.position.lists.windows import SlidingWindows

log = logging.getLogger(__name__)
REMEDIES = ("pairwise", "permutation", "calibration")
_SAMPLING = ("temperature", "seed")
"""Options of a ranker that do not change its model, which then need not be loaded again."""


@dataclass(frozen=True)
class ListwiseSettings:
    """Reads the options of an evaluation with a listwise ranker::

        settings = ListwiseSettings.of(options)  # None without listwise=...
        ranker = RankerFactory().build(settings)
        reranker = settings.reranker(ranker, folder)

    Attributes:
        options: ``listwise``, ``pairwise``, ``permutation`` and ``calibration`` of ``conf/``.
        checkpoint, output: where a trained ranker is.
    """

    options: Mapping[str, Any]
    checkpoint: str | None
    output: str

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ListwiseSettings | None:
        """From the options of an evaluation; None without ``listwise=``.

        Raises:
            ValueError: a remedy without a listwise ranker.
        """
        values = plain_options(options)
        if values.get("listwise") is None:
            for remedy in REMEDIES:
                if values.get(remedy) is not None:
                    raise ValueError(
                        f"{remedy}=... is for listwise rankers: add listwise=trained, "
                        "listwise=hugging_face or listwise=openai, or leave it out"
                    )
            return None
        if missing := missing_options(values["listwise"], "listwise"):
            raise ValueError(f"{missing[0]} has no value: give {missing[0]}=...")
        groups = {name: values.get(name) for name in ("listwise", *REMEDIES)}
        return cls(groups, values["checkpoint"], str(values["output"]))

    @property
    def ranker(self) -> Mapping[str, Any]:
        """Options of the ranker itself."""
        return self.options["listwise"]["ranker"]

    @property
    def depth(self) -> int | None:
        """Candidates of each query that are ranked; None: all."""
        return self.options["listwise"]["depth"]

    @property
    def lists_per_call(self) -> int:
        """Lists that are ranked together; their rankings are then saved."""
        return int(self.options["listwise"]["lists_per_call"])

    @property
    def order(self) -> str:
        """In which candidates are shown."""
        return self.options["listwise"]["input"]["order"]

    @property
    def label(self) -> str:
        """Name of the model, for a reader: the last part of its path or repository."""
        # A model of this machine has a name, one of a server is its "model".
        model = self.ranker.get("name") or self.ranker.get("model") or "trained here"
        return Path(str(model)).name

    def trained(self) -> Path | None:
        """The folder of the trained ranker that is asked for.

        None for a model of the hub or a server.

        Raises:
            FileNotFoundError: ``listwise=trained``, and there is none.
        """
        if "name" not in self.ranker:
            return None  # a server has the model
        name = self.ranker["name"]
        if name is not None and not Path(name).expanduser().is_dir():
            return None  # a repository of the hub

        given = self.checkpoint if name is None else name
        if given is None:
            return self._last_trained()
        folder = Path(given).expanduser()
        for candidate in (folder / RANKER, folder):
            if is_listwise(candidate):
                return candidate
        if name is not None and self.ranker.get("prompt") is not None:
            return None  # a folder of a model of the hub, which comes without a prompt
        raise FileNotFoundError(
            f"{given}: neither a run's folder nor a saved listwise ranker (no listwise.json)"
        )

    def _last_trained(self) -> Path:
        """The listwise ranker that was trained last below the folder of outputs."""
        runs = Path(self.output, "train")
        rankers = [path for path in runs.glob(f"**/{RANKER}") if is_listwise(path)]
        if not rankers:
            raise FileNotFoundError(
                f"no trained listwise ranker below {runs}: run "
                f"`{called('train')} task=listwise` first, or give checkpoint=FOLDER, or take "
                "listwise=hugging_face or listwise=openai"
            )
        return last_trained(rankers, self.output)

    def reranker(self, ranker: ListwiseRanker, folder: Path) -> ListwiseReranker:
        """The ranker over candidates; its rankings are saved to ``rankings.jsonl`` as they come."""
        shown = self.options["listwise"]["input"]
        return ListwiseReranker(
            ranker,
            depth=self.depth,
            order=shown["order"],
            seed=shown["seed"],
            lists_per_call=self.lists_per_call,
            cache=folder / RANKINGS_FILE,
            settings=self.options,
        )


class RankerFactory:
    """Makes the rankers of an evaluation or an experiment::

        factory = RankerFactory()
        ranker = factory.build(settings)
        calibrated = factory.build(settings_with_calibration)  # the model is not loaded again

    A model stays loaded until a different one is asked for.
    """

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}
        self._loaded: ListwiseRanker | None = None

    def build(self, settings: ListwiseSettings) -> ListwiseRanker:
        """The ranker asked for, with its remedies: windows(permutation(ranker(calibration))).

        With comparisons of pairs it is permutation(pairwise(ranker(calibration))), without windows.
        It shares its model with the ranker built before where they differ in remedies and sampling
        alone, and counts its usage from 0.

        Raises:
            FileNotFoundError: ``listwise=trained``, and there is none.
            ValueError: the ranker cannot be calibrated, or an option is wrong.
        """
        remedies = {remedy: settings.options[remedy] for remedy in REMEDIES}
        if remedies["calibration"] is not None and "name" not in settings.ranker:
            raise ValueError(
                "calibration=... needs the probabilities of a model here; a server gives only texts"
            )
        options = copy.deepcopy(dict(settings.ranker))
        if (checkpoint := settings.trained()) is not None:
            options["name"] = str(checkpoint)
        sampling = {}
        if "name" in options:  # the model is here, so its loading is told apart from its sampling
            for name in _SAMPLING:
                if name in options:
                    sampling[name] = options.pop(name)
        ranker = self._model(options)
        if isinstance(ranker, CausalLmRanker):
            calibration = build_or_none(remedies["calibration"], "calibration")
            ranker = ranker.sharing_model(calibration=calibration, **sampling)
        trained_size = getattr(ranker, "passages", None)

        # In this order: the shuffles of a permutation are shown to comparisons of pairs.
        for remedy in ("pairwise", "permutation"):
            if remedies[remedy] is not None:
                wrap: Callable[[ListwiseRanker], ListwiseRanker] = build(remedies[remedy], remedy)
                ranker = wrap(ranker)
        if remedies["pairwise"] is not None:
            # Comparisons show two passages, so that a list of any length needs no windows.
            return ranker
        size, stride = _window(settings.options["listwise"]["window"], trained_size)
        return SlidingWindows(ranker, size, stride)

    def _model(self, options: dict[str, Any]) -> ListwiseRanker:
        """The ranker without remedies, as it was loaded last where the options are the same."""
        if options != self._options or not isinstance(self._loaded, CausalLmRanker):
            self._loaded = None  # two models at once may not fit into memory
            self._loaded = build(options, "listwise.ranker")
            self._options = options
        assert self._loaded is not None
        return self._loaded


def _window(options: Mapping[str, Any], trained: int | None) -> tuple[int | None, int]:
    """Size and stride; null: as many passages as in training, and half of the size."""
    size = options["size"] if options["size"] is not None else trained
    if size is not None and trained is not None and size > trained:
        log.warning(
            "listwise.window.size=%d, but the ranker was trained on lists of %d: it has not learnt "
            "the identifiers behind them",
            size,
            trained,
        )
    stride = options["stride"]
    if stride is None:
        stride = max(1, (size or 2) // 2)
    return size, stride
