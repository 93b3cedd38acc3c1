"""Kinds of files with their readers, and mutations of each with what is expected of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import load_lexicon, load_one_way, load_pairs
from backpack_rank.attributes.word_classes import load_classes
from backpack_rank.attributes.wording_variants import load_wordings
from backpack_rank.data.answers import read_beir_answers, read_squad
from backpack_rank.data.documents import read_documents
from backpack_rank.data.queries import read_queries
from backpack_rank.data.sources.trec import load_trec
from backpack_rank.data.trec import read_qrels, read_run
from backpack_rank.position.lists.rank_llm import read_requests

Lines = list[str]
_LINE = ("{file}", "line {line}")


@dataclass(frozen=True)
class Mutation:
    """A change of a file that is right.

    Attributes:
        make: the bytes of the changed file, from its lines and the place of one of them.
        says: words of the sentence, with ``{file}`` and ``{line}``; None: it must be taken.
        right: of what the reader gives, where the file must be taken; None: as of the file itself.
        suffix: behind the name, such as ``.gz``.
    """

    name: str
    make: Callable[[Lines, int], bytes]
    says: tuple[str, ...] | None = _LINE
    right: Callable[[Any], bool] | None = None
    suffix: str = ""


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: of the file.
        lines: of one that is right.
        read: the reader.
        right: of what it gives for these lines.
        mutations: see :class:`Mutation`.
        beside: further files, by name.
    """

    name: str
    lines: Sequence[str]
    read: Callable[[Path], Any]
    right: Callable[[Any], bool]
    mutations: tuple[Mutation, ...]
    beside: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path, name: str, content: bytes) -> Path:
        for other, text in self.beside.items():
            (folder / other).parent.mkdir(parents=True, exist_ok=True)
            (folder / other).write_text(text, encoding="utf-8")
        (folder / name).write_bytes(content)
        return folder / name


def text(lines: Lines, end: str = "\n") -> bytes:
    return "".join(line + end for line in lines).encode("utf-8", "surrogatepass")


def at(change: Callable[[str], str], name: str, says: tuple[str, ...] | None = _LINE) -> Mutation:
    """One line changed."""

    def make(lines: Lines, place: int) -> bytes:
        lines[place] = change(lines[place])
        return text(lines)

    return Mutation(name, make, says)


def field_at(number: int, value: str, name: str, between: str | None = None) -> Mutation:
    """One field of a line changed."""

    def change(line: str) -> str:
        fields = line.split(between)
        fields[number] = value
        return (between or " ").join(fields)

    return at(change, name)


def key_at(name: str, **changes: Any) -> Mutation:
    """Keys of a JSON object changed; ``...`` takes one away."""

    def change(line: str) -> str:
        record = json.loads(line) | changes
        return json.dumps({key: value for key, value in record.items() if value is not ...})

    return at(change, name)


def whole_file(
    name: str,
    make: Callable[[bytes], bytes],
    says: tuple[str, ...] | None = ("{file}",),
    **more: Any,
) -> Mutation:
    return Mutation(name, lambda lines, place: make(text(lines)), says, **more)


def invalid_utf8(lines: Lines, place: int) -> bytes:
    parts = [line.encode() + b"\n" for line in lines]
    parts[place] = b"\xff\xfe" + parts[place]
    return b"".join(parts)


def twice(lines: Lines, place: int) -> bytes:
    return text([*lines, lines[place]])


