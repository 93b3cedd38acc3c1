"""Published figures: every file is read, what the papers' own sums and texts say holds, errors name
the file.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from backpack_rank.files import resource_folder
from backpack_rank.reporting.published import published

NAMES = sorted(path.stem for path in (resource_folder("conf") / "published").glob("*.yaml"))

TREC = ["DL19", "DL20", "DL21", "DL22", "DL23"]
BEIR = ["COVID", "Clim.", "NF", "Argu.", "FiQA"]
SORTING = ["MathSort", "WordSort", "GSM8KSort"]


@pytest.mark.parametrize("name", NAMES)
def test_every_file_says_of_what_table_it_is_and_is_read(name: str) -> None:
    text = (resource_folder("conf") / "published" / f"{name}.yaml").read_text("utf-8")
    cited = r"(Afzali et al\.|Hofstätter et al\. 2021|CapCal|Tang et al\.|DebiasFirst)"
    assert re.match(rf"# (Tables?|Figures?) [\d, and]+ of {cited}", text)
    table = published(name)
    author, _, title = table.paper.removesuffix(" (DebiasFirst)").partition(" et al., ")
    citation = (resource_folder("conf").parent / "CITATION.cff").read_text("utf-8")
    assert f"family-names: {author}," in citation
    assert title in citation
    parts = {label for labels in table.rows for label in labels}
    for name_of_part in table.known_as:
        in_a_column = any(name_of_part in column for column in table.columns)
        assert name_of_part in parts or in_a_column
    assert set(table.headings) <= {column.partition(" ")[0] for column in table.columns}
    assert not table.columns or table.rows


def test_tables_of_the_backpack_paper_are_those_of_the_documentation() -> None:
    page = (resource_folder("conf").parent / "docs" / "contributing" / "tables.md").read_text(
        "utf-8"
    )
    text = page.partition("## Published figures")[2].partition("\nThe paper draws")[0]
    shown = [
        re.findall(r"(?<= )\.\d{3,4}", line)
        for line in text.splitlines()
        if re.match(r"\| \w", line)
    ]
    table = published("fair_retrieval_table2")
    rows = [*published("fair_retrieval_table1").rows.values()]
    rows += [table.rows["10", name] for name in ("BM25", "Ours (alpha = 1)", "Ours (alpha = 0.5)")]
    for texts, row in zip(shown, rows, strict=True):
        assert texts == [figure.text for figure in row.values()]
    assert {len(row) for row in table.rows.values()} == {4}
    assert len(table.rows) == 4 * 7


def test_averages_of_debias_first_are_those_of_its_ten_collections() -> None:
    for number, rows in ((1, 8), (2, 12), (3, 10)):
        table = published(f"debias_first_table{number}")
        assert len(table.rows) == rows
        for labels in table.rows:
            if labels[0] != "-":  # rows of first stages, which the paper averaged in another way
                figures = table.values(*labels)
                ten = [figures[name] for name in table.columns[2:-1]]
                assert len(ten) == 10
                assert figures["Avg."] == pytest.approx(np.mean(ten), abs=0.061), labels


def test_averages_of_capcal_are_those_of_its_five_collections() -> None:
    table = published("capcal_table1")
    for labels in table.rows:
        figures = table.values(*labels)
        for average, names in (("InD", TREC), ("OOD", BEIR)):
            assert figures[average] == pytest.approx(
                np.mean([figures[name] for name in names]), abs=6e-5
            ), labels


def test_tables_of_one_paper_agree_where_they_repeat_figures() -> None:
    first = published("capcal_table1")
    for labels, printed in published("capcal_table5").rows.items():
        if labels[1] != "PSC":
            assert all(first.rows[labels][name] == figure for name, figure in printed.items())
    base = published("capcal_table3").values("Base (No Calibration)")
    assert base == published("capcal_table2").values("BM25", "Base")
    assert base == published("capcal_table6").values("Qwen3-0.6B", "Base")
    small = first.values("Qwen3-0.6b", "Base")
    assert {name: round(100 * small[name], 2) for name in TREC} == base
    of_table_1 = published("debias_first_table1").values("DebiasFirst", "Original")
    assert of_table_1 == published("debias_first_table2").values("DebiasFirst", "Contriever")
    assert of_table_1 == published("debias_first_table3").values("DebiasFirst", "Original")
    sorting, borda, reranked = (published(f"psc_table{number}") for number in (3, 9, 4))
    for model in ("GPT-3.5", "GPT-4"):
        for kind, name in (("Orig.", "Orig."), ("PSC", "Our PSC")):
            assert (
                borda.values(f"{model} ({name})")["MathSort"]
                == sorting.values(model)[f"MathSort {kind}"]
            )
    for name, way in (("GPT-4 (Our PSC)", "PSC"), ("GPT-4 (Orig.)", "once")):
        assert (
            borda.values(name)["DL19"]
            == reranked.values("BM25", "100", "RankGPT (GPT-4)", way)["DL19"]
        )


def test_gains_of_tang_et_al_are_those_that_its_text_names() -> None:
    # "LLaMA2-7B, 13B, and 70B attain average score increases of 157%, 28%, and 12%", "Mistral and
    # Zephyr improve by 42% and 106%".
    named = {
        "LLaMA2-7B": 157,
        "LLaMA2-13B": 28,
        "LLaMA2-70B": 12,
        "Mistral-7B": 42,
        "Zephyrβ-7B": 106,
    }
    for model, percent in named.items():
        row = published("psc_table3").values(model)
        gains = [row[f"{task} PSC"] / row[f"{task} Orig."] - 1 for task in SORTING]
        assert 100 * np.mean(gains) == pytest.approx(percent, abs=1), model
    # "yielding gains on 13 out of 16 model-dataset combinations"; "beats the maximum individual
    # score".
    table, best = published("psc_table4"), published("psc_table4_best")
    gains = []
    for *labels, way in table.rows:
        if way == "PSC":
            single = table.values(*labels, "once")
            single |= best.values(*labels, "best") if (*labels, "best") in best.rows else {}
            gains += [
                figure > single[test] for test, figure in table.values(*labels, "PSC").items()
            ]
    assert (len(gains), sum(gains)) == (16, 13)


def test_marks_stand_apart_from_figures_and_a_dash_is_none() -> None:
    printed = published("rotation_table5").rows["BERT_DOT", "MS(Debiased) -> SQuAD(Original)", "c"]
    assert {name: (figure.value, figure.marks) for name, figure in printed.items()} == {
        "nDCG@10": (0.792, "ab"),
        "MRR@10": (0.748, "ab"),
        "R@10": (0.927, "b"),
    }
    best = published("psc_table4_best")
    assert all(len(row) == 2 for row in best.rows.values())
    assert published("capcal_table1").shown == (*TREC, *BEIR)


GOOD = "paper: P\ntable: Table 1\ncolumns: [a, b]\nrows: |\n  x | .5 -\n  y | 1:†‡ 2\n"


def test_a_file_of_ones_own_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD, "utf-8")
    table = published(str(path))
    assert (table.name, table.file_name, table.source, table.scale) == (
        "mine",
        "mine",
        "P, Table 1",
        1,
    )
    assert table.values("x") == {"a": 0.5}
    assert table.rows["y",]["a"].marks == "†‡"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (GOOD, "", "there must be paper and table"),
        ("paper: P\n", "", "there must be paper and table"),
        ("paper: P", "papers: P", "there must be paper and table"),
        ("[a, b]", "[a", "while parsing"),
        ("[a, b]", "a", "columns must be a list"),
        ("columns", "says: x\ncolumns", "says must be a mapping"),
        ("columns", "shown: [c]\ncolumns", "shown has c, which is none of the columns"),
        (".5 -", ".5", r"1 figures for 2 columns in the row 'x \| .5'"),
        (".5 -", ".5 half", "b is 'half', which is no number, in the row 'x"),
        ("y |", "x |", "there are two rows x"),
        ("y |", "y | z |", "rows have different numbers of labels"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_named(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace(old, new), "utf-8")
    with pytest.raises(ValueError, match=rf"mine\.yaml(:| is not YAML) (?s:.*){problem}"):
        published(str(path))


def test_a_table_that_does_not_exist_is_said_with_those_that_do() -> None:
    with pytest.raises(
        ValueError,
        match="nothing: there is no such published table; use one of capcal_table1, capcal",
    ):
        published("nothing")
