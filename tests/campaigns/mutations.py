"""Right inputs with drawn changes, and what becomes of each: requests, folders, downloads, audits.

    python -m tests.campaigns.mutations --seed 0 --cases 800

Nobody has written down what is to be expected of a change. So what is taken is held against
another reading of the same bytes: answers of the server against the ranker in Python, files of
audits against a reader of a few lines, folders and downloads against what they were before.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1] / "shared"),
    str(Path(__file__).resolve().parents[2]),
]

import httpx  # noqa: E402
import numpy as np  # noqa: E402
import public_files  # noqa: E402
from folders_of_strangers import classifier  # noqa: E402
from rerank_servers import Running, running  # noqa: E402

import backpack_rank  # noqa: E402
from backpack_rank.data.collection import Collection, MemoryStore  # noqa: E402
from backpack_rank.data.public.downloads import Downloads  # noqa: E402
from backpack_rank.data.public.layout import content_digest  # noqa: E402
from backpack_rank.data.public.sets import SETS, get  # noqa: E402
from backpack_rank.data.queries import read_queries  # noqa: E402
from backpack_rank.data.trec import read_qrels, read_run  # noqa: E402
from backpack_rank.evaluation.group_files import GroupSource  # noqa: E402
from backpack_rank.models.loading import load_ranker, save_ranker  # noqa: E402
from backpack_rank.pipelines.errors import MISTAKES, is_mistake, sentence_of  # noqa: E402
from backpack_rank.serving.kinds import served  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "rankers"
VERDICTS = ("refused in a sentence", "taken as it is written", "unclear", "traceback", "otherwise")
REFUSED, TAKEN, UNCLEAR, TRACEBACK, OTHERWISE = VERDICTS
GOOD = (REFUSED, TAKEN)
LONGEST = 60
"""Seconds after which a case hangs."""
Verdict = tuple[str, str]
Change = Callable[[random.Random, bytes], bytes]


# Changes of bytes. Each takes a file that is right.


def _places(rng: random.Random, raw: bytes) -> tuple[int, int]:
    start = rng.randrange(len(raw))
    return start, min(len(raw), start + rng.randint(1, 40))


def flipped_bit(rng: random.Random, raw: bytes) -> bytes:
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ 1 << rng.randrange(8)]) + raw[place + 1 :]


def slice_twice(rng: random.Random, raw: bytes) -> bytes:
    start, end = _places(rng, raw)
    return raw[:end] + raw[start:]


def slice_moved(rng: random.Random, raw: bytes) -> bytes:
    start, end = _places(rng, raw)
    rest = raw[:start] + raw[end:]
    place = rng.randrange(len(rest) + 1)
    return rest[:place] + raw[start:end] + rest[place:]


def slice_of_zeros(rng: random.Random, raw: bytes) -> bytes:
    start, end = _places(rng, raw)
    return raw[:start] + bytes(end - start) + raw[end:]


def sign_between(rng: random.Random, raw: bytes) -> bytes:
    place = rng.randrange(len(raw) + 1)
    signs = ["\u2028", "\x85", "\u200b", "\ufeff", "\xa0", "\x0c", "\x1c", "\u0660", "\xbd"]
    signs += ["\U0001f600", '"', "'", "#", ",", ";", "\\"]
    return raw[:place] + rng.choice(signs).encode() + raw[place:]


def other_encoding(rng: random.Random, raw: bytes) -> bytes:
    text = raw.decode("latin-1")
    return text.encode(rng.choice(["utf-8", "utf-16-be", "utf-32", "cp037", "utf-7"]))


def ended_early(rng: random.Random, raw: bytes) -> bytes:
    return raw[: rng.randrange(len(raw))]


BYTES: list[Change] = [
    flipped_bit,
    slice_twice,
    slice_moved,
    slice_of_zeros,
    sign_between,
    other_encoding,
    ended_early,
]


# Changes of tables: of the cells of one line, or of the lines.


def _one_line(change: Callable[[random.Random, list[str], str], list[str]]) -> Change:
    def make(rng: random.Random, raw: bytes) -> bytes:
        lines = raw.decode().splitlines()
        place = rng.randrange(len(lines))
        between = next((mark for mark in "\t, " if mark in lines[place]), " ")
        cells = change(rng, lines[place].split(between), between)
        lines[place] = between.join(cells)
        return ("\n".join(lines) + "\n").encode()

    return make


def _swapped(rng: random.Random, cells: list[str], _: str) -> list[str]:
    first, second = rng.randrange(len(cells)), rng.randrange(len(cells))
    cells[first], cells[second] = cells[second], cells[first]
    return cells


def _in_quotes(rng: random.Random, cells: list[str], _: str) -> list[str]:
    place = rng.randrange(len(cells))
    cells[place] = f'"{cells[place]}"'
    return cells


def _empty_cell(rng: random.Random, cells: list[str], _: str) -> list[str]:
    cells.insert(rng.randrange(len(cells) + 1), "")
    return cells


def _one_gone(rng: random.Random, cells: list[str], _: str) -> list[str]:
    del cells[rng.randrange(len(cells))]
    return cells


def _with_comment(_: random.Random, cells: list[str], between: str) -> list[str]:
    return [*cells, f"#{between}checked"]


def _other_case(rng: random.Random, cells: list[str], _: str) -> list[str]:
    place = rng.randrange(len(cells))
    cells[place] = cells[place].swapcase()
    return cells


def line_of_another_kind(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.decode().splitlines()
    kinds = ["---", "(1 row)", "...", "doc\tlabel\tnote", "NA\tNA", "{}", "q9 Q0 d9 0 -0 x y"]
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(kinds))
    return ("\n".join(lines) + "\n").encode()


def lines_in_another_order(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.decode().splitlines()
    rng.shuffle(lines)
    return ("\n".join(lines) + "\n").encode()


CELLS: list[Change] = [
    *map(_one_line, (_swapped, _in_quotes, _empty_cell, _one_gone, _with_comment, _other_case)),
    line_of_another_kind,
    lines_in_another_order,
]


# Changes of JSON: of a value somewhere in it.

VALUES: list[Any] = [
    *(None, True, -1, 0, 1e308, 2**63, "", " ", "0.5", "\u0000", "a" * 3000, "<b>", "\ud83d"),
    *([], [[]], {}, {"text": {"text": "x"}}, ["\u202e"], float("nan"), float("-inf"), "None"),
]


def value_changed(rng: random.Random, raw: bytes) -> bytes:
    content = json.loads(raw)
    holder, key = content, rng.choice(sorted(content))
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.7:
        holder = holder[key]
        key = rng.choice(sorted(holder) if isinstance(holder, dict) else range(len(holder)))
    way = rng.randrange(5)
    if way == 0:
        holder[key] = rng.choice(VALUES)
    elif way == 1:
        holder[key] = [holder[key]]
    elif way == 2:
        holder[key] = {"value": holder[key]}
    elif way == 3:
        del holder[key]
    elif isinstance(holder, dict):
        letters = list(key)
        rng.shuffle(letters)
        holder["".join(letters)] = holder.pop(key)
    else:
        holder.insert(key, rng.choice(VALUES))
    return json.dumps(content).encode("utf-8", "surrogatepass")


# What becomes of a changed input.


@contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise RuntimeError(f"it took more than {seconds} seconds")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _verdict(run: Callable[[], Verdict], *names: str) -> Verdict:
    """What ``run`` gives; or of what it raises, whether that is a sentence with one of the names."""
    try:
        with _no_longer_than(LONGEST):
            return run()
    except MISTAKES as error:
        said = sentence_of(error)
        if not is_mistake(error):
            return TRACEBACK, f"{type(error).__name__}: {said}"
        is_clear = any(name in said for name in names) and len(said.splitlines()) <= 6
        return (REFUSED if is_clear else UNCLEAR), said
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {error}"


class Requests:
    """Bodies for a server; a taken one is scored again in Python, from its own JSON."""

    name = "requests"
    body = {
        "query": "who can rewire a house?",
        "documents": ["She is an electrician.", {"text": "he sells flowers", "id": 7}, "the nurse"],
        "alpha": 0.5,
        "top_n": 3,
        "raw_scores": True,
    }

    def __init__(self, folder: Path, server: Running) -> None:
        self._server = server
        self._reranker = backpack_rank.load(FIXTURES / "backpack", device="cpu")

    def case(self, rng: random.Random) -> tuple[str, Verdict]:
        change = rng.choice([value_changed, value_changed, value_changed, *BYTES])
        content = change(rng, json.dumps(self.body).encode())
        path = rng.choice(["/v1/rerank", "/v2/rerank", "/rerank"])
        return f"{path} {change.__name__} {content[:300]!r}", self._answer(path, content)

    def _answer(self, path: str, content: bytes) -> Verdict:
        headers = {"content-type": "application/json"}
        try:
            answer = self._server.client.post(path, content=content, headers=headers)
        except httpx.HTTPError as error:
            return TRACEBACK, repr(error)
        if answer.status_code >= 500:
            return TRACEBACK, answer.text
        if answer.status_code != 200:
            said = answer.text
            is_clear = answer.headers["content-type"] == "application/json" and len(said) > 25
            return (REFUSED if is_clear else UNCLEAR), said
        body = json.loads(content)
        ranked = self._reranker.rank(
            body["query"],
            body.get("documents") or body["texts"],
            top_k=body.get("top_n") or None,
            alpha=body.get("alpha"),
            activation="logits" if body.get("raw_scores") else "sigmoid",
            rank_fields=body.get("rank_fields"),
        )
        expected = [(row["corpus_id"], row["score"]) for row in ranked]
        rows = answer.json()
        rows = rows if isinstance(rows, list) else rows["results"]
        found = [(row["index"], row.get("relevance_score", row.get("score"))) for row in rows]
        places_agree = [place for place, _ in found] == [place for place, _ in expected]
        if places_agree and np.allclose(_scores(found), _scores(expected), atol=1e-5):
            return TAKEN, ""
        return OTHERWISE, f"{found} and not {expected}"


def _scores(rows: list[tuple[int, float]]) -> list[float]:
    return [score for _, score in rows]


class Folders:
    """Saved rankers with one file changed: refused by name, or their scores are what they were.

    A folder without checksums, of another library, may be taken with other scores: nobody can know
    that one weight is another one. They are finite, and differ from document to document.
    """

    name = "folders of rankers"

    def __init__(self, folder: Path, server: Running) -> None:
        self._folder = folder
        own = folder / "own"
        save_ranker(own, *load_ranker(FIXTURES / "cross_encoder"))
        self._saved = [own, classifier(folder / "strangers")]
        self._scores = [self._predicted(saved) for saved in self._saved]

    def _predicted(self, folder: Path) -> np.ndarray:
        documents = ["he saw a nurse", "she saw the bread and fish"]
        reranker = backpack_rank.load(folder, device="cpu")
        return reranker.predict([("the doctor saw", document) for document in documents])

    def case(self, rng: random.Random) -> tuple[str, Verdict]:
        number = rng.randrange(2)
        folder = self._folder / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._saved[number], folder)
        file = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        is_json = file.suffix == ".json" and file.read_bytes()[:1] == b"{"
        change = rng.choice([*BYTES, *([value_changed] * 7 if is_json else [])])
        file.write_bytes(change(rng, file.read_bytes()))
        verdict = _verdict(lambda: self._held(number, folder), str(folder), file.name)
        return f"{self._saved[number].name}/{file.name} {change.__name__}", verdict

    def _held(self, number: int, folder: Path) -> Verdict:
        scores = self._predicted(folder)
        if np.allclose(scores, self._scores[number], atol=1e-6):
            return TAKEN, ""
        has_checksums = number == 0
        if has_checksums or not np.isfinite(scores).all() or scores[0] == scores[1]:
            return OTHERWISE, f"{scores} and not {self._scores[number]}"
        return TAKEN, ""


class Files:
    """Files of audits; a taken one is read again by a few lines of plain Python."""

    name = "files of audits"

    def __init__(self, folder: Path, server: Running) -> None:
        self._folder = folder
        documents = {f"d{number}": f"text {number}" for number in range(6)}
        self._doc_ids = list(documents)
        self._collection = Collection("tiny", MemoryStore(documents), {"q1": "a"}, {})
        self._kinds: dict[str, tuple[str, Callable[[Path], Any], Callable[[str], Any]]] = {
            "some.run": (
                "".join(f"q{1 + n // 3} Q0 d{n} {1 + n % 3} {3.5 - n % 3} t\n" for n in range(6)),
                read_run,
                lambda text: _nested(text, 6, (0, 2, 4), float),
            ),
            "some.qrels": (
                "".join(f"q{1 + n // 3} 0 d{n} {n % 3}\n" for n in range(6)),
                read_qrels,
                lambda text: _nested(text, 4, (0, 2, 3), int),
            ),
            "queries.tsv": (
                "q1\twhat is it?\nq2\twho's there\nq3\tcaf\u00e9\n",
                lambda path: dict(read_queries(path)),
                lambda text: {row[0]: row[1].strip() for row in _rows(text, "\t", 2)},
            ),
            "groups.tsv": (
                "docno\tgender\n" + "".join(f"d{n}\t{'fm'[n % 2]}\n" for n in range(6)),
                self._groups,
                self._groups_by_hand,
            ),
        }

    def case(self, rng: random.Random) -> tuple[str, Verdict]:
        name = rng.choice(sorted(self._kinds))
        text, read, by_hand = self._kinds[name]
        change = rng.choice([*BYTES, *CELLS])
        file = self._folder / name
        file.write_bytes(change(rng, text.encode()))

        def held() -> Verdict:
            found = read(file)
            try:
                expected = by_hand(file.read_bytes().decode("utf-8-sig"))
            except (AssertionError, ValueError) as error:
                return OTHERWISE, f"{found}, which has no reading by hand: {error!r}"
            if found == expected:
                return TAKEN, ""
            return OTHERWISE, f"{found} and not {expected}"

        return f"{name} {change.__name__} {file.read_bytes()!r}", _verdict(held, str(file))

    def _groups(self, path: Path) -> Any:
        source = GroupSource(str(path))
        (groups,) = source.groups(self._collection, self._doc_ids).values()
        shares_by_document = {}
        for doc_id, row in groups.rows.items():
            shares = dict(zip(groups.names, groups.shares[row].tolist(), strict=True))
            shares_by_document[doc_id] = {name: share for name, share in shares.items() if share}
        return shares_by_document

    def _groups_by_hand(self, text: str) -> Any:
        amounts: dict[str, dict[str, float]] = {}
        for number, cells in enumerate(_rows(text, "\t", 2)):
            doc_id, group = (cell.strip().strip('"') for cell in cells)
            if number == 0 and doc_id.lower() in ("docno", "doc"):
                continue
            if doc_id in self._doc_ids and group:
                assert group not in amounts.setdefault(doc_id, {})
                amounts[doc_id][group] = 1.0
        shares = {}
        for doc_id, groups in amounts.items():
            shares[doc_id] = {name: 1 / len(groups) for name in groups}
        return shares


def _rows(text: str, between: str | None, columns: int) -> Iterator[list[str]]:
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if line.strip():
            cells = line.split(between)
            assert len(cells) == columns, line
            yield cells


def _nested(text: str, columns: int, places: tuple[int, int, int], number: Any) -> Any:
    nested: dict[str, dict[str, Any]] = {}
    for cells in _rows(text, None, columns):
        query_id, doc_id, value = (cells[place] for place in places)
        assert doc_id not in nested.setdefault(query_id, {})
        nested[query_id][doc_id] = number(value)
        assert math.isfinite(nested[query_id][doc_id])
    return nested


class DownloadedFiles:
    """Files of public sets, changed on their way; and what the next command makes of them.

    Refused: nothing is kept, and the right file then gives the set. Taken: the set is the right one.
    The right files are made of the folder that BACKPACK_RANK_DATA names.
    """

    name = "downloads"
    made = {
        "grep_biasir": public_files.grep_biasir_zip,
        "nq_open_oracle": public_files.nq_open_oracle,
    }

    def __init__(self, folder: Path, server: Running) -> None:
        self._folder = folder
        data = Path(os.environ["BACKPACK_RANK_DATA"])
        self._right = {name: make(data / name) for name, make in self.made.items()}
        self._digests = {}
        for name, content in self._right.items():
            self._digests[name] = self._got(name, content, folder / "right")

    def _got(self, name: str, content: bytes, root: Path) -> list[str]:
        """Digests of the set that a command gets from a server with this content."""
        (file,) = SETS[name].files
        with public_files.serving() as server:
            server.files["/" + file.url.removeprefix("https://")] = content
            downloads = Downloads(root / ".downloads", mirror=server.url, pause=0)
            built = get(name, root, downloads)
        return [content_digest(built.folder / file) for file in ("corpus.jsonl", "queries.jsonl")]

    def case(self, rng: random.Random) -> tuple[str, Verdict]:
        name = rng.choice(sorted(self.made))
        change = rng.choice(BYTES)
        root = self._folder / "changed"
        shutil.rmtree(root, ignore_errors=True)
        content = change(rng, self._right[name])
        verdict = _verdict(lambda: self._held(name, content, root), name)
        if verdict[0] == REFUSED:
            left = [path for path in root.iterdir() if not path.name.startswith(".")]
            again = _verdict(lambda: self._held(name, self._right[name], root), name)
            if left or again[0] != TAKEN:
                verdict = OTHERWISE, f"{left} is kept, and then: {again}"
        return f"{name} {change.__name__}", verdict

    def _held(self, name: str, content: bytes, root: Path) -> Verdict:
        if self._got(name, content, root) == self._digests[name]:
            return TAKEN, ""
        return OTHERWISE, "another set is kept"


AREAS = {area.name: area for area in (Requests, Folders, Files, DownloadedFiles)}


def run(seed: int, number: int, folder: Path) -> tuple[dict[str, Counter[str]], list[str]]:
    """Verdicts by area, so many for each, and a line for every case that did not end well.

    Downloads are left out where BACKPACK_RANK_DATA is not set.
    """
    table: dict[str, Counter[str]] = {}
    wrong = []
    ranker = FIXTURES / "backpack"
    loaders = {"tiny": lambda: served("tiny", backpack_rank.load(ranker, device="cpu"))}
    with running(loaders) as server:
        for name, area in AREAS.items():
            if area is DownloadedFiles and "BACKPACK_RANK_DATA" not in os.environ:
                continue
            place = folder / name.replace(" ", "_")
            place.mkdir()
            tried = area(place, server)
            rng = random.Random(f"{seed} {name}")
            table[name] = Counter()
            for _ in range(number):
                case, (verdict, said) = tried.case(rng)
                table[name][verdict] += 1
                if verdict not in GOOD:
                    wrong.append(f"{verdict}: {name}: {case}: {said[:400]}")
    return table, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=800, help="of each kind")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        table, wrong = run(options.seed, options.cases, Path(folder))
    print("| what | tried | " + " | ".join(VERDICTS) + " |")
    print("|---|" + "---|" * (len(VERDICTS) + 1))
    for name, counts in table.items():
        numbers = " | ".join(str(counts[kind]) for kind in VERDICTS)
        print(f"| {name} | {counts.total()} | {numbers} |")
    print(f"\n{time.monotonic() - begun:.0f} s, seed {options.seed}", *wrong, sep="\n")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
