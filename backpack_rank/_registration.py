"""Makes rankers known to transformers, when transformers is imported: importing it here would take seconds."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_AUTO = "transformers.models.auto.modeling_auto"
_PLACE = "backpack_rank.integrations.sequence_classification"


class _Later:
    """Stands for a class of :mod:`backpack_rank.integrations.sequence_classification` until a ranker is loaded."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def from_pretrained(self, *args: Any, **options: Any) -> Any:
        return getattr(import_module(_PLACE), self.__name__).from_pretrained(*args, **options)

    def _from_config(self, *args: Any, **options: Any) -> Any:
        return getattr(import_module(_PLACE), self.__name__)._from_config(*args, **options)


def register() -> None:
    """Tell ``AutoConfig`` and ``AutoModelForSequenceClassification`` of the rankers, now or when they are imported."""
    if _AUTO in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterImport())


def _register() -> None:
    from transformers import AutoModelForSequenceClassification as Classifier

    from backpack_rank.models import configuration as own

    for config, model in (
        (own.BackpackConfig, _Later("BackpackForSequenceClassification")),
        (own.CrossEncoderConfig, _Later("CrossEncoderForSequenceClassification")),
    ):
        Classifier.register(config, model, exist_ok=True)


class _AfterImport(MetaPathFinder, Loader):
    """Registers once transformers' module of automatic classes has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == _AUTO else None
        if spec is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        assert self._loader is not None
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path.remove(self)
        assert self._loader is not None
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register()
