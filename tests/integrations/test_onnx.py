"""Exported folders, read by onnxruntime and tokenizers alone, give the scores of the ranker."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from saved_rankers import FIXTURES, PAIRS
from tokenizers import Tokenizer
from transformers import AutoTokenizer

import backpack_rank
from backpack_rank import cli
from backpack_rank.checks import UsageError
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer

pytestmark = pytest.mark.packaging
onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
SENTENCES = (
    "The doctor said he would see the patient after his long morning in the ward.",
    '"She", said her father (a naïve man) — 東京, sheets, HIS bridge; himself/herself.',
    "waitresses, actors & the king's daughters\n\nMr. Smith-Jones 3.14",
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "other-libraries.md"
BLOCKS = re.findall(
    r"^```python\n(# needs onnxruntime\n.*?)^```$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
# An export takes half a minute of torch's time. tests/integrations/test_onnx_graph.py holds the
# graph of every kind against the ranker before it is exported.
KINDS = ("backpack", "backpack_on_bert", "cross_encoder", "cross_encoder_llama")
MORE = [
    *PAIRS,
    ("who sells flowers?", "A man and a woman; his sheets, her bridge."),
    ("a", "she"),
    ("doctor", "He " * 12),
]


class Exported:
    """What a stranger makes of a folder."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
        self.about = json.loads((folder / "ranker.json").read_text())

    def scores(
        self, pairs, alpha=1.0, policy: str | None = None, weight: float = 1.0
    ) -> np.ndarray:
        """One batch; ``alpha`` is one number or one for each text, ``weight`` the dial of a policy
        on senses.
        """
        encoded = self.tokenizer.encode_batch(pairs)
        given = {
            "input_ids": np.array([encoding.ids for encoding in encoded]),
            "attention_mask": np.array([encoding.attention_mask for encoding in encoded]),
        }
        inputs = self.about["inputs"]
        if "alpha" in inputs:
            given["alpha"] = np.zeros((len(pairs), 1), np.float32) + np.float32(alpha)
        if "sense_weights" in inputs:
            at_0 = (
                np.ones(inputs["sense_weights"][1])
                if policy is None
                else self.about["sense_weights_at_0"][policy]
            )
            dials = np.array(at_0) + weight * (1 - np.array(at_0))
            given["sense_weights"] = np.tile(dials.astype(np.float32), (len(pairs), 1))
        return self.session.run(None, given)[0]

    def at_alpha(self, pairs, alpha: float) -> np.ndarray:
        """The dial of the default policy of a ranker with senses, of paired tokens of any other."""
        if "alpha" in self.about["inputs"]:
            return self.scores(pairs, alpha)
        return self.scores(pairs, policy="lowest_senses", weight=alpha)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory):
    """A function that gives the folder of an exported ranker; each is exported once."""
    place = tmp_path_factory.mktemp("onnx")

    def export(kind: str) -> Path:
        if not (place / kind).exists():
            cli.main(["export", "onnx", str(FIXTURES / kind), "--output", str(place / kind)])
        return place / kind

    return export


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_python_at_every_dial_and_in_every_batch(kind: str, exported) -> None:
    graph, reranker = Exported(exported(kind)), backpack_rank.load(FIXTURES / kind, device="cpu")
    assert ("alpha" in graph.about["inputs"]) != reranker.local_scorer.ranker.has_senses
    policy = "lowest_senses" if reranker.local_scorer.ranker.has_senses else "paired_tokens"
    for alpha in (1.0, 0.6, 0.0):
        expected = reranker.predict(MORE, alpha=alpha, policy=policy)
        np.testing.assert_allclose(graph.at_alpha(MORE, alpha), expected, atol=1e-5)
        for size in (1, 2, 5):
            parts = [
                graph.at_alpha(MORE[start : start + size], alpha)
                for start in range(0, len(MORE), size)
            ]
            np.testing.assert_allclose(np.concatenate(parts), expected, atol=1e-5)
    for name in graph.about["sense_weights_at_0"]:
        for alpha in (0.5, 0.0):
            expected = reranker.predict(MORE, alpha=alpha, policy=name)
            np.testing.assert_allclose(
                graph.scores(MORE, policy=name, weight=alpha), expected, atol=1e-5
            )
    assert (
        "lowest_senses" in graph.about["sense_weights_at_0"]
    ) == reranker.local_scorer.ranker.has_senses


def test_a_real_vocabulary_is_read_in_the_same_way(real_data: Path, tmp_path: Path) -> None:
    from backpack_rank.integrations.onnx_export import save_tokenizer  # needs onnx

    pair_tokenizer = PairTokenizer(load_tokenizer(real_data / "gpt2_tokenizer"), 96)
    save_tokenizer(tmp_path, pair_tokenizer)
    exported_tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    pairs = [("who can rewire a house?", text) for text in SENTENCES] + MORE
    for query, document in pairs:
        (token_ids,) = pair_tokenizer.pairs(query, [document])
        assert exported_tokenizer.encode(query, document).ids == token_ids.tolist()


def test_every_text_of_a_batch_has_a_dial_of_its_own(exported) -> None:
    graph = Exported(exported("cross_encoder"))
    alphas = np.linspace(0, 1, 7, dtype=np.float32)[:, None]
    scores = graph.scores([MORE[0]] * 7, alphas)
    expected = [graph.scores([MORE[0]], alpha)[0] for alpha in alphas.ravel()]
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert len(set(scores.round(4))) == 7


