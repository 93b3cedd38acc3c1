"""Public collections: downloads that survive a bad connection, and folders like the measured ones.

The files that the server has are made of the measured folders in the owners' formats, since nothing
is downloaded here: docs/contributing/reliability.md says what that proves.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import public_files
import pytest
from forked import run_forked
from hydra.errors import InstantiationException
from in_process import configured
from public_files import PublicServer, serving

from backpack_rank import cli
from backpack_rank.checks import UsageError
from backpack_rank.data.public import builders, sets
from backpack_rank.data.public.builders import build_gender_sentences, build_nq_open_oracle
from backpack_rank.data.public.downloads import ATTEMPTS, Downloads, PublicFile
from backpack_rank.data.public.layout import content_digest
from backpack_rank.data.public.names import NAMES, VARIABLE, how_to_get, named_data_folder
from backpack_rank.data.public.sets import SETS, compared, get
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.pipelines.chosen_data import dataset_of

pytest.importorskip("pooch")
ROOT = Path(__file__).resolve().parents[2]
CONTENT = bytes(range(256)) * 2000
FILE = PublicFile(
    "https://example.org/some/file.bin", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
)
PLACE = "/example.org/some/file.bin"


@pytest.fixture
def server():
    with serving() as running:
        running.files[PLACE] = CONTENT
        yield running


@pytest.fixture
def downloads(server: PublicServer, tmp_path: Path) -> Downloads:
    return Downloads(tmp_path / "downloads", mirror=server.url, pause=0)


def test_a_file_is_fetched_once(server: PublicServer, downloads: Downloads) -> None:
    for _ in range(2):
        assert downloads.fetch(FILE).read_bytes() == CONTENT
    assert server.asked == [(PLACE, None)]


def test_a_broken_connection_is_gone_on_with_where_it_broke(server, downloads) -> None:
    server.breaks, server.after = 2, 140_000
    assert downloads.fetch(FILE).read_bytes() == CONTENT
    # Whole pieces of 64 KiB are kept.
    assert server.asked == [(PLACE, None), (PLACE, "bytes=131072-"), (PLACE, "bytes=262144-")]


def test_a_server_without_ranges_sends_all_again(server, downloads) -> None:
    server.breaks, server.ranges = 1, False
    assert downloads.fetch(FILE).read_bytes() == CONTENT
    assert len(server.asked) == 2


def test_what_arrived_is_kept_for_the_next_command(server, downloads) -> None:
    server.breaks, server.after = ATTEMPTS, 70_000
    message = f"broke {ATTEMPTS} times .* the same command goes on"
    with pytest.raises(ConnectionError, match=message):
        downloads.fetch(FILE)
    assert (downloads.folder / "file.bin.part").stat().st_size == 65_536 * ATTEMPTS
    assert downloads.fetch(FILE).read_bytes() == CONTENT
    assert server.asked[-1] == (PLACE, f"bytes={65_536 * ATTEMPTS}-")


def test_without_a_connection_nothing_is_said_to_be_kept(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path / "downloads", mirror="http://127.0.0.1:9", pause=0)
    with pytest.raises(ConnectionError, match="nothing arrived: is this machine on"):
        downloads.fetch(FILE)
    assert list(downloads.folder.iterdir()) == []


def test_a_file_that_is_not_the_published_one_is_refused_and_not_kept(server, downloads) -> None:
    server.files[PLACE] = CONTENT[::-1]
    with pytest.raises(ValueError, match="the content is not the published one"):
        downloads.fetch(FILE)
    assert list(downloads.folder.iterdir()) == []
    server.files[PLACE] = CONTENT
    assert downloads.fetch(FILE).read_bytes() == CONTENT


@cache  # one of them is large
def bad_archives() -> dict[str, bytes]:
    """What stands where an archive should be."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("WikiQACorpus/WikiQA-dev.tsv", "h\n" + "a\tb\n" * 200)
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("WikiQACorpus/WikiQA-dev.tsv", b"0" * (builders.MOST_UNPACKED + 1))
    damaged = bytearray(whole.getvalue())
    damaged[60] ^= 0xFF
    return {
        "a proxy's page": b"<html><body>Please log in</body></html>",
        "nothing": b"",
        "half of it": whole.getvalue()[:-40],
        "another checksum": bytes(damaged),
        "no member": empty.getvalue(),
        "other columns": whole.getvalue(),
        "too much": bomb.getvalue(),
    }


