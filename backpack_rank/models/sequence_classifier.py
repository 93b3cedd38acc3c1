"""Cross-encoders that were trained elsewhere: any classifier of transformers with one label, read
as it was trained.

The MS MARCO cross-encoders of sentence-transformers and the BGE rerankers are such models. Their
scores are the raw logits; ``CrossEncoder.predict`` puts a sigmoid on most of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.pretrained import from_pretrained, no_panic
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.backbone import depends_on_others
from backpack_rank.models.rankers import Ranker, RankerOutput
from backpack_rank.models.token_shift import TokenShift, shifted_embeddings

_LIMIT = 512
"""Tokens of a pair where neither tokenizer nor model says how many it can read."""


@dataclass(frozen=True)
class TemplatePairTokenizer(PairTokenizer):
    """Pairs as a tokenizer's own template joins them, the longer of the two texts cut first.

    Attributes:
        prefix, middle, suffix: token ids before the query, between the texts and behind the
            document.
        spelled: a query that spells the first token of ``middle`` ("[SEP]") has this id in its
            place, which is beyond the vocabulary: so the first separator of a joined text is always
            the template's.
    """

    prefix: tuple[int, ...] = ()
    middle: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    spelled: int | None = None

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, max_length: int) -> TemplatePairTokenizer:
        """Read the template off a pair. Raises ``ValueError`` where the tokenizer joins texts in
        another way.
        """
        first, second = (
            tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", "b")
        )
        ids = list(tokenizer("a", "b")["input_ids"])
        starts = [place for place in range(len(ids)) if ids[place : place + len(first)] == first]
        for start in starts:
            behind = start + len(first)
            for place in range(behind, len(ids)):
                if ids[place : place + len(second)] == second:
                    prefix, middle, suffix = (
                        ids[:start],
                        ids[behind:place],
                        ids[place + len(second) :],
                    )
                    has_types = bool(middle) and "token_type_ids" in tokenizer.model_input_names
                    spelled = max(tokenizer.get_vocab().values()) + 1 if has_types else None
                    return cls(
                        tokenizer,
                        max_length,
                        None,
                        tuple(prefix),
                        tuple(middle),
                        tuple(suffix),
                        spelled,
                    )
        raise ValueError(
            f"{type(tokenizer).__name__} joins two texts in a way that is not known here: {ids}"
        )

    @property
    def added(self) -> int:
        """Tokens of the template."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    @property
    def fingerprint(self) -> str:
        """Digest of everything that turns a pair of texts into token ids."""
        return f"{self.prefix}{self.middle}{self.suffix}-{super().fingerprint}"

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, nothing added and nothing cut."""
        if not texts:
            return []
        with no_panic(self.tokenizer.name_or_path):
            encoded = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)[
                "input_ids"
            ]
        return [np.asarray(ids, dtype=np.int32) for ids in encoded]

    def encode_query(self, text: str) -> np.ndarray:
        """Token ids of a query, not all of one that is far too long. Raises ``ValueError`` when it
        is empty.
        """
        ids, _ = self._encoded_query(text)
        if not len(ids):
            raise ValueError("the query is empty: a ranker needs at least one token of query text")
        return ids

    def room(self, query: np.ndarray) -> int:
        """Tokens of a document that fit behind the query; a query may be cut to half of what there
        is.
        """
        free = self.max_length - self.added
        return max(free - len(query), free // 2)

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[prefix, query, middle, document, suffix]; where it is too long, the longer text loses
        tokens first.
        """
        free = self.max_length - self.added
        if len(query) + len(document) > free:
            shorter = min(len(query), len(document), free // 2)
            if len(query) <= len(document):
                query, document = query[:shorter], document[: free - shorter]
            else:
                query, document = query[: free - shorter], document[:shorter]
        if self.spelled is not None:
            query = np.where(query == self.middle[0], np.int32(self.spelled), query)
        template = (
            np.array(part, dtype=np.int32) for part in (self.prefix, self.middle, self.suffix)
        )
        before, between, behind = template
        return np.concatenate([before, query, between, document, behind])


class SequenceClassifierForRanking(Ranker):
    """A classifier with one label; its logit is the score. It is measured and turned here, not
    trained.

    Attributes:
        one_by_one: texts are read without others beside them, because their scores depend on these.
    """

    # Whatever the classifier inside supports; this class adds no attention.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    def __init__(self, classifier: Any, pair_tokenizer: TemplatePairTokenizer) -> None:
        """
        Args:
            classifier: what ``AutoModelForSequenceClassification`` loads, with one label.
            pair_tokenizer: joins its texts.
        """
        super().__init__(classifier.config)
        self.classifier = classifier
        self._spelled = pair_tokenizer.spelled
        self._separator = None if self._spelled is None else pair_tokenizer.middle[0]
        self._padding = pair_tokenizer.tokenizer.pad_token_id or 0
        self.one_by_one = False

    @property
    def label(self) -> str:
        """Name in tables: the model's own architecture."""
        return type(self.classifier).__name__

    def get_input_embeddings(self) -> nn.Module:
        """The word vectors that the model reads."""
        return self.classifier.get_input_embeddings()

    def token_types(self, ids: Tensor) -> Tensor:
        """1 behind the template's separator, where a model tells its two texts apart by types; else
        0. [B, n] -> [B, n]

        It is the first: one that a query spells has another id, see :class:`TemplatePairTokenizer`.
        """
        if self._separator is None:
            return torch.zeros_like(ids)
        separators = (ids == self._separator).long()
        return ((separators.cumsum(1) - separators) > 0).long()

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """The classifier's raw logits [B]; ``token_shift`` moves its word embeddings."""
        self.refuse_senses(sense_weights, return_senses)
        if len(batch) > 1 and self.one_by_one:
            return RankerOutput(
                torch.cat([self(text, token_shift=token_shift).scores for text in batch.texts()])
            )
        mask = batch.padding_mask()
        ids = batch.pad(batch.input_ids).masked_fill(~mask, self._padding)
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        if self._separator is not None:
            inputs["token_type_ids"] = self.token_types(ids) * mask
            spelled: Any = ids == self._spelled
            inputs["input_ids"] = ids.masked_fill(spelled, self._separator)
        with shifted_embeddings(self.get_input_embeddings(), token_shift):
            return RankerOutput(self.classifier(**inputs).logits[:, 0])


def load_classifier(
    folder: str | Path, tokenizer: PreTrainedTokenizerBase
) -> tuple[SequenceClassifierForRanking, TemplatePairTokenizer]:
    """A classifier with one label and its tokenizer, from a folder in the form of transformers; no
    code is run.

    Raises:
        ValueError: it has several labels, weights are missing, or the tokenizer's template is not
            understood.
    """
    model, info = from_pretrained(
        AutoModelForSequenceClassification, folder, dtype=torch.float32, output_loading_info=True
    )
    if model.config.num_labels != 1:
        raise ValueError(
            f"{folder} is a classifier with {model.config.num_labels} labels; a ranker has one, "
            "the score of a pair"
        )
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:6])
        raise ValueError(
            f"{folder} lacks weights of {type(model).__name__}: {missing}; it was not trained to "
            "rank"
        )
    positions = getattr(model.config, "max_position_embeddings", _LIMIT)
    if model.config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= 2  # their positions begin behind the padding's
    pair_tokenizer = TemplatePairTokenizer.of(tokenizer, min(tokenizer.model_max_length, positions))
    ranker = SequenceClassifierForRanking(model, pair_tokenizer)
    _check_types(ranker, pair_tokenizer)
    texts = pair_tokenizer.pairs(
        "which tools", ["a saw", "a saw and a hammer, a plane, a file, a chisel and a vice"]
    )
    ranker.one_by_one = depends_on_others(
        lambda batch: ranker(batch).scores, ranker, *map(np.ndarray.tolist, texts)
    )
    return ranker, pair_tokenizer


def _check_types(
    ranker: SequenceClassifierForRanking, pair_tokenizer: TemplatePairTokenizer
) -> None:
    """Refuse a model whose token types are not those that the tokenizer gives, rather than score it
    wrongly.
    """
    query, document = "which tools", "a saw and a hammer"
    given = pair_tokenizer.tokenizer(query, document)
    (ids,) = pair_tokenizer.pairs(query, [document])
    own = ranker.token_types(torch.from_numpy(ids)[None].long())[0].tolist()
    if ids.tolist() == list(given["input_ids"]) and own == list(given.get("token_type_ids", own)):
        return
    raise ValueError(
        f"{type(pair_tokenizer.tokenizer).__name__} joins two texts in a way that is not known "
        "here, so scores would be wrong; rank with the model's own library, and measure its run: "
        "run=FILE"
    )
