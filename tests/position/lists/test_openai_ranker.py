"""A listwise ranker behind a server: real HTTP to a server of the test's own, and to transformers'
``serve``.
"""

from __future__ import annotations

import inspect
import json
import logging
import socket
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
import requests
from chat_servers import LOST, complaint, completion, serving
from hydra.utils import instantiate
from omegaconf import OmegaConf
from read_back import orders
from transformers.utils.import_utils import is_serve_available

from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.position.lists.chat_server import RetryPolicy, ServerError
from backpack_rank.position.lists.factory import new_causal_lm
from backpack_rank.position.lists.openai_ranker import OpenAiRanker
from backpack_rank.position.lists.parsing import parse_ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.prompt import Prompt

CONF = Path(__file__).resolve().parents[3] / "conf"
PROMPT = Prompt(
    name="short", prefix="query: {query}", passage="[{identifier}] {passage}", suffix="Order them."
)
KEY = "sk-secret-0123456789"
WORTH = (3, 9, 1, 7)


def shown(name: str, worth=WORTH) -> PassageList:
    ids = tuple(f"d{number}" for number in range(len(worth)))
    return PassageList(
        f"query {name}", tuple(f"a passage worth {number}" for number in worth), ids, name
    )


def many(count: int) -> list[PassageList]:
    return [shown(f"q{number}") for number in range(count)]


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture
def make_ranker(server, tmp_path, monkeypatch):
    """A function that makes a ranker of the server, quick to ask again."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def make_ranker(**options):
        options = {"prompt": PROMPT, "base_url": server.url, "retries": 2, **options}
        return OpenAiRanker("tiny", responses=tmp_path / "responses", backoff=0.01, **options)

    return make_ranker


@pytest.mark.slow
def test_lists_are_ranked_as_the_server_says_and_what_it_takes_is_counted(server, make_ranker):
    ranker = make_ranker(prompt_price=2.0, answer_price=5.0)
    rankings = ranker.rank([shown("q1"), shown("q2", (1, 2, 3))])
    assert orders(rankings) == [[1, 3, 0, 2], [2, 1, 0]]
    assert [ranking.num_ranked for ranking in rankings] == [4, 3]
    usage = ranker.usage
    assert (usage.lists, usage.requests, usage.cached) == (2, 2, 0)
    assert (usage.prompt_tokens, usage.generated_tokens, usage.passes) == (200, 20, 20)
    assert usage.cost == pytest.approx((200 * 2.0 + 20 * 5.0) / 1e6)
    assert ranker.name == "tiny"


def test_a_request_holds_the_prompt_and_the_options(server, make_ranker):
    extra = {"max_completion_tokens": 50, "top_p": 1}
    make_ranker(max_tokens=None, extra=extra, seed=7).rank([shown("q1")])
    body = server.bodies[0]
    assert body.pop("messages") == PROMPT.messages(shown("q1"))
    assert body == {"model": "tiny", "temperature": 0.0, "seed": 7, **extra}
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_letters_are_asked_for_and_read(server, make_ranker):
    server.trouble = lambda number, body: completion("[C] > [A] > [D] > [B]")
    letters = replace(PROMPT, identifiers="alphabetic")
    assert orders(make_ranker(prompt=letters).rank([shown("q1")])) == [[2, 0, 3, 1]]
    assert "[D] a passage worth 7" in server.bodies[0]["messages"][-1]["content"]


def test_an_answer_in_parts_is_joined(server, make_ranker):
    parts = [{"type": "text", "text": text} for text in ("[2] > ", "[1]")]
    server.trouble = lambda number, body: completion(parts)
    assert make_ranker().rank([shown("q1")])[0].ranked.tolist() == [1, 0]


def test_running_again_sends_nothing_and_needs_no_key(server, make_ranker, monkeypatch):
    first = make_ranker().rank(many(5))
    monkeypatch.delenv("OPENAI_API_KEY")
    again = make_ranker(prompt_price=1.0)
    assert orders(again.rank(many(5))) == orders(first)
    assert len(server.bodies) == 5
    assert (again.usage.lists, again.usage.cached, again.usage.requests) == (5, 5, 0)
    assert (again.usage.prompt_tokens, again.usage.passes, again.usage.cost) == (0, 0, 0.0)


@pytest.mark.parametrize(
    "other", [{"temperature": 0.5}, {"seed": 1}, {"extra": {"top_p": 0.5}}, {"passage_words": 2}]
)
def test_another_request_is_not_answered_from_disk(server, make_ranker, other):
    make_ranker().rank([shown("q1")])
    make_ranker(**other).rank([shown("q1")])
    assert len(server.bodies) == 2


def test_the_order_of_the_passages_is_a_part_of_the_request(server, make_ranker):
    lists = [shown("q1"), shown("q1").select([3, 2, 1, 0])]
    assert orders(make_ranker().rank(lists)) == [[1, 3, 0, 2], [2, 0, 3, 1]]
    assert len(server.bodies) == 2


def test_another_server_is_asked_for_itself(server, make_ranker):
    make_ranker().rank([shown("q1")])
    with serving() as other:
        make_ranker(base_url=other.url).rank([shown("q1")])
        assert len(other.bodies) == 1


def test_identical_lists_of_one_call_are_sent_once(server, make_ranker):
    ranker = make_ranker()
    assert orders(ranker.rank([shown("q1")] * 3)) == [[1, 3, 0, 2]] * 3
    assert len(server.bodies) == 1
    assert (ranker.usage.requests, ranker.usage.cached, ranker.usage.lists) == (1, 2, 3)


def test_identical_requests_of_several_jobs_are_sent_once(server, make_ranker):
    server.seconds = 0.05
    rankers = [make_ranker() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda ranker: orders(ranker.rank(many(3))), rankers))
    assert results == [[[1, 3, 0, 2]] * 3] * 4
    assert len(server.bodies) == 3


def test_no_more_requests_than_allowed_are_on_their_way(server, make_ranker):
    server.seconds = 0.03
    ranker = make_ranker(concurrency=3)
    with ThreadPoolExecutor(2) as pool:  # two calls at the same time share the places
        list(pool.map(ranker.rank, [many(8), [shown(f"other{number}") for number in range(8)]]))
    assert len(server.bodies) == 16
    assert server.most == 3


TROUBLES = {
    "500": complaint(500),
    "503": (503, {}, b"<html>busy</html>"),
    "429": complaint(429),
    "lost": LOST,
    "no JSON": (200, {}, b"{"),
    "no choices": (200, {}, b'{"choices": []}'),
    "error with status 200": (200, {}, b'{"error": {"message": "overloaded"}}'),
    "a list": (200, {}, b"[]"),
    "tokens that are none": completion("[1]", prompt_tokens=-1),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_a_trouble_is_waited_out_and_ends_the_job_if_it_stays(server, make_ranker, trouble):
    server.trouble = lambda number, body: trouble if number <= 2 else None
    assert orders(make_ranker().rank([shown("q1")])) == [[1, 3, 0, 2]]
    assert len(server.bodies) == 3

    server.trouble = lambda number, body: trouble
    message = r"3 attempts.*0 of 1 lists.*running again continues"
    with pytest.raises(ServerError, match=message) as caught:
        make_ranker().rank([shown("q2")])
    assert server.url in str(caught.value)
    assert len(server.bodies) == 6


def test_a_server_that_does_not_answer_in_time_is_asked_again(server, make_ranker):
    def slow(number, body):
        if number == 1:
            time.sleep(0.6)

    server.trouble = slow
    assert orders(make_ranker(timeout=0.2).rank([shown("q1")])) == [[1, 3, 0, 2]]
    assert len(server.bodies) == 2


def test_timeouts_are_named(server, make_ranker):
    server.seconds = 0.4
    with pytest.raises(ServerError, match=r"no answer within 0\.1 s"):
        make_ranker(timeout=0.1, retries=0).rank([shown("q1")])


@pytest.mark.slow
@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_honoured(server, make_ranker, as_date):
    # A date has whole seconds: 2 s from now is at least 1 s from now.
    moment = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=2), usegmt=True)
    busy = complaint(429, headers={"Retry-After": moment if as_date else "1"})
    server.trouble = lambda number, body: busy if number == 1 else None
    start = time.monotonic()
    make_ranker().rank([shown("q1")])
    assert 0.9 < time.monotonic() - start < 4


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (complaint(429, headers={"Retry-After": "4000"}), "asks to wait 4000 s"),
        (complaint(429, "pay first", code="insufficient_quota"), "pay first"),
    ],
)
def test_too_long_a_wait_and_an_empty_account_are_given_up(server, make_ranker, reply, message):
    server.trouble = lambda number, body: reply
    with pytest.raises(ServerError, match=message):
        make_ranker(longest_wait=10).rank([shown("q1")])
    assert len(server.bodies) == 1


def test_pauses_double_up_to_the_longest_and_never_fall_below_what_was_asked():
    class Highest:
        def uniform(self, low, high):
            return high

    patience = RetryPolicy(backoff=1.0, longest_wait=5.0)
    assert [patience.pause(attempt, None, Highest()) for attempt in range(5)] == [1, 2, 4, 5, 5]
    assert patience.pause(0, 3.0, Highest()) >= 3.0


def test_a_server_that_dies_in_the_middle_costs_nothing_twice(make_ranker, tmp_path):
    lists = many(20)
    with serving() as dying:
        port = dying.server_address[1]
        dying.trouble = lambda number, body: LOST if number > 8 else None
        ranker = make_ranker(base_url=dying.url, concurrency=2, retries=1, prompt_price=1.0)
        ranker.rank([shown("earlier")])
        with pytest.raises(ServerError) as caught:
            ranker.rank(lists)
        answered = {json.dumps(body["messages"]) for body in dying.bodies[:8]}
    message = str(caught.value)
    assert f"http://127.0.0.1:{port}/v1" in message
    assert "7 of 20 lists are answered, 1 before them" in message
    assert str(tmp_path / "responses") in message
    assert ranker.usage.requests == 8
    assert ranker.usage.cost == pytest.approx(8 * 100 / 1e6)

    with pytest.raises(ServerError, match="7 of 20 lists"):  # the server is gone altogether
        make_ranker(base_url=f"http://127.0.0.1:{port}/v1", retries=0).rank(lists)

    with serving(port) as revived:
        again = make_ranker(base_url=revived.url)
        assert orders(again.rank(lists)) == [[1, 3, 0, 2]] * 20
        asked = {json.dumps(body["messages"]) for body in revived.bodies}
        assert len(revived.bodies) == 13
        assert not asked & answered
    assert (again.usage.cached, again.usage.requests) == (7, 13)


def test_an_answer_is_on_disk_before_the_next_request_is_sent(server, make_ranker, tmp_path):
    kept = []
    server.trouble = lambda number, body: kept.append(len(list(tmp_path.rglob("*.json"))))
    make_ranker(concurrency=1).rank(many(4))
    assert kept == [0, 1, 2, 3]
    assert not list(tmp_path.rglob("*.lock"))


DAMAGES = [b"", b"{", b"\xff\xfe", b"[]", b'{"key": 3}', "more", "text", "another"]
DAMAGES.append(b'{"key": "other", "answer": {"text": "[1]"}}')


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_asked_for_anew(server, make_ranker, tmp_path, caplog, damage):
    expected = orders(make_ranker().rank([shown("q1")]))
    (path,) = (tmp_path / "responses").rglob("*.json")
    record = json.loads(path.read_text())
    if damage == "another":  # whole and well-formed, but not what was written
        damage = path.read_bytes().replace(b"[2]", b"[1]", 1)
        assert damage != path.read_bytes()
    elif isinstance(damage, str):
        record["answer"][damage] = 5
        damage = json.dumps(record).encode()
    path.write_bytes(damage)
    assert orders(make_ranker().rank([shown("q1")])) == expected
    assert len(server.bodies) == 2
    assert "is damaged" in caplog.text
    assert str(path) in caplog.text
    make_ranker().rank([shown("q1")])
    assert len(server.bodies) == 2


@pytest.mark.parametrize("text", ["Cheese is made of milk.", "", None, "{}"])
def test_nonsense_leaves_the_input_order_and_is_told(server, make_ranker, caplog, text):
    server.trouble = lambda number, body: completion(text)
    ranker = make_ranker()
    rankings = ranker.rank(many(3))
    assert orders(rankings) == [[0, 1, 2, 3]] * 3
    assert [ranking.num_ranked for ranking in rankings] == [0] * 3
    assert ranker.usage.missing == 12
    assert "3 of 3 answers had to be repaired (12 passages missing" in caplog.text


def test_repairs_are_counted_and_a_few_are_not_worth_a_warning(server, make_ranker, caplog):
    sloppy = completion("[2] > [2] > [9] > [1]")
    server.trouble = lambda number, body: sloppy if "q7" in str(body) else None
    ranker = make_ranker()
    rankings = ranker.rank(many(20))
    assert rankings[7].order.tolist() == [1, 0, 2, 3]
    assert (ranker.usage.missing, ranker.usage.repeated, ranker.usage.invented) == (2, 1, 1)
    assert "repaired" not in caplog.text


def test_answers_that_were_cut_are_told(server, make_ranker, caplog):
    server.trouble = lambda number, body: completion("<think>hm, [1] or [2]", finish="length")
    make_ranker().rank(many(2))
    assert "2 of 2 answers ended at max_tokens" in caplog.text


def test_a_server_that_counts_no_tokens_is_told_once(server, make_ranker, caplog):
    record = {"choices": [{"message": {"content": "[1] > [2] > [3] > [4]"}}]}
    server.trouble = lambda number, body: (200, {}, json.dumps(record).encode())
    ranker = make_ranker(prompt_price=1.0)
    ranker.rank(many(3))
    assert ranker.usage.prompt_tokens == 0
    assert caplog.text.count("the cost is not known") == 1


def test_long_passages_are_cut_and_counted(server, make_ranker):
    ranker = make_ranker(passage_words=3)
    ranker.rank([PassageList("q", ("one two three", "one two three four five"))])
    content = server.bodies[0]["messages"][-1]["content"]
    assert "[2] one two three\n" in content
    assert "four" not in content
    assert ranker.usage.shortened == 1


def test_one_list_that_is_refused_does_not_keep_the_others_from_being_answered(server, make_ranker):
    refusal = complaint(400, "too long for me")
    server.trouble = lambda number, body: refusal if "query q3" in str(body) else None
    message = r"refuses 1 of 6 lists.*'q3'.*too long for me.*5 lists are answered"
    with pytest.raises(ValueError, match=message):
        make_ranker(concurrency=1).rank(many(6))
    assert len(server.bodies) == 6


@pytest.mark.parametrize("status", [302, 400, 401, 404])
def test_options_that_are_wrong_for_every_list_end_the_job_at_once(server, make_ranker, status):
    reply = (status, {"Location": server.url + "/elsewhere"}, b'{"detail": "not so"}')
    server.trouble = lambda number, body: reply
    with pytest.raises(ServerError, match=f"status {status}: not so"):
        make_ranker(concurrency=1).rank(many(6))
    # 400 may be about one list: the next is on its way.
    assert len(server.bodies) <= (2 if status == 400 else 1)


def test_the_key_stands_nowhere(server, make_ranker, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    server.trouble = lambda number, body: (
        complaint(401, f"wrong key {KEY}") if number > 1 else completion(f"{KEY} [1]")
    )
    ranker = make_ranker(concurrency=1)
    ranker.rank([shown("q1")])
    with pytest.raises(ServerError) as caught:
        ranker.rank(many(3)[1:])
    assert KEY in server.headers[0]["Authorization"]
    error_with_causes = "".join(traceback.format_exception(caught.value))
    assert "wrong key ***" in error_with_causes
    assert KEY not in error_with_causes + caplog.text
    assert KEY not in repr(vars(ranker)) + repr(vars(ranker._server))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY in path.read_text()]


def test_nothing_but_the_key_is_taken_from_the_environment(
    server, make_ranker, tmp_path, monkeypatch
):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password something\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, f"{KEY}-of-{name}")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    make_ranker(key_variable=None).rank([shown("q1")])
    make_ranker().rank([shown("q2")])
    without_key, with_key = server.headers
    assert "Authorization" not in without_key
    assert KEY not in str(without_key)
    assert with_key["Authorization"] == f"Bearer {KEY}"
    assert str(with_key).count(KEY) == 1


def test_a_key_that_changes_is_the_next_requests(server, make_ranker, monkeypatch):
    ranker = make_ranker()
    ranker.rank([shown("q1")])
    monkeypatch.setenv("OPENAI_API_KEY", "another-key-0123")
    ranker.rank([shown("q2")])
    sent = [headers["Authorization"] for headers in server.headers]
    assert sent == [f"Bearer {KEY}", "Bearer another-key-0123"]


def test_no_redirect_is_followed_and_no_cookie_kept(server, make_ranker):
    server.trouble = lambda number, body: (200, {"Set-Cookie": "a=b"}, completion("[1]")[2])
    ranker = make_ranker(concurrency=1)
    ranker.rank(many(2))
    assert not [headers for headers in server.headers if "Cookie" in headers]
    with serving() as other:
        elsewhere = {"Location": f"{other.url}/chat/completions"}
        server.trouble = lambda number, body: (307, elsewhere, b"")
        with pytest.raises(ServerError, match="status 307"):
            ranker.rank([shown("q9")])
        assert other.bodies == []


def test_requests_that_go_well_write_nothing_to_the_log(server, make_ranker, caplog):
    caplog.set_level(logging.INFO)
    make_ranker().rank(many(3))
    assert caplog.messages == []


def test_without_the_package_it_is_said_how_to_install_it(make_ranker, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    message = r"listwise=openai needs the openai package: pip install '\.\[openai\]'"
    with pytest.raises(ImportError, match=message):
        make_ranker()


@pytest.mark.parametrize(
    ("key", "problem"),
    [("", "set the environment variable OPENAI_API_KEY"), ("k\u00e9y", "header")],
)
def test_a_key_that_is_missing_or_impossible_is_told_before_anything_is_sent(
    server, make_ranker, monkeypatch, key, problem
):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match=problem):
        make_ranker().rank([shown("q1")])
    assert server.bodies == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"concurrency": 0}, "concurrency=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"retries": -1}, "retries=-1"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"passage_words": 0}, "passage_words=0"),
        ({"prompt_price": -1}, "prompt_price=-1"),
        ({"base_url": "localhost:8000"}, "must be like"),
        ({"base_url": "http://"}, "must be like"),
        ({"base_url": f"http://me:{KEY}@localhost:port/v1"}, "not like"),
        ({"base_url": f"http://{KEY}@[::1/v1"}, "not like"),
        ({"base_url": "http://a..b/v1"}, "not like"),
        ({"base_url": f"http://me:{KEY}@localhost/v1"}, "key_variable"),
        ({"key_variable": KEY}, "name of an environment variable"),
        ({"extra": {"messages": []}}, "messages"),
        ({"extra": {"a": object()}}, "plain values"),
    ],
)
def test_wrong_options_are_named_and_keys_are_not(make_ranker, options, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        make_ranker(**options)
    assert KEY not in str(caught.value)


def test_the_configuration_has_every_option_of_the_ranker(server, monkeypatch, tmp_path):
    config = OmegaConf.load(CONF / "listwise" / "openai.yaml")
    prompt = OmegaConf.load(CONF / "prompt" / "rank_gpt.yaml")
    assert {*config.ranker, "prompt"} == {*inspect.signature(OpenAiRanker).parameters, "_target_"}
    options = {"model": "tiny", "base_url": server.url, "key_variable": None}
    options |= {"responses": str(tmp_path), "prompt": prompt}
    ranker = instantiate(OmegaConf.merge(config.ranker, options), _convert_="all")
    assert orders(ranker.rank([shown("q1")])) == [[1, 3, 0, 2]]
    given = inspect.signature(OpenAiRanker).parameters
    for name in set(config.ranker) - {"_target_", "model", "extra", "prompt"}:
        assert config.ranker[name] == given[name].default, name
    roles = [message["role"] for message in server.bodies[0]["messages"]]
    assert roles[:3] == ["system", "user", "assistant"]


TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|> {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture
def chat_model(tmp_path, sentences):
    """A folder with a chat model of random weights, its model and its tokenizer."""
    tokenizer = train_bpe([*sentences, "[1] > [2] > [3] a passage worth 12"] * 2, vocab_size=420)
    tokenizer.chat_template = TEMPLATE
    model = new_causal_lm(
        tokenizer, layers=1, hidden_size=16, heads=2, positions=512, initializer_range=1.0
    ).eval()
    folder = tmp_path / "chat_model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


@pytest.mark.slow
def test_a_real_model_behind_the_server_of_transformers(chat_model, tmp_path):
    """``transformers serve`` with a tiny model says what the model itself generates, and counts the
    same tokens.
    """
    if not is_serve_available():
        pytest.skip("transformers serve needs more: pip install 'transformers[serving]'")
    folder, model, tokenizer = chat_model
    lists = [shown("q1"), shown("q2", (1, 2))]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    from transformers.cli.serve import Serve  # not importable without these packages

    serve = Serve(str(folder), host="127.0.0.1", port=port, device="cpu", non_blocking=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        options = {"base_url": f"http://127.0.0.1:{port}/v1", "responses": tmp_path / "responses"}
        ranker = OpenAiRanker(str(folder), PROMPT, key_variable=None, max_tokens=12, **options)
        rankings = ranker.rank(lists)
    finally:
        serve.kill_server()
    read = generated = 0
    for item, ranking in zip(lists, rankings, strict=True):
        prompt = tokenizer.apply_chat_template(
            PROMPT.messages(item), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        prompt_tokens = prompt["input_ids"].shape[1]
        (ids,) = model.generate(**prompt, do_sample=False, max_new_tokens=12)
        text = tokenizer.decode(ids[prompt_tokens:], skip_special_tokens=True)
        assert ranking.order.tolist() == parse_ranking(text, len(item)).order.tolist()
        read += prompt_tokens
        generated += len(ids) - prompt_tokens
    assert (ranker.usage.prompt_tokens, ranker.usage.generated_tokens) == (read, generated)
    assert orders(ranker.rank(lists)) == orders(rankings)  # the server is gone
    assert ranker.usage.cached == 2


def _wait_for(url: str) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if requests.get(url, timeout=1).ok:
                return
        except requests.RequestException:
            time.sleep(0.1)
    pytest.fail(f"nothing answers at {url}")
