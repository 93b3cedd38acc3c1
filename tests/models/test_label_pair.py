"""Classifiers with two labels: which one means relevant has to be said, and is then the score."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from foreign_rankers import bert, saved, xlm_roberta
from ranker_checks import assert_the_dial_acts, padded_logits

from backpack_rank.models.label_pair import LABELS, LabelPair
from backpack_rank.reranking.load import load

QUERY = "the doctor saw"
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20]
PAIRS = [(QUERY, document) for document in DOCUMENTS]


def labelled(make, names):
    """A classifier with these labels."""
    one_label, tokenizer = make()
    config = one_label.config
    config.id2label = dict(enumerate(names))
    config.label2id = {name: place for place, name in enumerate(names)}
    return type(one_label)(config), tokenizer


def save(make, folder, names):
    return saved(partial(labelled, make, names), folder)


@pytest.mark.parametrize("make", [bert, xlm_roberta])
def test_the_score_is_the_difference_of_the_two_logits(tmp_path, make):
    model, tokenizer = save(make, tmp_path, ["irrelevant", "good"])
    logits = padded_logits(model, tokenizer, PAIRS)
    scores = load(tmp_path, labels=("good", "irrelevant")).predict(PAIRS)
    np.testing.assert_allclose(scores, logits[:, 1] - logits[:, 0], atol=1e-5)
    assert np.ptp(scores) > 0.05
    reversed_pair = load(tmp_path, labels=("irrelevant", "good")).predict(PAIRS)
    np.testing.assert_array_equal(reversed_pair, -scores)


def test_a_file_of_the_folder_says_it_and_the_call_counts_more(tmp_path):
    save(bert, tmp_path, ["irrelevant", "good"])
    (tmp_path / LABELS).write_text("relevant: good\nnot_relevant: irrelevant\n")
    scores = load(tmp_path).predict(PAIRS)
    np.testing.assert_array_equal(
        load(tmp_path, labels=("good", "irrelevant")).predict(PAIRS), scores
    )
    np.testing.assert_array_equal(
        load(tmp_path, labels=("irrelevant", "good")).predict(PAIRS), -scores
    )


def test_the_dial_acts_on_it(tmp_path):
    save(bert, tmp_path, ["irrelevant", "good"])
    assert_the_dial_acts(load(tmp_path, labels=("good", "irrelevant")))


def test_two_rankings_of_one_classifier_have_two_configurations(tmp_path):
    """Whoever keeps scores on disk compares configurations."""
    save(bert, tmp_path, ["irrelevant", "good"])
    config = load(tmp_path, labels=("good", "irrelevant")).scorer.ranker.config
    other = load(tmp_path, labels=("irrelevant", "good")).scorer.ranker.config
    assert config.to_json_string() != other.to_json_string()


MISTAKES = {
    "nothing is said": (
        ["bad", "good"],
        {},
        None,
        r"a classifier with 2 labels \(bad, good\).*name it first, as labels=\[RELEVANT,OTHER\]"
        r".*reranker_labels\.yaml",
    ),
    "another label": (["bad", "good"], {"labels": ("fine", "bad")}, None, r"no label 'fine'"),
    "one label": (["bad", "good"], {"labels": ("good",)}, None, r"labels=\['good'\]: give two"),
    "twice the same": (["bad", "good"], {"labels": ("good", "good")}, None, "give two"),
    "three labels": (
        ["no", "perhaps", "yes"],
        {"labels": ("yes", "no")},
        None,
        r"a classifier with 3 labels \(no, perhaps, yes\)",
    ),
    "labels of a classifier with one": (
        ["score"],
        {"labels": ("yes", "no")},
        None,
        r"labels=\['yes', 'no'\] are for classifiers with two labels.*has one: leave them out",
    ),
    "a wrong file": (["bad", "good"], {}, "relevant: good\n", r"must hold relevant: LABEL and"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_not_said_is_refused(tmp_path, name):
    names, options, file, message = MISTAKES[name]
    save(bert, tmp_path, names)
    if file is not None:
        (tmp_path / LABELS).write_text(file)
    with pytest.raises(ValueError, match=message):
        load(tmp_path, **options)


def test_a_text_is_no_pair_of_labels():
    with pytest.raises(ValueError, match=r"labels=\['yes'\]: give two"):
        LabelPair("yes")


@pytest.mark.parametrize("options", [{"labels": ("yes", "no")}, {"template": "qwen3_reranker"}])
def test_a_server_is_not_told_how_to_read_its_model(options):
    with pytest.raises(ValueError, match=r"http://localhost:1 is a server, which does that itself"):
        load("http://localhost:1", **options)
