"""TK: a small Transformer over word vectors and kernel pooling.

Hofstätter et al. 2020, ECAI; Hofstätter et al. 2021, section 2.4.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backpack_rank.checks import whole_number
from backpack_rank.constructors import CountOrZero, Kernels, Layers, Positive, Width
from backpack_rank.models.interactions.base import Interaction, KernelPooling, Words


class Tk(Interaction):
    """Cosines of terms in their context, Gaussian kernels over them, and a linear layer.

    Query and document are contextualised apart. With a learned gate g, layers TF and positions pos
    (eqs. 4 to 6 of Hofstätter et al. 2021):

        e^_i  = e_i * g + TF(e + pos)_i * (1 - g)
        K_ijk = exp(-(cos(q^_i, d^_j) - mu_k)^2 / (2 sigma^2)),   mu_k evenly from -1 to 1
        score = w . [sum_i log sum_j K_ijk]_k + b

    Unlike KNRM's, the kernel at 1 is as wide as the others: contextualised vectors of one term are
    not equal.

    Args:
        embedding_size: e.
        layers: of the Transformer (2 in the paper).
        heads: of its attention (16).
        head_size: of each (32), whatever the embedding size.
        feed_forward: hidden width of its feed-forward part (100).
        document_shift: first position of a document; a query's is 0 (500).
        kernels: K, at least 2 (11).
        sigma: their width (0.1).

    Raises:
        ValueError: a size is below 1, or fewer than 2 kernels, or a width that is not above 0.
    """

    def __init__(
        self,
        embedding_size: int,
        layers: Layers = 2,
        heads: Layers = 16,
        head_size: Width = 32,
        feed_forward: Width = 100,
        document_shift: CountOrZero = 500,
        kernels: Kernels = 11,
        sigma: Positive = 0.1,
    ) -> None:
        super().__init__()
        whole_number("layers", layers, 1)
        whole_number("heads", heads, 1)
        whole_number("head_size", head_size, 1)
        whole_number("feed_forward", feed_forward, 1)
        self.document_shift = document_shift
        self.pooling = KernelPooling(kernels, sigma, exact_sigma=None)
        self.gate = nn.Parameter(torch.tensor([0.5]))
        self.layers = nn.ModuleList(
            TransformerLayer(embedding_size, heads, head_size, feed_forward) for _ in range(layers)
        )
        self.score = nn.Linear(kernels, 1)
        # As in the published code: log sums are tens large, and training could hardly move first
        # scores of hundreds.
        nn.init.uniform_(self.score.weight, -0.014, 0.014)

    def compare(self, query: Words, document: Words) -> Tensor:
        """See :class:`Interaction`."""
        queries = self._in_context(query.vectors, query.mask, 0)
        documents = self._in_context(document.vectors, document.mask, self.document_shift)
        logs = self.pooling.log_sums(queries, documents, query.mask, document.mask)
        return self.score(logs.to(self.score.weight.dtype)).squeeze(-1)

    def contextualise(self, vectors: Tensor, mask: Tensor, shift: int) -> Tensor:
        """Word vectors in their context, e^.

        Args:
            vectors: word vectors of B texts. [B, N, e]
            mask: true at terms, false at padding to the right. [B, N]
            shift: position of the first term: 0 for queries, ``document_shift`` for documents.

        Returns:
            [B, N, e]; 0 at padding.
        """
        words = Words(vectors, mask, torch.zeros_like(mask, dtype=torch.long)).cleared()
        return self._in_context(words.vectors, words.mask, shift)[:, : vectors.shape[1]]

    def _in_context(self, vectors: Tensor, mask: Tensor, shift: int) -> Tensor:
        positions = sinusoids(vectors.shape[1], vectors.shape[2], shift, vectors.device)
        hidden = vectors + positions.to(vectors.dtype)
        # An empty text attends to its first padding, so that its softmax has something to sum to 1.
        keys = mask.index_fill(1, torch.zeros(1, dtype=torch.long, device=mask.device), True)
        for layer in self.layers:
            hidden = layer(hidden, keys)
        mixed = vectors * self.gate + hidden * (1 - self.gate)
        return mixed.masked_fill(~mask[..., None], 0.0)


class TransformerLayer(nn.Module):
    """Attention and feed-forward part, each with a residual and a layer norm behind it.

    Vaswani et al. 2017. Queries, keys and values of all heads together may be wider or narrower
    than the vectors they are made from.
    """

    def __init__(self, size: int, heads: Layers, head_size: Width, feed_forward: int) -> None:
        super().__init__()
        self.heads = heads
        self.projections = nn.Linear(size, 3 * heads * head_size)
        self.out = nn.Linear(heads * head_size, size)
        self.norm_1 = nn.LayerNorm(size)
        self.wide = nn.Linear(size, feed_forward)
        self.narrow = nn.Linear(feed_forward, size)
        self.norm_2 = nn.LayerNorm(size)

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """Hidden states behind the layer.

        Args:
            hidden: [B, N, e].
            keys: positions that are attended to. bool [B, N]

        Returns:
            [B, N, e]
        """
        parts = self.projections(hidden).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each [B, heads, N, head_size]
        mask = keys[:, None, None]
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = self.norm_1(hidden + self.out(attended.transpose(1, 2).flatten(2)))
        return self.norm_2(hidden + self.narrow(F.relu(self.wide(hidden))))


def sinusoids(count: int, size: int, shift: int = 0, device: torch.device | None = None) -> Tensor:
    """Positional encodings of Vaswani et al. 2017 for positions shift, shift + 1, ... [count, size]

    >>> sinusoids(count=2, size=2)  # sin(p) and cos(p) of the positions 0 and 1
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]])

    Dimension 2i of position p is sin(p / 10000^(2i / size)), dimension 2i + 1 its cosine.
    """
    # Computed and not stored: in half precision a table of angles would be rounded, and a stored
    # table ends at some position.
    positions = torch.arange(shift, shift + count, dtype=torch.float32, device=device)
    even = torch.arange(0, size, 2, dtype=torch.float32, device=device)
    angles = positions[:, None] * 10_000 ** (-even / size)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :size]
