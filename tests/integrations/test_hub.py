"""Saved rankers with a model card, uploaded to and loaded from a hub that speaks HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from foreign_rankers import bert
from foreign_rankers import saved as save_classifier
from hub_server import TOKEN, hub_server
from huggingface_hub import ModelCard
from safetensors.torch import load as parse
from safetensors.torch import load_file
from saved_rankers import FIXTURES

import backpack_rank
from backpack_rank.evaluation.results import Estimate, Report, RunInfo, Summary, SystemResult
from backpack_rank.reporting.measure_files import write_report

PAIR = ("doctor", "he said it to her")


def report(alpha: float, ndcg: float, bias: float) -> Report:
    row = SystemResult(
        f"alpha={alpha:g}",
        alpha,
        Summary({"nDCG@10": Estimate(ndcg, ndcg)}, 20),
        Summary({"RaB(tf)@10": Estimate(bias, abs(bias))}, 20),
    )
    return Report(
        rows=(row,), about=RunInfo(effectiveness_set="synthetic/test", bias_set="synthetic/bias")
    )


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for alpha, ndcg, bias in ((1.0, 0.4567, -0.25), (0.5, 0.45, -0.125), (0.0, 0.44, 0.0625)):
        job = tmp_path / "sweep" / f"alpha={alpha:g}"
        job.mkdir(parents=True)
        write_report(job, report(alpha, ndcg, bias))
    return tmp_path / "sweep"


def test_a_saved_ranker_has_a_card_with_its_figures(saved, sweep: Path, tmp_path: Path) -> None:
    _, reranker = saved("backpack")
    backpack_rank.save_pretrained(
        reranker,
        tmp_path / "own",
        name="me/own",
        base_model="openai-community/gpt2",
        license="mit",
        measures=sweep / "alpha=1" / "measures.json",
        sweep=sweep,
    )
    card = ModelCard.load(tmp_path / "own" / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == (
        "sentence-transformers",
        "text-ranking",
    )
    assert (card.data.base_model, card.data.license) == ("openai-community/gpt2", "mit")
    figures = {
        (result.dataset_name, result.metric_type): result.metric_value
        for result in card.data.eval_results
    }
    assert figures == {
        ("synthetic/test", "nDCG@10"): 0.4567,
        ("synthetic/bias", "RaB(tf)@10"): -0.25,
    }
    assert "| 1 | 0.457 | -0.250 |\n| 0.5 | 0.450 | -0.125 |\n| 0 | 0.440 | 0.062 |" in card.text
    assert (
        "import backpack_rank.integrations.sentence_transformers\nfrom sentence_transformers"
        in card.text
    )
    for way in (
        'backpack_rank.load("me/own")',
        'CrossEncoder("me/own")',
        'BackpackReranker("me/own", alpha=0.5',
    ):
        assert way in card.text
    again = backpack_rank.load(tmp_path / "own", device="cpu")
    assert again.predict([PAIR]) == reranker.predict([PAIR])


def test_a_card_says_when_code_has_to_be_trusted(saved, tmp_path: Path) -> None:
    _, reranker = saved("gpt2")
    backpack_rank.save_pretrained(reranker, tmp_path / "own")
    text = (tmp_path / "own" / "README.md").read_text()
    assert 'CrossEncoder("own", trust_remote_code=True)' in text
    assert "alpha=" not in text
    assert "model-index" not in text


def test_measures_without_the_unchanged_ranker_are_refused_and_nothing_is_written(
    saved, sweep, tmp_path
) -> None:
    _, reranker = saved("backpack")
    with pytest.raises(ValueError, match=r"no figures of the unchanged ranker.*alpha=0\.5"):
        backpack_rank.save_pretrained(
            reranker, tmp_path / "own", measures=sweep / "alpha=0.5" / "measures.json"
        )
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize("name", ["listwise_gpt2", "foreign"])
def test_what_is_no_ranker_of_this_package_is_refused(name: str, tmp_path: Path) -> None:
    if name == "foreign":
        save_classifier(bert, tmp_path / "foreign")
    other = backpack_rank.load(
        tmp_path / "foreign" if name == "foreign" else FIXTURES / name, device="cpu"
    )
    with pytest.raises(ValueError, match=r"trained elsewhere|one document at a time"):
        backpack_rank.push_to_hub(other, "me/other")


@pytest.mark.slow
def test_a_ranker_goes_to_the_hub_and_comes_back(saved, tmp_path: Path) -> None:
    folder, reranker = saved("backpack")
    program = (
        "import sys, backpack_rank\n"
        "reranker = backpack_rank.load(sys.argv[1], device='cpu')\n"
        "print(backpack_rank.push_to_hub(reranker, 'me/one', private=True, "
        "commit_message='First'))\nprint(backpack_rank.push_to_hub(reranker, 'me/one', "
        "revision='next'))\nprint(reranker.push_to_hub('me/one', create_pr=True))\n"
        "for revision in (None, 'next'):\n"
        "    again = backpack_rank.load('me/one', device='cpu', revision=revision)\n"
        f"    print(again.predict([{PAIR!r}])[0].item())\n"
    )
    with hub_server() as hub:
        environment = {
            "HF_ENDPOINT": hub.address,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(tmp_path / "cache"),
        }
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder)],
            env={**os.environ, **environment, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    first, second, third, *scores = done.stdout.split()
    assert f"{hub.address}/me/one/commit/" in first
    assert f"{hub.address}/me/one/commit/" in second
    assert third == f"{hub.address}/me/one/discussions/1"
    assert hub.private == {"me/one": True}
    assert [commit["branch"] for commit in hub.commits] == ["main", "next", "refs/pr/1"]
    assert [commit["summary"] for commit in hub.commits] == [
        "First",
        "Upload ranker",
        "Upload ranker",
    ]
    kept = hub.branches["me/one"]["main"]
    pushed, weights = parse(kept["model.safetensors"]), load_file(folder / "model.safetensors")
    assert all(torch.equal(pushed[name], values) for name, values in weights.items())
    assert {name.split(".")[1] for name in pushed.keys() - weights.keys()} == {
        "attribute_senses"
    }, "split at load"
    assert {"README.md", "config.json", "modules.json", "tokenizer.json"} <= kept.keys()
    expected = reranker.predict([PAIR])[0].item()
    assert [float(score) for score in scores] == [expected, expected]