ANY_TEXT = (
    Mutation("a line that is not UTF-8", invalid_utf8),
    whole_file("UTF-16", lambda raw: raw.decode().encode("utf-16")),
    whole_file("only zeros", lambda raw: bytes(len(raw))),
    whole_file("cut gzip", lambda raw: gzip.compress(raw)[:-9], ("{file}", "gzip"), suffix=".gz"),
    whole_file(
        "gzip with a wrong checksum",
        lambda raw: gzip.compress(raw)[:-8] + bytes(8),
        ("{file}", "gzip"),
        suffix=".gz",
    ),
    whole_file("text that is called gzip", lambda raw: raw, ("{file}", "gzip"), suffix=".gz"),
    whole_file("Windows line ends", lambda raw: raw.replace(b"\n", b"\r\n"), None),
    whole_file("byte order mark", lambda raw: b"\xef\xbb\xbf" + raw, None),
    whole_file("no last line end", lambda raw: raw.rstrip(b"\n"), None),
    whole_file("compressed", gzip.compress, None, suffix=".gz"),
)
BLANK = whole_file("blank lines", lambda raw: raw.replace(b"\n", b"\n\n"), None)
OLD_MAC = whole_file("line ends of old Macintoshes", lambda raw: raw.replace(b"\n", b"\r"))
BOMB = whole_file(
    "gzip bomb", lambda raw: gzip.compress(raw + (b" " * 999 + b"\n") * 80_000), suffix=".gz"
)
NUMBERS = ("1_0", "\uff11", "abc", "nan", "inf", "1e999", "0x10", "9" * 400, "--1", "\u0661")
INTEGERS = ("1_0", "\uff11", "1.0", "1e30", "9" * 400, str(10**30), "", "true", "\u0661")
JSON_LINES = (
    at(lambda line: line[:-1], "a brace missing"),
    at(lambda line: f"[{line}]", "a list"),
    at(lambda line: "[" * 50_000, "nested 50,000 deep"),
    at(lambda line: '{"a":' * 50_000, "objects nested 50,000 deep"),
    at(lambda line: line[:-1] + "," + line[1:], "every key twice"),
    at(lambda line: line + line, "two objects"),
    at(lambda line: "null", "null"),
    at(lambda line: "9" * 5000, "an integer of 5,000 digits"),
    at(lambda line: line.replace('"', "'"), "single quotes"),
    OLD_MAC,
)
IDS = ("", " ", "a b", "a\tb", "\ud800", 7, None, ["x"])

