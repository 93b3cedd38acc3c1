"""What a user gets wrong about budgets, policies, runs and word lists ends in one sentence, before
time is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import TEST_SPLIT, evaluated, inline
from workplace import Workplace

from backpack_rank.models.configuration import SENSES
from backpack_rank.pipelines.errors import friendly_errors

TEXTS = {"a": "The engine stops.", "b": "She repairs it."}
AUTO = ["alpha=auto", "policy=paired_tokens"]


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("nDGC@10>=0.3", "Did you mean 'nDCG@10'"),
        ("|gap|/std<=0.02", "score gaps by variants=grep_biasir"),
        ("RaB(tf)@7<=1", "bias.extra"),
        ("nDCG@10<0.3", "use <= or >=, not '<'"),
        ("nDCG@10", "write a measure, <= or >=, and a number"),
    ],
)
def test_a_budget_that_cannot_be_checked_is_refused_before_anything_is_ranked(
    trained: Workplace, tmp_path: Path, budget: str, message: str
) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(ValueError, match="budget") as error:
        evaluated(trained, tmp_path / "out", *AUTO, f"budget='{budget}'", f"cache.folder={cache}")
    assert message in str(error.value)
    assert not list(cache.glob("**/*.npy"))


def test_budgets_about_swaps_need_swaps(trained: Workplace, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="changes under swaps by swap=true"):
        evaluated(trained, tmp_path, *AUTO, "budget='swap tau>=0.9'", "swap=false")


@pytest.mark.slow
def test_an_unreachable_budget_says_the_best_that_can_be_reached(
    trained: Workplace, tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match=r"unreachable.*swap change/std<=1e-05 is at best 0\.\d+ at alpha=0"
    ):
        evaluated(trained, tmp_path, *AUTO, "budget='swap change/std<=0.00001'")
    assert not (tmp_path / "measures.json").exists()


@pytest.mark.slow
def test_auto_needs_a_budget_and_a_budget_needs_auto(trained: Workplace, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="alpha=auto needs budget="):
        evaluated(trained, tmp_path, *AUTO)
    with pytest.raises(ValueError, match="is for alpha=auto"):
        evaluated(trained, tmp_path, "alpha=0.5", "budget='nDCG@10 loss<=1%'")


def test_auto_needs_a_dev_split(trained: Workplace, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data=synthetic has no dev split"):
        evaluated(
            trained, tmp_path, *AUTO, "budget='nDCG@10 loss<=1%'", *TEST_SPLIT, "data.dev=null"
        )


@pytest.mark.slow
def test_explicit_weights_must_be_as_many_as_the_senses(trained: Workplace, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"policy\.values has 2 weights, but the model has {SENSES + 2} senses"
    ):
        evaluated(trained, tmp_path, "alpha=0.5", "policy=explicit", "policy.values=[0,1]")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["alpha=0", "policy=explicit"], "policy.values has no value: give policy.values=..."),
        (
            ["alpha=0", "policy=paired_tokens", "policy.scope=there"],
            "policy.scope=there: use one of senses, weights",
        ),
        (["data=wikiqa", "data.folder=/nowhere"], "there is no folder /nowhere"),
    ],
)
def test_what_a_constructor_refuses_is_one_sentence(
    trained: Workplace,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    options: list[str],
    message: str,
) -> None:
    with pytest.raises(SystemExit), friendly_errors():
        evaluated(trained, tmp_path, *options)
    sentence = caplog.records[-1].getMessage()
    assert message in sentence
    assert len(sentence.strip().splitlines()) == 1


@pytest.mark.processes
def test_a_user_sees_nothing_but_that_sentence(trained: Workplace) -> None:
    shown = trained.fails("evaluate.py", "alpha=0", "policy=explicit")
    assert "policy.values has no value: give policy.values=..." in shown
    assert len(shown.strip().splitlines()) == 1


def test_queries_without_a_neutral_one_are_an_error(trained: Workplace, tmp_path: Path) -> None:
    data = inline({"q": "where does she work?", "r": "is he there?"}, TEXTS)
    with pytest.raises(
        ValueError, match="bias set is empty: every query of inline has a word of gender_words"
    ):
        evaluated(trained, tmp_path, data=data)


def test_published_queries_of_another_collection_are_an_error(
    trained: Workplace, tmp_path: Path
) -> None:
    path = tmp_path / "neutral.tsv"
    path.write_text("404\twhat is a compiler\n")
    with pytest.raises(
        ValueError, match=r"none of the queries of .*neutral\.tsv is in synthetic/test"
    ):
        evaluated(trained, tmp_path, *TEST_SPLIT, f"data.bias_queries={path}")


def test_word_classes_without_a_token_are_an_error(trained: Workplace, tmp_path: Path) -> None:
    path = tmp_path / "classes.csv"
    path.write_text("class,word\nrank,archduchess\nrank,archduke\n")
    with pytest.raises(ValueError, match=r"'archduchess'.*nothing could be moved"):
        evaluated(
            trained, tmp_path, "alpha=0", "policy=paired_tokens", f"attribute.classes=[{path}]"
        )


def test_an_experiment_has_its_own_alphas(trained: Workplace, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"alpha=0.5 does nothing to this experiment: .*task\.alphas"
    ):
        evaluated(trained, tmp_path, "experiment=recruitment", "alpha=0.5")


@pytest.mark.parametrize("text", ["query", "document"])
def test_an_explanation_needs_both_texts(trained: Workplace, tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="needs both texts"):
        evaluated(trained, tmp_path, f"explain.{text}=one")


@pytest.fixture
def run_file(trained: Workplace, tmp_path: Path) -> Path:
    """A run of one query of the collection."""
    evaluated(trained, tmp_path / "ranked", "swap=false")
    lines = (tmp_path / "ranked" / "runs" / "BM25__synthetic-test.run").read_text().splitlines()
    path = tmp_path / "one.run"
    path.write_text(
        "\n".join(line for line in lines if line.split()[0] == lines[0].split()[0]) + "\n"
    )
    return path


@pytest.mark.slow
def test_runs_that_cannot_be_compared_are_named(
    trained: Workplace, tmp_path: Path, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(given: str, *options: str) -> str:
        with pytest.raises((ValueError, FileNotFoundError)) as error:
            evaluated(trained, tmp_path / "out", f"run={given}", *TEST_SPLIT, *options)
        assert not (tmp_path / "out").exists()
        return str(error.value)

    query = run_file.read_text().split()[0]
    unknown, foreign, empty = (tmp_path / f"{name}.run" for name in ("unknown", "foreign", "empty"))
    unknown.write_text(run_file.read_text() + f"{query} Q0 nowhere 99 -9.0 t\n")
    foreign.write_text("1037798 Q0 d1 1 2.0 t\n")
    empty.write_text("")
    assert f"{unknown}: document 'nowhere' of query '{query}' is not in synthetic/test" in message(
        str(unknown)
    )
    assert "none of its 1 queries is in synthetic/test" in message(str(foreign))
    assert f"{foreign}: none" in message(f"[{run_file},{foreign}]")
    assert f"{empty} is empty" in message(str(empty))
    assert f"run={tmp_path / 'no.run'}: there is no such file" in message(str(tmp_path / "no.run"))
    assert "run=[] must be a path" in message("[]")
    assert "is given twice" in message(f"[{run_file},{run_file}]")
    monkeypatch.chdir(tmp_path)
    assert "is given twice" in message(f"[{run_file},{run_file.name}]")
    assert "alpha=0.5 does nothing to run=...: leave one of them out" in message(
        str(run_file), "alpha=0.5"
    )
    explained = message(str(run_file), "explain.query=a", "explain.document=b")
    assert "run=... does nothing to explain.*: leave one of them out" in explained


@pytest.mark.slow
def test_measures_of_runs_name_what_exists(
    trained: Workplace, tmp_path: Path, run_file: Path
) -> None:
    with pytest.raises(ValueError, match=r"RaB.*ARaB"):
        evaluated(
            trained, tmp_path / "out", f"run={run_file}", *TEST_SPLIT, "measures=['RaC(tf)@10']"
        )
