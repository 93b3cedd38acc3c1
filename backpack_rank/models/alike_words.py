"""Words that the contextual network of a Backpack reads alike, as part of the model.

The contextual network says how much each token's senses count. Where it reads "he" and "she" as one word, the mean of
their embeddings, it cannot tell them apart at any alpha: what sets them apart passes through their sense vectors alone,
which the dial turns.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from backpack_rank.models.word_edges import WordEdges


class AlikeWords(nn.Module):
    """Gives whole words of a class the mean of the class's embeddings; a forward hook of the embeddings.

    The table is saved with the model, so a loaded one reads as the trained one did.

    Attributes:
        class_of: class of every token id, -1 for none. int32 [vocabulary]
        continues, open_end: see :class:`~backpack_rank.models.word_edges.WordEdges`. bool [vocabulary]
    """

    class_of: Tensor
    continues: Tensor
    open_end: Tensor

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.register_buffer("class_of", torch.full((vocabulary,), -1, dtype=torch.int32))
        self.register_buffer("continues", torch.zeros(vocabulary, dtype=torch.bool))
        self.register_buffer("open_end", torch.zeros(vocabulary, dtype=torch.bool))

    def take(self, members: Sequence[Sequence[int]], edges: WordEdges) -> None:
        """Read the token ids of each class alike, a token being in one class at most."""
        self.class_of.fill_(-1)
        for index, ids in enumerate(members):
            self.class_of[list(ids)] = index
        known = len(edges.continues)
        self.continues[:known], self.open_end[:known] = edges.continues, edges.open_end

    def means(self, table: Tensor) -> Tensor:
        """Mean embedding of each class. [vocabulary, e] -> [C, e]"""
        members = (self.class_of >= 0).nonzero().squeeze(-1)
        classes = self.class_of[members].long()
        sums = table.new_zeros((int(classes.max()) + 1, table.shape[-1])).index_add(0, classes, table[members])
        return sums / classes.bincount()[:, None]

    def forward(self, vectors: Tensor, ids: Tensor, table: Tensor) -> Tensor:
        """Embeddings [..., e] of token ids [...], with those of whole words of a class replaced.

        Args:
            table: the embedding matrix. [vocabulary, e]
        """
        whole = WordEdges(self.continues, self.open_end).whole_words(ids.flatten()).view_as(ids)
        classes = self.class_of[ids].long()
        means = self.means(table).to(vectors.dtype)
        return torch.where((whole & (classes >= 0))[..., None], means[classes.clamp(min=0)], vectors)

    def read(self, embeddings: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """The hook."""
        assert isinstance(embeddings, nn.Embedding)
        return self(output, inputs[0], embeddings.weight)
