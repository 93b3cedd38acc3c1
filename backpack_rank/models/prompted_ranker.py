"""Language models that answer whether a document is relevant: Qwen3-Reranker and its like.

A prompt holds query and document and ends where the model would say "yes" or "no". The score is a
logit of its next token, or the difference of two. Prompts are files (:class:`PromptTemplate`), read
from the model's folder or from ``conf/template``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PreTrainedTokenizerBase,
)

from backpack_rank.constructors import Count, FilePath, Length, Name
from backpack_rank.data.model_files import TemplateSettings, read_settings
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.pretrained import from_pretrained, no_panic
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.digests import digest
from backpack_rank.files import resource_folder
from backpack_rank.models.attention import BACKEND, packed_trunk
from backpack_rank.models.backbone import PACKED_TYPES
from backpack_rank.models.lora_folder import is_lora, load_network
from backpack_rank.models.rankers import Ranker, RankerOutput
from backpack_rank.models.token_shift import TokenShift, shifted_embeddings

TEMPLATE = "reranker_template.yaml"
"""The file of a folder with the prompt of its model."""
_QUERY, _DOCUMENT = "{query}", "{document}"
_PLACES = re.compile(r"\{(query|document|instruction)\}")
_SIGNS = re.compile(r"[^\w{]*")
_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of models that change logits behind the last matrix."""


