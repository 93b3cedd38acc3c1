"""``backpack_rank.load``: a saved ranker, ready to rank."""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.listwise.saved import load_listwise
from backpack_rank.listwise.windows import SlidingWindows
from backpack_rank.models.factory import is_listwise, load_ranker, ranker_folder
from backpack_rank.reranking.listwise import ListwiseReranker
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer, ScoringSettings
from backpack_rank.senses.cache import SenseCache

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def load(
    name: str | Path,
    *,
    attribute: str | Attribute = "gender",
    device: str = "auto",
    dtype: str = "float32",
    cache: str | Path | None = None,
    revision: str | None = None,
) -> PointwiseReranker | ListwiseReranker:
    """A ranker that ``train.py`` saved, as it is; ``with_policy`` of a pointwise one turns the dial.

    Args:
        name: the folder of a run or of a ranker, or an id of the Hugging Face hub.
        attribute: whose words policies are about: a name of ``conf/attribute``, or an
            :class:`~backpack_rank.attributes.attribute.Attribute`.
        device: ``auto`` (a GPU when there is one), ``cpu``, ``cuda``, ``cuda:1`` ...
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        cache: folder for sense vectors of a collection's pairs, which all alphas then share; None keeps none.
        revision: of the hub, a branch, tag or commit.

    Raises:
        FileNotFoundError: there is neither such a folder nor such an id.
        ValueError: the folder holds another model, or its files are damaged.
    """
    folder = _local(name, revision)
    if is_listwise(folder):
        ranker = load_listwise(folder, device=device, dtype=dtype)
        return ListwiseReranker(SlidingWindows(ranker))
    if isinstance(attribute, str):
        attribute = Attribute.named(attribute)
    scorer = Scorer(*load_ranker(folder), ScoringSettings(device=device, dtype=dtype))
    kept = None if cache is None else SenseCache(Path(cache).expanduser())
    return PointwiseReranker(scorer, attribute=attribute, cache=kept)


def _local(name: str | Path, revision: str | None) -> Path:
    """The folder of a ranker, downloaded where the name is an id of the hub."""
    given = Path(name).expanduser()
    if given.exists() or not _HUB_ID.fullmatch(str(name)):
        return ranker_folder(name, "load")
    try:
        return ranker_folder(snapshot_download(str(name), revision=revision, allow_patterns=_FILES), "load")
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        why = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{name}: neither a folder nor a model that the hub gives ({why})") from error
