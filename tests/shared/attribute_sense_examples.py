"""Small rankers with attribute senses of every kind, and their scores by a slow calculation that
shares no code.

The calculation goes word by word over the text: which tokens a word has, and which its class mates
    would have in its
place, is asked of the tokenizer. Then METHODS: plain loops over tokens, senses and classes, in
    float64.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import small_tokenizers
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor
from transformers import BertConfig, GPT2Config, PreTrainedTokenizerFast, RobertaConfig

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer
from backpack_rank.models.attribute_senses import add_attribute_senses
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.rankers import BackpackForRanking

GENDER = {
    "subject": {"he": "male", "she": "female"},
    "possessive": {"his": "male", "her": "female"},
    "adult": {"man": "male", "woman": "female"},
    "crown": {"king": "male", "queen": "female"},
    "stage": {"actor": "male", "actress": "female"},
}
RELIGION = {
    "creed": {"christian": "christian", "muslim": "muslim", "jewish": "jewish"},
    "house": {"church": "christian", "mosque": "muslim", "synagogue": "jewish"},
}
SIDES = {"gender": ("female", "male"), "religion": ("muslim", "christian")}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
KNOWN = "the nurse said he she his her man woman manual king cooks soup is who christian church a here in"


def attribute(folder: Path, name: str, classes: dict[str, dict[str, str]]) -> Attribute:
    """An attribute of these classes (word: group), by files in a folder."""
    first, second = SIDES[name]
    rows = []
    pairs = []
    lexicon = []
    for key, words in classes.items():
        word_by_group = {}
        for word, group in words.items():
            word_by_group[group] = word
            rows.append(f"{key},{word},{group}")
            lexicon.append(f"{word},{group}")
        pairs.append(f"{word_by_group[first]},{word_by_group[second]}")
    files = {
        "classes": ["class,word,group", *rows],
        "pairs": [f"{first},{second}", *pairs],
        "words": ["word,group", *lexicon],
    }
    paths = {kind: folder / f"{name}_{kind}.csv" for kind in files}
    for kind, lines in files.items():
        paths[kind].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Attribute(
        name,
        lexicon=str(paths["words"]),
        sign=f"{first}_minus_{second}",
        pairs=str(paths["pairs"]),
        sides=SIDES[name],
        classes=[str(paths["classes"])],
    )


def word_piece_uncased() -> PreTrainedTokenizerFast:
    """BERT's, which lowers texts; words that it does not know are letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    signs = list("0123456789.,;:!?'\"()-")
    pieces = [
        *SPECIAL,
        *KNOWN.split(),
        *letters,
        *(f"##{letter}" for letter in letters),
        "##ets",
        "##ss",
        *signs,
    ]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def unigram(split: bool) -> PreTrainedTokenizerFast:
    """SentencePiece that cuts a text at spaces first, or sees it as a whole."""
    special = ["<pad>", "<unk>", "<s>", "</s>", "<sep>"]
    words = [case(word) for word in KNOWN.split() for case in (str.lower, str.capitalize)]
    scores = dict.fromkeys(special, 0.0)
    scores |= {
        space + word: -4.0 - len(space) for word in words if len(word) > 1 for space in ("▁", "")
    }
    letters = "▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:!?'\"()-"
    scores |= dict.fromkeys(letters, -9.0)
    backend = Tokenizer(models.Unigram(list(scores.items()), unk_id=1))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(split=split)
    backend.decoder = decoders.Metaspace()
    names = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "<sep>",
    }
    names["cls_token"] = "<s>"
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def backbone(kind: str, vocabulary: int):
    """Configuration of a small backbone."""
    common = {"vocab_size": vocabulary, "initializer_range": 0.3}
    if kind == "gpt2":
        shape = {
            "n_embd": 16,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 96,
            "bos_token_id": None,
            "eos_token_id": None,
        }
        return GPT2Config(**common, **shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    shape = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    }
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if kind == "bert":
        return BertConfig(**common, **shape, **none, max_position_embeddings=96, pad_token_id=0)
    return RobertaConfig(**common, **shape, **none, max_position_embeddings=98, pad_token_id=0)