@pytest.mark.parametrize("name", ["wikiqa", "grep_biasir", "nq_open_oracle", "gender_sentences"])
@pytest.mark.parametrize("kind", sorted(bad_archives()))
def test_a_download_that_cannot_be_read_is_forgotten(server, downloads, tmp_path, name, kind):
    places = [urlsplit(file.url) for file in SETS[name].files]
    for place in places:
        server.files[f"/{place.netloc}{place.path}"] = bad_archives()[kind]
    root = tmp_path / "data"
    for _ in range(2):
        server.asked.clear()
        with pytest.raises(ValueError, match=f"{name} cannot be built of http"):
            get(name, root, downloads)
        assert server.asked, "the server is asked again"
        assert [path for path in root.iterdir() if path.name != f".{name}.lock"] == []


def test_a_part_of_another_file_is_no_beginning(server, downloads):
    downloads.folder.mkdir()
    (downloads.folder / "file.bin.part").write_bytes(b"x" * (len(CONTENT) + 5))
    assert downloads.fetch(FILE).read_bytes() == CONTENT


def test_what_a_killed_command_left_goes_with_the_next(server, downloads, tmp_path):
    root = tmp_path / "data"
    (root / ".wikiqa.abc123.tmp" / "wikiqa").mkdir(parents=True)
    with pytest.raises(ConnectionError):
        get("wikiqa", root, downloads)
    assert not list(root.glob(".wikiqa.*.tmp"))


def test_a_file_that_is_not_there_is_said_with_its_address(downloads: Downloads) -> None:
    with pytest.raises(ConnectionError, match=r"some/nowhere: the server answers 404"):
        downloads.fetch(dataclasses.replace(FILE, url="https://example.org/some/nowhere"))


def test_every_name_is_a_set_and_every_set_has_a_licence_and_a_size() -> None:
    assert set(NAMES) == set(SETS)
    for public in SETS.values():
        assert public.licence
        assert public.size
    for group in sets.GROUPS.values():
        assert set(group) <= set(SETS)


def test_digests_of_wording_and_not_of_white_space(tmp_path: Path) -> None:
    first, second = tmp_path / "corpus.jsonl", tmp_path / "corpus.jsonl.gz"
    row = {"_id": "1", "title": "", "text": "a  b "}
    first.write_text(json.dumps(row) + "\n")
    second.write_bytes(gzip.compress((json.dumps({**row, "text": "a b"}) + "\n").encode()))
    assert content_digest(first) == content_digest(second)
    first.write_text(json.dumps({**row, "text": "a c"}) + "\n")
    assert content_digest(first) != content_digest(second)


def test_an_error_about_a_missing_folder_ends_with_the_command_that_gets_it(tmp_path: Path) -> None:
    message = r"; `backpack-rank data get dl19 trec_dl gender_bias_ir` gets it, `d"
    with pytest.raises(FileNotFoundError, match=message):
        load_beir(tmp_path / "dl19", "test")
    with pytest.raises(FileNotFoundError, match=r"in it$"):
        load_beir(tmp_path / "my_own", "test")
    for name in ("dl19", "dl20"):
        options = Path(ROOT, "conf/data", f"{name}.yaml").read_text()
        command = how_to_get(f"/data/{name}/corpus.jsonl").split("`")[1]
        read_beside = command.removeprefix(f"backpack-rank data get {name} ").split()
        assert read_beside
        for folder in read_beside:
            assert f"root}}/{folder}/" in options
    assert "data get trec_dl` gets it" in how_to_get("/data/trec_dl/qrels.dl19-passage.txt")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    message = r"data get wikiq: there is no such set; did you mean wikiqa"
    with pytest.raises(UsageError, match=message):
        cli.main(["data", "get", "wikiq"])