@dataclass(frozen=True)
class PromptTemplate:
    """Says how a language model is asked about a document.

    >>> template = PromptTemplate(["Q: {query} D: {document}", " Relevant?"], "yes", "no")
    >>> template.parts
    (('Q: {query} D:',), (' ', ''), (' Relevant?',))

    Attributes:
        pieces: of the prompt, each tokenised by itself, with places for ``{query}``,
            ``{document}`` and ``{instruction}``. Either of the two texts may stand first.
        relevant: its first token's logit is the score.
        not_relevant: the logit of its first token is subtracted; None: nothing is.
        instruction: stands in its place.
        max_length: tokens of a prompt.
    """

    pieces: Annotated[Sequence[str], Length(1)]
    relevant: Name
    not_relevant: Name | None = None
    instruction: Name | None = None
    max_length: Count = 8192

    def __post_init__(self) -> None:
        text = "\0".join(self.pieces)
        for place in (_QUERY, _DOCUMENT):
            if text.count(place) != 1:
                raise ValueError(f"pieces hold {place} {text.count(place)} times; it must be once")
        if ("{instruction}" in text) != (self.instruction is not None):
            raise ValueError("pieces must hold {instruction} where one is given, and only there")
        if not self.relevant:
            raise ValueError("relevant is empty; give the answer whose logit is the score")

    @property
    def document_first(self) -> bool:
        """Whether the document stands before the query."""
        text = "\0".join(self.pieces)
        return text.index(_DOCUMENT) < text.index(_QUERY)

    @cached_property
    def parts(self) -> tuple[tuple[str, ...], tuple[str, str], tuple[str, ...]]:
        """What stands before the document, directly around it, and behind it.

        A tokenizer joins a blank to the word behind it, and signs to those before them: such
        signs beside the document are tokenised with it.
        """
        place = next(n for n, piece in enumerate(self.pieces) if _DOCUMENT in piece)
        before, _, after = self.pieces[place].partition(_DOCUMENT)
        blank = " " if before.endswith(" ") else ""
        signs = _SIGNS.match(after)[0].removesuffix(" ")  # type: ignore[index]  # of any length
        head = (*self.pieces[:place], before.removesuffix(blank))
        tail = (after.removeprefix(signs), *self.pieces[place + 1 :])
        return tuple(filter(None, head)), (blank, signs), tuple(filter(None, tail))

    def filled(self, piece: str, query: str = "") -> str:
        """A piece with what stands in its places; the query may hold any signs."""
        values = {"instruction": self.instruction or "", "query": query}
        return _PLACES.sub(lambda place: values[place[1]], piece)

    @classmethod
    def of(cls, name: str | Path) -> PromptTemplate:
        """One of ``conf/template/``, or a YAML file of the same form by its path.

        Raises:
            FileNotFoundError: there is none of that name; lists those that there are.
            ValueError: a value is missing or unknown; the file is named.
        """
        folder = resource_folder("conf") / "template"
        path = Path(name).expanduser()
        if path.suffix != ".yaml":
            path = folder / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
            raise FileNotFoundError(
                f"there is no template {str(name)!r}: use one of {known}, or the path of a .yaml "
                "file"
            )
        try:
            options = read_settings(path, TemplateSettings)
            # Files of conf/ say what evaluate.py makes of them; here it is known.
            options.pop("_target_", None)
            return cls(**options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error


def template_file(file: FilePath) -> PromptTemplate:
    """Name of ``template=file``: a template of the user's own, in a YAML file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no template.
    """
    if Path(file).suffix != ".yaml" or not Path(file).expanduser().is_file():
        raise FileNotFoundError(f"template.file={file}: there is no such .yaml file")
    return PromptTemplate.of(file)


@dataclass(frozen=True)
class PromptTokenizer(PairTokenizer):
    """Prompts as token ids: [before, query, document, behind], of which the document alone is cut.

    Pieces are tokenised as their model card does it. Query and document cannot spell special
    tokens: a document that ends the user's turn would answer for the model.
    """

    template: PromptTemplate | None = None

    def with_instruction(self, instruction: str) -> PromptTokenizer:
        """The same prompts with another instruction.

        Raises:
            ValueError: the prompt has no place for one, or it spells a special token, which would
                end what the model is asked.
        """
        if self._template.instruction is None:
            raise ValueError("the prompt of this ranker has no instruction")
        signs = {*self.tokenizer.all_special_tokens, *self.tokenizer.get_added_vocab()}
        for sign in sorted(signs):
            if sign.strip() and sign in instruction:
                raise ValueError(f"the instruction holds {sign}, which is a sign of the prompt")
        return replace(self, template=replace(self._template, instruction=instruction))

    @property
    def _template(self) -> PromptTemplate:
        assert self.template is not None
        return self.template

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides the token ids of a pair of texts."""
        return digest(f"{self.template} {super().fingerprint}")

    @cached_property
    def _with_query(self) -> Sequence[str]:
        """The pieces on the query's side of the document."""
        head, _, tail = self._template.parts
        return tail if self._template.document_first else head

    @cached_property
    def _fixed(self) -> np.ndarray:
        """Token ids on the other side of the document."""
        head, _, tail = self._template.parts
        return self._literal(head if self._template.document_first else tail)

    @cached_property
    def _signs(self) -> np.ndarray:
        """Token ids of the signs directly behind the document."""
        _, (_, signs), _ = self._template.parts
        return self._literal([signs] if signs else [])

    def _literal(self, pieces: Sequence[str]) -> np.ndarray:
        """Token ids of pieces without query and document, special tokens among them."""
        ids: list[int] = []
        for piece in pieces:
            text = self._template.filled(piece)
            ids += self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return np.array(ids, dtype=np.int32)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of documents as they stand in the prompt, nothing cut."""
        _, (blank, signs), _ = self._template.parts
        return self._encoded([blank + text + signs for text in texts])

    def _encoded(self, texts: Sequence[str]) -> list[np.ndarray]:
        if not texts:
            return []
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        with no_panic(self.tokenizer.name_or_path):
            encoded = self.tokenizer(list(texts), **options)["input_ids"]
        return [np.asarray(ids, dtype=np.int32) for ids in encoded]

    def encode_query(self, text: str) -> np.ndarray:
        """Token ids of all that stands on the query's side of the document.

        Raises:
            ValueError: the query is empty or leaves no room for a document.
        """
        if not text.strip():
            raise ValueError("the query is empty: a ranker needs at least one token of query text")
        # No more of a very long query is tokenised than could be read.
        query = self.cut(text)
        parts: list[np.ndarray] = []
        for piece in self._with_query:
            if _QUERY in piece:
                parts += self._encoded([self._template.filled(piece, query)])
            else:
                parts.append(self._literal([piece]))
        ids = np.concatenate(parts)
        if self.room(ids) < 1:
            raise ValueError(
                f"the query has {len(ids)} tokens with its prompt and max_length="
                f"{self.max_length} leaves no room for a document; raise max_length or shorten the "
                f"query: {text[:80]!r}"
            )
        return ids

    def room(self, query: np.ndarray) -> int:
        """Tokens of a document that fit beside the query, whose ids are given."""
        return self.max_length - len(query) - len(self._fixed)

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """The prompt, the document cut to fit ``max_length``."""
        room = self.room(query)
        if len(document) > room:
            kept = max(0, room - len(self._signs))
            document = np.concatenate([document[:kept], self._signs])[:room]
        if self._template.document_first:
            return np.concatenate([self._fixed, document, query])
        return np.concatenate([query, document, self._fixed])


class AnswerLayer(nn.Module):
    """The last matrix of a language model, at the rows of the answers alone."""

    def __init__(self, model: Any, answers: Sequence[int], activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        # In a tuple, so that the model's weights are not counted as this layer's too.
        self._of = model, answers

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states to scores. [B, d] -> [B]"""
        model, answers = self._of
        head = model.get_output_embeddings()
        bias = None if head.bias is None else head.bias[answers]
        logits = nn.functional.linear(hidden, head.weight[answers], bias)
        return self.activation(difference(logits))


def difference(logits: Tensor) -> Tensor:
    """The first logit, minus the second where there are two. [B, answers] -> [B]"""
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 0] - logits[:, 1]


