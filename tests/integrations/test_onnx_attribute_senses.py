"""The graph of a ranker with attribute senses: scores of torch for padded texts with words of one
token and several.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attribute_sense_examples import EXAMPLES, GENDER, attribute, new_example

from backpack_rank.integrations.onnx_graph import RankerGraph

QUERY = "who is the queen"
DOCUMENTS = (
    "She said (he is a nurse) and the QUEEN, her actress; sheets manual kings",
    '"woman" said King',
    "",
    "the actor",
    "queen actress actor king she he woman man his her queen",
    "the nurse cooks soup here",
)


@pytest.fixture(scope="module", params=EXAMPLES)
def tokenizer_and_kind(request):
    make, kind = EXAMPLES[request.param]
    return make(), kind


def inputs(example, padding: int = 4) -> dict[str, torch.Tensor]:
    """Padded texts, with the first token of a word of a class at padding."""
    texts = example.pair_tokenizer.pairs(QUERY, DOCUMENTS)
    shape = len(texts), max(map(len, texts)) + padding
    attribute_senses = example.ranker.backpack.attribute_senses
    ids = np.full(shape, int(attribute_senses.pieces[0, 0]))
    mask = np.zeros(shape, dtype=np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def dials(example):
    k, groups = example.ranker.config.num_senses, len(example.groups)
    yield from ([1.0] * k + [alpha] * groups for alpha in (1.0, 0.5, 0.0))
    yield np.linspace(0.2, 1.5, k + groups).tolist()


@torch.inference_mode()
@pytest.mark.parametrize(
    ("where", "read_as_one"), [("documents", True), ("all", True), ("documents", False)]
)
def test_scores_of_the_graph_are_those_of_torch(tokenizer_and_kind, tmp_path, where, read_as_one):
    gender = attribute(tmp_path, "gender", GENDER)
    example = new_example(*tokenizer_and_kind, [(gender, GENDER)], where, read_as_one)
    graph = RankerGraph(example.ranker, example.tokenizer.pad_token_id).eval()
    batch, scores = example.batch(QUERY, DOCUMENTS), []
    for factors in dials(example):
        weights = torch.tensor(factors)
        expected = example.ranker(batch, sense_weights=weights).scores
        scores.append(graph(**inputs(example), sense_weights=weights.expand(len(DOCUMENTS), -1)))
        torch.testing.assert_close(scores[-1], expected, atol=1e-4, rtol=1e-4)
    changes = (scores[2] - scores[0]).abs()
    assert changes[[0, 1, 4]].min() > 1e-4
    if where == "documents":  # the others have no word of a class, but the query has
        assert changes[[2, 5]].max() < 1e-5


@pytest.mark.packaging
def test_an_exported_graph_gives_the_same_scores_in_onnxruntime(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    make, kind = EXAMPLES["word pieces, BERT, keys from below"]
    example = new_example(make(), kind, [(attribute(tmp_path, "gender", GENDER), GENDER)])
    graph = RankerGraph(example.ranker, example.tokenizer.pad_token_id).eval()
    weights = torch.ones(len(DOCUMENTS), example.ranker.config.total_senses)
    given = inputs(example) | {"sense_weights": weights}
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    shapes = {
        "input_ids": {0: batch, 1: length},
        "attention_mask": {0: batch, 1: length},
        "sense_weights": {0: batch},
    }
    path = str(tmp_path / "model.onnx")
    torch.onnx.export(
        graph,
        kwargs=given,
        f=path,
        input_names=list(given),
        dynamic_shapes=shapes,
        dynamo=True,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for padding in (0, 7):
        for factors in dials(example):
            values = inputs(example, padding) | {
                "sense_weights": torch.tensor(factors).expand(len(DOCUMENTS), -1)
            }
            (scores,) = session.run(None, {name: value.numpy() for name, value in values.items()})
            with torch.inference_mode():
                expected = example.ranker(
                    example.batch(QUERY, DOCUMENTS), sense_weights=torch.tensor(factors)
                ).scores
            np.testing.assert_allclose(scores, expected.numpy(), atol=1e-4)
