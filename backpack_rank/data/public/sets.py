"""Public collections by name: what they are, what they cost, and how each becomes a folder."""

from __future__ import annotations

import csv
import gzip
import json
import logging
import shutil
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from backpack_rank.checks import UsageError
from backpack_rank.data.public import builders
from backpack_rank.data.public.downloads import Downloads, PublicFile
from backpack_rank.data.public.layout import digests_of, shipped
from backpack_rank.data.public.names import (
    GROUPS,
    IDENTICAL_IDS,
    QUERIES_ARE_DOCUMENTS,
    SOURCE,
)
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, remove_leftovers_of

"""In each folder: where it is from, and how it compares with what was measured."""
_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
_GITHUB = "https://raw.githubusercontent.com"
_FAIR = f"{_GITHUB}/CPJKU/FairnessRetrievalResults"
_BIAS = f"{_GITHUB}/navid-rekabsaz/GenderBias_IR/e734554ded0c55e11f514bdde441d41075221974/resources"
_MSMARCO = "non-commercial research only (MS MARCO's terms)"
_CC = "CC BY-SA 4.0"
_AUTHORS = "its authors' (github.com/beir-cellar/beir has the table)"
_WIKIQA = (
    "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/"
    "WikiQACorpus.zip"
)
_GREP = (
    "https://codeload.github.com/KlaraKrieg/GrepBiasIR/zip/b68f5975887d4527872b745275dff89f97760a87"
)
UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    RuntimeError,  # an archive with a password, or of another compression
    csv.Error,
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    zlib.error,
)
"""What the builders' readers raise for content that is not what its owner publishes."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublicSet:
    """A collection that anybody can get.

    Attributes:
        what: it is, in a line.
        licence: under which its owner gives it.
        build: fills a folder.
        files: that are downloaded for it.
        ir_datasets: the library's dataset that is downloaded for it, in words with its size.
    """

    what: str
    licence: str
    build: Callable[[Path, Downloads], None]
    files: tuple[PublicFile, ...] = ()
    ir_datasets: str = ""

    @property
    def size(self) -> str:
        """What is downloaded, in words."""
        parts = []
        if self.files:
            megabytes = sum(file.size for file in self.files) / 1e6
            parts.append(f"{megabytes:.3g} MB" if megabytes else "size not known")
        if self.ir_datasets:
            parts.append(self.ir_datasets)
        return " and ".join(parts)


@dataclass(frozen=True)
class Built:
    """A folder that was built.

    Attributes:
        folder: where it is.
        same: files that say what those of the measured folder say.
        other: files that say something else.
    """

    folder: Path
    same: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)


def _squad(name: str, file: PublicFile, what: str) -> PublicSet:
    def build(folder: Path, downloads: Downloads) -> None:
        builders.build_squad(folder, downloads.fetch(file), name)

    return PublicSet(what, _CC, build, (file,))


def _passages(name: str, dataset_id: str, what: str) -> PublicSet:
    def build(folder: Path, _: Downloads) -> None:
        builders.build_from_ids(folder, name, dataset_id)

    return PublicSet(
        what, _MSMARCO, build, ir_datasets="1.06 GB once for all of MS MARCO, and its index"
    )


def _beir(name: str, what: str, licence: str, size: str) -> PublicSet:
    def build(folder: Path, _: Downloads) -> None:
        builders.build_beir(folder, name)

    return PublicSet(f"BEIR: {what}", licence, build, ir_datasets=size)


def _build_gender_sentences(folder: Path, downloads: Downloads) -> None:
    files = {place: downloads.fetch(file) for place, file in _SENTENCES.items()}
    builders.build_gender_sentences(folder, files)


_TRAIN = PublicFile(
    f"{_SQUAD}/train-v1.1.json",
    "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
    30_288_272,
)
_DEV = PublicFile(
    f"{_SQUAD}/dev-v1.1.json",
    "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
    4_854_279,
)
_QUERIES = (
    PublicFile(
        f"{_BIAS}/queries_gender_annotated.csv",
        "5ed2f3b3892495dd4d240fc2599fd9335b545f4286705b94607a354f2ad19e3d",
        155_764,
    ),
    PublicFile(
        f"{_BIAS}/wordlist_genderspecific.txt",
        "cf7d62732c95e1b51c0c81cfdacdda7f12fd3e146a6770c47a07218111f811b3",
        578,
    ),
    PublicFile(
        f"{_FAIR}/bab397101751af58c10dc82bee3235fbfa0c32ee/fairnesssensitive_queries/"
        "msmarco_passage.dev.fair.tsv",
        "4fe4a2a0fb0302bf45d955b178f8920c49723e1107e8d68bbf65c9b3f7217c7a",
        9_240,
    ),
    PublicFile(
        f"{_FAIR}/4b710430313b7b7e48d37b64768e67ee69ad5c53/resources/fairnesssensitive_queries/"
        "trecdeep19_passage.fair.tsv",
        "45efbe9fc9e44007f8cb1e3f58cea903a2ab9f8d22373c9a69ec11c282851612",
        1_223,
    ),
)
_PERM_SC = f"{_GITHUB}/castorini/perm-sc/a5ff0cd8a3c86a9f0c208e423ee2798ba6f1167e/data"
_SORTING = (
    PublicFile(
        f"{_PERM_SC}/mathsort.tsv",
        "a43d2ffc799e39c85a2aef60bd3682a0ca8f76d8812c05a325c533e8353c1e78",
        17_055,
    ),
    PublicFile(
        f"{_PERM_SC}/wordsort.tsv",
        "7ef72141e63773661d2ef1d420d8122bc1d3054fe3df76f9e0b33c99270a6ad6",
        13_875,
    ),
    PublicFile(
        f"{_PERM_SC}/gsm8ksort.jsonl",
        "1d266ea030421507ae8e9434bd76a7830553081c0f3d002250c429357b21ff90",
        54_804,
    ),
)
_WIKIQA_ZIP = PublicFile(_WIKIQA, None)
_GREP_ZIP = PublicFile(_GREP, None)
_XQUAD = PublicFile(
    f"{_GITHUB}/google-deepmind/xquad/7d30520c717524000f0d9d2f9c10a069acd9d285/xquad.en.json",
    "e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29",
    609_383,
)
_NQ_OPEN = PublicFile(
    f"{_GITHUB}/nelson-liu/lost-in-the-middle/dc5c20a60a52c46cce60d13c659f698c1343596e/qa_data/"
    "nq-open-oracle.jsonl.gz",
    None,
)
_GENEVAL = f"{_GITHUB}/amazon-science/machine-translation-gender-eval"
_GENEVAL_SPLITS = {
    "dev": ("c421ecff3b244024a8563602eebbf4f52d7740e9", 152_000),
    "test": ("c542ba406a8f7d3be2a8aa1636690b0bd1714de4", 43_000),
}
"""The commit that has a split, and about how many bytes a file of it has."""
_SENTENCES: dict[tuple[str, str], PublicFile] = {}
for _split, (_commit, _size) in _GENEVAL_SPLITS.items():
    _folder = f"{_GENEVAL}/{_commit}/data/sentences/{_split}"
    for _form in ("masculine", "feminine"):
        _url = f"{_folder}/geneval-sentences-{_form}-{_split}.en_de.en"
        _SENTENCES[_split, _form] = PublicFile(_url, None, _size)

SETS: dict[str, PublicSet] = {
    "squad_train": _squad(
        "squad_train", _TRAIN, "SQuAD 1.1, training set as retrieval: 87,599 questions"
    ),
    "squad": _squad("squad", _DEV, "SQuAD 1.1, development set as retrieval: 10,570 questions"),
    "msmarco_dev600": _passages(
        "msmarco_dev600",
        "msmarco-passage/dev",
        "600 queries of MS MARCO dev with 20 passages of BM25 each",
    ),
    "dl19": _passages(
        "dl19",
        "msmarco-passage/trec-dl-2019",
        "TREC Deep Learning 2019: 43 queries, BM25's top 100",
    ),
    "dl20": _passages(
        "dl20",
        "msmarco-passage/trec-dl-2020",
        "TREC Deep Learning 2020: 54 queries, BM25's top 100",
    ),
    "trec_dl": PublicSet(
        "complete labels of TREC Deep Learning 2019 and 2020",
        "public (NIST)",
        lambda folder, _: builders.build_trec_dl(folder),
        ir_datasets="0.4 MB",
    ),
    "gender_bias_ir": PublicSet(
        "gender-neutral and fairness-sensitive queries, a word list",
        "MIT",
        lambda folder, downloads: builders.copy_files(folder, downloads, _QUERIES),
        _QUERIES,
    ),
    "grep_biasir": PublicSet(
        "Grep-BiasIR: 117 queries, documents in male, female and neutral wording",
        "CC0 1.0",
        lambda folder, downloads: builders.build_grep_biasir(folder, downloads.fetch(_GREP_ZIP)),
        (_GREP_ZIP,),
    ),
    "wikiqa": PublicSet(
        "WikiQA: 3,047 questions with the sentences of an article each",
        "research use (Microsoft Research Data License Agreement)",
        lambda folder, downloads: builders.build_wikiqa(folder, downloads.fetch(_WIKIQA_ZIP)),
        (_WIKIQA_ZIP,),
    ),
    "xquad_en": _squad(
        "xquad_en", _XQUAD, "XQuAD, English: 1,190 questions of SQuAD's development set"
    ),
    "nq_open_oracle": PublicSet(
        '2,655 Natural Questions with a passage each, of "Lost in the Middle"',
        "MIT; Natural Questions: CC BY-SA 3.0",
        lambda folder, downloads: builders.build_nq_open_oracle(folder, downloads.fetch(_NQ_OPEN)),
        (_NQ_OPEN,),
    ),
    "gender_sentences": PublicSet(
        "MT-GenEval: 1,247 sentences in a masculine and a feminine form",
        "CC BY-SA 3.0",
        _build_gender_sentences,
        tuple(_SENTENCES.values()),
    ),
    "nfcorpus": _beir("nfcorpus", "nutrition and medicine", "academic use", "2.45 MB"),
    "scifact": _beir("scifact", "scientific claims and abstracts", _AUTHORS, "2.82 MB"),
    "arguana": _beir("arguana", "arguments and their counter-arguments", _AUTHORS, "3.77 MB"),
    "quora": _beir("quora", "questions that ask the same", _AUTHORS, "15.9 MB"),
    "fiqa": _beir("fiqa", "questions about finance", _AUTHORS, "17.9 MB"),
    "sorting": PublicSet(
        "three sorting tasks of permutation self-consistency",
        "MIT",
        lambda folder, downloads: builders.copy_files(folder, downloads, _SORTING),
        _SORTING,
    ),
}


def chosen(names: list[str]) -> list[str]:
    """Names of sets, groups as what they hold, each once.

    Raises:
        UsageError: a name that is neither; the nearest one is named.
    """
    from backpack_rank.options import nearest

    found: dict[str, None] = {}
    for name in names:
        if name not in SETS and name not in GROUPS:
            known = [*GROUPS, *SETS]
            raise UsageError(f"data get {name}: there is no such set{nearest(name, known)}")
        found |= dict.fromkeys(GROUPS.get(name, (name,)))
    return list(found)


def get(name: str, root: Path, downloads: Downloads) -> Built:
    """Have a set as a folder below ``root``, whole or not at all.

        get("squad", Path("data"), Downloads("data/.downloads"))

    What it says is compared with the folder that docs/results.md measured, by digests.

    Raises:
        ConnectionError, ValueError: as :meth:`Downloads.fetch` and the builders raise.
        FileExistsError: there is a folder of that name already.
    """
    folder = root / name
    if folder.exists():
        raise FileExistsError(f"{folder} is there already; remove it to build it anew")
    root.mkdir(parents=True, exist_ok=True)
    chosen_set = SETS[name]
    lock = root / f".{name}.lock"
    with FileLock(lock):
        remove_leftovers_of(folder)
        with atomic_path(folder) as temporary:
            try:
                chosen_set.build(temporary, downloads)
            except UNREADABLE as error:
                raise _unreadable(name, downloads, error) from error
            built = compared(name, temporary)
            (temporary / SOURCE).write_text(_source(name, downloads, built), encoding="utf-8")
    lock.unlink(missing_ok=True)
    return Built(folder, built.same, built.other)


def _unreadable(name: str, downloads: Downloads, error: Exception) -> ValueError:
    """What is said of a set that cannot be built of its downloads, which are then forgotten.

    They would be taken for whole by every later command. Files with a checksum are what was
    published, and stay.
    """
    forgotten = []
    for file in SETS[name].files:
        if file.sha256 is None:
            downloads.forget(file)
            forgotten.append(file.url)
    why = " ".join(str(error).split())[:300] or type(error).__name__
    if not forgotten:
        return ValueError(f"{name} cannot be built: {why}")
    return ValueError(
        f"{name} cannot be built of {', '.join(forgotten)}: {why}. What was downloaded is removed, "
        "and the same command asks for it again: a proxy may have answered in the server's place, "
        "or its owner may have changed it"
    )


def compared(name: str, folder: Path) -> Built:
    """How a folder compares with the one that was measured."""
    measured = json.loads(shipped("digests.json")).get(name, {})
    found = digests_of(folder)
    same = [file for file in measured if found.get(file) == measured[file]]
    other = [file for file in measured if found.get(file) != measured[file]]
    return Built(folder, same, other)


def remove_downloads(root: Path) -> None:
    """When all is built: the files that were downloaded are not read again."""
    shutil.rmtree(root / ".downloads", ignore_errors=True)


def _source(name: str, downloads: Downloads, built: Built) -> str:
    public = SETS[name]
    origin = {}
    for file in public.files:
        with open(downloads.fetch(file), "rb") as content:
            origin[file.url] = digest(content, algorithm="sha256")
    record: dict[str, object] = {
        "what": public.what,
        "licence": public.licence,
        "sha256": origin,
        "ir_datasets": public.ir_datasets,
        "as measured": built.same,
        "other than measured": built.other,
    }
    if name in QUERIES_ARE_DOCUMENTS:
        record[IDENTICAL_IDS] = True
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"
