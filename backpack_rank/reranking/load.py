"""``backpack_rank.load``: a saved ranker, ready to rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.models.factory import split_attribute as add_missing_senses
from backpack_rank.models.finding import ranker_folder
from backpack_rank.models.loading import Template, load_ranker
from backpack_rank.parts import at_load, folder_kind, imported
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.remote_encoder import server_scorer
from backpack_rank.reranking.rerankers import TextReranker
from backpack_rank.reranking.score_calibration import CALIBRATION, CalibrationFile
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.cache import SenseCache

_URL = re.compile(r"https?://.+")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_FILES = [
    "*.json",
    "*.safetensors",
    "*.txt",
    "*.model",
    "*.jinja",
    "artifact.metadata",
    "reranker_template.yaml",
    "reranker_labels.yaml",
]


def load(
    name: str | Path,
    *,
    attribute: str | Attribute = "gender",
    device: str = "auto",
    dtype: str = "float32",
    cache: str | Path | None = None,
    revision: str | None = None,
    split_attribute: bool = True,
    template: Template | None = None,
    labels: Sequence[str] | None = None,
    pooling: str | None = None,
    activation: str | None = None,
    calibration: str | Path | None = None,
    model: str | None = None,
) -> TextReranker:
    """Load a ranker that ``train.py`` saved, or one that was trained elsewhere.

    >>> reranker = backpack_rank.load("outputs/train/DATE/ranker")  # doctest: +SKIP
    >>> reranker.rank("who can rewire a house?", documents, alpha=0.0)  # doctest: +SKIP

    Of rankers trained elsewhere, any classifier of transformers with one label, or two, is taken
    (``CrossEncoder`` models of sentence-transformers, also in modules), an encoder whose vectors
    are compared (``SentenceTransformer`` models), a language model that answers a prompt
    (Qwen3-Reranker), a LoRA adapter of these, and any HTTP endpoint that reranks or gives vectors
    (``.../v1/embeddings``, ``.../embed``). No code is loaded, and from the hub no weights but
    safetensors.

    Args:
        name: the folder of a run or of a ranker, an id of the Hugging Face hub, or ``http://...``
            of a server.
        attribute: whose words policies are about: a name of ``conf/attribute``, or an
            :class:`~backpack_rank.attributes.attribute.Attribute`.
        device: ``auto`` (a GPU when there is one), ``cpu``, ``cuda``, ``cuda:1`` ...
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: bfloat16 where the device
            computes in it.
        cache: folder for sense vectors of a collection's pairs, which all alphas then share; None:
            no cache.
        revision: branch, tag or commit on the hub.
        split_attribute: whether a Backpack that was trained without attribute senses gets them now
            (:mod:`backpack_rank.models.attribute_senses`, step 2), which changes no score at
            alpha=1. False: the senses that it was trained with, for the paper's rule on an ordinary
            Backpack.
        template: how a language model is asked, a name of ``conf/template`` or a YAML file; None:
            by ``reranker_template.yaml`` of its folder.
        labels: of a classifier with two labels, their names in its ``config.json``, that of
            relevant documents first; the score is the difference of their logits. None: by
            ``reranker_labels.yaml`` of its folder.
        pooling: of an encoder of transformers without modules, how it makes a vector of those of
            its tokens: ``mean``, ``first`` or ``last``; scores are then cosines. None: the folder
            says what it is.
        activation: what scores are shown as where nothing else is asked for: ``logits``,
            ``sigmoid``, or ``calibrated``: probabilities of relevance, by the ``calibration.json``
            of ``backpack-rank calibrate``. None: logits.
        calibration: that file, or its folder; None: in the folder of the ranker.
        model: of a server with several rankers, which is asked, as its requests name it; hosted
            rerankers (Cohere, Jina, Voyage) must be told.

    Raises:
        FileNotFoundError: there is neither such a folder nor such an id.
        ValueError: the folder holds another model, its files are damaged, or
            ``activation="calibrated"`` is asked for without a calibration.
    """
    for place in at_load():
        imported(place)()
    if isinstance(attribute, str):
        attribute = Attribute.named(attribute)
    if is_address(name):
        refuse_ways_of_asking(str(name), template, labels, pooling)
        return PointwiseReranker(
            server_scorer(str(name), model),
            attribute=attribute,
            activation=activation,
            calibration=calibration_file(calibration, str(name)),
            source=str(name),
        )
    refuse_model_of_server(str(name), model, "model")
    folder = local_folder(name, "load", revision)
    kind = folder_kind(folder)
    if kind is not None:
        if activation is not None:
            raise ValueError(f"activation={activation}: a {kind.name} has no scores to show so")
        reranker: TextReranker = imported(kind.loader)(folder, device=device, dtype=dtype)
        reranker.source = str(name)
        return reranker
    ranker, pair_tokenizer = load_ranker(folder, template, labels, pooling)
    if split_attribute:
        add_missing_senses(ranker, pair_tokenizer, attribute)
    scorer = Scorer(ranker, pair_tokenizer, ScoringSettings(device=device, dtype=dtype))
    sense_cache = None
    if cache is not None:
        sense_cache = SenseCache(Path(cache).expanduser())
    return PointwiseReranker(
        scorer,
        attribute=attribute,
        cache=sense_cache,
        activation=activation,
        calibration=calibration_file(calibration or folder, str(name)),
        source=str(name),
    )


def calibration_file(place: str | Path | None, owner: str) -> CalibrationFile:
    """The calibration at a place: a file, or a folder that may have one."""
    if place is None:
        return CalibrationFile(None, owner)
    path = Path(place).expanduser()
    return CalibrationFile(path / CALIBRATION if path.is_dir() else path, owner)


def is_address(name: str | Path) -> bool:
    """Whether a name is the address of a server.

    >>> is_address("http://localhost:8000"), is_address("outputs/train")
    (True, False)
    """
    return _URL.fullmatch(str(name)) is not None


def refuse_ways_of_asking(
    address: str,
    template: Template | None,
    labels: Sequence[str] | None,
    pooling: str | None,
) -> None:
    """Raise ``ValueError`` where a server would be told how to make its scores."""
    for option, value in (("template", template), ("labels", labels), ("pooling", pooling)):
        if value is not None:
            raise ValueError(
                f"{option}=... says how a model is read, and {address} is a server, which does "
                "that itself: leave it out"
            )


def refuse_model_of_server(name: str, model: str | None, option: str) -> None:
    """Raise ``ValueError`` where a folder is asked for one of a server's rankers."""
    if model is not None:
        raise ValueError(
            f"{option}={model} says which ranker of a server is asked, and {name} is no address of "
            "one (http://...): leave it out"
        )


def local_folder(name: str | Path, option: str, revision: str | None = None) -> Path:
    """Find the folder of a ranker, downloaded where the name is an id of the hub.

    Args:
        name: folder of a run or of a ranker, or an id of the hub.
        option: where it was given, for the error.
        revision: branch, tag or commit on the hub.

    Raises:
        FileNotFoundError: there is neither.
    """
    # A folder of this name counts before an id of the hub.
    exists = Path(name).expanduser().exists()
    if exists or not _HUB_ID.fullmatch(str(name)):
        return ranker_folder(name, option)
    try:
        downloaded = snapshot_download(str(name), revision=revision, allow_patterns=_FILES)
        return ranker_folder(downloaded, option)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        why = str(error).strip().splitlines()[0]
        raise FileNotFoundError(
            f"{name}: neither a folder nor a model that the hub gives ({why})"
        ) from error