RUN = FileKind(
    "some.run",
    ["q1 Q0 d1 1 3.5 t", "q1 Q0 d2 2 2.5 t", "q2 Q0 d1 1 1e-3 t"],
    read_run,
    lambda run: run == {"q1": {"d1": 3.5, "d2": 2.5}, "q2": {"d1": 1e-3}},
    (
        *(field_at(4, number, f"score {number[:12]}") for number in NUMBERS),
        at(lambda line: line.rsplit(" ", 1)[0], "five columns"),
        at(lambda line: f"{line} more", "seven columns"),
        at(lambda line: line.replace(" ", ","), "commas"),
        Mutation("a line twice", twice, ("{file}", "line 4")),
        *(*ANY_TEXT, BLANK, OLD_MAC, BOMB),
    ),
)
QRELS = FileKind(
    "some.qrels",
    ["q1 0 d1 1", "q1 0 d2 0", "q2 0 d1 2"],
    read_qrels,
    lambda qrels: qrels == {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}},
    (
        *(field_at(3, number, f"relevance {number[:12]}") for number in INTEGERS),
        at(lambda line: line.rsplit(" ", 1)[0], "three columns"),
        at(lambda line: f"{line} more", "five columns"),
        Mutation("a line twice", twice, ("{file}", "line 4")),
        *(*ANY_TEXT, BLANK, OLD_MAC, BOMB),
    ),
)
QUERIES = FileKind(
    "queries.tsv",
    ["q1\twhat is it?", "q2\twho's there", "q3\tcaf\u00e9"],
    read_queries,
    lambda queries: list(queries) == ["q1", "q2", "q3"] and queries["q3"] == "caf\u00e9",
    (
        *(
            Mutation(
                f"header {header!r}",
                lambda lines, place, h=header: text([h, *lines]),
                ("{file}", "line 1", "header"),
            )
            for header in (
                "qid\tquery",
                "query_id\ttext",
                "id\ttext",
                "query-id\tquery",
                "_id\ttitle",
                "QID\tQuery",
            )
        ),
        field_at(1, "", "an empty text", "\t"),
        field_at(0, "a b", "an id with a blank", "\t"),
        field_at(0, "", "an empty id", "\t"),
        at(lambda line: line.replace("\t", " "), "no tab"),
        at(lambda line: f"{line}\tmore", "three columns"),
        Mutation("a line twice", twice, ("{file}", "line 4")),
        *(*ANY_TEXT, BLANK, OLD_MAC, BOMB),
    ),
)
JSON_QUERIES = FileKind(
    "queries.jsonl",
    [
        '{"_id": "q1", "text": "what?"}',
        '{"_id": "q2", "text": "who\'s there", "metadata": {"a": 1}}',
        '{"_id":"q3","text":"caf\u00e9"}',
    ],
    read_queries,
    lambda queries: list(queries) == ["q1", "q2", "q3"] and queries["q3"] == "caf\u00e9",
    (
        *(key_at(f"id {identifier!r}", _id=identifier) for identifier in IDS),
        *(
            key_at(f"text {value!r}", text=value)
            for value in ("", "  ", 3, None, ["a"], "a\ud800", ...)
        ),
        Mutation("a line twice", twice, ("{file}", "line 4")),
        *(*JSON_LINES, *ANY_TEXT, BLANK, BOMB),
    ),
)
DOCUMENTS = FileKind(
    "corpus.jsonl",
    [
        '{"_id": "d1", "title": "A", "text": "one"}',
        '{"_id": "d2", "title": "", "text": "two"}',
        '{"_id": "d3", "text": "\\"text\\": x"}',
    ],
    read_documents,
    lambda store: dict(store) == {"d1": "A one", "d2": "two", "d3": '"text": x'},
    (
        *(key_at(f"id {identifier!r}", _id=identifier) for identifier in IDS),
        *(key_at(f"text {value!r}", text=value) for value in (3, None, ["a"], "a\ud800", ...)),
        *(key_at(f"title {value!r}", title=value) for value in (3, ["a"], "a\udfff")),
        Mutation("a line twice", twice, ("{file}", "line 4")),
        whole_file("nothing", lambda raw: b""),
        *(*JSON_LINES, *ANY_TEXT, BLANK, BOMB),
    ),
)
TABLE = FileKind(
    "collection.tsv",
    ["d1\tone", "d2\ttwo words", "d3\tthree"],
    read_documents,
    lambda store: dict(store) == {"d1": "one", "d2": "two words", "d3": "three"},
    (
        *(
            Mutation(
                f"header {header!r}",
                lambda lines, place, h=header: text([h, *lines]),
                ("{file}", "line 1", "header"),
            )
            for header in ("id\ttext", "docid\tpassage", "pid\tpassage", "doc_id\tcontents")
        ),
        field_at(0, "a b", "an id with a blank", "\t"),
        field_at(0, "", "an empty id", "\t"),
        Mutation("a line twice", twice, ("{file}", "line 4")),
        Mutation(
            "two lines with an old line end between",
            lambda lines, place: text(["\r".join(lines[:2]), lines[2]]),
            ("{file}", "line 1", "carriage"),
        ),
        whole_file("nothing", lambda raw: b""),
        *(*ANY_TEXT, BLANK, OLD_MAC, BOMB),
    ),
)
LEXICON = FileKind(
    "words.csv",
    ["word,group", "She,female", "he,male", "\u00e9l,male"],
    load_lexicon,
    lambda lexicon: lexicon.groups == {"female": ("she",), "male": ("he", "\u00e9l")},
    (
        Mutation(
            "another header",
            lambda lines, place: text(["word,kind", *lines[1:]]),
            ("{file}", "line 1", "group"),
        ),
        Mutation("no header", lambda lines, place: text(lines[1:]), ("{file}", "line 1", "header")),
        *(
            Mutation(name, lambda lines, place, row=row: text([*lines, row]), ("{file}", "line 5"))
            for name, row in {
                "a word twice": "she,female",
                "a word in both groups": "she,male",
                "two words": "my lady,female",
                "an empty cell": ",female",
                "three cells": "her,female,x",
                "one cell": "her",
                "a field of 200,000 characters": "x" * 200_000 + ",male",
                "a control character": "a\x1b[2J,male",
            }.items()
        ),
        Mutation(
            "one group", lambda lines, place: text(lines[:2]), ("{file}", "fewer than two groups")
        ),
        whole_file("nothing", lambda raw: b""),
        whole_file(
            "bomb",
            lambda raw: gzip.compress(raw + (b" " * 999 + b"\n") * 80_000),
            ("{file}", "MB"),
            suffix=".gz",
        ),
        *(*ANY_TEXT, BLANK),
        whole_file("line ends of old Macintoshes", lambda raw: raw.replace(b"\n", b"\r"), None),
    ),
)
PAIRS = FileKind(
    "pairs.csv",
    ["female,male", "she,he", "woman,man"],
    load_pairs,
    lambda pairs: pairs.pairs == (("she", "he"), ("woman", "man")),
    (
        *(
            Mutation(name, lambda lines, place, row=row: text([*lines, row]), ("{file}", "line 4"))
            for name, row in {
                "both sides equal": "x,X",
                "a word twice": "she,him",
                "an empty side": "her,",
                "one cell": "her",
                "a long field": "y" * 200_000 + ",z",
            }.items()
        ),
        Mutation(
            "only a header", lambda lines, place: text(lines[:1]), ("{file}", "there is no pair")
        ),
        *(*ANY_TEXT, BLANK),
    ),
)
ONE_WAY = FileKind(
    "one_way.csv",
    ["word,partner", "ms,mr", "miss,mr"],
    load_one_way,
    lambda partners: partners == {"ms": "mr", "miss": "mr"},
    (
        Mutation(
            "its own partner", lambda lines, place: text([*lines, "x,x"]), ("{file}", "line 4")
        ),
        Mutation(
            "a word twice", lambda lines, place: text([*lines, "ms,mister"]), ("{file}", "line 4")
        ),
        *ANY_TEXT,
    ),
)
CLASSES = FileKind(
    "classes.csv",
    ["class,word", "he,he", "he,she", "man,man", "man,woman"],
    load_classes,
    lambda classes: (
        [word_class.words for word_class in classes.classes] == [("he", "she"), ("man", "woman")]
    ),
    (
        Mutation(
            "a word in two classes",
            lambda lines, place: text([*lines, "man,she"]),
            ("{file}", "line 6"),
        ),
        Mutation(
            "a class of one word", lambda lines, place: text([*lines, "boy,boy"]), ("{file}", "boy")
        ),
        *ANY_TEXT,
    ),
)
REQUEST = {
    "query": {"text": "how long?", "qid": 7},
    "candidates": [
        {"docid": "a", "score": 2.5, "doc": {"text": "one"}},
        {"docid": 5, "doc": {"title": "t", "contents": "two"}},
    ],
}


