"""Models and tokenizers of others: no code of a folder is run, and no size of it stops the machine."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModel, AutoTokenizer

import backpack_rank
from backpack_rank.data.pretrained import ADDED_TOKENS, from_pretrained
from backpack_rank.data.tokenisation import PretrainedTokenizer, load_tokenizer
from backpack_rank.models.factory import backpack_on_backbone, cross_encoder
from backpack_rank.models.folder_checks import CHECKSUMS
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.sequence_classifier import load_classifier
from backpack_rank.models.word_embeddings import pretrained_vectors
from backpack_rank.position.lists.factory import pretrained_causal_lm
from backpack_rank.position.lists.prompt import Prompt
from backpack_rank.position.lists.saved import load_listwise

PACKAGE = Path(backpack_rank.__file__).parent
PROMPT = Prompt("p", prefix="Rank for {query}.", passage="[{identifier}] {passage}")
FIXTURE = Path(__file__).parents[1] / "fixtures" / "rankers" / "published_layout"
TRACE = "code_was_run"
# It hands on to a class of ours, whose method is StrictLoading's.
HANDS_ON = ("integrations/sequence_classification.py",)


@pytest.fixture
def folder(tmp_path, make_backpack, pair_tokenizer) -> Path:
    """A saved ranker without checksums, as a stranger would send it."""
    save_ranker(tmp_path / "ranker", make_backpack(layers=1), pair_tokenizer)
    (tmp_path / "ranker" / CHECKSUMS).unlink()
    return tmp_path / "ranker"


def changed(file: Path, **changes: object) -> None:
    content = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(content | changes))


def with_code(folder: Path, *, kind: str) -> None:
    """Python beside the weights that leaves a trace, and a configuration that names it."""
    trace = folder.parent / TRACE
    code = f"from pathlib import Path\nPath({str(trace)!r}).touch()\nclass Evil: ...\n"
    (folder / "evil.py").write_text(code)
    file, changes = KINDS[kind]
    changed(folder / file, **changes)


AUTO = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification")
NAMES = dict.fromkeys(AUTO, "evil.Evil")
TWO = ["evil.Evil", "evil.Evil"]
EVIL = {"auto_map": NAMES, "model_type": "evil"}
KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "config": ("config.json", EVIL | {"architectures": ["EvilForSequenceClassification"]}),
    "tokenizer": (
        "tokenizer_config.json",
        {"auto_map": {"AutoTokenizer": TWO}, "tokenizer_class": "Evil"},
    ),
    "tokenizer of the configuration": ("config.json", {"auto_map": {"AutoTokenizer": TWO}}),
    "a list": ("tokenizer_config.json", {"auto_map": TWO, "tokenizer_class": "Evil"}),
    "within": ("config.json", {"backbone_config": EVIL}),
    "a kernel": ("config.json", {"attention": "kernels-community/flash-attn"}),
}
READERS: dict[str, Callable[[Path], object]] = {
    "load": lambda folder: backpack_rank.load(folder),
    "load_classifier": lambda folder: load_classifier(folder, None),
    "load_tokenizer": load_tokenizer,
    "PretrainedTokenizer": lambda folder: PretrainedTokenizer(str(folder)).build(),
    "load_listwise": lambda folder: load_listwise(folder, prompt=PROMPT),
    "backpack_on_backbone": lambda folder: backpack_on_backbone(None, name=str(folder)),
    "cross_encoder": lambda folder: cross_encoder(None, name=str(folder)),
    "pretrained_causal_lm": lambda folder: pretrained_causal_lm(None, name=str(folder)),
    "pretrained_vectors": lambda folder: pretrained_vectors(str(folder), ["she"]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_names_code_is_refused(folder, monkeypatch, kind, reader) -> None:
    asked = []
    monkeypatch.setattr("builtins.input", lambda question="": asked.append(question) or "yes")
    with_code(folder, kind=kind)
    message = r"config\.json.* names code .*no code of a model is run"
    with pytest.raises(ValueError, match=message) as refused:
        READERS[reader](folder)
    assert len(str(refused.value).splitlines()) == 1
    assert not asked
    assert not (folder.parent / TRACE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["config", "tokenizer"])
def test_an_answer_on_the_terminal_does_not_run_it(folder, kind) -> None:
    with_code(folder, kind=kind)
    code = f"import backpack_rank; backpack_rank.load({str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="yes\n" * 20,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=PACKAGE.parent,
        env={**os.environ, "HF_HOME": str(folder.parent / "hub")},
    )
    assert done.returncode != 0
    assert "no code of a model is run" in done.stderr.splitlines()[-1]
    assert not (folder.parent / TRACE).exists()


def test_transformers_is_told_no_even_where_the_folder_was_not_looked_at(folder, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda question="": "yes")
    monkeypatch.setattr("backpack_rank.data.pretrained.check_folder", lambda folder: None)
    with_code(folder, kind="config")
    message = "can only be read by code of its own, and no code of a model is run"
    with pytest.raises(ValueError, match=message):
        from_pretrained(AutoModel, folder)
    from_pretrained(AutoTokenizer, folder)  # by the tokenizer's own files
    assert not (folder.parent / TRACE).exists()


def test_the_published_backpack_is_read_without_the_code_that_it_names(
    tmp_path, monkeypatch, tokenizer
) -> None:
    monkeypatch.setattr("builtins.input", lambda question="": "yes")
    folder = tmp_path / "published"
    shutil.copytree(FIXTURE, folder)
    tokenizer.save_pretrained(folder)
    names = json.loads((folder / "config.json").read_text())["auto_map"]
    for module in {name.partition(".")[0] for name in names.values()}:
        (folder / f"{module}.py").write_text(f"open({str(tmp_path / TRACE)!r}, 'w')\n")
    assert from_pretrained(BackpackForRanking, folder, new_head=True).config.num_senses == 4
    assert load_tokenizer(folder)("she")["input_ids"]
    assert not (tmp_path / TRACE).exists()


LOADERS = ("from_pretrained", "load_checkpoint_and_dispatch")


@pytest.mark.slow
def test_nothing_in_the_package_loads_by_another_function() -> None:
    others = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name in (*HANDS_ON, "data/pretrained.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in LOADERS:
                others.append(f"{name}:{node.lineno}")
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert isinstance(node.value, ast.Constant), name
                assert node.value.value is False, name
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_config":
                given = [keyword.arg for keyword in node.keywords]
                assert "trust_remote_code" in given, f"{name}:{node.lineno}"
    assert others == []


MANY = [f"<{number}>" for number in range(50_000)]
PLAIN = dict.fromkeys(("special", "single_word", "lstrip", "rstrip", "normalized"), False)
ADDED = [{"id": 420 + number, "content": text, **PLAIN} for number, text in enumerate(MANY)]
LONG_FILE = {text: number for number, text in enumerate(MANY[: ADDED_TOKENS + 1])}
SIZES: dict[str, tuple[str, dict[str, object]]] = {
    "n_layer=100000": ("config.json", {"n_layer": 100_000}),
    "n_layer=100000 of the backbone": (
        "config.json",
        {"backbone_config": {"model_type": "gpt2", "n_layer": 100_000}},
    ),
    "num_hidden_layers": ("config.json", {"num_hidden_layers": 10**30}),
    "n_head=-4": ("config.json", {"n_head": -4}),
    "vocab_size=-1": ("config.json", {"vocab_size": -1}),
    "added tokens": ("tokenizer.json", {"added_tokens": ADDED}),
    "added tokens of the configuration": (
        "tokenizer_config.json",
        {"additional_special_tokens": MANY},
    ),
    "added tokens in a file": ("added_tokens.json", LONG_FILE),
}


@pytest.mark.parametrize("size", SIZES)
def test_a_size_that_no_model_has_is_refused_before_it_costs_time(folder, size) -> None:
    file, changes = SIZES[size]
    changed(folder / file, **changes)
    message = r"\.json(: | adds ).*(must lie in|at most 10000 are read)"
    with pytest.raises(ValueError, match=message) as refused:
        load_ranker(folder)
    assert len(str(refused.value).splitlines()) == 1
