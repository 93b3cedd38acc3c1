"""An option is declared once: a new default is one line of Python, and conf/ says the same."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_process import configured

from backpack_rank.files import resource_folder
from backpack_rank.models import configuration
from backpack_rank.models.configuration import ENCODER_SENSES, SENSES, BackpackConfig

PACKAGE = Path(__file__).resolve().parents[2] / "backpack_rank"
CONF = resource_folder("conf")


def defaults(folder: Path, *names: str) -> Iterator[tuple[str, ast.expr]]:
    """Every default of an argument or a field of one of these names, with its place."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if node.target.id in names and node.value is not None:
                    yield f"{file.name}:{node.lineno}", node.value
            elif isinstance(node, ast.FunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args]
                plain = node.args.defaults
                pairs = [
                    *zip(arguments[len(arguments) - len(plain) :], plain, strict=True),
                    *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
                ]
                for argument, default in pairs:
                    if argument.arg in names and default is not None:
                        yield f"{file.name}:{node.lineno}", default


@pytest.mark.parametrize(
    "option", ["split_attribute", "certificate_pairs", "certificate", "recalibrate"]
)
def test_an_option_of_an_evaluation_has_its_default_at_one_place(option: str) -> None:
    places = [place for place, _ in defaults(PACKAGE / "pipelines", option)]
    assert len(places) == 1


@pytest.mark.slow
def test_the_default_number_of_senses_is_one_constant() -> None:
    """And one more, of a Backpack that gives vectors."""
    values = dict(defaults(PACKAGE, "senses", "num_senses"))
    assert values
    for place, value in values.items():
        # Where it is no constant of its own: nothing, or one of the names.
        is_name = isinstance(value, ast.Name) and value.id in ("SENSES", "ENCODER_SENSES")
        is_none = isinstance(value, ast.Constant) and not isinstance(value.value, int)
        assert is_name or is_none, place
    assert BackpackConfig().num_senses == SENSES


def test_conf_looks_the_number_of_senses_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []
    for file in sorted((CONF / "model").glob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        looked_up += [file.stem] * text.count("senses: ${default_senses:}")
        assert not re.search(r"\bsenses: *\d", text), file.name
    assert looked_up == ["backpack", "backpack_small", "backpack_tiny"]
    monkeypatch.setattr(configuration, "SENSES", 24)
    for model in looked_up:
        assert configured("train", f"model={model}").model.ranker.senses == 24
    assert configured("train", "model=backpack_encoder").model.ranker.senses == ENCODER_SENSES


def test_a_saved_ranker_keeps_its_number_when_the_default_changes() -> None:
    """Else folders of before the change would be read with another number of senses."""
    assert json.loads(BackpackConfig().to_json_string())["num_senses"] == SENSES
