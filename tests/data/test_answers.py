"""Answers from BEIR folders, SQuAD's format and ir_datasets, and what is said of broken ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from irds_home import PASSAGES, build_home, run_offline, write_gzip

from backpack_rank.data.answers import Answer, load_answers, read_beir_answers, read_squad
from backpack_rank.data.json_lines import write_jsonl

CORPUS = [
    {"_id": "d0", "title": "Trains", "text": "The 😀 train left Zürich at noon."},
    {"_id": "d1", "title": "", "text": "No title here."},
]
QUERIES = [{"_id": f"q{n}", "text": text} for n, text in enumerate(("where?", "what?", "why?"))]
ROWS = [
    {"query_id": "q0", "doc_id": "d0", "start": 17, "text": "Zürich"},
    {"query_id": "q1", "doc_id": "d1", "start": 2, "text": " title ", "n_occ": 2},
    {"query_id": "q1", "doc_id": "d0", "text": "a rail coach"},
]


def write(folder: Path, rows: list[dict] | str = ROWS, packed: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    ending = "jsonl.gz" if packed else "jsonl"
    for name, records in (("corpus", CORPUS), ("queries", QUERIES), ("answers", rows)):
        if isinstance(records, str):
            (folder / f"{name}.{ending}").write_text(records)
        else:
            write_jsonl(folder / f"{name}.{ending}", records)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_a_beir_folder_gives_its_answers(tmp_path: Path, packed: bool) -> None:
    answers = load_answers(str(write(tmp_path / "trips", packed=packed)))
    assert answers.name == "trips"
    assert answers.unanswered == 1
    assert answers.rows == (
        Answer("q0", "d0", "Zürich", 17),
        Answer("q1", "d1", "title", 3, certain=False),
        Answer("q1", "d0", "a rail coach", None),
    )
    shown = [text[slice(*row.span)] for row, text in answers.with_texts() if row.span]
    assert shown == ["Zürich", "title"]


def test_places_move_behind_titles(tmp_path: Path) -> None:
    answers = read_beir_answers(write(tmp_path), title=True)
    assert [row.start for row in answers.rows] == [17 + len("Trains "), 3, None]
    for row, text in answers.with_texts():
        if row.span is not None:
            assert text[slice(*row.span)] == row.text
    assert dict(answers.documents)["d0"].startswith("Trains The")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"start": 16},
            r"line 2: the answer 'Zürich' of query 'q0' does not stand at 16 of document 'd0', where .*code",
        ),
        (
            {"start": -1},
            r"line 2: .* does not stand at -1 of document 'd0', where there is nothing",
        ),
        ({"start": "17"}, "line 2: expected a whole number or null under 'start', got '17'"),
        ({"start": True}, "line 2: expected a whole number or null under 'start', got True"),
        ({"doc_id": "d9"}, r"line 2: document id 'd9' of query 'q0' is not in .*corpus.jsonl"),
        ({"query_id": "q9"}, "line 2: query id 'q9' is not in queries.jsonl"),
        ({"text": None}, "line 2: expected a string under 'text', got None"),
        ({"text": " ", "start": 3}, "line 2: the answer of query 'q0' in document 'd0' is empty"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=rf"answers\.jsonl, {message}"):
        read_beir_answers(write(tmp_path, [ROWS[1], ROWS[0] | change]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: expected a JSON object"),
        ("[1]\n", r"line 1: .*got \[1\]"),
        ("\n", "holds no answers"),
    ],
)
def test_a_file_without_rows_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_beir_answers(write(tmp_path, text))


def test_a_folder_without_answers_says_so(tmp_path: Path) -> None:
    (write(tmp_path) / "answers.jsonl").unlink()
    message = r"there is no .*answers\.jsonl \(nor answers\.jsonl\.gz\)"
    with pytest.raises(FileNotFoundError, match=message):
        load_answers(str(tmp_path))


def squad(**changes: object) -> dict:
    """Two articles of SQuAD 2.0; ``changes`` are of the first answer."""
    answer = {"text": "noon", "answer_start": 23} | changes
    article = {
        "context": "The train left Bern at noon.",
        "qas": [
            {"id": "a", "question": "When?", "answers": [answer]},
            {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
        ],
    }
    two = {
        "context": "Ça va. Oui.",
        "qas": [{"id": "c", "question": "?", "answers": [{"text": "Oui", "answer_start": 7}] * 3}],
    }
    return {
        "version": "v2.0",
        "data": [
            {"title": "Trains", "paragraphs": [article]},
            {"title": "Talk", "paragraphs": [{"context": "Nothing.", "qas": []}, two]},
        ],
    }


def save(path: Path, content: object) -> Path:
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    path.write_text(text, encoding="utf-8")
    return path


def test_squad_gives_each_paragraph_and_equal_answers_once(tmp_path: Path) -> None:
    answers = load_answers(str(save(tmp_path / "dev-v2.0.json", squad())))
    assert answers.name == "dev-v2.0"
    assert dict(answers.documents) == {
        "0-0": "The train left Bern at noon.",
        "1-0": "Nothing.",
        "1-1": "Ça va. Oui.",
    }
    assert answers.rows == (Answer("a", "0-0", "noon", 23), Answer("c", "1-1", "Oui", 7))
    assert answers.unanswered == 1
    packed = tmp_path / "dev.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(squad()).encode()))
    assert read_squad(packed).rows == answers.rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            squad(answer_start=2),
            r"data\[0\].paragraphs\[0\].qas\[0\].answers\[0\]: the answer 'noon' of query 'a'",
        ),
        (
            squad(answer_start=None),
            r"answers\[0\]: expected a whole number under answer_start, got None",
        ),
        (squad(text=5), r"answers\[0\]: expected a string under 'text', got 5"),
        (
            {"data": [{"paragraphs": [{"context": 1}]}]},
            r"data\[0\].paragraphs\[0\]: expected a string under 'context'",
        ),
        (
            {"data": [{"title": "x"}]},
            r"data\[0\]: expected a list under 'paragraphs', as in SQuAD's train-v1.1.json",
        ),
        ([], "expected a list under 'data'"),
        ({"data": []}, "holds no answers"),
        ('{"data": [\n{"title": ]}', r"line 2: expected JSON in SQuAD's format: .* \(column 11\)"),
    ],
)
def test_what_is_not_squad_is_named_by_its_place(tmp_path, content: object, message: str) -> None:
    with pytest.raises(ValueError, match=rf"train\.json.*{message}"):
        load_answers(str(save(tmp_path / "train.json", content)))


def test_an_unknown_source_lists_what_there_can_be() -> None:
    message = r"answers of squat: there is neither a folder nor .* msmarco-qna/train"
    with pytest.raises(ValueError, match=message):
        load_answers("squat")


@pytest.mark.slow
def test_msmarco_qna_gives_answers_for_its_selected_passages(tmp_path: Path) -> None:
    home = build_home(tmp_path)
    answers = {
        "0": ["in a hospital", " In a hospital "],
        "1": ["No Answer Present."],
        "2": ["they fly planes", ""],
    }
    file = home / "msmarco-qna" / "train_v2.1.json.gz"
    data = json.loads(gzip.decompress(file.read_bytes()))
    write_gzip(file, json.dumps(data | {"answers": answers}))
    shown = run_offline(
        home,
        """
from backpack_rank.data.answers import load_answers
found = load_answers('msmarco-qna/train')
rows = [[row.query_id, row.doc_id, row.text, row.start, text] for row, text in found.with_texts()]
said = []
for name in ('msmarco-qna/eval', 'msmarco-passage/dev/small'):
    try:
        load_answers(name)
    except ValueError as error:
        said.append(str(error))
print(json.dumps([found.name, rows, found.unanswered, said]))
""",
    )
    assert shown == [
        "msmarco-qna/train",
        [
            ["11", "0-0", "in a hospital", None, PASSAGES["0"]],
            ["11", "0-0", "In a hospital", None, PASSAGES["0"]],
            ["13", "1-1", "they fly planes", None, PASSAGES["1"]],
        ],
        1,
        [
            "msmarco-qna/eval has no qrels, so nothing is known of answers in documents",
            "the queries of msmarco-passage/dev/small have no answers; msmarco-qna/train has some",
        ],
    ]


def test_answers_of_the_real_collections_stand_at_their_places(real_data: Path) -> None:
    answers = load_answers(str(real_data / "xquad_en"), title=True)
    assert len(answers.rows) == 1190
    assert all(text[slice(*row.span)] == row.text for row, text in answers.with_texts() if row.span)
