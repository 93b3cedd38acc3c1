"""Whatever a client sends, it is told what is wrong in a body that all clients read, and the server
goes on.
"""

from __future__ import annotations

import json
import math
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from rerank_servers import running, wait_for
from small_rankers import SmallRanker

from backpack_rank.position.lists.reranker import ListwiseReranker
from backpack_rank.position.lists.windows import SlidingWindows
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.serving.kinds import served

GOOD = {"query": "doctor", "documents": ["a nurse", "a bridge"]}
UPLOAD = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server_of_several(tiny, make_gpt2, pair_tokenizer):
    """A Backpack, GPT-2 without senses, and a listwise ranker behind one server that shows its
    limits early.
    """
    loaders = {
        **tiny,
        "gpt2": lambda: served("gpt2", PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer))),
        "lists": lambda: served("lists", ListwiseReranker(SlidingWindows(SmallRanker()))),
    }
    with running(loaders, max_body=200_000, max_queue_tokens=3_000) as server:
        yield server


def post(server, content, path: str = "/rerank"):
    """Send a body as it is."""
    return server.client.post(path, content=content, headers=JSON)


def check(response, status: int, message: str, as_text: bool = False) -> None:
    """Cohere reads ``message``, Haystack ``detail``, OpenAI's and vLLM's clients ``error.message``,
    TEI's ``error``.
    """
    body = response.json()
    assert response.status_code == status, body
    assert message in body["message"], body
    assert body["detail"] == body["message"]
    if as_text:
        assert body["error"] == body["message"]
        assert body["error_type"]
    else:
        kind = body["error"]["type"]
        assert body["error"] == {"message": body["message"], "type": kind, "code": status}
    assert response.headers["x-request-id"]


