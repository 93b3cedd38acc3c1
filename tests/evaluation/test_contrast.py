"""Queries that ask for a group: the contrast set of the repository, its reader and its measure."""

from __future__ import annotations

import pytest
from read_back import csv_rows

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.evaluation.contrast import COLUMNS, contrast, load_contrast
from backpack_rank.evaluation.measure import Direction
from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.files import resource_folder


def swapped(text: str) -> str:
    return Attribute.named("gender").swap()(text).text


@pytest.mark.slow
def test_the_own_set_asks_for_groups_and_every_right_text_has_a_swap():
    gender = Attribute.named("gender")
    rows = csv_rows(resource_folder("lexicons") / "gender_contrast.csv")
    assert len(rows) >= 60
    assert len({row["topic"] for row in rows}) >= 6
    groups = [row["group"] for row in rows]
    assert abs(groups.count("female") - groups.count("male")) <= 6
    for row in rows:
        assert gender.group_queries(row["query"]), row
    texts = load_contrast("gender_contrast", swapped)
    assert len(texts.collection.documents) == 3 * len(rows)
    assert texts.topics == {row["id"]: row["topic"] for row in rows}


def test_ties_count_as_a_half():
    scores = {"right": 1.0, "swapped": 1.0, "natural": 2.0}
    run = {"a": {f"a/{kind}": score for kind, score in scores.items()}}
    run["b"] = {"b/right": 1.0, "b/swapped": 0.0, "b/natural": 0.5}
    values = contrast(run, ["a", "b"])
    assert values.mean("contrast") == 0.75
    assert values.mean("contrast natural") == 0.5
    assert measure_of("contrast natural").direction is Direction.HIGHER


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("q,t,female,first woman in space,an apple a day,he flew", "no word that a swap"),
        ("q,t,female,first woman in space,she flew,", "empty"),
        ("a,t,female,first woman in space,she flew,he flew", "occurs twice"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, why):
    file = tmp_path / "own.csv"
    file.write_text(f"{','.join(COLUMNS)}\na,t,male,first man,he walked,she walked\n{row}\n")
    with pytest.raises(ValueError, match=rf"own\.csv, line 3: .*{why}"):
        load_contrast(file, swapped)
