"""Who is answered, and what the server says of itself: keys, hosts, origins, ids, logs and metrics."""

from __future__ import annotations

import logging
from argparse import Namespace

import pytest
from foreign_rankers import bert
from prompted_models import save_model
from rerank_servers import gated, running, wait_for

from backpack_rank import cli
from backpack_rank.models.loading import save_ranker
from backpack_rank.serving.command import JsonLines, loaders_of, settings_of
from backpack_rank.serving.settings import KEY_VARIABLE, ServerSettings, read_api_key

GOOD = {"query": "a secret query", "documents": ["a secret document", "a bridge"]}
KEY = {"Authorization": "Bearer kitten-7"}


@pytest.fixture(scope="module")
def locked_server(tiny):
    """A server that asks for a key and lets one origin read."""
    options = {"api_key": "kitten-7", "cors_origins": ("https://page.example",)}
    with running(tiny, allow_amplification=True, **options) as server:
        yield server


WRONG_KEYS = ["Bearer", "Bearer kitten", "Bearer kitten-77", "Basic kitten-7", "kitten-7"]


@pytest.mark.parametrize("header", [None, *WRONG_KEYS, "Bearer k\xe4tzchen"])
def test_a_wrong_key_is_a_401_and_the_body_is_not_looked_at(locked_server, header):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for response in (
        locked_server.client.post("/rerank", content=b"{", headers=headers),
        locked_server.client.get("/v1/models", headers=headers),
        locked_server.client.get("/metrics", headers=headers),
    ):
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert "Bearer KEY" in response.json()["error"]["message"]


def test_the_right_key_opens_and_health_needs_none(locked_server):
    client = locked_server.client
    assert client.post("/rerank", json=GOOD, headers=KEY).status_code == 200
    assert client.get("/v1/models", headers=KEY).status_code == 200
    for path in ("/health", "/ready"):
        assert client.get(path).status_code == 200


def test_amplification_is_taken_where_it_is_allowed(locked_server, server):
    body = {**GOOD, "alpha": 2.5}
    assert locked_server.client.post("/rerank", json=body, headers=KEY).status_code == 200
    assert server.rerank(**GOOD, alpha=2.5).status_code == 400


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8000", "", "localhost.evil.example"]
)
def test_a_name_that_is_not_this_servers_is_refused(server, host):
    response = server.client.get("/v1/models", headers={"Host": host})
    assert response.status_code == 400
    assert "--allowed-host" in response.json()["message"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"]
)
def test_own_names_are_answered(server, host):
    assert server.client.get("/health", headers={"Host": host}).status_code == 200


def test_beyond_this_machine_a_key_takes_the_place_of_names():
    keyed = {"host": "0.0.0.0", "api_key": "k"}
    assert ServerSettings(**keyed).answers_host("search.example:80")
    assert not ServerSettings(host="0.0.0.0").answers_host("search.example:80")
    named = ServerSettings(**keyed, allowed_hosts=("a.example",))
    assert not named.answers_host("b.example")
    assert ServerSettings(allowed_hosts=("a.example",)).answers_host("a.example:80")
    assert ServerSettings(allowed_hosts=("*",)).answers_host("b.example")


def test_pages_of_other_origins_read_nothing_unless_they_may(server, locked_server):
    def allowed(running, origin):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        answer = running.client.options("/rerank", headers=asked)
        return answer.headers.get("access-control-allow-origin")

    assert allowed(server, "https://page.example") is None
    assert allowed(locked_server, "https://other.example") is None
    assert allowed(locked_server, "https://page.example") == "https://page.example"


def test_request_ids_are_echoed_or_made(server):
    for given in ("abc-1", "x" * 129, "a b", ""):
        response = server.client.post("/rerank", json=GOOD, headers={"X-Request-Id": given})
        echoed = response.headers["x-request-id"]
        assert (echoed == given) == (given == "abc-1")
        assert len(echoed) in (5, 32)
        assert response.json()["id"] == echoed


def _logged(caplog, running, asked: dict[str, tuple[dict, dict]]) -> list[dict]:
    """Fields of the log lines of requests by their ids; the headers and the body of each are given.

    No text of a request is in any line. Lines of earlier tests may still come in.
    """

    def lines():
        fields = [record.fields for record in caplog.records if hasattr(record, "fields")]
        return [line for line in fields if line["id"] in asked]

    with caplog.at_level(logging.INFO, "backpack_rank.serving"):
        for name, (headers, body) in asked.items():
            headers = {**headers, "X-Request-Id": name}
            running.client.post("/v1/rerank", json=body, headers=headers)
        wait_for(lambda: len(lines()) == len(asked))
    shown = "\n".join(JsonLines().format(record) for record in caplog.records)
    assert '"event": "request"' in shown
    assert "secret" not in shown
    return lines()