def test_the_list_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "squad").mkdir()
    cli.main(["data", "list", "--folder", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    states = {line.split()[0]: line.split()[1] for line in lines if line.split()[:1] != []}
    assert (states["squad"], states["wikiqa"]) == ("there", "-")
    assert "CC BY-SA 4.0" in "\n".join(lines)


def test_what_is_there_already_is_left_alone(tmp_path, capsys) -> None:
    (tmp_path / "wikiqa").mkdir()
    cli.main(["data", "get", "wikiqa", "--folder", str(tmp_path), "--mirror", "http://127.0.0.1:9"])
    assert "is there already" in capsys.readouterr().out


# What is built of the measured texts in the owners' formats, beside what was measured.


SQUAD_FILES = {"squad_train": "_TRAIN", "squad": "_DEV", "xquad_en": "_XQUAD"}


def built(
    name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[sets.Built, str]:
    """The set of that name, from a server that has its one file."""
    (file,) = SETS[name].files
    if file.sha256 is not None:
        # Not the owner's bytes, but their content in the same format.
        file = dataclasses.replace(file, sha256=hashlib.sha256(content).hexdigest())
        monkeypatch.setattr(sets, SQUAD_FILES[name], file)
        monkeypatch.setitem(SETS, name, sets._squad(name, file, ""))
    with serving() as server:
        server.files["/" + file.url.removeprefix("https://")] = content
        folder = get(name, tmp_path, Downloads(tmp_path / ".downloads", mirror=server.url))
    source = json.loads((folder.folder / "source.json").read_text())
    return folder, source["sha256"][file.url]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squad", "squad_train"])
def test_squad_is_the_measured_set_whatever_the_order_of_its_articles(
    name: str, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = public_files.squad_json(real_data / name)
    folder, digest = built(name, content, tmp_path, monkeypatch)
    assert folder.other == []
    assert {"corpus.jsonl", "queries.jsonl"} <= set(folder.same)
    assert digest == hashlib.sha256(content).hexdigest()
    answers = public_files.records(folder.folder / "answers.jsonl")
    assert len(answers) == {"squad": 18_015, "squad_train": 87_599}[name]
    if name == "squad":
        measured = load_beir(real_data / name, "test")
        assert load_beir(folder.folder, "test").queries == measured.queries


def test_xquad_is_the_measured_set_with_its_official_answers(real_data, tmp_path, monkeypatch):
    measured = real_data / "xquad_en"
    folder, _ = built("xquad_en", public_files.squad_json(measured), tmp_path, monkeypatch)
    assert (folder.same, folder.other) == (["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"], [])
    answers = public_files.records(folder.folder / "answers.jsonl")
    assert answers == public_files.records(measured / "answers.jsonl")


@pytest.mark.slow
def test_natural_questions_are_the_measured_set_with_its_splits(real_data, tmp_path, monkeypatch):
    measured = real_data / "nq_open_oracle"
    content = public_files.nq_open_oracle(measured)
    folder, _ = built("nq_open_oracle", content, tmp_path, monkeypatch)
    assert folder.other == []
    assert len(folder.same) == 5
    for name in ("corpus.jsonl", "queries.jsonl", "answers.jsonl"):
        theirs = public_files.records(measured / name)
        assert public_files.records(folder.folder / name) == theirs


def test_natural_questions_of_another_form_are_refused_with_file_and_line(tmp_path: Path) -> None:
    passage = {"title": "A page", "text": "Some words."}
    good = {"question": "why", "answers": [], "ctxs": [passage]}
    two_passages = {**good, "ctxs": [passage, passage]}
    source = tmp_path / "nq-open-oracle.jsonl.gz"
    for bad in (two_passages, {"question": "why"}, [1]):
        text = json.dumps(good) + "\n" + json.dumps(bad) + "\n"
        source.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(ValueError, match=r"oracle\.jsonl\.gz, line 2: expected"):
            build_nq_open_oracle(tmp_path / "folder", source)
    source.write_bytes(gzip.compress((json.dumps(good) + "\n").encode()))
    with pytest.raises(ValueError, match="1 passages in place of 2588: its owner has changed"):
        build_nq_open_oracle(tmp_path / "folder", source)


def test_sentences_of_mt_geneval_are_the_measured_pairs(real_data, tmp_path, capsys) -> None:
    measured = real_data / "gender_sentences" / "mt_geneval_pairs.jsonl"
    contents = public_files.geneval_files(measured)
    with serving() as server:
        for place, file in sets._SENTENCES.items():
            server.files["/" + file.url.removeprefix("https://")] = contents[place]
        arguments = ["--folder", str(tmp_path), "--mirror", server.url]
        cli.main(["data", "get", "gender_sentences", *arguments])
    made = tmp_path / "gender_sentences" / "mt_geneval_pairs.jsonl"
    assert public_files.records(made) == public_files.records(measured)
    assert "are those that docs/results.md measured" in capsys.readouterr().out


def test_a_changed_sentence_of_mt_geneval_is_told_and_a_short_file_is_refused(real_data, tmp_path):
    contents = public_files.geneval_files(real_data / "gender_sentences" / "mt_geneval_pairs.jsonl")
    contents["dev", "feminine"] = contents["dev", "feminine"].replace(b"due to her", b"due to them")
    paths = {}
    for (split, form), content in contents.items():
        paths[split, form] = tmp_path / f"{form}-{split}"
        paths[split, form].write_bytes(content)
    folder = tmp_path / "gender_sentences"
    build_gender_sentences(folder, paths)
    assert compared("gender_sentences", folder).other == ["mt_geneval_pairs.jsonl"]
    paths["test", "masculine"].write_text("One line.\n")
    with pytest.raises(ValueError, match=r"masculine-test has 1 lines, and geneval-test-de-4 is"):
        build_gender_sentences(folder, paths)


@pytest.mark.slow
def test_wikiqa_is_the_measured_set(real_data, tmp_path, monkeypatch) -> None:
    content = public_files.wikiqa_zip(real_data / "wikiqa")
    folder, _ = built("wikiqa", content, tmp_path, monkeypatch)
    assert folder.other == []
    assert len(folder.same) == 8
    assert load_beir(folder.folder, "dev", candidates="candidates/dev.trec").candidates


def test_grep_biasir_is_the_measured_set_with_its_wordings(real_data, tmp_path, monkeypatch):
    content = public_files.grep_biasir_zip(real_data / "grep_biasir")
    folder, _ = built("grep_biasir", content, tmp_path, monkeypatch)
    assert (folder.same, folder.other) == (["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"], [])
    for name in ("corpus.jsonl", "queries.jsonl"):
        theirs = public_files.records(real_data / "grep_biasir" / name)
        assert public_files.records(folder.folder / name) == theirs


def test_queries_are_those_that_were_published(real_data, tmp_path, capsys) -> None:
    """The owners' own bytes: their checksums are in the package."""
    with serving() as server:
        for file in SETS["gender_bias_ir"].files:
            content = (real_data / "gender_bias_ir" / file.name).read_bytes()
            server.files["/" + file.url.removeprefix("https://")] = content
        arguments = ["--folder", str(tmp_path), "--mirror", server.url]
        cli.main(["data", "get", "gender_bias_ir", *arguments])
    for file in SETS["gender_bias_ir"].files:
        assert (tmp_path / "gender_bias_ir" / file.name).is_file()
    assert f"export BACKPACK_RANK_DATA={tmp_path}" in capsys.readouterr().out
    assert not (tmp_path / ".downloads").exists()


@pytest.mark.slow
def test_passages_of_ms_marco_are_the_measured_ones(real_data: Path, tmp_path: Path) -> None:
    """From ir_datasets' own downloads, in which UTF-8 was decoded as Latin-1."""
    home = tmp_path / "home"
    public_files.write_msmarco(home, real_data)
    public_files.write_nfcorpus(home, real_data / "nfcorpus")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "IR_DATASETS_HOME": str(home),
        "IR_DATASETS_SKIP_DISK_FREE": "true",
        "IR_DATASETS_DL_TRIES": "1",
        "BACKPACK_RANK_CACHE": str(tmp_path / "cache"),
        "https_proxy": "http://127.0.0.1:9",  # a download would fail at once
    }
    names = ["dl19", "dl20", "msmarco_dev600", "trec_dl", "nfcorpus"]
    folder = tmp_path / "data"
    command = [sys.executable, "-m", "backpack_rank", "data", "get", *names]
    command += ["--folder", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("dl19", "dl20", "msmarco_dev600", "nfcorpus"):
        differences = compared(name, folder / name)
        assert differences.other == [], name
        assert len(differences.same) >= 4
    for year in (19, 20):
        file = Path("trec_dl", f"qrels.dl{year}-passage.txt")
        assert (folder / file).read_bytes() == (real_data / file).read_bytes()


def test_labels_and_queries_that_are_shipped_are_the_official_ones(real_data: Path) -> None:
    topics = real_data / "trec_dl" / "topics.msmarco-passage.dev-small.tsv"
    lines = topics.read_text(encoding="utf-8").splitlines()
    official = dict(line.split("\t") for line in lines)
    queries = public_files.records(real_data / "msmarco_dev600" / "queries.jsonl")
    known = [row for row in queries if row["_id"] in official]
    assert known
    for row in known:
        assert row["text"].split() == official[row["_id"]].split()
    relevant = set()
    for line in (real_data / "trec_dl" / "qrels.msmarco-passage.dev-small.txt").open():
        query_id, _, doc_id, _ = line.split()
        relevant.add((query_id, doc_id))
    for split in ("train", "dev", "test"):
        file = real_data / "msmarco_dev600" / "qrels" / f"{split}.tsv"
        for query_id, doc_id, label in public_files.judgements(file):
            if query_id in official:
                assert int(label) == ((query_id, doc_id) in relevant)


CHOICES = sorted((ROOT / "conf/data").glob("*.yaml"))
OF_THE_FOLDER = [path.stem for path in CHOICES if VARIABLE in path.read_text()]


@pytest.mark.parametrize("name", OF_THE_FOLDER)
def test_without_the_variable_every_choice_of_data_names_the_command_that_gets_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    with named_data_folder():
        dataset = dataset_of(configured("train", f"data={name}").data)
        for split in dataset.splits:
            with pytest.raises(InstantiationException) as caught:
                dataset.split(split)
            assert isinstance(caught.value.__cause__, FileNotFoundError)
            message = str(caught.value.__cause__)
            assert str(tmp_path / "data") in message
            command = re.search(r"`backpack-rank data get ([\w ]+)` gets it", message)
            assert command is not None, message
            assert set(command[1].split()) <= set(NAMES)
    assert VARIABLE not in os.environ


@pytest.mark.processes
def test_a_command_in_a_folder_without_data_ends_with_the_command_that_gets_it(tmp_path) -> None:
    """Nothing is set, and an empty variable is as good as none."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment["OMP_NUM_THREADS"] = "1"
    for variable in ({}, {VARIABLE: ""}):
        done = run_forked("train.py", ["recipe=minilm"], tmp_path, {**environment, **variable})
        assert done.returncode == 2
        last = done.stderr.strip().splitlines()[-1]
        assert f"there is no folder {tmp_path / 'data' / 'msmarco_dev600'}" in last
        assert "`data get minilm` all that recipe=minilm needs" in last


def test_pages_that_name_these_collections_say_where_they_are_from() -> None:
    named = re.compile(rf"\bdata=({'|'.join(OF_THE_FOLDER)})\b|{VARIABLE}")
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "data.md"]
    naming = [page for page in pages if named.search(page.read_text())]
    assert len(naming) > 5
    for page in naming:
        text = page.read_text()
        assert "data.md" in text or "backpack-rank data get" in text, page


def test_the_sorting_lists_are_the_published_files(real_data: Path, tmp_path: Path) -> None:
    with serving() as server:
        for file in SETS["sorting"].files:
            content = (real_data / "sorting" / file.name).read_bytes()
            server.files["/" + file.url.removeprefix("https://")] = content
        cli.main(["data", "get", "sorting", "--folder", str(tmp_path), "--mirror", server.url])
    for file in SETS["sorting"].files:
        assert (tmp_path / "sorting" / file.name).stat().st_size == file.size
