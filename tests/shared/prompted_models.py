"""Small language models that answer prompts, and their scores by code outside this package."""

from __future__ import annotations

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

# How Qwen2 and Qwen3 cut texts into words, marks and line ends.
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 24,
    "initializer_range": 0.3,
    "max_position_embeddings": 1024,
}
CONFIGS = {
    "Qwen3": Qwen3Config,
    "Qwen2": Qwen2Config,
    "Gemma": GemmaConfig,
    "Gemma2": Gemma2Config,
    "Gemma3": Gemma3TextConfig,
    "Llama": LlamaConfig,
    "Mistral": MistralConfig,
}
QUERIES = ["who cures?", "a nurse\nor a doctor ", "!", "she said: 'no'."]
DOCUMENTS = [
    "he saw a nurse.",
    "she saw a nurse.",
    "",
    " two blanks",
    "\nline\n\n",
    "(bread) and fish!\n" * 20,
    '"quoted": 3.5%',
]
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]


def qwen_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    texts = [*DOCUMENTS, *QUERIES, "yes no Yes No 1 0 Query Document Instruct instruction? ?\n"]
    tokenizer.train_from_iterator(
        texts * 4,
        trainers.BpeTrainer(
            vocab_size=420,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens([AddedToken(sign, normalized=False) for sign in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<pad>",
        padding_side="left",
    )


def save_model(kind: str, folder, **options):
    """A small model with large random weights, saved by transformers with its tokenizer.

    ``options`` are of its configuration.
    """
    torch.manual_seed(0)
    tokenizer = qwen_tokenizer()
    config = CONFIGS[kind](
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
        **{**SIZES, **options},
    )
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def last_logits(folder, prompts: list[list[int]]) -> torch.Tensor:
    """Logits behind each prompt, by transformers' own forward pass of left-padded prompts."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    inputs = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    return model(**inputs).logits[:, -1]


def qwen3_card(folder, pairs, max_length=8192) -> list[float]:
    """Differences of logits as the model card of Qwen3-Reranker computes them."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prefix = tokenizer.encode(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        'and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n",
        add_special_tokens=False,
    )
    suffix = tokenizer.encode(
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", add_special_tokens=False
    )
    task = "Given a web search query, retrieve relevant passages that answer the query"
    texts = [f"<Instruct>: {task}\n<Query>: {query}\n<Document>: {text}" for query, text in pairs]
    room = max_length - len(prefix) - len(suffix)
    encoded = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=room)
    prompts = [prefix + ids + suffix for ids in encoded["input_ids"]]
    logits = last_logits(folder, prompts)
    yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
    return (logits[:, yes] - logits[:, no]).tolist()
