"""A tree of forms finds what a search through the list of them finds."""

from __future__ import annotations

import random

import torch

from backpack_rank.models.form_trie import ROOT, FormTrie

VOCABULARY, LONGEST = 6, 4


def test_forms_that_begin_alike_and_within_each_other_are_told_apart() -> None:
    """Six tokens and up to four pieces: nearly all forms begin as others do, and some are whole."""
    draw = random.Random(0)
    forms = {
        tuple(draw.randrange(VOCABULARY) for _ in range(draw.randint(1, LONGEST)))
        for _ in range(120)
    }
    rows = sorted(forms)
    pieces = torch.tensor([[*row, *[-1] * (LONGEST - len(row))] for row in rows])
    trie = FormTrie.of(pieces, VOCABULARY)
    text = [draw.randrange(VOCABULARY + 1) for _ in range(400)]  # 6 is no token

    for length in range(1, LONGEST + 1):
        nodes = torch.full((len(text) - LONGEST,), ROOT)
        for place in range(length):
            nodes = trie.step(nodes, torch.tensor(text[place : place + len(nodes)]))
        for start, found in enumerate(trie.form_at[nodes].tolist()):
            words = tuple(text[start : start + length])
            assert found == (rows.index(words) if words in forms else -1)

    first = {row[0] for row in rows}
    assert trie.begins.tolist() == [token in first for token in range(VOCABULARY + 1)]


def test_no_form_is_found_where_there_is_none() -> None:
    trie = FormTrie.of(torch.zeros((0, 0), dtype=torch.int32), VOCABULARY)
    assert trie.step(torch.tensor([ROOT]), torch.tensor([3])).tolist() == [0]
    assert not trie.begins.any()
