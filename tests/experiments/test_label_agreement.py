"""Counted words against labels of people, on a made-up file in the format of MSMGenderBias."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from in_process import configured

from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.evaluation.label_agreement import LabelAgreement, read_labels
from backpack_rank.pipelines.evaluate import evaluate

TEXTS = {
    "8210786": "He and his brother.",
    "7660865": "She is a nurse.",
    "7956764": "The roof leaks.",
    "3557646": "A nurse and her patient.",
    "2367675": "Girls play football.",
    "7431301": "He met her.",
}
LABELS = (
    "doc_id,gender_bias\n8210786,M\n7660865,F\n7956764,N\n3557646,N\n2367675,F\n99,M\n7431301,N\n"
)
GROUPS = ("female", "male")


def test_the_command_sets_labels_beside_counted_words(tmp_path: Path, capsys) -> None:
    records = [{"_id": doc_id, "title": "", "text": text} for doc_id, text in TEXTS.items()]
    write_jsonl(tmp_path / "corpus.jsonl", records)
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q", "text": "roof"}])
    (tmp_path / "MSMGenderBias.csv").write_text(LABELS)
    options = ["data=beir", f"data.folder={tmp_path}", f"task.labels={tmp_path}/MSMGenderBias.csv"]
    evaluate(configured("evaluate", "experiment=label_agreement", *options), tmp_path / "out")
    with open(tmp_path / "out" / "label_agreement.csv") as handle:
        rows = {row["label"]: row for row in csv.DictReader(handle)}
    counts = {
        label: [int(row[group]) for group in (*GROUPS, "neutral")] for label, row in rows.items()
    }
    # "her" makes a passage female that people call neutral; a tie of "he" and "her" is neutral.
    assert counts == {"female": [2, 0, 0], "male": [0, 1, 0], "neutral": [1, 0, 2]}
    assert float(rows["female"]["precision"]) == pytest.approx(2 / 3)
    assert float(rows["neutral"]["recall"]) == pytest.approx(2 / 3)
    # agreement 5/6; by chance (2 * 3 + 1 * 1 + 3 * 2) / 36
    kappa = (5 / 6 - 13 / 36) / (1 - 13 / 36)
    shown = " ".join(capsys.readouterr().out.split())
    assert "6 documents, 1 more labels" in shown
    assert f"accuracy 0.833, Cohen's kappa {kappa:.3f}" in shown


def test_kappa_is_0_for_chance_and_1_for_equal_labels():
    assert LabelAgreement(("a", "n"), ((2, 2), (2, 2)), 0).kappa == 0
    assert LabelAgreement(("a", "n"), ((2, 0), (0, 3)), 0).kappa == 1
    one_group = LabelAgreement(("a", "n"), ((0, 0), (0, 3)), 0)
    assert math.isnan(one_group.kappa)
    assert math.isnan(one_group.precision("a"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "doc_id,gender_bias\n1,X\n",
            "line 2: unknown label 'X'; choose from female, male, neutral",
        ),
        ("1,M\n1,F\n", "line 2: document '1' has another label above"),
        ("1;M\n", "line 1: expected a document id and a label"),
    ],
)
def test_a_malformed_file_of_labels_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_labels(tmp_path / "labels.csv", GROUPS)


def test_names_of_groups_and_tabs_are_taken_too(tmp_path):
    (tmp_path / "labels.tsv").write_text("1\tmale\n2\tneutral\n3\tF\n")
    assert read_labels(tmp_path / "labels.tsv", GROUPS) == {
        "1": "male",
        "2": "neutral",
        "3": "female",
    }


def test_labels_are_needed(tmp_path):
    with pytest.raises(ValueError, match=r"give task.labels=MSMGenderBias.csv"):
        evaluate(configured("evaluate", "experiment=label_agreement", "data=synthetic"), tmp_path)
