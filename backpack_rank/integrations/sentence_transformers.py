"""``CrossEncoder`` of sentence-transformers (6 or newer), around any reranker or of its folder.

Importing this module is what ``CrossEncoder(folder)`` needs to load a ranker that ``train.py``
saved. It also makes ``CrossEncoder.predict`` refuse ``alpha`` and ``policy`` for models that would
ignore them.

>>> import backpack_rank.integrations.sentence_transformers  # doctest: +SKIP
>>> CrossEncoder(folder).predict(pairs, alpha=0.5)  # doctest: +SKIP
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import InputModule
from transformers import PreTrainedTokenizerBase

from backpack_rank.integrations.sequence_classification import refuse_ignored_keywords
from backpack_rank.models.factory import save_ranker
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policies import Policy


def cross_encoder(reranker: PointwiseReranker) -> CrossEncoder:
    """For programs that expect a ``CrossEncoder``: it gives the reranker's scores, raw logits.

    >>> model = cross_encoder(backpack_rank.load(folder))  # doctest: +SKIP
    >>> model.predict(pairs, alpha=0.5, policy="paired_tokens")  # doctest: +SKIP

    ``predict`` takes alpha and policy. ``rank`` passes no arguments on and has the reranker's
    setting, which ``reranker.with_policy("paired_tokens", 0.5)`` gives. It ranks and does not
    train: that is for ``CrossEncoder(folder)``.
    """
    return CrossEncoder(modules=[RerankerModule(reranker)], activation_fn=torch.nn.Identity())


class RerankerModule(InputModule):
    """The one module of such a ``CrossEncoder``: texts in, scores out."""

    forward_kwargs = {"alpha", "policy"}
    save_in_root = True

    def __init__(self, reranker: PointwiseReranker) -> None:
        super().__init__()
        self.reranker = reranker
        self.ranker = (
            reranker.local_scorer.ranker
        )  # a submodule, so that the library finds the device and can move it

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The ranker's."""
        return self.reranker.local_scorer.pair_tokenizer.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Tokens of a pair at most."""
        return self.reranker.local_scorer.pair_tokenizer.max_length

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Any]:
        """The pairs, unchanged.

        Raises ``ValueError`` for a prompt, which the ranker was not trained with.
        """
        if prompt:
            raise ValueError(
                f"prompt={prompt!r}: this ranker reads a query and a document, and no prompt"
            )
        return {"pairs": [tuple(pair) for pair in inputs]}

    def forward(
        self,
        features: dict[str, Any],
        alpha: float | None = None,
        policy: Policy | str | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Adds ``scores`` [B, 1]."""
        scorer = self.reranker.local_scorer
        # The library moves modules by itself, and the scorer does not hear of it.
        scorer.device = next(self.ranker.parameters()).device
        scores = self.reranker.predict(features["pairs"], alpha=alpha, policy=policy)
        features["scores"] = torch.from_numpy(scores)[:, None].to(scorer.device)
        return features

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the ranker into a folder that exists already."""
        # save_ranker replaces a whole folder, and this one has files of the library in it.
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "ranker"
            save_ranker(folder, self.ranker, self.reranker.local_scorer.pair_tokenizer)
            shutil.copytree(folder, output_path, dirs_exist_ok=True)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> RerankerModule:
        """Read what :meth:`save` wrote."""
        download_options = {}
        for name in ("token", "cache_folder", "revision", "local_files_only"):
            if name in options:
                download_options[name] = options[name]
        folder = cls.load_dir_path(model_name_or_path, subfolder, **download_options)
        reranker = load(folder, device="cpu")
        assert isinstance(reranker, PointwiseReranker)
        return cls(reranker)


refuse_ignored_keywords(CrossEncoder)