CASES = {
    "unknown model": (
        {"model": "rerank-v9"},
        404,
        "model 'rerank-v9' is not served; use one of tiny, gpt2, lists",
    ),
    "unknown policy": (
        {"policy": "../../etc/passwd", "alpha": 0.5},
        400,
        "policy=../../etc/passwd: use one of",
    ),
    "negative alpha": ({"alpha": -0.1}, 400, "alpha=-0.1 must be a finite number >= 0"),
    "alpha above 1": ({"alpha": 1.5}, 400, "takes alpha in [0, 1]"),
    "alpha as text": ({"alpha": "0.5"}, 422, "alpha: "),
    "alpha as truth": ({"alpha": True}, 422, "alpha: "),
    "one of alphas is wrong": ({"alphas": [0.5, -1]}, 400, "alpha=-1.0 must be"),
    "no alphas": ({"alphas": []}, 400, "alphas is empty"),
    "too many alphas": ({"alphas": [0.5] * 202}, 413, "202 alphas"),
    "no senses": (
        {"model": "gpt2", "alpha": 0.5, "policy": "uniform"},
        400,
        "needs them; policies of this ranker: paired_tokens, renditions",
    ),
    "listwise with alpha": (
        {"model": "lists", "alpha": 1},
        400,
        "model lists has no dial: leave out alpha",
    ),
    "listwise with policy": (
        {"model": "lists", "policy": "uniform"},
        400,
        "has no dial: leave out policy",
    ),
    "empty query": ({"query": " \n"}, 400, "query is empty"),
    "long query": ({"query": "doctor " * 60}, 400, "the query has"),
    "query is a number": ({"query": 7}, 422, "query: "),
    "no query": ({"query": None}, 422, "query: "),
    "no documents": ({"documents": []}, 400, "documents is empty"),
    "documents left out": ({"documents": None}, 422, "give either documents or texts"),
    "both": ({"texts": ["a"]}, 422, "give either documents or texts"),
    "documents are text": ({"documents": "a nurse"}, 422, "documents"),
    "a document is a number": ({"documents": ["a", 7]}, 422, "documents[1]"),
    "a document without text": (
        {"documents": ["a", {"title": "b"}]},
        422,
        "documents[1]: an object needs a text",
    ),
    "half a character": ({"documents": ["\ud83d"]}, 422, "half a surrogate pair"),
    "10,001 documents": (
        {"documents": ["a"] * 10_001},
        413,
        "10,001 documents: this server takes 1,000",
    ),
    "too many tokens": (
        {"documents": [f"{n} " + "nurse " * 40 for n in range(100)]},
        413,
        "more tokens than this server takes in a request (3,000); send fewer documents",
    ),
    "too many tokens for alphas": (
        {
            "documents": [f"{n} " + "he " * 30 for n in range(10)],
            "alphas": [0.1 * n for n in range(11)],
            "policy": "paired_tokens",
        },
        413,
        "more tokens than this server takes in a request",
    ),
    "top_n": ({"top_n": -1}, 422, "top_n: "),
    "timeout": ({"timeout": 0}, 422, "timeout: "),
    "max_tokens_per_doc": ({"max_tokens_per_doc": 0}, 422, "max_tokens_per_doc: "),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_request_is_told_what_is_wrong(server_of_several, case):
    change, status, message = CASES[case]
    body = {**GOOD, **change}
    response = post(server_of_several, json.dumps(body), "/v1/rerank")
    check(response, status, message, as_text="texts" in body)
    assert server_of_several.rerank(**GOOD).status_code == 200


def test_a_wrong_request_with_texts_is_told_in_the_form_of_tei(server_of_several):
    for body, status, message in (
        ({"query": "", "texts": ["a"]}, 400, "query is empty"),
        ({"query": "a", "texts": []}, 400, "is empty"),
        ({"query": "a", "texts": [7]}, 422, "texts[0]"),
        ({"query": "a", "texts": ["a"], "model": "b"}, 404, "not served"),
    ):
        check(server_of_several.rerank("/rerank", **body), status, message, as_text=True)


def test_a_field_that_nobody_knows_is_refused_and_a_foreign_one_is_listed(server_of_several):
    body = {"query": "a", "documents": ["b"]}
    check(server_of_several.rerank("/rerank", **body, alhpa=0), 422, "did you mean alpha?")
    fields = {"truncation_direction": "Left", "user": "x"}
    foreign = server_of_several.rerank("/rerank", **body, **fields)
    assert foreign.json()["ignored"] == ["truncation_direction", "user"]
    assert foreign.headers["X-Ignored-Fields"] == "truncation_direction, user"
    assert "ignored" not in server_of_several.rerank("/rerank", **body).json()


def test_objects_come_back_whole_and_are_read_by_their_fields(server_of_several):
    documents = [{"id": 7, "title": "Saws", "text": "a saw"}, "a nurse"]
    for fields in (None, ["title", "text"]):
        body = {} if fields is None else {"rank_fields": fields}
        answer = server_of_several.rerank("/rerank", query="a saw", documents=documents, **body)
        rows = {row["index"]: row for row in answer.json()["results"]}
        assert rows[0]["document"] == documents[0]
        assert rows[1]["document"] == {"text": "a nurse"}
        read = "a saw" if fields is None else "Saws\na saw"
        same = server_of_several.rerank("/rerank", query="a saw", documents=[read, "a nurse"])
        expected = {row["index"]: row["relevance_score"] for row in same.json()["results"]}
        assert rows[0]["relevance_score"] == pytest.approx(expected[0], abs=1e-6)
    body = {"query": "a", "documents": documents, "rank_fields": ["url"]}
    missing = server_of_several.rerank("/rerank", **body)
    check(missing, 422, "documents[0]: an object needs a url")


def test_every_answer_says_which_alpha_and_policy_acted(server_of_several):
    cases = [("a", None, None), ("a", 0, "lowest_senses"), ("a", 0.5, "lowest_senses")]
    asks_for_a_group = ("first queen of england", 0, None)
    for query, alpha, policy in (*cases, asks_for_a_group):
        body = {} if alpha is None else {"alpha": alpha}
        answer = server_of_several.rerank("/rerank", query=query, documents=["b"], **body)
        acted = 1 if alpha is None else alpha
        assert (answer.json()["alpha"], answer.json()["policy"]) == (acted, policy)
        as_list = server_of_several.rerank("/rerank", query=query, texts=["b"], **body)
        for headers in (answer.headers, as_list.headers):
            assert float(headers["X-Alpha"]) == acted
            assert headers["X-Policy"] == (policy or "none")


def test_a_curve_has_a_policy_where_alpha_is_1(server_of_several):
    for alphas, policy in (([0], "lowest_senses"), ([1, 0.5], "lowest_senses"), ([1], None)):
        body = {"query": "a", "documents": ["b"], "alpha": 1, "alphas": alphas}
        answer = server_of_several.rerank("/rerank", **body)
        assert answer.json()["policy"] == policy
        assert answer.headers["X-Policy"] == (policy or "none")


NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1E999"]
PLACES_OF_A_NUMBER = [
    '"documents": ["b"], "alpha": VALUE',
    '"documents": [{"text": "b", "price": VALUE}]',
    '"documents": [{"text": "b", "sizes": [{"width": VALUE}]}]',
]
PLACES_OF_HALF_A_CHARACTER = [
    r'"documents": [{"text": "b", "title": "\ud800"}]',
    r'"documents": [{"text": "b", "\ud800": 1}]',
    r'"documents": ["b"], "\uDFFF": 1',
    r'"documents": ["b"], "policy": "\ud800", "alpha": 0',
    r'"documents": ["b"], "model": "\ud800"',
    r'"documents": [{"text": "b"}], "rank_fields": ["\ud800"]',
    r'"documents": ["b"], "user": "\ud800"',
    r'"documents": ["b"], "instruct": "\ud800"',
]
NO_JSON = ["", "{", '{"query": "a"', b"\xff\xfe", b'{"query": "\xff"}', "[" * 100_000]
NO_JSON.append('{"alpha": ' + "9" * 5000 + "}")
BODIES = [
    ('"documents": ["b"], "alpha": 1, "alpha": 0', 400, "the key 'alpha' stands twice"),
    (r'"documents": ["b"], "\ud800": 1, "\ud800": 2', 400, r"the key '\ud800' stands twice"),
]
for value, place in product(NO_NUMBERS, PLACES_OF_A_NUMBER):
    message = f"{value} in the body: every number must be finite"
    BODIES.append((place.replace("VALUE", value), 400, message))
BODIES += [(place, 422, "half a surrogate pair") for place in PLACES_OF_HALF_A_CHARACTER]
BODIES = [(f'{{"query": "a", {fields}}}', *answer) for fields, *answer in BODIES]
BODIES += [(content, 400, "the body is not JSON") for content in NO_JSON]
BODIES += [("[1]", 422, "must be an object")]


@pytest.mark.parametrize(
    ("content", "status", "message"), BODIES, ids=lambda value: repr(value)[:60]
)
def test_a_wrong_body_is_told_what_is_wrong(server_of_several, content, status, message):
    for path in ("/rerank", "/v2/rerank"):
        check(post(server_of_several, content, path), status, message)


def test_whole_pairs_and_what_looks_like_half_a_one_are_read(server_of_several):
    documents = [{"text": "a \U0001f600", "note": r"\ud800"}]
    content = json.dumps({"query": "a", "documents": documents})
    assert r"\ud83d\ude00" in content
    answer = post(server_of_several, content)
    assert answer.status_code == 200
    assert answer.json()["results"][0]["document"] == documents[0]


def test_control_characters_of_a_client_are_spelt_out(server_of_several):
    body = {"query": "a", "documents": ["b"]}
    for field, sentence in (
        ({"\x1b[2J": 1}, r"\x1b[2J is no field of a request"),
        ({"policy": "\x1b[2J", "alpha": 0}, r"policy=\x1b[2J: use one of"),
    ):
        answer = server_of_several.rerank("/rerank", **body, **field)
        assert sentence in answer.json()["message"]


@pytest.mark.parametrize("depth", [100, 950, 960, 970, 980, 990])
def test_a_deep_document_comes_back_or_is_refused(server_of_several, depth):
    deep = "[" * depth + "]" * depth
    content = f'{{"query": "a", "documents": [{{"text": "b", "deep": {deep}}}]}}'
    answer = post(server_of_several, content)
    assert answer.status_code in (200, 400), answer.text


def test_a_body_that_is_too_long_is_a_413_whether_it_says_so_or_not(server_of_several):
    body = json.dumps({**GOOD, "documents": ["a " * 5_000_000]}).encode()
    assert len(body) > 10_000_000
    check(post(server_of_several, body), 413, "longer than 200,000 bytes")
    chunks = (body[start : start + 50_000] for start in range(0, 500_000, 50_000))
    check(post(server_of_several, chunks), 413, "longer than 200,000 bytes")
    assert server_of_several.rerank(**GOOD).status_code == 200


def test_other_content_types_are_refused_so_that_no_page_posts_without_asking_first(
    server_of_several,
):
    plain = {"Content-Type": "text/plain"}
    answer = server_of_several.client.post("/rerank", content=json.dumps(GOOD), headers=plain)
    check(answer, 415, "send JSON")


def test_unknown_routes_and_methods_are_refused(server_of_several):
    check(server_of_several.client.get("/v3/rerank"), 404, "Not Found")
    check(server_of_several.client.get("/rerank"), 405, "GET does nothing at /rerank: use POST")


def test_a_truncated_upload_leaves_nothing_behind(server_of_several):
    for _ in range(3):
        with socket.create_connection(server_of_several.address) as connection:
            connection.sendall(UPLOAD + b'{"query": "a", "docu')
    wait_for(lambda: server_of_several.batcher.tokens == 0)
    assert server_of_several.rerank(**GOOD).status_code == 200


@pytest.mark.slow
def test_a_slow_upload_is_given_up(tiny):
    with (
        running(tiny, timeout=0.3) as server,
        socket.create_connection(server.address) as connection,
    ):
        connection.sendall(UPLOAD)
        connection.settimeout(10)
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")


def test_nothing_of_a_client_opens_a_file(server_of_several):
    opened: list[str] = []

    def note(event, values):
        if event in ("open", "os.listdir"):
            opened.append(str(values[0]))

    sys.addaudithook(note)
    for field in ("model", "policy", "query"):
        server_of_several.rerank(**{**GOOD, "alpha": 0.5, field: "/etc/passwd"})
    assert not [path for path in opened if "passwd" in path]


def test_one_bad_request_among_others_fails_alone(server_of_several):
    bodies = [{**GOOD, "alpha": n / 10} for n in range(8)] + [{**GOOD, "alpha": -1}]
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda body: server_of_several.rerank(**body), bodies))
    assert [answer.status_code for answer in answers] == [200] * 8 + [400]


