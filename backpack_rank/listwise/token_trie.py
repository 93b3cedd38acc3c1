"""Sequences of tokens that may follow a text, as a tree of their common beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class TokenTrie:
    """m candidates, and the N nodes behind which a model has to be asked for the next token.

    A candidate's probability is a product over its tokens (paper 002 eq. 2), each asked for behind those before it.
    What follows the text itself (the root) is known; the nodes are the distinct proper beginnings of the candidates.

    Attributes:
        count: m.
        tokens: the last token of each node. int64 [N]
        depths: tokens between the root and the node. int64 [N]
        above: [i, j] whether node j is node i or on the way to it. bool [N, N]
        candidate, at, next: one entry per token of a candidate: which candidate, behind which node (0: the root,
            1 + i: node i), and the token. int64 [total]
    """

    count: int
    tokens: np.ndarray
    depths: np.ndarray
    above: np.ndarray
    candidate: np.ndarray
    at: np.ndarray
    next: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, candidates: Sequence[Sequence[int]]) -> TokenTrie:
        """The tree of token ids of candidates; none of them is empty, two may be equal."""
        nodes: dict[tuple[int, ...], int] = {}
        entries = []
        for number, ids in enumerate(map(tuple, candidates)):
            for length, token in enumerate(ids):
                at = 0 if length == 0 else 1 + nodes.setdefault(ids[:length], len(nodes))
                entries.append((number, at, token))
        above = np.zeros((len(nodes), len(nodes)), dtype=bool)
        for path, node in nodes.items():
            above[node, [nodes[path[:length]] for length in range(1, len(path) + 1)]] = True
        table = np.array(entries, dtype=np.int64).reshape(-1, 3)
        return cls(
            len(candidates),
            np.array([path[-1] for path in nodes], dtype=np.int64),
            np.array([len(path) - 1 for path in nodes], dtype=np.int64),
            above,
            *table.T.copy(),
        )

    def path(self, node: int) -> list[int]:
        """Tokens from the root to a node, its own last."""
        return self.tokens[self.above[node]].tolist()
