"""A policy is known by its file of conf/policy and its class, wherever policies are asked for."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from in_process import configured
from workplace import ROOT

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.pipelines.nodes import build, plain_options
from backpack_rank.reporting.setting import Setting
from backpack_rank.senses.policies import PairedTokens, Policy
from backpack_rank.senses.policy_names import POLICIES, named_policy, policies_in
from backpack_rank.senses.renditions import MeanOfRenditions

GENDER = Attribute.named("gender")
OWN = """
from dataclasses import dataclass
from backpack_rank.senses.policies import UniformSenses


@dataclass(frozen=True)
class Half(UniformSenses):
    in_words = ""
    factor: float = 0.5

    @property
    def name(self):
        return "half_of_all"

    def weights(self, sensitivity, alpha):
        return super().weights(sensitivity, alpha) * self.factor


class RandomWalk(Half):
    is_control = False
"""


def options_of(policy: Policy) -> dict[str, Any]:
    """Options but for the attribute, which is made anew for each."""
    options = {}
    for field in fields(policy):
        value = getattr(policy, field.name)
        options[field.name] = tuple(value) if isinstance(value, list) else value
    return {**options, "attribute": None}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies of somebody else, as CONTRIBUTING has them added."""
    (tmp_path / "mine_policies.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "half.yaml").write_text(
        "# Half; all.\n_target_: mine_policies.Half\nfactor: 0.25\n"
    )
    (tmp_path / "random_walk.yaml").write_text("_target_: mine_policies.RandomWalk\n")
    for name, policy in policies_in(tmp_path).items():
        monkeypatch.setitem(POLICIES, name, policy)


def test_the_policies_are_the_files_that_need_no_option() -> None:
    files = {path.stem for path in (ROOT / "conf/policy").glob("*.yaml")}
    assert files - POLICIES.keys() == {"default", "explicit"}


def test_the_docs_have_a_line_for_every_policy() -> None:
    page = (ROOT / "docs/the-dial.md").read_text(encoding="utf-8")
    (table,) = [part for part in page.split("\n\n") if part.startswith("| policy |")]
    lines = [line for line in table.splitlines() if line.startswith("| `policy=")]
    assert {line.split("`")[1].removeprefix("policy=") for line in lines} == {*POLICIES, "explicit"}
    for line in lines:
        name = line.split("`")[1].removeprefix("policy=")
        if name in POLICIES:
            assert (": a control |" in line) == POLICIES[name].kind.is_control


@pytest.mark.parametrize("name", POLICIES)
def test_a_name_gives_the_policy_of_the_command_line(name: str) -> None:
    config = configured("evaluate", f"policy={name}")
    of_command_line = build(plain_options(config)["policy"], "policy")
    named = named_policy(name, GENDER)
    assert type(named) is type(of_command_line)
    assert named.name == of_command_line.name
    assert options_of(named) == options_of(of_command_line)
    if isinstance(named, PairedTokens):
        assert named.words() == of_command_line.words()
    if isinstance(named, MeanOfRenditions):
        assert named.renditions.key == of_command_line.renditions.key
    assert POLICIES[name].in_words.endswith(".")


def test_a_policy_of_ones_own_is_known_to_python_by_its_name(
    own: None, make_backpack, pair_tokenizer
) -> None:
    from backpack_rank.reranking.pointwise import PointwiseReranker
    from backpack_rank.reranking.scorer import Scorer

    reranker = PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))
    assert "half" in reranker.policies
    named = reranker.rank("a nurse", ["she saw", "he saw"], alpha=0.5, policy="half")
    assert POLICIES["half"].in_words == "Half."
    made = named_policy("half", GENDER)
    assert made.factor == 0.25
    assert named == reranker.rank("a nurse", ["she saw", "he saw"], alpha=0.5, policy=made)


@pytest.mark.parametrize(
    ("setting", "control"),
    [
        ("policy=uniform", True),
        ("policy=random_senses,policy.seed=3", True),
        ("policy=lowest_senses", False),
        ("policy=erase,policy.fit=none", True),
        ("policy=erase,policy.fit=leace", False),
        ("policy=half", True),
        ("policy=random_walk", False),
        ("", False),
    ],
)
def test_the_class_says_whether_a_setting_is_a_control(
    own: None, setting: str, control: bool
) -> None:
    assert Setting.of(setting).is_control is control
