"""Renditions of one's own: texts of a file or of a function, their mean, and their closure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import InstantiationException
from in_process import configured

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.own_renditions import GivenTexts, WrittenTexts
from backpack_rank.commands import allow_function, typed_function
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.pipelines.certificate import COVERED, NO_WORDS, NOT_CLOSED, certify
from backpack_rank.pipelines.evaluate import task_of
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.renditions import MeanOfRenditions

GENDER = Attribute.named("gender")
QUERY = "wer kocht suppe"
HERS, HIS = "Die Köchin kocht Suppe.", "Der Koch kocht die Suppe selbst."
ELSE = "Eine Brücke aus Stahl."
LINES = [
    {"id": 7, "group": "female", "text": HERS},
    {"id": 7, "group": "male", "text": HIS},
]


def file_of(tmp_path: Path, lines: list[dict[str, Any]]) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def reranker(make_backpack, pair_tokenizer) -> PointwiseReranker:
    return PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))


def test_texts_of_one_id_have_the_mean_of_their_scores(
    reranker: PointwiseReranker, tmp_path: Path
) -> None:
    policy = MeanOfRenditions.of(GENDER, texts=file_of(tmp_path, LINES))
    assert policy.name == "renditions_own"
    texts = [(QUERY, HERS), (QUERY, HIS), (QUERY, ELSE)]
    plain = reranker.predict(texts)
    assert abs(plain[0] - plain[1]) > 1e-5
    scores = reranker.predict(texts, alpha=0, policy=policy)
    assert scores[0] == scores[1]
    assert scores[0] == pytest.approx((plain[0] + plain[1]) / 2, abs=1e-6)
    assert scores[2] == plain[2], "a text that is not in the file stays as it is"
    half = reranker.predict(texts, alpha=0.5, policy=policy)
    assert half[0] == pytest.approx(0.75 * plain[0] + 0.25 * plain[1], abs=1e-6)


def test_files_of_other_texts_have_other_keys(tmp_path: Path) -> None:
    """The key stands in plans and vectors that were made with the texts."""
    first = GivenTexts(file_of(tmp_path, LINES)).key
    assert GivenTexts(file_of(tmp_path, LINES)).key == first
    assert GivenTexts(file_of(tmp_path, [LINES[0], {**LINES[1], "text": ELSE}])).key != first


def test_a_long_text_is_known_by_its_beginning(reranker: PointwiseReranker, tmp_path: Path) -> None:
    more = " Soup for guests, and a road." * 400
    lines = [{**line, "text": line["text"] + more} for line in LINES]
    policy = MeanOfRenditions.of(GENDER, texts=file_of(tmp_path, lines))
    long = [(QUERY, line["text"]) for line in lines]
    assert len(reranker.scorer.cut(long[0][1])) < len(long[0][1]) / 2
    plain = reranker.predict(long)
    assert abs(plain[0] - plain[1]) > 1e-5
    scores = reranker.predict(long, alpha=0, policy=policy)
    assert scores == pytest.approx(float(plain.mean()), abs=1e-6)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (LINES[:1], "texts for two groups or more are needed"),
        ([*LINES, {"id": 8, "group": "male", "text": "Er."}], "line 3: id '8' has no text for fem"),
        ([*LINES, LINES[0]], "line 3: id '7' has a text for 'female' in a line above"),
        ([*LINES, {"group": "male", "text": "Er."}], "line 3: expected an id under 'id'"),
        ([*LINES, {"id": 8, "group": "male", "text": " "}], "line 3: the text is empty"),
        (
            [*LINES, {**LINES[0], "id": 8}, {"id": 8, "group": "male", "text": "Er."}],
            "line 4: a text of id '8' stands above with other renditions",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    lines: list[dict[str, Any]], sentence: str, tmp_path: Path
) -> None:
    path = file_of(tmp_path, lines)
    with pytest.raises(ValueError, match=re.escape(sentence)) as raised:
        GivenTexts(path)
    assert str(raised.value).startswith(str(path))


def casual(text: str, group: str) -> str:
    """Closed, but for what begins with "Yo": its formal rendition becomes another casual one."""
    if group == "casual":
        return text.replace("Hello", "Hi")
    return text.replace("Hi", "Hello").replace("Yo", "Hello")


def test_the_certificate_says_how_far_a_function_is_closed(
    reranker: PointwiseReranker, tmp_path: Path
) -> None:
    documents = {"hi": "Hi soup", "hello": "Hello guests", "yo": "Yo road", "none": "a river"}
    texts = Collection("t/test", MemoryStore(documents), {"q": "soup"}, {})
    run = {"q": dict.fromkeys(documents, 1.0)}
    policy = MeanOfRenditions.of(GENDER, write=casual, groups=["casual", "formal"])
    certificate = certify(reranker.with_policy(policy, 0), texts, run, tmp_path)
    kinds = {part.kind: part.candidates for part in certificate.parts if part.candidates}
    assert kinds == {NO_WORDS: 1, COVERED: 2, NOT_CLOSED: 1}
    assert certificate.kept
    shown = "\n".join(certificate.sentences)
    assert "2 of 3 candidates that are rewritten are covered" in shown
    assert "gives the same set for 2 of 3 candidates (67%)" in shown
    # By hand: Yo has (Yo, Hello), and Hello has (Hi, Hello), so scores may differ.
    largest = {part.kind: part.largest for part in certificate.parts}
    pair = reranker.predict([("soup", "Yo road"), ("soup", "Hi road")])
    assert largest[NOT_CLOSED] == pytest.approx(abs(float(pair[0] - pair[1])) / 2, abs=1e-5)


def swapped_colour(text: str, group: str) -> str:
    """The text as it is, and the other spelling: in another order for the other text."""
    if group == "as it is":
        return text
    if "colour" in text:
        return text.replace("colour", "color")
    return text.replace("color", "colour")


@pytest.mark.parametrize(("query", "kind"), [("soup", COVERED), ("a soup of colour", NOT_CLOSED)])
def test_where_a_query_is_rewritten_too_renditions_must_be_the_same_in_their_order(
    query: str, kind: str, reranker: PointwiseReranker, tmp_path: Path
) -> None:
    documents = {"british": "guests of colour", "american": "guests of color"}
    texts = Collection("t/test", MemoryStore(documents), {"q": query}, {})
    policy = MeanOfRenditions.of(GENDER, write=swapped_colour, groups=["as it is", "turned"])
    turned = reranker.with_policy(policy, 0)
    certificate = certify(turned, texts, {"q": dict.fromkeys(documents, 1.0)}, tmp_path)
    kinds = {part.kind: part.candidates for part in certificate.parts if part.candidates}
    assert kinds == {kind: 2}
    scores = turned.predict([(query, text) for text in documents.values()])
    assert (abs(scores[0] - scores[1]) < 1e-6) == (kind == COVERED)


class Stage:
    """A first stage that looks at no listed word, and at every other one."""

    name = "dense"
    not_promised = None

    def same_score(self, query: str, document: str, other: str) -> bool:
        return GENDER.swap()(document).text == other


@pytest.mark.parametrize(
    ("options", "document", "end"),
    [
        (
            {},
            "she paints a road",
            "1 of 1 candidates neither candidacy nor final place can change "
            "when their class words are swapped",
        ),
        (
            {"names": True},
            "Mary paints a road",
            "0 of 1 candidates neither candidacy nor final "
            "place can change when their class words and first names are swapped",
        ),
        (
            {"write": swapped_colour, "groups": ["as it is", "turned"]},
            "she paints in colour",
            "0 of 1 candidates neither candidacy nor final place can change when they are rewritten "
            "as the policy rewrites them",
        ),
    ],
)
def test_a_pipeline_is_certified_for_what_the_policy_changes(
    options: dict[str, Any],
    document: str,
    end: str,
    reranker: PointwiseReranker,
    tmp_path: Path,
) -> None:
    texts = Collection("t/test", MemoryStore({"d": document}), {"q": "soup"}, {})
    turned = reranker.with_policy(MeanOfRenditions.of(GENDER, **options), 0)
    certificate = certify(turned, texts, {"q": {"d": 1.0}}, tmp_path, stage=Stage())
    assert certificate.pipeline.endswith(end)


def test_a_function_gives_texts(tmp_path: Path) -> None:
    broken = WrittenTexts(lambda text, group: "", ["a", "b"])
    with pytest.raises(ValueError, match=r"policy\.write: .* gives '' for 'a', and not a text"):
        broken.texts("x")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"texts": "t.jsonl", "write": casual}, "are two sources"),
        ({"groups": ["a", "b"]}, "policy.groups does nothing without policy.write"),
        ({"write": casual, "wide": True}, "policy.wide: of renditions by word lists alone"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        MeanOfRenditions.of(GENDER, **options)


def test_a_function_is_named_by_what_is_typed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is resumed, loaded or read again must not import what it names."""
    (tmp_path / "mywords.py").write_text(
        "open('imported', 'w').close()\n\n\ndef write(text, group):\n    return text\n"
    )
    monkeypatch.chdir(tmp_path)
    config = configured(
        "evaluate", "policy=renditions", "policy.write='mywords:write'", "checkpoint=none"
    )
    taken = r"policy\.write=mywords:write is taken from the command line or from Python alone"
    with pytest.raises(InstantiationException, match=taken) as refused:
        task_of(config)
    # resume=true alone ends here, and resume=true with this option alone is no folder's command.
    assert "give all its options again, with resume=true" in str(refused.value)
    assert not Path("imported").exists()
    allow_function("mywords:write")
    assert typed_function("policy.write", "mywords:write")("a", "b") == "a"
    for name, sentence in (
        ("mywords:read", "has no function read"),
        ("nowhere_at_all:write", "No module named"),
        (".mywords:write", "write module:function"),
        ("write", "write module:function"),
    ):
        allow_function(name)
        with pytest.raises(ValueError, match=sentence):
            typed_function("policy.write", name)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def write(text, group:\n", "policy.write=broken_words:write: SyntaxError: '(' was never"),
        ("{}['words']\n", "policy.write=broken_words:write: KeyError: 'words'"),
        ("import nowhere_at_all\n", "policy.write=broken_words:write: ModuleNotFoundError: No"),
    ],
)
def test_what_a_module_raises_is_a_sentence(
    source: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_words.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    allow_function("broken_words:write")
    with pytest.raises(ValueError, match=re.escape(sentence)):
        typed_function("policy.write", "broken_words:write")


@pytest.mark.processes
def test_a_typed_function_acts_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "mywords.py").write_text(
        "def write(text, group):\n    raise SystemExit('written for ' + group)\n"
    )
    program = (
        "import sys\nfrom backpack_rank import cli\n"
        "from backpack_rank.commands import typed_function\n"
        "cli.main(['evaluate', '--cfg', 'job', 'policy=renditions', 'policy.write=mywords:write'])\n"
        "typed_function('policy.write', 'mywords:write')('', 'her')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr.endswith("written for her\n"), done.stderr
