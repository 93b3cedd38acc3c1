"""Small tokenizers of every kind that rankers come with, made by the library of the real ones.

Where they are said to be those of a family, normaliser, pre-tokeniser, model and decoder are the
ones of its ``tokenizer.json``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SIGNS = (" ", '"', "(", "[", "-", "\n")
"""What a word stands behind in the texts that the tokenizers are trained on."""
_WORDS = ("he", "she", "his", "her", "man", "woman")
_OTHERS = ("the", "nurse", "said", "is", "here", "sheets", "bridge", "doctor", "soup")
_CASES = (str.lower, str.capitalize, str.upper)
_SPECIAL = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "<sep>",
}
_SIZE = 700
# Where SentencePiece lets pieces begin and end while it trains; tokenizer.json does without these
# rules.
_SENTENCE_PIECE = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split("▁", "merged_with_next"),
        pre_tokenizers.Split("\n", "isolated"),
        pre_tokenizers.Punctuation(),
    ]
)


def texts(signs: Sequence[str] = SIGNS) -> list[str]:
    """Every word behind every sign in three cases, and often."""
    sentences = []
    for word, sign, case in itertools.product(_WORDS, signs, _CASES):
        sentences.append(f"the nurse said{sign}{case(word)} is here")
    for word in _OTHERS:
        sentences.append(f"the {word} is here")
    return sentences * 3


def _saved(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, **_SPECIAL)


def _bpe(backend: Tokenizer, signs: Sequence[str] = SIGNS, **options) -> Tokenizer:
    special = list(_SPECIAL.values())
    trainer = trainers.BpeTrainer(
        vocab_size=_SIZE, special_tokens=special, show_progress=False, **options
    )
    backend.train_from_iterator(texts(signs), trainer)
    return backend


def byte_level(
    add_prefix_space: bool = False, signs: Sequence[str] = SIGNS
) -> PreTrainedTokenizerFast:
    """GPT-2's, and RoBERTa's with its option ``add_prefix_space``."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    return _saved(_bpe(backend, signs, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def byte_level_with_signs() -> PreTrainedTokenizerFast:
    """Llama 3's and Qwen's: a sign in front of a word may be part of its token."""
    backend = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(
        Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"), "isolated"
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    return _saved(_bpe(backend, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def llama_2() -> PreTrainedTokenizerFast:
    """Llama 2's and Mistral's: the normaliser puts a space in front of every text, also of one that
    begins with one.
    """
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.pre_tokenizer = _SENTENCE_PIECE
    _bpe(backend, initial_alphabet=["▁"])
    backend.pre_tokenizer = None
    steps = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    backend.decoder = decoders.Sequence(steps)
    return _saved(backend)


def gemma() -> PreTrainedTokenizerFast:
    """Gemma's: spaces become a sign, and none is put in front."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = _SENTENCE_PIECE
    _bpe(backend, initial_alphabet=["▁"])
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return _saved(backend)


def _unigram(normalizer, pre_tokenizer) -> PreTrainedTokenizerFast:
    # A word is likelier than its letters, and likelier still without a space before it.
    scores = dict.fromkeys(_SPECIAL.values(), 0.0)
    words = [case(word) for word, case in itertools.product(_WORDS, _CASES)]
    for word in (*words, *_OTHERS):
        scores[f"▁{word}"] = -5.0
        scores[word] = -4.0
    for letter in sorted({*"".join(texts()), "▁"}):
        if letter > " ":
            scores[letter] = -9.0
    backend = Tokenizer(models.Unigram(list(scores.items()), unk_id=list(scores).index("<unk>")))
    backend.normalizer, backend.pre_tokenizer, backend.decoder = (
        normalizer,
        pre_tokenizer,
        decoders.Metaspace(),
    )
    return _saved(backend)


def albert() -> PreTrainedTokenizerFast:
    """ALBERT's, FNet's and Nystromformer's: SentencePiece in lower case."""
    rules = [
        normalizers.Replace("``", '"'),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
    ]
    splits = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    return _unigram(normalizers.Sequence(rules), pre_tokenizers.Sequence(splits))


def xlm_roberta() -> PreTrainedTokenizerFast:
    """XLM-RoBERTa's."""
    splits = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    return _unigram(normalizers.NFKC(), pre_tokenizers.Sequence(splits))


def deberta_v3() -> PreTrainedTokenizerFast:
    """DeBERTa-v3's."""
    rules = [normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")]
    return _unigram(normalizers.Sequence(rules), pre_tokenizers.Metaspace())


def unsplit() -> PreTrainedTokenizerFast:
    """A Unigram whose pieces may end with a space or hold one, as ``Metaspace(split=False)`` lets
    them.
    """
    made = _unigram(None, pre_tokenizers.Metaspace(split=False))
    backend = made.backend_tokenizer
    pieces = dict(json.loads(backend.to_str())["model"]["vocab"])
    pieces |= {f"▁said{space}": -3.0 for space in ("▁", "▁▁")} | {"the▁": -3.0, "▁is▁here": -3.0}
    backend.model = models.Unigram(list(pieces.items()), unk_id=list(pieces).index("<unk>"))
    return _saved(backend)


def word_piece() -> PreTrainedTokenizerFast:
    """BERT's; letters that other vocabularies use for a space are letters here."""
    backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=200,
        special_tokens=list(_SPECIAL.values()),
        initial_alphabet=["Ġ", "▁"],
        show_progress=False,
    )
    backend.train_from_iterator(texts(), trainer)
    return _saved(backend)


def marked_ends() -> PreTrainedTokenizerFast:
    """GPT-1's and CLIP's: the last piece of a word is marked."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return _saved(_bpe(backend, end_of_word_suffix="</w>"))


def whole_words() -> PreTrainedTokenizerFast:
    """A vocabulary of words."""
    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.train_from_iterator(
        texts(), trainers.WordLevelTrainer(special_tokens=list(_SPECIAL.values()))
    )
    return _saved(backend)


KINDS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "gpt2": byte_level,
    "roberta with add_prefix_space": lambda: byte_level(add_prefix_space=True),
    "llama 3": byte_level_with_signs,
    "llama 2": llama_2,
    "gemma": gemma,
    "albert": albert,
    "xlm-roberta": xlm_roberta,
    "deberta-v3": deberta_v3,
    "unigram that does not split": unsplit,
    "bert": word_piece,
    "gpt1": marked_ends,
    "words": whole_words,
}
