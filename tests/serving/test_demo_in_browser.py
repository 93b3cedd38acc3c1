"""The demo page in a real browser, over HTTP: what it shows is what the API and the package say."""

from __future__ import annotations

import json
import math
import queue
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from browsers import found_browser, visited
from fastapi import Request
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from rerank_servers import running

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import MemoryStore
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.magnitudes import GroupMagnitudes
from backpack_rank.evaluation.measure_names import parse_measures
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.serving.kinds import served
from backpack_rank.serving.settings import Example
from benchmarks import demo_picture

pytestmark = pytest.mark.browser
QUERY = "doctor in the ward"
# A window is at least 500 pixels wide, so the page stands in a frame of the same origin, and a
# script acts on it there.
FRAME = """<!DOCTYPE html><link rel="icon" href="data:,"><body style="margin:0">
<iframe id="frame" src="PAGE" style="width:WIDTHpx;height:900px;border:0"></iframe><script>
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
addEventListener("load", async () => {
  const page = document.getElementById("frame").contentWindow, $ = (id) => page.document.getElementById(id);
  const until = async (condition) => { for (let n = 0; n < 400 && !condition(); n++) await wait(25); await wait(25); };
  const set = async (id, value, kind) => {
    $(id).value = value;
    for (const type of [kind, "change"]) $(id).dispatchEvent(new page.Event(type, {bubbles: true}));
    await wait(25);
  };
  const list = () => [...$("list").children].map((row) => ({
    text: row.querySelector(".text").textContent, rank: row.querySelector(".rank").textContent,
    move: row.querySelector(".move").textContent, cls: row.className,
    marks: [...row.querySelectorAll(".text mark")].map((mark) => [mark.textContent, mark.className]),
  }));
  const measures = () => Object.fromEntries([...page.document.querySelectorAll("[data-measure]")].map((tile) =>
    [tile.querySelector("p").textContent, Number(tile.querySelector("data").value)]));
  const wide = () => [page.document.documentElement.scrollWidth, page.innerWidth];
  await until(() => $("list").children.length || !$("wrong").hidden || $("locked").open);
  let said;
  try { said = await (async () => { SCRIPT })(); } catch (error) { said = {failed: String(error.stack)}; }
  await wait(100);
  fetch("SERVER/said", {method: "POST", mode: "no-cors", body: JSON.stringify(said)});
});</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    return found_browser()


@pytest.fixture
def open_page(browser: str, server, tmp_path: Path):
    """Open the page with a permalink and give what a script says that acts on it.

    The console has no message, or as many as ``messages`` at most.
    """

    def act(
        script: str, width=1300, light=True, to=server, file=None, calm=False, messages=0, **where
    ):
        page = f"/#{urlencode(where, doseq=True)}" if where else "/"
        if file is not None:
            page = file.name
        text = FRAME.replace("PAGE", page).replace("WIDTH", str(width)).replace("SCRIPT", script)
        text = text.replace("SERVER", to.url)
        answers: queue.Queue[Any] = queue.Queue()

        async def said(request: Request) -> None:
            answers.put(json.loads(await request.body()))

        to.server.config.app.router.routes[:0] = [  # before those of an earlier test
            APIRoute("/said", said, methods=["POST"]),
            APIRoute("/frame", lambda: HTMLResponse(text)),
        ]
        if file is None:
            motion = ["--force-prefers-reduced-motion"] if calm else []
            answer, console = visited(browser, f"{to.url}/frame", answers, tmp_path, light, *motion)
        else:
            frame = file.with_name("frame.html")
            frame.write_text(text, encoding="utf-8")
            address, option = frame.as_uri(), "--allow-file-access-from-files"
            answer, console = visited(browser, address, answers, file.parent, light, option)
        assert "failed" not in answer, answer
        assert len(console) <= messages, console
        return answer

    return act


def ranked(server, documents, alpha, policy):
    """The order of the API."""
    body = {"query": QUERY, "documents": documents, "alpha": alpha, "policy": policy}
    return [row["index"] for row in server.rerank(**body).json()["results"]]


def test_the_slider_orders_as_the_api_says_and_measures_are_those_of_the_package(
    server, open_page, sentences
):
    documents = list(sentences)
    policy, cutoff = "paired_tokens", 5
    script = """const seen = {}; seen.max = $("slider").max;
      for (const at of [10, 5, 0]) { await set("slider", at, "input"); seen[at] = {list: list(), measures: measures(),
        alpha: $("alpha").textContent, link: page.location.hash}; }
      return seen;"""
    page = open_page(script, q=QUERY, d=documents, policy=policy, k=cutoff)
    assert page["max"] == "10"
    first = ranked(server, documents, 1.0, policy)
    orders = set()
    for at, alpha in (("10", 1.0), ("5", 0.5), ("0", 0.0)):
        order = ranked(server, documents, alpha, policy)
        orders.add(tuple(order))
        shown = page[at]["list"]
        assert float(page[at]["alpha"]) == alpha
        assert f"alpha={alpha:g}&" in page[at]["link"]
        assert [row["text"] for row in shown] == [documents[doc] for doc in order]
        assert [row["rank"] for row in shown] == [str(place) for place in range(1, len(order) + 1)]
        gained = [first.index(doc) - place for place, doc in enumerate(order)]
        moves = [f"{n:+d}".replace("-", "\u2212") if n else "=" for n in gained]
        assert [row["move"] for row in shown] == moves
        expected = package_measures(documents, order, cutoff)
        counted = page[at]["measures"]
        (swap_change,) = [name for name in counted if name.startswith("Swap")]
        del counted[swap_change]
        assert counted == pytest.approx(expected, abs=1e-12)
    assert len(orders) > 1


def package_measures(documents, order, cutoff):
    """RaB, ARaB and NFaiRR of a list by the package, the documents being the background."""
    run = {"q": {f"d{doc:02d}": -float(place) for place, doc in enumerate(order)}}
    store = MemoryStore({f"d{doc:02d}": text for doc, text in enumerate(documents)})
    magnitudes = GroupMagnitudes.of(run["q"], store, Attribute.named("gender").lexicon())
    names = [f"RaB(tf)@{cutoff}", f"ARaB(tf)@{cutoff}", f"NFaiRR@{cutoff}"]
    values = FairnessContext(magnitudes, background=run).measure(run, parse_measures(names)).values
    return {name.replace("(tf)", ""): values[name]["q"] for name in names}


def test_policies_share_of_words_and_cutoff_change_with_a_choice(open_page, sentences):
    script = """const before = [measures(), $("shares").textContent, $("about").textContent];
      await set("policy", "uniform", "input"); await until(() => $("slider").max === "20");
      await set("cutoff", "3", "input");
      return {before, after: [measures(), $("shares").textContent, $("about").textContent],
        hash: page.location.hash};"""
    where = {"q": QUERY, "d": list(sentences), "alpha": 0.5, "policy": "paired_tokens"}
    shown = open_page(script, **where)
    assert set(shown["before"][0]) == {"Swap change, 5 documents", "RaB@10", "ARaB@10", "NFaiRR@10"}
    assert set(shown["after"][0]) == {"Swap change, 5 documents", "RaB@3", "ARaB@3", "NFaiRR@3"}
    # She, her, woman, Her, mother, she; he, his, man, father, his.
    assert shown["before"][1] == "female 55%male 45%"
    assert "11 positions: under this policy each alpha is a pass" in shown["before"][2]
    assert "21 positions, all from one reading" in shown["after"][2]
    assert "alpha=0.5&policy=uniform&k=3" in shown["hash"]


def test_the_card_of_swap_changes_is_what_the_api_gives_for_swapped_documents(
    server, open_page, reranker
):
    documents = ["He saw his father.", "A woman walks."]
    documents += ["A bridge over a river.", "The queen and her king."]
    swapped = ["She saw her mother.", "A man walks.", None, "The king and his queen."]
    script = """const seen = {};
      for (const at of [20, 10, 0]) { await set("slider", at, "input"); seen[at] = measures(); }
      return [seen, $("policy").value];"""
    shown, policy = open_page(script, q=QUERY, d=documents)
    assert policy == "lowest_senses"
    for at, alpha in (("20", 1.0), ("10", 0.5), ("0", 0.0)):
        pairs = [(QUERY, text) for text in (*documents, *filter(None, swapped))]
        scores = reranker.at(alpha, policy).predict(pairs).astype(float)
        changes = np.abs(scores[[0, 1, 3]] - scores[4:])
        by_hand = changes.mean() / scores[:4].std(ddof=1)
        assert shown[at]["Swap change, 3 documents"] == pytest.approx(by_hand, abs=2e-3)


def test_the_place_of_each_document_with_its_words_swapped_is_that_of_the_scores(
    open_page, reranker, sentences
):
    swap = Attribute.named("gender").swap()
    # Without those whose swapped wording is another one: equal scores have no order.
    documents = [text for text in sentences if swap(text).text not in set(sentences) - {text}]
    documents += ["He saw his father.", "The queen and her king."]
    script = """const seen = {};
      for (const at of [20, 0]) { await set("slider", at, "input");
        seen[at] = {said: $("promise").textContent, rows: [...$("list").children].map((row) =>
          [row.querySelector(".text").textContent, row.querySelector(".swapped")?.textContent ?? null])}; }
      return seen;"""
    shown = open_page(script, q=QUERY, d=documents, policy="lowest_senses")
    told = []
    moved_at_one = set()
    for at, alpha in (("20", 1.0), ("0", 0.0)):
        ranked_at = reranker.at(alpha, "lowest_senses")
        scores = ranked_at.predict([(QUERY, text) for text in documents])
        elsewhere = 0
        with_words = 0
        for place, (text, said) in enumerate(shown[at]["rows"]):
            swapped = swap(text)
            if swapped.text == text:
                assert said is None
                continue
            with_words += 1
            (score,) = ranked_at.predict([(QUERY, swapped.text)])
            others = [scores[doc] for doc, other in enumerate(documents) if other != text]
            there = sum(other > score for other in others)
            elsewhere += there != place
            if there != place:
                assert said == f"swapped: place {there + 1}"
            else:
                # Of a document that never moved, nothing is said.
                assert said == ("swapped: same place" if text in moved_at_one else "")
            if alpha == 1 and there != place:
                moved_at_one.add(text)
        told.append((elsewhere, with_words))
    (first, total), (last, _) = told
    assert first > 0
    sentence = f"With gendered words swapped, {first} of {total} documents would stand elsewhere"
    assert shown["20"]["said"] == f"{sentence}."
    assert shown["0"]["said"] == f"{sentence}; now {last or 'none'}."


def test_the_page_opens_with_the_first_example_in_which_a_document_moves(
    open_page, tiny, sentences
):
    still = Example("a bridge", ("A bridge over a river.", "A road."))
    moving = Example(QUERY, tuple(sentences))
    script = 'return {query: $("query").value, example: $("example").value, rows: list().length};'
    with running(tiny, examples=(still, moving)) as server:
        shown = open_page(script, to=server)
        of_link = open_page(script, to=server, example=1)
    with running(tiny, examples=(still, still)) as server:
        nothing_moves = open_page(script, to=server)
    assert shown == {"query": QUERY, "example": "1", "rows": len(sentences)}
    assert of_link["query"] == still.query
    assert nothing_moves == {"query": still.query, "example": "0", "rows": 2}


def test_texts_are_shown_as_they_are_whatever_is_in_them(open_page):
    documents = [
        "<img src=x onerror=document.title=1> she said <b>no</b>",
        "</script><script>top.hit=1</script> HE & co",
    ]
    script = """$("list").querySelectorAll("summary").forEach((one) => one.click());
      await until(() => $("list").querySelectorAll(".why p").length === 6);
      return {list: list(), why: [...$("list").querySelectorAll(".why")].map((one) => one.textContent),
        elements: $("list").querySelectorAll("img, b, script").length, hit: [window.hit, page.document.title]};"""
    shown = open_page(script, q=QUERY, d=documents)
    assert sorted(row["text"] for row in shown["list"]) == sorted(documents)
    marks = []
    for row in shown["list"]:
        marks += [tuple(mark) for mark in row["marks"]]
    assert sorted(marks) == [("HE", "g1"), ("she", "g0")]
    assert shown["elements"] == 0
    assert shown["hit"] == [None, "backpack_rank: turn alpha, watch the ranking"]
    assert all("score" in text and "Document:" in text for text in shown["why"])


def test_an_explanation_follows_alpha(open_page, reranker, sentences):
    script = """$("list").querySelector("summary").click();
      await until(() => $("list").querySelector(".why p"));
      const text = $("list").querySelector("li .text").textContent;
      const seen = [$("list").querySelector(".why p").textContent];
      await set("slider", 0, "input");
      await until(() => page.document.querySelector("details[open] .why p").textContent.includes("alpha 0:"));
      const words = [...page.document.querySelectorAll("li details[open] .why p:last-child .word")];
      return {text, seen, now: page.document.querySelector("li details[open] .why p").textContent,
        words: words.map((one) => one.title)};"""
    shown = open_page(script, q=QUERY, d=list(sentences), policy="lowest_senses")
    expected = reranker.with_policy("lowest_senses", 0.0).explain(QUERY, shown["text"])
    assert f"score {expected.score:+.3f} ".replace("-", "\u2212") in shown["now"]
    assert "Alpha has changed it" in shown["now"]
    assert "Alpha has changed it" not in shown["seen"][0]
    of_document = [word.contribution for word in expected.words if word.segment == "document"]
    expected_words = [f"{number:+.3f}".replace("-", "\u2212") for number in of_document]
    assert shown["words"] == expected_words


def test_the_picture_of_readme_is_taken_from_the_page(browser, server, tmp_path):
    images = pytest.importorskip("PIL.Image", reason="needs Pillow")
    demo_picture.main(server.url, target=tmp_path / "demo.png")
    with images.open(tmp_path / "demo.png") as image:
        assert image.size == demo_picture.SIZE
        assert len(image.getcolors()) > 20  # not an empty page


@pytest.mark.parametrize(
    ("width", "light"), [(1300, True), (1300, False), (400, True), (400, False)]
)
def test_examples_come_up_and_nothing_is_wider_than_the_window(open_page, width, light):
    script = """const seen = [wide()];
      await set("slider", 0, "input"); seen.push(wide());
      $("ask").querySelector("summary").click(); $("list").querySelector("summary").click();
      await until(() => $("list").querySelector(".why p")); seen.push(wide());
      await set("example", "3", "input"); await until(() => page.location.hash.includes("example=4"));
      seen.push(wide());
      return {seen, rows: list().length, hash: page.location.hash,
        paper: page.getComputedStyle(page.document.body).backgroundColor};"""
    shown = open_page(script, width, light)
    assert shown["seen"] == [[width, width]] * 4
    assert shown["rows"] == 20
    assert "example=4" in shown["hash"]
    assert "&d=" not in shown["hash"]
    assert shown["paper"] == ("rgb(255, 255, 255)" if light else "rgb(20, 23, 28)")


def test_the_saved_file_works_without_the_server(open_page, server, reranker, sentences, tmp_path):
    documents = [*sentences, "</script><b>she</b> $& $1"]
    script = """let blob; page.URL.createObjectURL = (given) => { blob = given; return "#"; };
      page.HTMLAnchorElement.prototype.click = () => {};
      $("list").querySelector("summary").click(); await until(() => $("list").querySelector(".why p"));
      $("save").click(); await until(() => blob); return {text: await blob.text(), told: $("said").textContent};"""
    shown = open_page(script, q=QUERY, d=documents, alpha=0.5, policy="lowest_senses")
    assert shown["told"].startswith("Saved")
    file = tmp_path / "saved" / "ranking.html"
    file.parent.mkdir()
    file.write_text(shown["text"], "utf-8")
    script = """const seen = {list: list(), max: $("slider").max, alpha: $("alpha").textContent};
      seen.policies = $("policy").length;
      await set("policy", "paired_tokens", "input"); await set("slider", 0, "input");
      return {...seen, turned: list(), query: $("query").value, wrong: $("wrong").textContent,
        asked: page.performance.getEntriesByType("resource").length};"""
    opened = open_page(script, file=file)
    assert opened["asked"] == 0
    expected = {"alpha": "0.5", "max": "20", "query": QUERY, "wrong": ""}
    assert expected.items() <= opened.items()
    assert opened["policies"] == len(reranker.policies)
    order = ranked(server, documents, 0.5, "lowest_senses")
    assert [row["text"] for row in opened["list"]] == [documents[doc] for doc in order]
    order = ranked(server, documents, 0.0, "paired_tokens")
    assert [row["text"] for row in opened["turned"]] == [documents[doc] for doc in order]


def test_a_server_with_a_key_is_asked_once_it_is_given(open_page, tiny):
    script = """const open = $("locked").open; $("key").value = "secret";
      $("locked").querySelector("form").requestSubmit(); await until(() => $("list").children.length);
      return {open, rows: list().length, hash: page.location.href,
        storage: page.localStorage.length + page.sessionStorage.length};"""
    with running(tiny, api_key="secret") as locked:
        # The browser's own line about the answer 401.
        shown = open_page(script, to=locked, messages=1)
    assert shown["open"] is True
    assert shown["rows"] == 20
    assert "secret" not in shown["hash"]
    assert shown["storage"] == 0


def test_what_the_server_refuses_is_said(open_page):
    script = "return {wrong: $('wrong').textContent};"
    shown = open_page(script, messages=math.inf, q="long " * 60, d=["a"])
    assert "query" in shown["wrong"]


@pytest.mark.parametrize("calm", [False, True])
def test_documents_move_on_their_way_unless_the_system_asks_for_reduced_motion(
    open_page, sentences, calm
):
    script = """$("slider").value = 0; $("slider").dispatchEvent(new page.Event("input"));
      return {moving: page.document.getAnimations().length};"""
    where = {"q": QUERY, "d": list(sentences), "policy": "paired_tokens"}
    shown = open_page(script, calm=calm, **where)
    assert (shown["moving"] == 0) == calm


def test_a_ranker_without_a_dial_or_senses_is_shown_as_it_is(
    open_page, reranker, make_gpt2, pair_tokenizer, sentences
):
    def load():
        plain = served("plain", PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer)))
        plain.policies = ()
        return plain

    script = """const row = [...$("list").children].find((one) => one.querySelector("mark"));
      row.querySelector("summary").click();
      await until(() => row.querySelector(".why p"));
      return {list: list(), disabled: $("slider").disabled, about: $("about").textContent,
        why: $("list").querySelectorAll("summary").length,
        said: row.querySelector(".why").textContent};"""
    with running({"plain": load}) as server:
        shown = open_page(script, to=server, q=QUERY, d=list(sentences), alpha=0.5)
        results = server.rerank(query=QUERY, documents=list(sentences)).json()["results"]
    assert [row["text"] for row in shown["list"]] == [sentences[row["index"]] for row in results]
    assert (shown["disabled"], shown["why"]) == (True, len(sentences))
    # Without senses the words of a document were left out, one at a time.
    assert "A word's number is what the score loses without it" in shown["said"]
    assert "words did by their group" in shown["said"]
    assert shown["about"].startswith("This ranker has no dial")


def test_several_rankers_are_a_choice(open_page, pointwise, sentences):
    script = """const before = [$("models").hidden, page.location.hash]; await set("model", "second", "input");
      await until(() => page.location.hash.includes("model=second")); return {before, list: list()};"""
    loaders = {
        "first": lambda: served("first", pointwise()),
        "second": lambda: served("second", pointwise(1)),
    }
    with running(loaders) as server:
        shown = open_page(script, to=server, q=QUERY, d=list(sentences))
        body = {"query": QUERY, "documents": list(sentences), "model": "second"}
        results = server.rerank(**body).json()["results"]
    assert shown["before"][0] is False
    assert [row["text"] for row in shown["list"]] == [sentences[row["index"]] for row in results]


def test_until_a_policys_scores_are_there_the_page_keeps_those_before_under_their_name(open_page):
    shown = open_page(
        """
        const before = JSON.stringify(list()), first = $("policy").value, errors = [];
        page.addEventListener("error", (event) => errors.push(event.message));
        page.addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
        const own = page.fetch.bind(page);
        let answer;
        const gate = new Promise((done) => { answer = done; });
        page.fetch = async (...request) => { await gate; return own(...request); };
        const other = [...$("policy").options].map((one) => one.value).find((name) => name !== first);
        await set("policy", other, "input");
        const busy = $("main").getAttribute("aria-busy"), disabled = $("slider").disabled;
        const about = $("about").textContent;
        await set("slider", "0", "input");
        const link = new page.URLSearchParams(page.location.hash.slice(1)).get("policy");
        answer();
        await until(() => !$("main").hasAttribute("aria-busy"));
        await set("slider", "0", "input");
        const after = new page.URLSearchParams(page.location.hash.slice(1)).get("policy");
        return {errors, busy, disabled, about, first, other, link, after, enabled: !$("slider").disabled};
        """
    )
    assert shown["errors"] == []
    assert shown["busy"] == "true"
    assert shown["disabled"]
    assert shown["first"].replace("_", " ") in shown["about"]
    assert shown["link"] in (None, shown["first"])
    assert shown["after"] == shown["other"]
    assert shown["enabled"]
