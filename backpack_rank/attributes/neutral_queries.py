"""Gender-neutral query sets: the queries on which gender bias is measured.

A ranking for "how old is joe" has every reason to show male wording. Bias is therefore measured on
queries that people judged gender-neutral (Rekabsaz and Schedl 2020; Rekabsaz et al. 2021). The
queries of the two MS MARCO sets belong to ``msmarco-passage/dev``; none is in ``dev/small``.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from backpack_rank.attributes.lexicon import Lexicon, count_groups
from backpack_rank.checks import one_of
from backpack_rank.data.collection import Queries
from backpack_rank.data.public.names import how_to_get
from backpack_rank.data.queries import read_queries_tsv
from backpack_rank.data.text_files import fail, read_rows, refuse_header
from backpack_rank.data.words import Tokenizer, word_tokens
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, cache_dir

BASE_ADDRESS = "https://raw.githubusercontent.com"
LABELS = ("n", "m", "f", "o")
_TIMEOUT = 30.0


@dataclass(frozen=True)
class PublishedSet:
    """A query set in a public repository, which is downloaded when it is first used.

        PUBLISHED["fair_msmarco_215"].file_name

    Attributes:
        address: owner, repository, commit and path of the file, appended to the base address.
        sha256: of the published file's bytes, so that a changed or damaged file is noticed.
        content: what it holds, for messages.
    """

    address: str
    sha256: str
    content: str

    @property
    def file_name(self) -> str:
        return self.address.rsplit("/", 1)[1]


PUBLISHED = {
    "genderbias_ir": PublishedSet(
        "navid-rekabsaz/GenderBias_IR/e734554ded0c55e11f514bdde441d41075221974/resources/queries_gender_annotated.csv",
        "5ed2f3b3892495dd4d240fc2599fd9335b545f4286705b94607a354f2ad19e3d",
        "3,750 annotated MS MARCO queries, 1,765 of them labelled n",
    ),
    "fair_msmarco_215": PublishedSet(
        "CPJKU/FairnessRetrievalResults/bab397101751af58c10dc82bee3235fbfa0c32ee/fairnesssensitive_queries/"
        "msmarco_passage.dev.fair.tsv",
        "4fe4a2a0fb0302bf45d955b178f8920c49723e1107e8d68bbf65c9b3f7217c7a",
        "215 fairness-sensitive MS MARCO queries",
    ),
    "fair_dl19_30": PublishedSet(
        "CPJKU/FairnessRetrievalResults/4b710430313b7b7e48d37b64768e67ee69ad5c53/resources/"
        "fairnesssensitive_queries/trecdeep19_passage.fair.tsv",
        "45efbe9fc9e44007f8cb1e3f58cea903a2ab9f8d22373c9a69ec11c282851612",
        "30 fairness-sensitive queries of TREC Deep Learning 2019",
    ),
}
"""Names that :func:`load_neutral_queries` accepts in place of a path."""


def load_neutral_queries(
    source: str | Path,
    *,
    label: str = "n",
    folder: str | Path | None = None,
    base_address: str = BASE_ADDRESS,
) -> Queries:
    """Read the queries of a published set, or of a file of the same form.

        load_neutral_queries("genderbias_ir")   # downloaded when it is first used
        load_neutral_queries("my_queries.tsv")  # id and text, separated by a tab

    Two forms are read; the ending says which it is (``.gz`` may follow):

    - ``.csv``: ``id,text,label`` without quoting and without a header; the text may contain commas,
      so the first and the last comma separate. Labels are n (neutral), m, f and o (other); only
      queries with ``label`` are given.
    - ``.tsv``: ``id<TAB>text`` without a header; every query is given and ``label`` has no effect.

    Args:
        source: a name in :data:`PUBLISHED`, downloaded on first use, or the path of a file.
        label: which queries of a ``.csv`` file are wanted.
        folder: where downloads are kept; by default ``queries/`` in the cache folder.
        base_address: what the published addresses are appended to.

    Raises:
        FileNotFoundError: ``source`` is neither a name nor a file.
        ConnectionError: the download failed; says which file to fetch by hand and where to put it.
        ValueError: the checksum is wrong; a malformed line (file and line named); an unknown label;
            no query left.
    """
    one_of("label", label, LABELS)
    path = _resolve(source, None if folder is None else Path(folder), base_address)
    queries = _read(path, label)
    if not queries:
        raise ValueError(f"{path}: no query with label {label!r} found")
    return queries


def neutral_by_lexicon(
    queries: Queries, lexicon: Lexicon, tokenizer: Tokenizer = word_tokens
) -> Queries:
    """A bias set where queries are not annotated: those without a word of the lexicon.

    >>> from backpack_rank.attributes.lexicon import load_lexicon
    >>> queries = {"1": "how old is she", "2": "how old is the moon"}
    >>> neutral_by_lexicon(queries, load_lexicon("gender_words"))
    {'2': 'how old is the moon'}
    """
    if not queries:
        return {}
    counts = count_groups(queries.values(), lexicon, tokenizer).sum(axis=1)
    neutral: Queries = {}
    for (query_id, text), count in zip(queries.items(), counts, strict=True):
        if count == 0:
            neutral[query_id] = text
    return neutral


def _resolve(source: str | Path, folder: Path | None, base_address: str) -> Path:
    """The file of a source, downloaded if it is a published set that is not there yet."""
    published = PUBLISHED.get(str(source))
    if published is None:
        path = Path(source).expanduser()
        if not path.is_file():
            raise FileNotFoundError(
                f"query set {str(source)!r} is neither a file nor one of the published sets: "
                f"{', '.join(PUBLISHED)}{how_to_get(path)}"
            )
        return path
    path = (folder or cache_dir() / "queries") / published.file_name
    if not path.is_file():
        _download(published, f"{base_address.rstrip('/')}/{published.address}", path)
    # Checked at each use: a file in a cache folder may have been changed since.
    _check(published, path.read_bytes(), str(path))
    return path


def _download(published: PublishedSet, address: str, path: Path) -> None:
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as response:
            data = response.read()
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise ConnectionError(
            f"{address} ({published.content}) could not be downloaded: {error!r}. Fetch the file "
            f"on a machine with network and put it at {path}, or give the path of your copy in "
            "place of the name"
        ) from error
    _check(published, data, address)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def _check(published: PublishedSet, data: bytes, where: str) -> None:
    sha256 = digest(data, algorithm="sha256")
    if sha256 != published.sha256:
        raise ValueError(
            f"{where}: the content is not the published one ({published.content}): "
            f"sha256 {sha256}, expected {published.sha256}. Remove the file if it lies in a cache "
            "folder and try again; to use another edition, give the path of your copy in place of "
            "the name"
        )


def _read(path: Path, label: str) -> Queries:
    name = path.name.removesuffix(".gz")
    if name.endswith(".tsv"):
        return read_queries_tsv(path)
    if name.endswith(".csv"):
        return _read_annotated(path, label)
    raise ValueError(
        f"{path}: the name must end in .csv (id,text,label) or .tsv (id, tab, text); .gz may follow"
    )


def _read_annotated(path: Path, label: str) -> Queries:
    # No CSV reader: the files are not quoted, and texts have commas.
    def annotated_query(line: str) -> tuple[str, str, str]:
        query_id, first, rest = line.partition(",")
        text, last, row_label = rest.rpartition(",")
        if not first or not last or not query_id.strip() or not text.strip():
            raise ValueError(f"expected id,text,label with no empty part, found {line!r}")
        refuse_header([query_id, text])
        one_of("label", row_label, LABELS)
        return query_id, text, row_label

    queries: Queries = {}
    line_of: dict[str, int] = {}
    for number, (query_id, text, row_label) in read_rows(path, annotated_query):
        if query_id in line_of:
            first = line_of[query_id]
            fail(path, number, f"query {query_id!r} occurs twice (first on line {first})")
        line_of[query_id] = number
        if row_label == label:
            queries[query_id] = text
    return queries