def _candidate(**changes: Any) -> list[dict[str, Any]]:
    return [{**REQUEST["candidates"][0], **changes}]  # type: ignore[index]


REQUESTS = FileKind(
    "requests.jsonl",
    [
        json.dumps(REQUEST | {"query": {"text": "what?", "qid": f"q{number}"}})
        for number in range(3)
    ],
    read_requests,
    lambda queries: [query.query_id for query in queries] == ["q0", "q1", "q2"],
    (
        key_at("no query", query=...),
        *(
            key_at(f"query {value!r}", query={"text": value, "qid": 1})
            for value in ("", None, 3, "a\ud800")
        ),
        *(
            key_at(f"id {value!r}", query={"text": "a", "qid": value})
            for value in ("", "a b", None, True, 1.5, "\ud800")
        ),
        key_at("candidates that are no list", candidates={}),
        *(
            key_at(f"score {value!r:.12}", candidates=_candidate(score=value))
            for value in ("1", True, 10**400, [1], float("nan"))
        ),
        *(
            key_at(f"document {value!r:.24}", candidates=_candidate(doc=value))
            for value in (None, {}, {"text": 3}, {"text": "\udc00"}, "x")
        ),
        *(
            key_at(f"title {value!r}", candidates=_candidate(doc={"text": "a", "title": value}))
            for value in (3, ["a"], "\udc00")
        ),
        key_at("a document twice", candidates=_candidate() * 2),
        Mutation("a line twice", twice, ("{file}", "line 4")),
        whole_file("nothing", lambda raw: b""),
        *(*JSON_LINES, *ANY_TEXT, BLANK, BOMB),
    ),
)
REQUEST_LIST = FileKind(
    "requests.json",
    [json.dumps([REQUEST])],
    read_requests,
    lambda requests: [request.query_id for request in requests] == ["7"],
    (
        whole_file("an object", lambda raw: raw.strip()[1:-1]),
        whole_file("cut", lambda raw: raw[:-9]),
        whole_file("nested 50,000 deep", lambda raw: b"[" * 50_000),
        whole_file("keys twice", lambda raw: raw.replace(b'"candidates"', b'"query"')),
        whole_file(
            "another query",
            lambda raw: raw.replace(b'"qid": 7', b'"qid": 7.5'),
            ("{file}", "request 1"),
        ),
        *(mutation for mutation in ANY_TEXT if mutation.name != "a line that is not UTF-8"),
    ),
)
WORDINGS = FileKind(
    "wordings.jsonl",
    [
        json.dumps({"query_id": "q1", "item": "i", "group": group, "doc_id": group[0]})
        for group in ("male", "female", "neutral")
    ],
    lambda path: load_wordings(path.parent),
    lambda worded: worded.items["q1"][0].documents == {"male": "m", "female": "f", "neutral": "n"},
    (
        *(key_at(f"group {value!r}", group=value) for value in ("m", "", 3, None)),
        *(key_at(f"relevance {value!r:.8}", relevance=value) for value in ("1", 1.5, True)),
        Mutation(
            "one document as both sides",
            lambda lines, place: text(
                [line.replace('"doc_id": "f"', '"doc_id": "m"') for line in lines]
            ),
            ("{file}", "line 2", "'m'"),
        ),
        Mutation(
            "two documents of a group",
            lambda lines, place: text([*lines, lines[0].replace('"m"', '"x"')]),
            ("{file}", "line 4"),
        ),
        *JSON_LINES,
        *(mutation for mutation in ANY_TEXT if not mutation.suffix),
    ),
    {
        "queries.jsonl": '{"_id": "q1", "text": "a"}\n',
        "corpus.jsonl": '{"_id": "m", "text": "a"}\n',
    },
)
ANSWERS = FileKind(
    "answers.jsonl",
    [
        '{"query_id": "q1", "doc_id": "d1", "start": 0, "text": "one"}',
        '{"query_id": "q1", "doc_id": "d1", "text": "two"}',
    ],
    lambda path: read_beir_answers(path.parent),
    lambda answers: [row.text for row in answers.rows] == ["one", "two"],
    (
        *(key_at(f"start {value!r}", start=value) for value in (-1, 99, "0", 1.5, True)),
        key_at("another query", query_id="q9"),
        key_at("another document", doc_id="d9"),
        key_at("an empty text", text=" ", start=...),
        *JSON_LINES,
        *(mutation for mutation in ANY_TEXT if not mutation.suffix),
    ),
    {
        "queries.jsonl": '{"_id": "q1", "text": "a"}\n',
        "corpus.jsonl": '{"_id": "d1", "text": "one and two"}\n',
    },
)
SQUAD = FileKind(
    "train-v1.1.json",
    [
        json.dumps(
            {
                "data": [
                    {
                        "paragraphs": [
                            {
                                "context": "one two",
                                "qas": [
                                    {"id": "q", "answers": [{"text": "two", "answer_start": 4}]}
                                ],
                            }
                        ]
                    }
                ]
            }
        )
    ],
    read_squad,
    lambda answers: answers.rows[0].text == "two",
    (
        whole_file("another place", lambda raw: raw.replace(b": 4", b": 3")),
        whole_file("a place in words", lambda raw: raw.replace(b": 4", b': "4"')),
        whole_file("no data", lambda raw: raw.replace(b'"data"', b'"date"')),
        whole_file("cut", lambda raw: raw[:-5]),
        whole_file("nested 50,000 deep", lambda raw: b"[" * 50_000),
        whole_file("half a surrogate pair", lambda raw: raw.replace(b"one two", b"\\ud800ne two")),
        *(mutation for mutation in ANY_TEXT if mutation.name != "a line that is not UTF-8"),
    ),
)
_ALIASES = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
ATTRIBUTE = FileKind(
    "size.yaml",
    [
        "name: size",
        "lexicon: gender_words",
        "sign: male_minus_female",
        "pairs: gender_pairs",
        "sides: [female, male]",
    ],
    lambda path: Attribute.named(str(path)),
    lambda attribute: attribute.name == "size",
    (
        whole_file("alias bomb", lambda raw: _ALIASES.encode(), ("{file}", "aliases")),
        whole_file("a node within itself", lambda raw: b"name: &a [*a]\n"),
        whole_file(
            "code",
            lambda raw: b"name: !!python/object/apply:os.system [id]\n",
            ("{file}", "not YAML"),
        ),
        whole_file("not YAML", lambda raw: b"a: [\n", ("{file}", "not YAML")),
        whole_file("a list", lambda raw: b"- a\n"),
        whole_file("nothing", lambda raw: b""),
        whole_file("nested 50,000 deep", lambda raw: b"[" * 50_000, ("{file}", "not YAML")),
        whole_file("an unknown key", lambda raw: raw + b"colour: red\n", ("{file}", "colour")),
        whole_file("one side", lambda raw: raw.replace(b", male]", b"]"), ("{file}", "sides")),
        Mutation("a line that is not UTF-8", invalid_utf8),
    ),
)


def _judged(path: Path) -> Any:
    return load_trec("small", path.parent / "collection.tsv", path.parent / "queries.tsv", path)


JUDGED = FileKind(
    "judged.qrels",
    ["q1 0 d1 1", "q1 0 d9 0"],
    _judged,
    lambda collection: collection.qrels == {"q1": {"d1": 1, "d9": 0}},
    (
        whole_file(
            "all of another collection",
            lambda raw: raw.replace(b"d1", b"x1"),
            ("{file}", "none of its 2 judged documents"),
        ),
    ),
    {"collection.tsv": "d1\tone\nd2\ttwo\n", "queries.tsv": "q1\twhat?\n"},
)
FILES = (
    *(RUN, QRELS, QUERIES, JSON_QUERIES, DOCUMENTS, TABLE, LEXICON, PAIRS, ONE_WAY, CLASSES),
    *(REQUESTS, REQUEST_LIST, WORDINGS, ANSWERS, SQUAD, ATTRIBUTE, JUDGED),
)