@dataclass(frozen=True, eq=False, repr=False)
class Example:
    """A ranker and what it was made of.

    Attributes:
        classes: of all its attributes: word by group, in classes.
        groups: the groups in the order of their senses.
        where, read_as_one: of its senses.
    """

    ranker: BackpackForRanking
    pair_tokenizer: PairTokenizer
    classes: dict[str, dict[str, str]]
    groups: tuple[str, ...]
    where: str
    read_as_one: bool

    def __repr__(self) -> str:
        return f"an example on {self.ranker.config.backbone_config.model_type}"

    @property
    def tokenizer(self):
        return self.pair_tokenizer.tokenizer

    def batch(self, query: str, documents: Sequence[str]) -> PackedBatch:
        """The texts of one query with its documents."""
        return PackedBatch.from_sequences(self.pair_tokenizer.pairs(query, documents))


EXAMPLES: dict[str, tuple[Callable[[], PreTrainedTokenizerFast], str]] = {
    "word pieces, BERT": (word_piece_uncased, "bert"),
    "word pieces, BERT, keys from below": (word_piece_uncased, "bert below_last"),
    "byte-level, GPT-2": (small_tokenizers.byte_level, "gpt2"),
    "unigram split at spaces, RoBERTa read padded": (lambda: unigram(split=True), "roberta"),
    "unigram without split, GPT-2": (lambda: unigram(split=False), "gpt2"),
}


def real_gpt2(data: Path) -> PreTrainedTokenizerFast:
    """GPT-2's own tokenizer."""
    return load_tokenizer(data / "gpt2_tokenizer")


def new_ranker(
    tokenizer: PreTrainedTokenizerFast, kind: str, seed: int = 0
) -> tuple[BackpackForRanking, PairTokenizer]:
    """A ranker without attribute senses, with large random weights; four rows of its table belong
    to no token.
    """
    torch.manual_seed(seed)
    separator = PairTokenizer(tokenizer, 0).separator_id
    kind, _, keys = kind.partition(" ")
    backbone_config = backbone(kind, len(tokenizer) + 4)
    config = BackpackConfig(
        backbone_config=backbone_config,
        num_senses=4,
        dropout=0.0,
        separator_id=separator,
        sense_keys=keys or "last",
    )
    ranker = BackpackForRanking(config).eval()
    with torch.no_grad():
        for parameter in ranker.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    start = None if kind == "gpt2" else tokenizer.cls_token_id or tokenizer.bos_token_id
    return ranker, PairTokenizer(tokenizer, 90, start)


def new_example(
    tokenizer: PreTrainedTokenizerFast,
    kind: str,
    attributes: Sequence[tuple[Attribute, dict[str, dict[str, str]]]],
    where: str = "documents",
    read_as_one: bool = True,
) -> Example:
    """A ranker with the senses of some attributes."""
    ranker, pair_tokenizer = new_ranker(tokenizer, kind)
    options = {
        "where": where,
        "queries": "all",  # every query here has a class word
        "read_as_one": read_as_one,
        "separator_id": pair_tokenizer.separator_id,
    }
    for example_attribute, _ in attributes:
        add_attribute_senses(ranker.backpack, tokenizer, example_attribute, **options)
    classes = {
        key: words for _, words_by_class in attributes for key, words in words_by_class.items()
    }
    groups = tuple(group for _, group in ranker.config.groups)
    return Example(ranker, pair_tokenizer, classes, groups, where, read_as_one)


@dataclass
class Unit:
    """A token of a text, or a word of a class with the tokens of its class mates in its place."""

    pieces: list[int]
    mates: list[list[int]]
    group: str = ""