@pytest.mark.slow
def test_scores_that_are_no_numbers_are_a_500_with_the_document(tiny, pointwise):
    reranker = pointwise()
    with running({**tiny, "diverged": lambda: served("diverged", reranker)}) as server:
        reranker.scorer.ranker.head.out.bias.data.fill_(math.nan)
        check(server.rerank(**GOOD, model="diverged"), 500, "the score of document 0 is not finite")
        assert server.rerank(**GOOD).status_code == 200


def test_a_listwise_ranker_is_served_without_a_dial(server_of_several):
    body = {"query": "largest", "documents": ["3", "9", "1", "7", "5"], "model": "lists"}
    rows = server_of_several.rerank(**body, raw_scores=True).json()["results"]
    assert [row["document"]["text"] for row in rows] == ["9", "7", "5", "3", "1"]
    assert [row["relevance_score"] for row in rows] == [-1, -2, -3, -4, -5]


def test_two_lengths_of_one_body_are_refused(server):
    head = ["POST /v1/rerank HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    head += ["Content-Length: 5", "Transfer-Encoding: chunked"]
    with socket.create_connection(server.address) as connection:
        connection.sendall(("\r\n".join(head) + "\r\n\r\n0\r\n\r\n").encode())
        parts = []
        while part := connection.recv(10_000):  # the body may come behind the head
            parts.append(part)
    answer = b"".join(parts).decode()
    assert answer.startswith("HTTP/1.1 400")
    assert "send Content-Length or Transfer-Encoding, not both" in answer