class PromptedForRanking(Ranker):
    """A language model that answers whether a document is relevant.

    :func:`load_prompted` reads one from a folder. It is not trained here.

    Attributes:
        answers: token ids whose logits are read, one or two.
        packed: whether texts are read in one row, with what they begin with in common read once.
    """

    # Whatever the model inside supports; this class adds no attention.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    def __init__(
        self, model: Any, answers: Sequence[int], activation: nn.Module | None = None
    ) -> None:
        """
        Args:
            model: what ``AutoModelForCausalLM`` loads.
            answers: see above; the logit of the second one is subtracted.
            activation: what is put on the scores; None: nothing.
        """
        super().__init__(model.config)
        self.model = model
        self.answers = list(answers)
        self.activation = nn.Identity() if activation is None else activation
        text_config = model.config.get_text_config()
        self.packed = text_config.model_type in PACKED_TYPES and not any(
            getattr(text_config, name, None) for name in _LOGIT_CHANGES
        )
        if self.packed:
            model.set_attn_implementation(BACKEND)
        self._answer_layer = AnswerLayer(model, self.answers, self.activation)

    @property
    def label(self) -> str:
        """Name in tables: the model's own architecture."""
        return type(self.model).__name__

    def get_input_embeddings(self) -> nn.Module:
        """The word vectors that the model reads."""
        return self.model.get_input_embeddings()

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Differences of two logits, or one logit [B]; ``token_shift`` moves word embeddings."""
        self.refuse_senses(sense_weights, return_senses)
        with shifted_embeddings(self.get_input_embeddings(), token_shift, self):
            if not self.packed:
                return RankerOutput(self.activation(difference(self._padded_logits(batch))))
            hidden = packed_trunk(self.model.base_model, batch)[batch.last_positions]
            return RankerOutput(self._answer_layer(hidden))

    @property
    def pooled_head(self) -> nn.Module:
        """See :attr:`Ranker.pooled_head`; it takes the hidden state of the last token."""
        if not self.packed:
            raise TypeError(
                f"{self.label} changes its logits behind the last layer, so no single vector makes "
                "the score of a text"
            )
        return self._answer_layer

    def _padded_logits(self, batch: PackedBatch) -> Tensor:
        mask = batch.padding_mask()
        ids = batch.pad(batch.input_ids).masked_fill(~mask, 0)
        logits = self.model(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits
        last = mask.sum(dim=1) - 1
        return logits[torch.arange(len(batch), device=logits.device), last][:, self.answers]


class EncoderDecoderForRanking(PromptedForRanking):
    """A model whose decoder answers what its encoder reads, such as monoT5.

    The answer is the first token that it writes (Nogueira et al., arXiv 2003.06713, section 2).
    """

    @property
    def pooled_head(self) -> nn.Module:
        """See :attr:`Ranker.pooled_head`."""
        raise TypeError(f"{self.label} makes no score of one vector for each text")

    def _padded_logits(self, batch: PackedBatch) -> Tensor:
        mask = batch.padding_mask()
        ids = batch.pad(batch.input_ids).masked_fill(~mask, 0)
        start = self.config.decoder_start_token_id or 0
        output = self.model(
            input_ids=ids,
            attention_mask=mask.long(),
            decoder_input_ids=torch.full_like(ids[:, :1], start),
            use_cache=False,
        )
        return output.logits[:, 0, self.answers]


def load_prompted(
    folder: str | Path, tokenizer: PreTrainedTokenizerBase, template: PromptTemplate
) -> tuple[PromptedForRanking, PromptTokenizer]:
    """Load a language model as a ranker, with the prompt that it was trained on.

    It may have an encoder, which reads the prompt, and a decoder, which answers.

    Code in the folder is not run.

    Raises:
        ValueError: weights are missing, an answer is no token, or a special token of the prompt is
            none of the tokenizer.
    """
    kind: type[PromptedForRanking] = PromptedForRanking
    # An adapter of a language model has no configuration of its own.
    if not is_lora(folder) and from_pretrained(AutoConfig, folder).is_encoder_decoder:
        kind = EncoderDecoderForRanking
    loader = AutoModelForSeq2SeqLM if kind is EncoderDecoderForRanking else AutoModelForCausalLM
    model = load_network(loader, folder)
    answers = []
    for answer in (template.relevant, template.not_relevant):
        if answer is not None:
            ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
            if not ids or ids[0] == tokenizer.unk_token_id:
                raise ValueError(f"{folder}: its tokenizer has no token for the answer {answer!r}")
            answers.append(ids[0])
    if len(set(answers)) < len(answers):
        raise ValueError(
            f"{folder}: {template.relevant!r} and {template.not_relevant!r} begin with the same "
            "token, so every score would be 0"
        )
    check_special_tokens(folder, tokenizer, template)
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    max_length = min(template.max_length, positions or template.max_length)
    pair_tokenizer = PromptTokenizer(tokenizer, max_length, None, template)
    return kind(model.eval(), answers), pair_tokenizer


def check_special_tokens(
    folder: str | Path, tokenizer: PreTrainedTokenizerBase, template: PromptTemplate
) -> None:
    """Refuse a template of another model: its signs would be read as common words.

    Raises:
        ValueError: it names a special token that the tokenizer has not, or beside a text.
    """
    for sign in re.findall(r"<\|\w+\|>|<bos>|<eos>", "".join(template.pieces)):
        if sign not in tokenizer.all_special_tokens and sign not in tokenizer.get_added_vocab():
            raise ValueError(
                f"{folder}: {sign} of the template is no special token of its tokenizer; the "
                "template is of another model"
            )
    for piece in template.pieces:
        if (_QUERY in piece or _DOCUMENT in piece) and any(
            sign in piece for sign in tokenizer.all_special_tokens
        ):
            raise ValueError(
                f"a piece of the template holds a special token beside a text: {piece!r}; put it "
                "into a piece of its own"
            )
