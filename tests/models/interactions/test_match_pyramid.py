"""MatchPyramid against loops over windows and cells; dynamic pooling against torch's own on one
text at a time.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from interaction_example import EMBEDDING, batch, cosine, random_weights, texts, weights

from backpack_rank.models.interactions.match_pyramid import MatchPyramid, dynamic_max_pool


def convolved_by_hand(maps, weight, bias):
    """Same-size convolution of [C, Q, D] maps with zeros beyond them, then ReLU."""
    window = weight.shape[-1]
    half = window // 2
    _, rows, columns = maps.shape
    convolved = np.zeros((len(weight), rows, columns))
    for out in range(len(weight)):
        for i in range(rows):
            for j in range(columns):
                total = bias[out]
                for a in range(window):
                    for b in range(window):
                        y, x = i + a - half, j + b - half
                        if 0 <= y < rows and 0 <= x < columns:
                            total += float(weight[out, :, a, b] @ maps[:, y, x])
                convolved[out, i, j] = max(total, 0.0)
    return convolved


def pooled_by_hand(maps, pool):
    _, rows, columns = maps.shape
    pooled = np.zeros((len(maps), *pool))
    for p in range(pool[0]):
        for r in range(pool[1]):
            ys = range(int(np.floor(p * rows / pool[0])), int(np.ceil((p + 1) * rows / pool[0])))
            xs = range(
                int(np.floor(r * columns / pool[1])), int(np.ceil((r + 1) * columns / pool[1]))
            )
            for channel in range(len(maps)):
                values = [maps[channel, y, x] for y in ys for x in xs]
                pooled[channel, p, r] = max(values) if values else 0.0
    return pooled


def score_by_hand(model, query, document, match):
    w = weights(model)
    compare = cosine if match == "cosine" else lambda a, b: float((a * b).sum())
    maps = np.array([[compare(q, d) for d in document] for q in query]).reshape(
        1, len(query), len(document)
    )
    for layer in range(2):
        maps = convolved_by_hand(
            maps, w[f"convolutions.{layer}.weight"], w[f"convolutions.{layer}.bias"]
        )
    cells = pooled_by_hand(maps, model.pool).reshape(-1)
    hidden = np.maximum(w["dense.weight"] @ cells + w["dense.bias"], 0)
    return float(w["score.weight"][0] @ hidden + w["score.bias"][0])


@torch.no_grad()
@pytest.mark.parametrize("match", ["cosine", "dot"])
def test_scores_are_those_of_loops_over_windows_and_cells(match):
    model = random_weights(
        MatchPyramid(EMBEDDING, filters=(2, 3), hidden=5, match=match), scale=0.3
    )
    arguments = batch([5, 1, 3], [14, 3, 1], seed=2)
    for score, (query, document, _) in zip(
        model(*arguments).tolist(), texts(arguments), strict=True
    ):
        assert score == pytest.approx(score_by_hand(model, query, document, match), abs=1e-5)


def test_dynamic_pooling_is_torchs_adaptive_pooling_of_each_text_alone():
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn((6, 2, 7, 23), generator=generator)
    rows, columns = torch.tensor([7, 1, 2, 3, 5, 4]), torch.tensor([23, 1, 9, 10, 11, 0])
    pooled = dynamic_max_pool(maps, rows, columns, (3, 10))
    for row in range(5):
        part = maps[row, :, : rows[row], : columns[row]]
        torch.testing.assert_close(
            pooled[row], F.adaptive_max_pool2d(part, (3, 10)), rtol=0, atol=0
        )
    assert (pooled[5] == 0).all()


def test_sizes_are_those_of_the_papers():
    first, second = 8 * 25 + 8, 16 * 8 * 9 + 16
    dense = 16 * 3 * 10 * 128 + 128 + 128 + 1
    model = MatchPyramid(300)
    assert (
        sum(parameter.numel() for parameter in model.parameters())
        == first + second + dense
        == 63_073
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"match": "euclid"}, "match=euclid: use one of cosine, dot"),
        ({"windows": (4, 3)}, "4 is not odd"),
        ({"filters": (8,)}, "one of each per convolution"),
        ({"filters": (), "windows": ()}, "one of each per convolution"),
        ({"pool": (3, 0)}, "two numbers of cells"),
    ],
)
def test_sizes_that_make_no_model_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MatchPyramid(EMBEDDING, **options)
