"""Gender-neutral query sets: formats, downloads, and the rule by lexicon."""

import gzip
import hashlib
import os
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.attributes.neutral_queries import (
    PUBLISHED,
    PublishedSet,
    load_neutral_queries,
    neutral_by_lexicon,
)
from backpack_rank.data.words import whitespace_tokens

ANNOTATED = '12,what is chalk paint,n\n7,who is steve brown, comedian?,m\n9,what is a "cow", exactly, please,n\n'
NEUTRAL = {"12": "what is chalk paint", "9": 'what is a "cow", exactly, please'}
PUBLISHED_NAMES = ("genderbias_ir", "fair_msmarco_215", "fair_dl19_30")


def write(folder: Path, text: str, name: str = "queries.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def real_data() -> Path:
    folder = os.environ.get("BACKPACK_RANK_DATA")
    if not folder:
        pytest.skip("set BACKPACK_RANK_DATA to the folder with gender_bias_ir")
    return Path(folder) / "gender_bias_ir"


@pytest.fixture
def serve(monkeypatch):
    """Starts real HTTP servers on this machine and gives their addresses."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers = []

    def start(handler) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


class HalfAnswer(BaseHTTPRequestHandler):
    """Announces more bytes than it sends, as a connection that breaks off does."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANNOTATED) + 1000))
        self.end_headers()
        self.wfile.write(ANNOTATED.encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def tiny_set(monkeypatch):
    """A published set whose content this test knows."""
    checksum = hashlib.sha256(ANNOTATED.encode()).hexdigest()
    monkeypatch.setitem(
        PUBLISHED, "tiny", PublishedSet("owner/repo/tiny.csv", checksum, "three queries")
    )
    return "tiny"


def publish(root: Path, text: str) -> Path:
    (root / "owner" / "repo").mkdir(parents=True)
    return write(root / "owner" / "repo", text, "tiny.csv")


def test_the_first_and_the_last_comma_separate(tmp_path):
    path = write(tmp_path, ANNOTATED)
    assert load_neutral_queries(path) == NEUTRAL
    assert load_neutral_queries(str(path), label="m") == {"7": "who is steve brown, comedian?"}


def test_a_compressed_file_reads_the_same(tmp_path):
    path = tmp_path / "queries.csv.gz"
    path.write_bytes(gzip.compress(ANNOTATED.encode()))
    assert list(load_neutral_queries(path)) == ["12", "9"]


def test_a_tsv_file_gives_all_its_queries(tmp_path):
    path = write(tmp_path, "3\twhat is a, b and c\n1\tcause of hernia", "fair.tsv")
    assert load_neutral_queries(path) == {"3": "what is a, b and c", "1": "cause of hernia"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.csv", "1,a,n\n2 b n\n", r"q\.csv, line 2: expected id,text,label"),
        ("q.csv", "1,a,n\n2,n\n", r"q\.csv, line 2: expected id,text,label"),
        ("q.csv", "1,a,n\n2, ,n\n", r"q\.csv, line 2: expected id,text,label with no empty part"),
        ("q.csv", "1,a,n\n,b,n\n", r"q\.csv, line 2: expected id,text,label with no empty part"),
        ("q.csv", "1,a,n\n2,b,x\n", r"q\.csv, line 2: label=x: use one of n, m, f, o"),
        (
            "q.csv",
            "1,a,n\n2,b,m\n1,c,n\n",
            r"q\.csv, line 3: query '1' occurs twice \(first on line 1\)",
        ),
        ("q.csv", "1,a,m\n", r"q\.csv: no query with label 'n' found"),
        ("q.tsv", "1\ta\n2\tb\tc\n", r"q\.tsv.*2"),
        ("q.tsv", "1\ta\n1\tb\n", r"q\.tsv.*'1'"),
        ("q.txt", "1\ta\n", r"q\.txt: the name must end in \.csv"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_line(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        load_neutral_queries(write(tmp_path, text, name))


def test_an_unknown_label_is_refused():
    with pytest.raises(ValueError, match="label=neutral: use one of n, m, f, o"):
        load_neutral_queries("genderbias_ir", label="neutral")


def test_a_source_that_is_neither_file_nor_name_lists_the_names(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"genderbias_ir, fair_msmarco_215, fair_dl19_30"):
        load_neutral_queries(tmp_path / "nothing.csv")


def test_a_named_set_is_downloaded_once_and_then_read_from_the_folder(tmp_path, serve, tiny_set):
    published = publish(tmp_path / "web", ANNOTATED)
    address = serve(partial(QuietFiles, directory=str(tmp_path / "web")))
    kept = tmp_path / "kept"
    first = load_neutral_queries(tiny_set, folder=kept, base_address=address + "/")
    assert first == NEUTRAL
    assert [path.name for path in kept.iterdir()] == ["tiny.csv"]
    published.unlink()
    assert load_neutral_queries(tiny_set, folder=kept, base_address=address) == first


def test_downloads_go_to_the_cache_folder_by_default(tmp_path, serve, tiny_set, monkeypatch):
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    publish(tmp_path / "web", ANNOTATED)
    load_neutral_queries(
        tiny_set, base_address=serve(partial(QuietFiles, directory=str(tmp_path / "web")))
    )
    assert (tmp_path / "cache" / "queries" / "tiny.csv").read_text(encoding="utf-8") == ANNOTATED


def test_changed_content_is_refused_and_not_kept(tmp_path, serve, tiny_set):
    publish(tmp_path / "web", ANNOTATED + "13,one more,n\n")
    address = serve(partial(QuietFiles, directory=str(tmp_path / "web")))
    with pytest.raises(
        ValueError, match=r"not the published one.*sha256.*give the path of your copy"
    ):
        load_neutral_queries(tiny_set, folder=tmp_path / "kept", base_address=address)
    assert not list(tmp_path.glob("kept/**/*"))


def test_a_damaged_file_in_the_folder_is_refused(tmp_path, tiny_set):
    damaged = write(tmp_path, ANNOTATED[:-5], "tiny.csv")
    with pytest.raises(ValueError, match="not the published one") as caught:
        load_neutral_queries(tiny_set, folder=tmp_path)
    assert str(damaged) in str(caught.value)


def test_an_interrupted_download_leaves_nothing_behind(tmp_path, serve, tiny_set):
    with pytest.raises(ConnectionError, match=r"tiny\.csv.*could not be downloaded"):
        load_neutral_queries(tiny_set, folder=tmp_path / "kept", base_address=serve(HalfAnswer))
    assert not list(tmp_path.glob("kept/**/*"))


def test_a_missing_file_on_the_server_names_the_address(tmp_path, serve, tiny_set):
    (tmp_path / "web").mkdir()
    address = serve(partial(QuietFiles, directory=str(tmp_path / "web")))
    with pytest.raises(ConnectionError, match=rf"{address}/owner/repo/tiny\.csv .*404"):
        load_neutral_queries(tiny_set, folder=tmp_path / "kept", base_address=address)


def test_without_network_the_error_says_what_to_fetch_and_where_to_put_it(
    tmp_path, tiny_set, serve
):
    # Port 9 (discard) is closed on ordinary machines, so the connection is refused.
    with pytest.raises(ConnectionError, match=r"three queries.*could not be downloaded") as caught:
        load_neutral_queries(tiny_set, folder=tmp_path / "kept", base_address="http://127.0.0.1:9")
    assert str(tmp_path / "kept" / "tiny.csv") in str(caught.value)
    assert "http://127.0.0.1:9/owner/repo/tiny.csv" in str(caught.value)


def test_neutral_by_lexicon_leaves_out_queries_with_a_lexicon_word():
    lexicon = Lexicon("pronouns", {"female": ("she",), "male": ("he",)})
    queries = {"c": "is she, or not", "a": "the theme", "b": "what He said", "d": "she's"}
    assert neutral_by_lexicon(queries, lexicon) == {"a": "the theme"}
    assert list(neutral_by_lexicon(queries, lexicon, whitespace_tokens)) == ["c", "a", "d"]
    assert neutral_by_lexicon({}, lexicon) == {}


def test_published_sets_have_the_published_sizes(tmp_path, serve):
    data = real_data()
    for name in PUBLISHED_NAMES:
        address = tmp_path / "web" / PUBLISHED[name].address
        address.parent.mkdir(parents=True)
        address.write_bytes((data / PUBLISHED[name].file_name).read_bytes())
    base = serve(partial(QuietFiles, directory=str(tmp_path / "web")))
    load = partial(load_neutral_queries, folder=tmp_path / "kept", base_address=base)
    neutral, fair, dl19 = (load(name) for name in PUBLISHED_NAMES)
    assert (len(neutral), len(fair), len(dl19)) == (1765, 215, 30)
    assert fair.items() <= neutral.items()
    assert {label: len(load("genderbias_ir", label=label)) for label in "nmfo"} == {
        "n": 1765,
        "m": 1202,
        "f": 742,
        "o": 41,
    }
