"""Makes rankers known to other libraries, when these are imported: importing them here would take seconds.

transformers learns which classes load a ranker. ``CrossEncoder.predict`` of sentence-transformers swallows keywords
that its model does not know; ``alpha`` and ``policy`` are refused there, where the model would ignore them.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_AUTO = "transformers.models.auto.modeling_auto"
_CROSS_ENCODER = "sentence_transformers.cross_encoder.model"
_OURS = ("alpha", "policy")
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
    """Tell transformers of the rankers, and sentence-transformers of ``alpha``, now or when they are imported."""
    for module, tell in ((_AUTO, _register), (_CROSS_ENCODER, _refuse_ignored_keywords)):
        if module in sys.modules:
            tell()
        else:
            sys.meta_path.insert(0, _AfterImport(module, tell))


def _register() -> None:
    from transformers import AutoModelForSequenceClassification as Classifier

    from backpack_rank.models import configuration as own

    for config, model in (
        (own.BackpackConfig, _Later("BackpackForSequenceClassification")),
        (own.CrossEncoderConfig, _Later("CrossEncoderForSequenceClassification")),
    ):
        Classifier.register(config, model, exist_ok=True)


def _refuse_ignored_keywords() -> None:
    cross_encoder = sys.modules[_CROSS_ENCODER].CrossEncoder
    inner = cross_encoder.predict

    @functools.wraps(inner)
    def predict(self: Any, *args: Any, **options: Any) -> Any:
        given = [name for name in _OURS if options.get(name) is not None]
        if given and not any("alpha" in inspect.signature(part.forward).parameters for part in self.modules()):
            raise ValueError(
                f"{' and '.join(given)}: this CrossEncoder has no dial and would ignore it; give it the ranker around "
                "the model: backpack_rank.integrations.sentence_transformers.cross_encoder(backpack_rank.load(folder))"
            )
        return inner(self, *args, **options)

    cross_encoder.predict = predict


class _AfterImport(MetaPathFinder, Loader):
    """Calls a function once a module has been imported."""

    def __init__(self, module: str, tell: Callable[[], None]) -> None:
        self._module, self._tell = module, tell

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == self._module else None
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
        self._tell()
