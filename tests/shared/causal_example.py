"""Tiny language models with random weights, tokenizers of several kinds, and a slow ranker to
compare with.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import yaml
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from backpack_rank.position.lists.causal_lm import CausalLmRanker
from backpack_rank.position.lists.prompt import Prompt, PromptTokenizer

CONF = Path(__file__).resolve().parents[2] / "conf" / "prompt"
WIDE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def prompt_file(name: str, **changed) -> Prompt:
    return Prompt.of({**yaml.safe_load((CONF / f"{name}.yaml").read_text()), **changed})


def causal_ranker(model, tokenizer, mode, identifiers="numeric", **options) -> CausalLmRanker:
    """A ranker with the plain prompt, of 512 tokens at most."""
    prompt = prompt_file("plain", identifiers=identifiers)
    pair_tokenizer = PromptTokenizer(tokenizer, prompt, 512)
    return CausalLmRanker(model, pair_tokenizer, mode, device="cpu", **options)


def gpt2(tokenizer, **options):
    torch.manual_seed(0)
    shape = {"n_positions": 512, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}
    return GPT2LMHeadModel(
        GPT2Config(**{**shape, "vocab_size": len(tokenizer), **ends(tokenizer), **options})
    ).eval()


def llama(tokenizer, **options):
    torch.manual_seed(1)
    shape = {
        **WIDE,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
    }
    config = LlamaConfig(**{**shape, "vocab_size": len(tokenizer), **ends(tokenizer), **options})
    return LlamaForCausalLM(config).eval()


def bert_decoder(tokenizer, seed=2, **options):
    torch.manual_seed(seed)
    shape = {**WIDE, "max_position_embeddings": 512, "initializer_range": 0.3, "is_decoder": True}
    return BertLMHeadModel(BertConfig(**{**shape, "vocab_size": len(tokenizer), **options})).eval()


MODELS = {"gpt2": gpt2, "llama": llama, "bert_decoder": bert_decoder}


def ends(tokenizer) -> dict:
    return {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": 0,
    }


def word_piece(texts) -> PreTrainedTokenizerFast:
    """BERT's kind: lower case, punctuation apart, ## inside words, [CLS] and [SEP] around a text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(
        [*texts, "[0] [1] [2] [3] [4] [5] [6] [7] [8] [9] > 00 11 22 33 44 55 66 77 88 99"], trainer
    )
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ids
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
    )


def sentence_piece(texts, **options) -> PreTrainedTokenizerFast:
    """Llama's kind: a BPE over texts whose spaces are letters of their own, each digit a token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(**options), digits])
    tokenizer.decoder = decoders.Metaspace(**options)
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    numbered = [
        "[1] > [2] > [3] > [4] > [5] > [6] > [7] > [8] > [9] > [0] A B C D E F G H I J K L M N O P "
        "Q R S T U V W X Y Z"
    ]
    tokenizer.train_from_iterator([*texts, *numbered], trainer)
    start = [("<s>", tokenizer.token_to_id("<s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=start)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


@torch.no_grad()
def slow_log_probability(model, before: list[int], ids: list[int]) -> float:
    """ln P(ids | before), in a whole forward pass without padding or cache."""
    logits = model(torch.tensor([[*before, *ids]])).logits[0].double().log_softmax(-1)
    return sum(float(logits[len(before) + step - 1, token]) for step, token in enumerate(ids))


def slow_first(model, pair_tokenizer, shown) -> np.ndarray:
    """Log-probabilities of the identifiers at the beginning of the answer, each by itself."""
    prompt = pair_tokenizer.encode(shown).ids.tolist()
    identifiers = pair_tokenizer.identifiers(len(shown))
    close = [] if all(len(ids) == 1 for ids in identifiers) else pair_tokenizer.closing
    return np.array([slow_log_probability(model, prompt, [*ids, *close]) for ids in identifiers])


def slow_generate(model, pair_tokenizer, shown) -> list[int]:
    """Greedy over whole identifiers with their closing bracket, no cache."""
    text = pair_tokenizer.encode(shown).ids.tolist()
    names = [[*ids, *pair_tokenizer.closing] for ids in pair_tokenizer.identifiers(len(shown))]
    order: list[int] = []
    while len(order) < len(shown):
        left = [i for i in range(len(shown)) if i not in order]
        # Of equal ones, max() takes the first.
        best = max(left, key=lambda i: slow_log_probability(model, text, names[i]))
        order.append(best)
        text += [*names[best], *pair_tokenizer.between]
    return order
