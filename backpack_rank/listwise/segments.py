"""Token ids of the parts of a prompt, each as it stands behind the part before it."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_BEHIND_LETTER, _BEHIND_BREAK = "x", "\n"


def leading_tokens(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What the tokenizer puts in front of every text ([CLS], <s>), if anything."""
    bare = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("a")["input_ids"])
    return full[: next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)]


def tokenize_prefix(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of the beginning of a prompt; special tokens that it spells are meant."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def tokenize_continuation(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool
) -> list[list[int]]:
    """Token ids of texts that follow another text, which itself is not looked at.

    Tokenizers treat the beginning of a text in their own ways (a space before the first word), so each text is read
    behind a short other one, whose tokens are then left out. A text that would merge with it is read alone.

    Args:
        special: whether a text that spells a special token gets it: yes for templates, no for what fills them.
    """
    options = {"add_special_tokens": False, "split_special_tokens": not special, "verbose": False}
    ids: list[list[int]] = [[] for _ in texts]
    alone = [row for row, text in enumerate(texts) if text]
    for anchor in (_BEHIND_LETTER, _BEHIND_BREAK):
        # A letter merges with a word, a line break with white space; "" never gets here.
        rows = [row for row in alone if texts[row][0].isalnum() == (anchor == _BEHIND_BREAK)]
        if not rows:
            continue
        before = list(tokenizer(anchor, **options)["input_ids"])
        for row, whole in zip(
            rows, tokenizer([anchor + texts[row] for row in rows], **options)["input_ids"], strict=True
        ):
            if list(whole[: len(before)]) == before:
                ids[row] = list(whole[len(before) :])
                alone.remove(row)
    if alone:
        for row, whole in zip(alone, tokenizer([texts[row] for row in alone], **options)["input_ids"], strict=True):
            ids[row] = list(whole)
    return ids
