"""The network that is exported gives the scores of the ranker, before any ONNX: all backbones,
padding, dials.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from saved_rankers import FIXTURES, PAIRS

import backpack_rank
from backpack_rank.integrations.onnx_graph import RankerGraph
from backpack_rank.senses.policies import PairedTokens

KINDS = (
    *("backpack", "backpack_on_bert", "backpack_on_roberta", "backpack_on_llama"),
    *("cross_encoder", "cross_encoder_llama", "gpt2"),
)


def inputs(reranker, pairs, longer: int = 0) -> dict[str, torch.Tensor]:
    """Padded token ids, with the id of a word at padding."""
    read = [
        reranker.local_scorer.pair_tokenizer.pairs(query, [document])[0]
        for query, document in pairs
    ]
    shape = len(read), max(map(len, read)) + longer
    ids, mask = np.full(shape, 20), np.zeros(shape, dtype=np.int64)
    for row, ids_of_text in enumerate(read):
        ids[row, : len(ids_of_text)], mask[row, : len(ids_of_text)] = ids_of_text, 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_ranker_at_every_dial(kind: str) -> None:
    reranker = backpack_rank.load(FIXTURES / kind, device="cpu", split_attribute=False)
    ranker, tokenizer = reranker.local_scorer.ranker, reranker.local_scorer.tokenizer
    scopes = ("both", "weights", "senses") if ranker.has_senses else ("weights",)
    for scope in scopes:
        policy = PairedTokens.of(reranker.attribute, scope)
        shift = reranker.hook.context.token_shift(policy.words(), scope, 1.0)
        graph = RankerGraph(ranker, tokenizer.pad_token_id, shift).eval()
        moved = []
        for alpha in (1.0, 0.5, 0.0):
            given = inputs(reranker, PAIRS, longer=3) | {
                "alpha": torch.full((len(PAIRS), 1), alpha)
            }
            if ranker.has_senses:
                given["sense_weights"] = torch.ones(len(PAIRS), ranker.config.num_senses)
            moved.append(graph(**given).numpy())
            np.testing.assert_allclose(
                moved[-1], reranker.predict(PAIRS, alpha=alpha, policy=policy), atol=2e-6
            )
        assert np.abs(moved[2] - moved[0]).max() > 1e-3
    if not ranker.has_senses:
        return
    assert_weights_per_sense_turn(reranker)
    assert_weights_per_sense_turn(backpack_rank.load(FIXTURES / kind, device="cpu"))


def assert_weights_per_sense_turn(reranker) -> None:
    ranker, tokenizer = reranker.local_scorer.ranker, reranker.local_scorer.tokenizer
    graph = RankerGraph(ranker, tokenizer.pad_token_id).eval()
    for alpha in (0.7, 0.0):
        weights = reranker.with_policy("lowest_senses", alpha).hook.views[0].sense_weights
        scores = graph(
            **inputs(reranker, PAIRS), sense_weights=weights.expand(len(PAIRS), -1)
        ).numpy()
        np.testing.assert_allclose(scores, reranker.predict(PAIRS, alpha=alpha), atol=2e-6)
    assert np.abs(scores - reranker.predict(PAIRS)).max() > 1e-3


@pytest.mark.parametrize("kind", ["dual_encoder", "knrm", "tk"])
def test_rankers_that_read_no_joined_text_are_refused(kind: str) -> None:
    reranker = backpack_rank.load(FIXTURES / kind, device="cpu")
    with pytest.raises(
        ValueError,
        match=r"cannot be exported: only Backpacks and cross-encoders that this package",
    ):
        RankerGraph(reranker.local_scorer.ranker, 0)