def test_log_lines_say_what_happened_and_quote_no_text(server, caplog):
    refused = {"query": "secret " * 100, "documents": ["a"]}
    asked = {"abc-2": ({}, {**GOOD, "alpha": 0.5}), "abc-3": ({}, refused)}
    lines = _logged(caplog, server, asked)
    assert [line["status"] for line in lines] == [200, 400]
    expected = {"id": "abc-2", "route": "/v1/rerank", "method": "POST"}
    expected |= {"model": "tiny", "documents": 2, "alpha": 0.5}
    assert expected.items() <= lines[0].items()
    assert lines[0]["tokens"] > 0
    assert lines[0]["ms"] >= lines[0]["queue_ms"] >= 0


def test_log_lines_of_refused_requests_carry_the_reason_without_texts(locked_server, caplog):
    many = {**GOOD, "documents": ["secret"] * 1_001}
    fieldless = {"query": "a", "documents": [{"secret": 1}], "rank_fields": ["secret"]}
    refused = [
        (GOOD, 401, "send the key as Authorization: Bearer KEY"),
        (many, 413, "1,001 documents: this server takes 1,000 in a request"),
        ({**GOOD, "top_n": "secret"}, 422, "top_n: Input should be a valid integer"),
        ({**GOOD, "secret of 7": 1}, 422, "a name is no field of a request"),
        ({**GOOD, "alhpa": 1}, 422, "a name is no field of a request: did you mean alpha?"),
        (fieldless, 422, "documents[0]: an object lacks a field that is read"),
        ({**GOOD, "policy": "secret"}, 400, None),
    ]
    asked = {f"refused-{number}": (KEY, body) for number, (body, *_) in enumerate(refused)}
    asked["refused-0"] = ({}, GOOD)
    lines = _logged(caplog, locked_server, asked)
    found = [(line["status"], line.get("reason")) for line in lines]
    assert found == [(status, reason) for _, status, reason in refused]


