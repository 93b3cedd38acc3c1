"""Words of one or more tokens as a tree, walked token by token at all positions of a batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

NOWHERE, ROOT = 0, 1


class FormTrie(NamedTuple):
    """A tree of token ids, in which a step down is one lookup, however many words begin alike.

    Nodes are numbers: 0 is nowhere, 1 the root. The edges stand in a hash table: one from a node
    by a token has the key ``node * (V + 1) + token`` and stands in bucket ``key mod N``.

    Attributes:
        keys: of the edges, by bucket, -1 where a bucket has room. int64 [N, B]
        nodes: that the edges lead to, by bucket. [N, B]
        form_at: which form ends at a node, -1 for none. [nodes]
        begins: by token id, whether a form begins with it; also for the id V, which is no token.
            bool [V + 1]
        longest: pieces of the longest form, L.
    """

    keys: Tensor
    nodes: Tensor
    form_at: Tensor
    begins: Tensor
    longest: int

    @classmethod
    def of(cls, pieces: Tensor, vocabulary: int) -> FormTrie:
        """From the token ids of the forms, -1 behind the last of each. [F, L]"""
        edges: dict[int, int] = {}
        form_at = [-1, -1]
        first_tokens = set()
        for form, row in enumerate(pieces.tolist()):
            tokens = [token for token in row if token >= 0]
            first_tokens.add(tokens[0])
            node = ROOT
            for token in tokens:
                key = node * (vocabulary + 1) + token
                if key not in edges:
                    edges[key] = len(form_at)
                    form_at.append(-1)
                node = edges[key]
            # Words with which queries ask may be listed twice: the first counts.
            if form_at[node] < 0:
                form_at[node] = form
        begins = torch.zeros(vocabulary + 1, dtype=torch.bool)
        begins[list(first_tokens)] = True
        keys, nodes = _hash_table(edges)
        device = pieces.device
        return cls(
            keys=keys.to(device),
            nodes=nodes.to(device),
            form_at=torch.tensor(form_at, device=device),
            begins=begins.to(device),
            longest=pieces.shape[1],
        )

    def step(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """The nodes one token further, 0 where no form goes on so. [...], [...] -> [...]"""
        keys = nodes * len(self.begins) + tokens
        bucket = keys % len(self.keys)
        is_edge = self.keys[bucket] == keys[..., None]  # [..., B], at most one of them
        return torch.where(is_edge, self.nodes[bucket], NOWHERE).sum(dim=-1)


def _hash_table(edges: dict[int, int]) -> tuple[Tensor, Tensor]:
    """Keys and nodes of edges by bucket. [N, B] each"""
    # Twice as many buckets as edges: a step compares B edges, and the fullest bucket has 4 or 5.
    buckets: list[list[tuple[int, int]]] = [[] for _ in range(2 * len(edges) + 1)]
    for key, node in edges.items():
        buckets[key % len(buckets)].append((key, node))
    fullest = max(1, *(len(bucket) for bucket in buckets))
    for bucket in buckets:
        room = fullest - len(bucket)
        bucket += [(-1, NOWHERE)] * room
    keys, nodes = torch.tensor(buckets).unbind(dim=-1)
    return keys, nodes