@pytest.mark.parametrize("kind", ["cross_encoder_llama", "cross_encoder"])
def test_swapped_words_have_one_score_at_alpha_0(kind: str, exported) -> None:
    graph = Exported(exported(kind))
    pair = [("doctor", "he said it to her"), ("doctor", "she said it to him")]
    first, second = graph.scores(pair, 0.0)
    assert first == second
    first, second = graph.scores(pair, 1.0)
    assert abs(first - second) > 1e-3


def test_the_graph_has_standard_operators_and_no_fixed_sizes(exported) -> None:
    folder = exported("backpack")
    model = onnx.load(folder / "model.onnx")
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    shapes = {}
    for value in [*model.graph.input, *model.graph.output]:
        sizes = value.type.tensor_type.shape.dim
        shapes[value.name] = [size.dim_param or size.dim_value for size in sizes]
    about = json.loads((folder / "ranker.json").read_text())
    assert shapes == about["inputs"] | {"scores": ["batch"]}
    assert about["files"]["model.onnx"]["bytes"] == (folder / "model.onnx").stat().st_size
    assert {path.name for path in folder.iterdir()} == {
        *("model.onnx", "ranker.json", "tokenizer.json", "tokenizer_config.json")
    }


@pytest.mark.parametrize("kind", ["backpack", "backpack_on_bert", "cross_encoder_llama"])
def test_other_readers_of_the_tokenizer_join_pairs_in_the_same_way(kind: str, exported) -> None:
    exported_tokenizer = Tokenizer.from_file(str(exported(kind) / "tokenizer.json"))
    library = AutoTokenizer.from_pretrained(exported(kind))
    for query, document in MORE:
        ids = library([query], [document], truncation="only_second")["input_ids"][0]
        assert ids == exported_tokenizer.encode(query, document).ids


def test_the_page_runs_without_torch(exported, tmp_path: Path) -> None:
    shutil.copytree(exported("backpack"), tmp_path / "my-ranker")
    blocked = (
        "import sys\nsys.modules |= dict.fromkeys(('torch', 'transformers', 'backpack_rank'))\n"
    )
    first, second = BLOCKS
    code = f"{blocked}{first}{second}print(scores.tolist())\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answers = list(map(json.loads, done.stdout.splitlines()))
    reranker = backpack_rank.load(FIXTURES / "backpack", device="cpu")
    pairs = [
        ("who can rewire a house?", text)
        for text in ("She is an electrician.", "He sells flowers.")
    ]
    np.testing.assert_allclose(answers[0], reranker.predict(pairs), atol=1e-5)
    np.testing.assert_allclose(answers[1], reranker.predict(pairs, alpha=0.5), atol=1e-5)
    assert np.abs(np.subtract(*answers)).max() > 1e-4


def test_a_graph_with_other_scores_leaves_nothing_and_an_earlier_export_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backpack_rank.integrations.onnx_check.TOLERANCE", 0.0)
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    before = {"model.onnx": b"a graph", "ranker.json": b"{}"}
    for name, content in before.items():
        (earlier / name).write_bytes(content)
    with pytest.raises(UsageError, match="scores of the graph differ from torch's by up to"):
        cli.main(["export", "onnx", str(FIXTURES / "gpt2"), "--output", str(earlier)])
    assert [path.name for path in tmp_path.iterdir()] == ["earlier"]
    assert {path.name: path.read_bytes() for path in earlier.iterdir()} == before


@pytest.mark.parametrize(
    ("number", "message", "later"), [(signal.SIGINT, "Ctrl-C", 0), (signal.SIGTERM, "SIGTERM", 3)]
)
def test_what_is_stopped_leaves_nothing(
    number: int, message: str, later: float, tmp_path: Path
) -> None:
    program = "import sys; from backpack_rank import cli; cli.main(sys.argv[1:])"
    command = ["export", "onnx", str(FIXTURES / "backpack"), "--output", str(tmp_path / "new")]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *command], stderr=subprocess.PIPE, text=True
    )
    while not list(tmp_path.glob(".new.*/new/tokenizer.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(later)  # torch is at work
    process.send_signal(number)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert err.splitlines()[-1] == f"{message}: stopped before anything was written"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ranker", "options", "message"),
    [
        (
            "dual_encoder",
            [],
            "DualEncoderForRanking cannot be exported: only Backpacks and cross-encoders",
        ),
        ("knrm", [], "knrm cannot be exported: only Backpacks"),
        ("listwise_gpt2", [], "it ranks lists, and a graph scores pairs"),
        ("language_model", [], "architecture BackpackLMHeadModel is not a ranker"),
        ("nothing", [], "there is no such folder"),
        (
            "backpack",
            ["--output", "full"],
            "full is there and no earlier export: give another --output",
        ),
        ("backpack", ["--output", "file/new"], "file"),
        ("backpack", ["--attribute", "shoes"], "shoes"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    ranker, options, message, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    given = options if "--output" in options else [*options, "--output", "new"]
    with pytest.raises(UsageError) as error:
        cli.main(["export", "onnx", str(FIXTURES / ranker), *given])
    assert message in str(error.value)
    assert error.value.code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]