def test_limits_say_their_units(capsys):
    with pytest.raises(SystemExit):
        cli.serve(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for limit in ("--max-body BYTES of a request", "--max-queue-tokens TOKENS that wait"):
        assert limit in shown
    assert "--max-requests N that are read, wait or are scored at a time; default: 256" in shown


def test_a_mistake_of_the_server_is_a_500_that_quotes_no_text(pointwise, monkeypatch, caplog):
    with gated(pointwise()) as (server, gate):

        def job(pairs, *rest, **options):
            raise RuntimeError(pairs[0][0])

        with monkeypatch.context() as patched:
            patched.setattr(gate, "job_of_pairs", job)
            response = server.rerank(**GOOD)
        assert response.status_code == 500
        assert response.json()["error"]["message"] == "the server has made a mistake"
        assert response.headers["x-request-id"]
        assert "RuntimeError" in caplog.text
        assert "secret" not in caplog.text
        assert server.rerank(**GOOD).status_code == 200


def test_metrics_count_what_was_asked_scored_and_refused(tiny):
    with running(tiny) as server:
        server.rerank(**GOOD)
        server.rerank(**GOOD, alpha=-1)
        server.rerank(**GOOD, model="unknown")
        server.client.get("/made/up")
        lines = server.client.get("/metrics").text.splitlines()
    metrics = dict(line.rsplit(" ", 1) for line in lines if line[0] != "#")
    counts = {
        'requests_total{route="/v1/rerank",status="200"}': 1,
        'requests_total{route="other",status="404"}': 1,
        'rejected_total{reason="400"}': 1,
        'rejected_total{reason="404"}': 1,
        'documents_total{model="tiny"}': 2,
        'request_seconds_count{route="/v1/rerank"}': 3,
        "batch_tokens_count": 1,
        "queue_seconds_count": 1,
        "queue_tokens": 0,
        "queue_requests": 0,
    }
    assert {name: float(metrics[f"backpack_rank_{name}"]) for name in counts} == counts
    assert float(metrics["backpack_rank_batch_tokens_sum"]) > 4
    assert "unknown" not in str(metrics)


def test_models_and_the_openapi_page(server):
    (row,) = server.client.get("/v1/models").json()["data"]
    assert (row["id"], row["object"], row["max_length"]) == ("tiny", "model", 48)
    assert {"lowest_senses", "paired_tokens"} <= set(row["policies"])
    assert "swagger" in server.client.get("/docs").text
    described = server.client.get("/openapi.json").json()["paths"]
    assert {"/rerank", "/v1/rerank", "/v2/rerank", "/v1/models"} <= set(described)
    assert {"/health", "/ready", "/metrics"} <= set(described)
    schema = described["/v1/rerank"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"query", "documents", "texts", "alpha", "alphas", "policy"} <= set(schema["properties"])


def test_the_key_is_read_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert read_api_key() is None
    monkeypatch.setenv(KEY_VARIABLE, "from-environment")
    assert read_api_key() == "from-environment"
    file = tmp_path / "key"
    file.write_text("from-file\n")
    assert read_api_key(file) == "from-file"
    file.write_text("two words\n")
    with pytest.raises(ValueError, match="must be one word"):
        read_api_key(file)
    monkeypatch.setenv(KEY_VARIABLE, "")
    with pytest.raises(ValueError, match=f"the key in {KEY_VARIABLE} must be one word"):
        read_api_key()


def options(monkeypatch, *arguments: str) -> Namespace:
    """What the command makes of its arguments."""
    parsed: list[Namespace] = []
    monkeypatch.setattr("backpack_rank.serving.command.run", parsed.append)
    cli.main(["serve", *arguments])
    return parsed[0]


def test_the_command_binds_to_this_machine_and_asks_for_a_key_beyond_it(monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert settings_of(options(monkeypatch, "folder")).is_local
    everywhere = ("folder", "--host", "0.0.0.0")
    with pytest.raises(ValueError, match=r"--host 0\.0\.0\.0 is reached from other machines"):
        settings_of(options(monkeypatch, *everywhere))
    assert settings_of(options(monkeypatch, *everywhere, "--no-key")).api_key is None
    monkeypatch.setenv(KEY_VARIABLE, "kitten")
    assert settings_of(options(monkeypatch, *everywhere)).api_key == "kitten"
    with pytest.raises(ValueError, match="--examples-run and --examples-data go together"):
        settings_of(options(monkeypatch, "folder", "--examples-run", "run.trec"))
    with pytest.raises(ValueError, match="max_documents=0 must be above 0"):
        settings_of(options(monkeypatch, "folder", "--max-documents", "0"))


def test_rankers_are_served_under_the_names_given(
    monkeypatch, tmp_path, make_backpack, pair_tokenizer
):
    folder = tmp_path / "2026-11-23" / "ranker"
    folder.parent.mkdir()
    save_ranker(folder, make_backpack(), pair_tokenizer)
    asked = (str(folder), "--model", f"other={folder}", "--device", "cpu")
    loaders = loaders_of(options(monkeypatch, *asked))
    assert list(loaders) == ["2026-11-23", "other"]
    assert loaders["other"]().name == "other"
    assert list(loaders_of(options(monkeypatch, "someone/ranker"))) == ["someone/ranker"]
    for wrong in (["--model", "other"], ["--model", "a=b", "--model", "a=c"]):
        with pytest.raises(ValueError, match=r"give NAME=FOLDER|is the name of another ranker"):
            loaders_of(options(monkeypatch, *wrong))


def test_a_classifier_with_two_labels_is_served_when_they_are_named(monkeypatch, tmp_path):
    model, tokenizer = bert()
    model.config.id2label = {0: "bad", 1: "good"}
    model.config.label2id = {"bad": 0, "good": 1}
    type(model)(model.config).save_pretrained(tmp_path / "two")
    tokenizer.save_pretrained(tmp_path / "two")
    with pytest.raises(ValueError, match="nothing says which one means relevant"):
        loaders_of(options(monkeypatch, str(tmp_path / "two")))["two"]()
    named = options(monkeypatch, str(tmp_path / "two"), "--labels", "good,bad")
    assert loaders_of(named)["two"]().name == "two"


def test_a_language_model_is_served_with_its_template(monkeypatch, tmp_path):
    folder = save_model("Qwen3", tmp_path / "qwen3")
    asked = options(monkeypatch, str(folder), "--template", "qwen3_reranker")
    assert loaders_of(asked)["qwen3"]().name == "qwen3"
