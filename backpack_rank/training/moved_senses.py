"""Where sense specialisation starts from: what sets the words of a class apart, moved into a few senses."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.token_shift import TokenClasses
from backpack_rank.models.utils import eval_mode

_SMALL = 1e-6


@torch.no_grad()
def project_into_senses(ranker: BackpackForRanking, classes: TokenClasses, chosen: Sequence[int]) -> int:
    """Move what sets the words of the classes apart from all other senses into the chosen ones, in place.

    Sense vectors are linear in h(x), C(x)_l = W_l h(x) + b_l. With P the projection onto all differences of h between
    words of a class, W_l loses W_l P in every other sense, and each chosen sense gains an equal share of what they
    lose. So the words of a class become alike in the other senses, and the sum over all senses stays as it is for
    every token: where the contextual weights of the senses are alike, so does the score.

    Returns:
        The number of directions that were moved, the rank of P.
    """
    network = ranker.backpack.sense_network
    weight = network.final_mlp.c_proj.weight  # [f, k d]
    with eval_mode(network):
        hidden = [ranker.backpack.token_hidden(torch.tensor(ids, device=weight.device)) for ids in classes.members]
    differences = torch.cat([part - part.mean(dim=0) for part in hidden]).double().cpu()
    _, lengths, directions = torch.linalg.svd(differences, full_matrices=False)
    basis = directions[lengths > _SMALL * lengths[0]].to(weight)  # [r, f], orthonormal rows
    senses = weight.unflatten(1, (ranker.config.num_senses, -1))  # a view: changes go into the weight
    moved = torch.einsum("rf,re,ekd->fkd", basis, basis, senses)
    moved[:, list(chosen)] = 0
    senses -= moved
    senses[:, list(chosen)] += moved.sum(dim=1, keepdim=True) / len(chosen)
    return len(basis)