def units(example: Example, text: str) -> list[Unit]:
    """What a text is read as."""
    text = f" {text.strip()}" if text.strip() else ""
    ids, offsets = _tokens(example.tokenizer, text)
    read: list[Unit] = []
    words = [
        match
        for match in re.finditer(r"[^\W_]+", text)
        if _class_of(example, match.group()) is not None
    ]
    place = 0
    while place < len(ids):
        unit = Unit([ids[place]], [])
        for match in words:
            span = _pieces(ids, offsets, text, match.span())
            if span is None or span[0] != place:
                continue
            mates = _mates(example, text, match)
            # Words of several tokens are read as one position only by rankers that read words as
            # one.
            if not example.read_as_one:
                mates = {word: pieces for word, pieces in mates.items() if len(pieces) == 1}
            if match.group().lower() in mates and len(mates) > 1:
                group = _class_of(example, match.group())[match.group().lower()]
                unit = Unit(ids[span[0] : span[1]], list(mates.values()), group)
        read.append(unit)
        place += len(unit.pieces)
    return read


def _tokens(tokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    if not text:
        return [], []
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return encoded["input_ids"], encoded["offset_mapping"]


def _class_of(example: Example, word: str) -> dict[str, str] | None:
    if word not in (word.lower(), word.capitalize(), word.upper()):
        return None
    return next((words for words in example.classes.values() if word.lower() in words), None)


def _pieces(ids, offsets, text: str, span: tuple[int, int]) -> tuple[int, int] | None:
    """Where the tokens of a word begin and end, with the space in front of it; None where they hold
    anything else.
    """
    inside = [
        place for place, (start, end) in enumerate(offsets) if start < span[1] and end > span[0]
    ]
    # The space may be a token of its own ("Ġ", "q", "ueen"), which a class mate (" king") has not.
    before = inside[0] - 1
    if (
        offsets[inside[0]][0] == span[0]
        and before >= 0
        and offsets[before] == (span[0] - 1, span[0])
    ):
        inside = [before, *inside] if text[span[0] - 1] == " " else inside
    start, end = offsets[inside[0]][0], offsets[inside[-1]][1]
    if text[start : span[0]].strip() or text[span[1] : end].strip():
        return None
    return inside[0], inside[-1] + 1


def _mates(example: Example, text: str, match: re.Match) -> dict[str, list[int]]:
    """Tokens of the words of a class in the place of one of them."""
    words = _class_of(example, match.group())
    case = next(
        c for c in (str.lower, str.capitalize, str.upper) if c(match.group()) == match.group()
    )
    start, end = match.span()
    mates = {}
    for word in words:
        other = text[:start] + case(word) + text[end:]
        ids, offsets = _tokens(example.tokenizer, other)
        span = _pieces(ids, offsets, other, (start, start + len(word)))
        pieces = [] if span is None else ids[span[0] : span[1]]
        if pieces and example.tokenizer.unk_token_id not in pieces:
            mates[word] = pieces
    return mates


@torch.no_grad()
def slow_senses(example: Example, query: str, document: str) -> Tensor:
    """o_1 ... o_k and those of the groups, of one text. float64 [k + G, d]"""
    ranker, pair_tokenizer = example.ranker, example.pair_tokenizer
    parts = {"query": units(example, query), "document": units(example, document)}
    if example.where == "documents":
        ids = _tokens(example.tokenizer, f" {query.strip()}")[0]
        parts["query"] = [Unit([token], []) for token in ids]
    row = [Unit([token], []) for token in pair_tokenizer.start]
    row += [
        *parts["query"],
        Unit([pair_tokenizer.separator_id], []),
        *parts["document"],
        Unit([pair_tokenizer.end_id], []),
    ]
    separator = len(pair_tokenizer.start) + len(parts["query"])

    before = ranker.dtype
    ranker.double()
    try:
        return _senses_of(example, row, separator)
    finally:
        ranker.to(before)


def _senses_of(example: Example, row: list[Unit], separator: int) -> Tensor:
    ranker = example.ranker
    backpack, config = ranker.backpack, ranker.config
    table, k = backpack.get_input_embeddings().weight, config.num_senses

    def mean(vectors: list[Tensor]) -> Tensor:
        total = torch.zeros_like(vectors[0])
        for vector in vectors:
            total = total + vector
        return total / len(vectors)

    def class_mean(of: Callable[[int], Tensor], unit: Unit) -> Tensor:
        return mean([mean([of(piece) for piece in mate]) for mate in unit.mates])

    # What the contextual network reads.
    embedded = []
    for unit in row:
        if unit.mates and example.read_as_one:
            embedded.append(class_mean(lambda token: table[token], unit))
        else:
            embedded.append(mean([table[piece] for piece in unit.pieces]))
    options = {}
    if getattr(config.text_config, "type_vocab_size", 0) > 1:
        options["token_type_ids"] = torch.tensor(
            [[int(place > separator) for place in range(len(row))]]
        )
    output = backpack.backbone(
        inputs_embeds=torch.stack(embedded)[None], output_hidden_states=True, **options
    )
    hidden = output.last_hidden_state[0]
    of_keys = hidden
    if config.sense_keys == "below_last":
        of_keys = output.hidden_states[-2][0]

    # Contextual weights at the pooled token: attention of one head per sense.
    d = hidden.shape[-1]
    layer = backpack.sense_weight_net.c_attn
    at = 0 if config.pooling == "first" else len(row) - 1
    weights = torch.zeros(k, len(row), dtype=torch.float64)
    for sense in range(k):
        part = slice(sense * d // k, (sense + 1) * d // k)
        query = (layer.weight[:d] @ hidden[at] + layer.bias[:d])[part]
        logits = []
        for place in range(len(row)):
            key = (layer.weight[d:] @ of_keys[place] + layer.bias[d:])[part]
            logits.append(float(query @ key) / math.sqrt(d / k))
        exponentials = [math.exp(logit - max(logits)) for logit in logits]
        for place, value in enumerate(exponentials):
            weights[sense, place] = value / sum(exponentials)

    last = backpack.sense_network.final_mlp.c_proj
    senses = torch.zeros(k + len(example.groups), d, dtype=torch.float64)
    for place, unit in enumerate(row):
        of_word = mean([slow_hidden(ranker, table[piece]) for piece in unit.pieces])
        shared = of_word
        if unit.mates:
            shared = class_mean(lambda token: slow_hidden(ranker, table[token]), unit)
        for sense in range(k):
            part = slice(sense * d, (sense + 1) * d)
            senses[sense] += weights[sense, place] * (
                shared @ last.weight[:, part] + last.bias[part]
            )
            if unit.mates:
                difference = (of_word - shared) @ last.weight[:, part]
                senses[k + example.groups.index(unit.group)] += weights[sense, place] * difference
    return senses


def slow_hidden(ranker: BackpackForRanking, embedding: Tensor) -> Tensor:
    """h(x) of METHODS, section 1."""
    network = ranker.backpack.sense_network

    def norm(layer, vector: Tensor) -> Tensor:
        centred = vector - vector.mean()
        return centred / torch.sqrt((centred**2).mean() + layer.eps) * layer.weight + layer.bias

    def gelu_new(vector: Tensor) -> Tensor:
        return (
            0.5
            * vector
            * (1 + torch.tanh(math.sqrt(2 / math.pi) * (vector + 0.044715 * vector**3)))
        )

    first = norm(network.ln, embedding) + embedding
    inner = network.block.mlp
    normed = norm(network.block.ln_1, first)
    second = (
        gelu_new(normed @ inner.c_fc.weight + inner.c_fc.bias) @ inner.c_proj.weight
        + inner.c_proj.bias
        + first
    )
    first_layer = network.final_mlp.c_fc
    return gelu_new(norm(network.block.ln_2, second) @ first_layer.weight + first_layer.bias)


def slow_score(ranker: BackpackForRanking, senses: Tensor, factors: Sequence[float]) -> float:
    """The head over the weighted sum of the senses."""
    mixed = sum(factor * sense for factor, sense in zip(factors, senses, strict=True))
    weight, bias, out, offset = (p.detach().double() for p in ranker.head.parameters())
    score = float(offset)
    for row, (inner, shift) in enumerate(zip(weight, bias, strict=True)):
        x = float(inner @ mixed + shift)
        score += float(out[0, row]) * x * 0.5 * (1 + math.erf(x / math.sqrt(2)))
    return score
