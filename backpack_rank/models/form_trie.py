"""Words of one or more tokens as a tree, walked token by token at all positions of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
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
        rows = pieces.cpu().numpy().astype(np.int64)
        node_of = np.full(len(rows), ROOT)  # where each form is after the pieces so far
        number = ROOT + 1
        keys = [np.empty(0, dtype=np.int64)]
        for place in range(rows.shape[1]):
            longer = rows[:, place] >= 0
            edges = node_of[longer] * (vocabulary + 1) + rows[longer, place]
            # Forms that begin alike share an edge, and with it the node below.
            distinct, which = np.unique(edges, return_inverse=True)
            node_of[longer] = number + which
            keys.append(distinct)
            number += len(distinct)
        form_at = np.full(number, -1)
        # Words with which queries ask may be listed twice: the first counts, so it is set last.
        form_at[node_of[::-1]] = np.arange(len(rows))[::-1]
        begins = np.zeros(vocabulary + 1, dtype=bool)
        begins[rows[:, :1]] = True
        keys_by_bucket, nodes_by_bucket = _hash_table(
            np.concatenate(keys), np.arange(ROOT + 1, number)
        )
        device = pieces.device
        return cls(
            keys=torch.from_numpy(keys_by_bucket).to(device),
            nodes=torch.from_numpy(nodes_by_bucket).to(device),
            form_at=torch.from_numpy(form_at).to(device),
            begins=torch.from_numpy(begins).to(device),
            longest=pieces.shape[1],
        )

    def step(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """The nodes one token further, 0 where no form goes on so. [...], [...] -> [...]"""
        keys = nodes * len(self.begins) + tokens
        bucket = keys % len(self.keys)
        is_edge = self.keys[bucket] == keys[..., None]  # [..., B], at most one of them
        return torch.where(is_edge, self.nodes[bucket], NOWHERE).sum(dim=-1)


def _hash_table(keys: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys and nodes of edges by bucket. [N, B] each"""
    # Twice as many buckets as edges: a step compares B edges, and the fullest bucket has 3 to 6.
    number = 2 * len(keys) + 1
    buckets = keys % number
    order = np.argsort(buckets, kind="stable")
    buckets = buckets[order]
    # Edges of one bucket lie side by side now; the first of them has place 0.
    places = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    shape = (number, places.max(initial=0) + 1)
    table_of_keys, table_of_nodes = np.full(shape, -1), np.full(shape, NOWHERE)
    table_of_keys[buckets, places] = keys[order]
    table_of_nodes[buckets, places] = nodes[order]
    return table_of_keys, table_of_nodes
