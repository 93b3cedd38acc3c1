"""Cross-encoders that were trained elsewhere: classifiers of transformers.

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
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.pretrained import no_panic
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.backbone import depends_on_others
from backpack_rank.models.chat_template import chat_pair_tokenizer
from backpack_rank.models.label_pair import score_columns
from backpack_rank.models.lora_folder import load_network
from backpack_rank.models.packed_body import pack_body
from backpack_rank.models.prompted_ranker import (
    PromptTemplate,
    PromptTokenizer,
    check_special_tokens,
)
from backpack_rank.models.rankers import Ranker, RankerOutput
from backpack_rank.models.sentence_transformers_files import TRANSFORMER_FILE, settings_of
from backpack_rank.models.token_shift import TokenShift, shifted_embeddings

_LIMIT = 512
"""Tokens of a pair where neither tokenizer nor model says how many it can read."""
_BEHIND_PADDING = (
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "mpnet",
    "roberta-prelayernorm",
)
"""Model types whose positions begin behind that of padding, so that two of them are not used."""


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
        """Read a tokenizer's template off a pair of short texts.

        Raises:
            ValueError: the joined texts do not hold the tokens of both, the query's first.
        """
        query = tokenizer("a", add_special_tokens=False)["input_ids"]
        document = tokenizer("b", add_special_tokens=False)["input_ids"]
        joined = tokenizer("a", "b")
        ids = list(joined["input_ids"])
        # Some tokenizers give types and make no difference between the two texts.
        has_types = any(joined.get("token_type_ids", ()))
        # The first place counts where the query stands in front of the document.
        for start in range(len(ids)):
            query_end = start + len(query)
            if ids[start:query_end] != query:
                continue
            for document_start in range(query_end, len(ids)):
                document_end = document_start + len(document)
                if ids[document_start:document_end] != document:
                    continue
                middle = ids[query_end:document_start]
                spelled = None
                if middle and has_types:
                    spelled = max(tokenizer.get_vocab().values()) + 1
                return cls(
                    tokenizer,
                    max_length,
                    None,
                    prefix=tuple(ids[:start]),
                    middle=tuple(middle),
                    suffix=tuple(ids[document_end:]),
                    spelled=spelled,
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
        """Digest of everything that decides the token ids of a pair of texts."""
        return f"{self.prefix}{self.middle}{self.suffix}-{super().fingerprint}"

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, nothing added and nothing cut."""
        if not texts:
            return []
        with no_panic(self.tokenizer.name_or_path):
            encoded = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)
        return [np.asarray(ids, dtype=np.int32) for ids in encoded["input_ids"]]

    def encode_query(self, text: str) -> np.ndarray:
        """Token ids of a query; of one that is far too long, the first.

        Raises:
            ValueError: the query is empty.
        """
        ids, _ = self._encoded_query(text)
        if not len(ids):
            raise ValueError("the query is empty: a ranker needs at least one token of query text")
        return ids

    def room(self, query: np.ndarray) -> int:
        """Tokens of a document that fit behind the query, which may be cut to half of the room."""
        free = self.max_length - self.added
        return max(free - len(query), free // 2)

    def query_tokens_read(self, query: np.ndarray, document: np.ndarray) -> int:
        """Tokens of a query that are read: the shorter text stays, unless both are over half."""
        free = self.max_length - self.added
        if len(query) + len(document) <= free:
            return len(query)
        if len(query) <= len(document):
            return min(len(query), free // 2)
        return free - min(len(document), free // 2)

    def may_be_cut(self, query: str) -> bool:
        """Whether it has more tokens than half of the room, as sentence-transformers cuts them."""
        ids, _ = self._encoded_query(query)
        return len(ids) > (self.max_length - self.added) // 2

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[prefix, query, middle, document, suffix], where the longer text is cut first."""
        free = self.max_length - self.added
        query = query[: self.query_tokens_read(query, document)]
        document = document[: free - len(query)]
        if self.spelled is not None:
            query = np.where(query == self.middle[0], np.int32(self.spelled), query)
        prefix = np.array(self.prefix, dtype=np.int32)
        middle = np.array(self.middle, dtype=np.int32)
        suffix = np.array(self.suffix, dtype=np.int32)
        return np.concatenate([prefix, query, middle, document, suffix])


class SequenceClassifierForRanking(Ranker):
    """A cross-encoder that was trained elsewhere: its logit is the score.

    Policies change its scores and evaluation measures them; it is not trained here.
    :func:`load_classifier` reads one from a folder.

    Attributes:
        columns: which logit is the score; of two, the second one is subtracted.
        one_by_one: each text is read in a batch of its own, because scores depend on the batch.
    """

    # Whatever the classifier inside supports; this class adds no attention.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    def __init__(
        self,
        classifier: Any,
        pair_tokenizer: TemplatePairTokenizer | PromptTokenizer,
        columns: tuple[int] | tuple[int, int] = (0,),
    ) -> None:
        """A ranker around a classifier.

        Args:
            classifier: what ``AutoModelForSequenceClassification`` loads.
            pair_tokenizer: joins its texts.
            columns: see above.
        """
        super().__init__(classifier.config)
        self.classifier = classifier
        self.columns = columns
        # A prompt is one text, whose tokens are of one type.
        self._spelled: int | None = None
        self._separator: int | None = None
        if isinstance(pair_tokenizer, TemplatePairTokenizer) and pair_tokenizer.spelled is not None:
            self._spelled = pair_tokenizer.spelled
            self._separator = pair_tokenizer.middle[0]
        self._padding = pair_tokenizer.tokenizer.pad_token_id or 0
        self.one_by_one = False
        self._last_layers = [
            name
            for name, layer in classifier.named_modules()
            if isinstance(layer, nn.Linear) and layer.out_features == 1
        ]

    @property
    def label(self) -> str:
        """Name in tables: the model's own architecture."""
        return type(getattr(self.classifier, "transformer", self.classifier)).__name__

    def get_input_embeddings(self) -> nn.Module:
        """The word vectors that the model reads."""
        return self.classifier.get_input_embeddings()

    @property
    def pooled_head(self) -> nn.Module:
        """See :attr:`Ranker.pooled_head`: the classifier's last linear layer."""
        if len(self._last_layers) != 1:
            raise TypeError(
                f"{self.label} has {len(self._last_layers)} linear layers with one output, so it "
                "is not known which of them makes the score"
            )
        head: nn.Module = self.classifier.get_submodule(self._last_layers[0])
        return head

    def score_vectors(self, vectors: Tensor) -> Tensor:
        """See :meth:`Ranker.score_vectors`."""
        scores = super().score_vectors(vectors)
        # A network in modules may have activations behind its last linear layer.
        activated = getattr(self.classifier, "activated", None)
        return scores if activated is None else activated(scores)

    @property
    def has_types(self) -> bool:
        """Whether the classifier tells the two texts apart by types of their tokens."""
        return self._separator is not None

    def token_types(self, ids: Tensor) -> Tensor:
        """The token types of the two texts: 1 behind the template's separator, else 0. [B, n]

        0 everywhere where the model has no token types. The first separator counts: one that a
        query spells has another id, see :class:`TemplatePairTokenizer`.
        """
        if self._separator is None:
            return torch.zeros_like(ids)
        separators = (ids == self._separator).long()
        separators_before = separators.cumsum(1) - separators
        return (separators_before > 0).long()

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """The classifier's raw logits, or differences of two [B].

        ``token_shift`` moves its word embeddings.
        """
        self.refuse_senses(sense_weights, return_senses)
        if len(batch) > 1 and self.one_by_one:
            scores = [self(text, token_shift=token_shift).scores for text in batch.texts()]
            return RankerOutput(torch.cat(scores))
        mask = batch.padding_mask()
        ids = batch.pad(batch.input_ids).masked_fill(~mask, self._padding)
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        if self._separator is not None:
            inputs["token_type_ids"] = self.token_types(ids) * mask
            # Types are known: a separator that the query spells gets its real id again.
            spelled: Any = ids == self._spelled
            inputs["input_ids"] = ids.masked_fill(spelled, self._separator)
        with shifted_embeddings(self.get_input_embeddings(), token_shift, self):
            logits = self.classifier(**inputs).logits
        return RankerOutput(self.score_of(logits))

    def score_of(self, logits: Tensor) -> Tensor:
        """The score in a classifier's logits: one of them, or the difference of two. [B]"""
        if len(self.columns) == 1:
            return logits[:, self.columns[0]]
        relevant, not_relevant = self.columns
        return logits[:, relevant] - logits[:, not_relevant]


def load_classifier(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    labels: Sequence[str] | None = None,
    base: Path | None = None,
    template: PromptTemplate | None = None,
) -> tuple[SequenceClassifierForRanking, PairTokenizer]:
    """Load a classifier from a folder in the form of transformers.

    Code in the folder is not run.

    Args:
        folder: of the classifier, or of an adapter.
        tokenizer: its tokenizer.
        labels: of a classifier with two, the relevant one first; None: what its folder says.
        base: folder of the base model of an adapter.
        template: how query and document are put into a prompt; None: as the folder says, which a
            chat template of the tokenizer does.

    Raises:
        ValueError: it has several labels and none was named, weights are missing, or the
            tokenizer's template is not understood.
    """
    model = load_network(AutoModelForSequenceClassification, folder)
    columns = score_columns(model.config, labels, *filter(None, (folder, base)))
    if len(columns) == 2:
        # Whoever compares rankers by their configurations has to see which label was taken.
        model.config.reranker_columns = list(columns)
    max_length = longest_pair(model.config, tokenizer)
    prompts: PromptTokenizer | None
    if template is not None:
        check_special_tokens(folder, tokenizer, template)
        prompts = PromptTokenizer(tokenizer, min(max_length, template.max_length), None, template)
    else:
        settings = settings_of(folder / TRANSFORMER_FILE)
        prompts = chat_pair_tokenizer(folder, tokenizer, settings, max_length)
    return ranker_of(model, tokenizer, max_length, pack_body(model), columns, prompts)


def longest_pair(config: Any, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens of a pair a model reads, by its configuration and its tokenizer."""
    return min(tokenizer.model_max_length, most_positions(config))


def most_positions(config: Any) -> int:
    """How many tokens a model of transformers reads, by its configuration."""
    positions: int = getattr(config, "max_position_embeddings", None) or _LIMIT
    if config.model_type in _BEHIND_PADDING:
        positions -= 2
    return positions


def ranker_of(
    classifier: Any,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    reads_packed: bool = False,
    columns: tuple[int] | tuple[int, int] = (0,),
    prompts: PromptTokenizer | None = None,
) -> tuple[SequenceClassifierForRanking, PairTokenizer]:
    """Make a ranker of a network that gives logits for each text.

    Args:
        classifier: called and shaped like a classifier of transformers.
        tokenizer: its tokenizer.
        max_length: tokens of a pair.
        reads_packed: whether it reads its texts without padding
            (:mod:`backpack_rank.models.packed_body`).
        columns: see :class:`SequenceClassifierForRanking`.
        prompts: puts texts into prompts; None: they are joined as the tokenizer does it.

    Raises:
        ValueError: the tokenizer's template is not understood.
    """
    pair_tokenizer: TemplatePairTokenizer | PromptTokenizer
    if prompts is not None:
        pair_tokenizer = prompts
        ranker = SequenceClassifierForRanking(classifier, prompts, columns)
    else:
        pair_tokenizer = TemplatePairTokenizer.of(tokenizer, max_length)
        ranker = SequenceClassifierForRanking(classifier, pair_tokenizer, columns)
        _check_types(ranker, pair_tokenizer)
    if reads_packed:
        # What reads without padding cannot depend on it.
        return ranker, pair_tokenizer
    if not _finds_last_tokens(classifier.config, tokenizer):
        ranker.one_by_one = True
        return ranker, pair_tokenizer
    # A short text and a longer one: whether padding of the short one changes its score.
    documents = ["a saw", "a saw and a hammer, a plane, a file, a chisel and a vice"]
    short, long = pair_tokenizer.pairs("which tools", documents)
    ranker.one_by_one = depends_on_others(
        lambda batch: ranker(batch).scores, ranker, short.tolist(), long.tolist()
    )
    return ranker, pair_tokenizer


def _finds_last_tokens(config: Any, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a classifier over a decoder finds the ends of padded texts, where it is read.

    It looks for the padding that its configuration names. Where none is named, it gets the
    tokenizer's, unless texts can end with that token too.
    """
    text_config = config.get_text_config()
    if text_config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return True
    if text_config.pad_token_id is None:
        padding = tokenizer.pad_token_id
        if padding in (None, tokenizer.eos_token_id, tokenizer.sep_token_id):
            return False
        text_config.pad_token_id = padding
    return True


def _check_types(
    ranker: SequenceClassifierForRanking, pair_tokenizer: TemplatePairTokenizer
) -> None:
    """Refuse a tokenizer that joins two texts in another way, or gives other token types."""
    query, document = "which tools", "a saw and a hammer"
    expected = pair_tokenizer.tokenizer(query, document)
    (ids,) = pair_tokenizer.pairs(query, [document])
    types = ranker.token_types(torch.from_numpy(ids)[None].long())[0].tolist()
    same_ids = ids.tolist() == list(expected["input_ids"])
    if same_ids and types == list(expected.get("token_type_ids", types)):
        return
    raise ValueError(
        f"{type(pair_tokenizer.tokenizer).__name__} joins two texts in a way that is not known "
        "here, so scores would be wrong; rank with the model's own library, and measure its run: "
        "run=FILE"
    )
