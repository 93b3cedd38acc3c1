"""Rankings out of texts that language models write."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backpack_rank.position.lists.identifiers import identifier_names
from backpack_rank.position.lists.parsing import parse_ranking

READ = [
    # text, passages, order (identifiers, from 1), missing, repeated, invented
    ("[2] > [1] > [3]", 3, [2, 1, 3], 0, 0, 0),
    ("2 > 1 > 3", 3, [2, 1, 3], 0, 0, 0),
    ("[3]>[1]>[2]", 3, [3, 1, 2], 0, 0, 0),
    ("2 > 1", 3, [2, 1, 3], 1, 0, 0),
    ("[2]>[2]", 3, [2, 1, 3], 2, 1, 0),
    ("[9] > [2] > [0]", 3, [2, 1, 3], 2, 0, 2),
    ("", 3, [1, 2, 3], 3, 0, 0),
    ("I cannot help with that.", 3, [1, 2, 3], 3, 0, 0),
    ("9" * 5000, 3, [1, 2, 3], 3, 0, 1),
    ("0" * 5000 + "2", 3, [1, 2, 3], 3, 0, 1),
    # signs between identifiers, and marks around them
    ("[2] &gt; [1] -> [3]", 3, [2, 1, 3], 0, 0, 0),
    ("\u30102\u3011\uff1e\u30101\u3011\u2192\u30103\u3011", 3, [2, 1, 3], 0, 0, 0),
    ("**[2]** > **[1]**\n> [3]", 3, [2, 1, 3], 0, 0, 0),
    ("`[2] >\n[1] >\n[3]`", 3, [2, 1, 3], 0, 0, 0),
    ("[2] > [1], [3] = [4]", 4, [2, 1, 3, 4], 0, 0, 0),
    ("Passage 2 > Passage 1 > Passage 3", 3, [2, 1, 3], 0, 0, 0),
    ("[Passage 2] > [Passage 1]", 3, [2, 1, 3], 1, 0, 0),
    ("[4] > ... > [1]", 4, [4, 1, 2, 3], 2, 0, 0),
    # prose around them
    ("Here are the 3 passages in order: 2 > 1 > 3. I left out 40 words.", 3, [2, 1, 3], 0, 0, 0),
    ("[3] is about BM25, [1] > [9] was close. So: [2] > [1] > [3]", 3, [2, 1, 3], 0, 0, 0),
    ("First [1] > [2], or better [2] > [1]", 2, [2, 1], 0, 0, 0),
    ("The best is [3], then [1]; [2] is off the topic.", 3, [3, 1, 2], 0, 0, 0),
    ("Score 0.75 for 2, and 0.5 for 1 (the 3rd is BM25's).", 3, [2, 1, 3], 1, 0, 0),
    ("[see 2020] says 2 > 1", 2, [2, 1], 0, 0, 0),
    ("The order of the 3 passages: 2 > 1 > 3", 3, [2, 1, 3], 0, 0, 0),
    # thoughts and marked answers
    ("<think>[1] > [2] > [3]</think>\n[3] > [1] > [2]", 3, [3, 1, 2], 0, 0, 0),
    ("is it [1] > [2] > [3]? no</think>[3] > [1]", 3, [3, 1, 2], 1, 0, 0),
    ("<think>it may be [3] > [2]", 3, [1, 2, 3], 3, 0, 0),
    ("<Thinking>[1]</thinking>[2] > [1]<think>[3]", 3, [2, 1, 3], 1, 0, 0),
    ("[1] > [2] > [3], so <answer>[3] > [2]</answer> [1] > [2] > [3]", 3, [3, 2, 1], 1, 0, 0),
    # lists
    ("1. [3]\n2. [1]\n3. [2]", 3, [3, 1, 2], 0, 0, 0),
    ("1. Passage 3\n2. Passage 1\n3. Passage 2", 3, [3, 1, 2], 0, 0, 0),
    ("1) 3\n2) 1\n3) 2", 3, [3, 1, 2], 0, 0, 0),
    ("**Rank 1:** 3 (the answer)\n**Rank 2:** 1", 3, [3, 1, 2], 1, 0, 0),
    ("- [3]\n- [1]\n- [2]", 3, [3, 1, 2], 0, 0, 0),
    ("3\n1\n2", 3, [3, 1, 2], 0, 0, 0),
    ("3. about bridges\n1. about roads\n2. about fish", 3, [3, 1, 2], 0, 0, 0),
    ('{"ranking": [2, 1, 3]}', 3, [2, 1, 3], 0, 0, 0),
    ('```json\n["2", "1", "3"]\n```', 3, [2, 1, 3], 0, 0, 0),
    ("[2], [1], [3]", 3, [2, 1, 3], 0, 0, 0),
    # ranges
    ("[2]-[4], [1]", 4, [2, 3, 4, 1], 0, 0, 0),
    ("[4] > [1-3]", 4, [4, 1, 2, 3], 0, 0, 0),
    ("[2] > [1] to [4]", 4, [2, 1, 3, 4], 0, 0, 0),
    ("[4] - [1] - [3]", 4, [4, 1, 3, 2], 1, 0, 0),
    ("[3]-[1]", 3, [3, 1, 2], 1, 0, 0),
    ("[2]-[999999999]", 3, [2, 3, 1], 1, 0, 1),
]


# Every one names 2, 3, 1 of three passages, best first, and nothing else.
FORMS = {
    # as prompts of RankGPT, rank_llm, LiT5, FIRST and PSC ask
    "RankGPT": "[2] > [3] > [1]",
    "without spaces": "[2]>[3]>[1]",
    "rank_llm, an explanation behind": "[2] > [3] > [1]\n\nPassage [1] is about 2 other topics.",
    "RankGPT step by step": "Passage 1 is weak. [Start] [2] > [3] > [1] [End]",
    "Rank-R1 and Rank-K": "<think>[1] is 90% right</think><answer>[2] > [3] > [1]</answer>",
    "LiT5": "2 > 3 > 1",
    "FIRST": "[2]",
    "escaped for Markdown": r"\[2\] > \[3\] > \[1\]",
    "boxed": r"\boxed{[2] > [3] > [1]}",
    "boxed numbers": r"\boxed{2,3,1}",
    "double arrows": "[2] => [3] => [1]",
    "other arrows": "[2] \u21d2 [3] \u27f6 [1]",
    "full-width": "\u30102\u3011\uff0c\u30103\u3011\uff0c\u30101\u3011",
    "full-width commas": "2\uff0c3\uff0c1",
    "ideographic commas": "2\u30013\u30011",
    # lists
    "compact list": "[2,3,1]",
    "list": "[2, 3, 1]",
    "list of texts": '["2","3","1"]',
    "list of names": '["Passage 2", "Passage 3", "Passage 1"]',
    "list of keys": '["doc_2", "doc_3", "doc_1"]',
    "list of brackets": '["[2]", "[3]", "[1]"]',
    "nested list": "[[2], [3], [1]]",
    "list of floats": "[2.0, 3.0, 1.0]",
    "compact and bare": "2,3,1",
    "semicolons": "2;3;1",
    "blanks": "2 3 1",
    "brackets side by side": "[2][3][1]",
    "tuple": "(2, 3, 1)",
    "fenced": "```json\n[2,3,1]\n```",
    "fenced behind a sentence": "Here are the 3 passages:\n```json\n[2,3,1]\n```",
    "compact behind a sentence": "For query 3, the order is: [2,3,1]",
    # JSON modes
    "JSON": '{"ranking":[2,3,1]}',
    "JSON with a reason": '{"reason":"1 is 100% off","ranking":[2,3,1]}',
    "JSON with two lists": '{"topics":[1,3],"ranked_documents":["2","3","1"]}',
    "JSON objects": '[{"id":2},{"id":3},{"id":1}]',
    "JSON with scores": '[{"id":1,"score":0.1},{"id":2,"score":0.9},{"id":3,"score":0.5}]',
    "JSON with scores first": '[{"score":1,"doc":1},{"score":9,"doc":2},{"score":5,"doc":3}]',
    "JSON with ranks": '{"results":[{"passage":1,"rank":3},{"passage":2,"rank":1},'
    '{"passage":3,"rank":2}]}',
    "JSON scores by passage": '{"1": 0.1, "2": 0.9, "3": 0.5}',
    "JSON scores by name": '{"passage_1": 1, "passage_2": 9, "passage_3": 5}',
    "JSON lines": '{"document_number": 2}\n{"document_number": 3}\n{"document_number": 1}',
    "LlamaIndex, structured": '{"documents":[{"document_number":1,"relevance":2},'
    '{"document_number":2,"relevance":8},{"document_number":3,"relevance":7}]}',
    "LlamaIndex": "Doc: 2, Relevance: 8\nDoc: 3, Relevance: 6\nDoc: 1, Relevance: 2",
    "LlamaIndex, in input order": "Doc: 1, Relevance: 2\nDoc: 2, Relevance: 10\nDoc: 3, Relevance: 7",
    "LlamaIndex, its names": "answer_num: 2, answer_relevance:8\nanswer_num: 3, answer_relevance:6\n"
    "answer_num: 1, answer_relevance:3",
    "LlamaIndex with reasons": "Doc: 2, Relevance: 8 (It names 4 bridges.)\n"
    "Doc: 3, Relevance: 6 (It names none.)\nDoc: 1, Relevance: 1 (Nothing.)",
    # lines
    "lines": "2\n3\n1",
    "dashes": "- 2\n- 3\n- 1",
    "bullets": "\u2022 [2]\n\u2022 [3]\n\u2022 [1]",
    "numbered brackets": "1. [2]\n2. [3]\n3. [1]",
    "numbered": "1. 2\n2. 3\n3. 1",
    "numbered names": "1) Passage 2\n2) Passage 3\n3) Passage 1",
    "numbered and bold": "**1.** **Passage 2** - apt\n**2.** **Passage 3**\n**3.** **Passage 1**",
    "numbered with a dash": "1 - Passage 2\n2 - Passage 3\n3 - Passage 1",
    "numbered with scores": "1. Passage 2 (score: 9)\n2. Passage 3 (score: 8)\n3. Passage 1 (score: 1)",
    "ranks": "Rank 1: 2\nRank 2: 3\nRank 3: 1",
    "ranks behind": "Passage 1 (rank 3), Passage 2 (rank 1), Passage 3 (rank 2)",
    "table": "| Rank | Passage |\n|---|---|\n| 1 | 2 |\n| 2 | 3 |\n| 3 | 1 |",
    "scores of brackets": "[1] score: 0.2\n[2] score: 0.95\n[3] score: 0.5",
    # sentences with numbers around them
    "a count before": "Here are the 3 passages in order of relevance: 2, 3, 1",
    "a top before": "Top 3:\n2\n3\n1",
    "a query before": "For query 3 the order of relevance is:\n\n2, 3, 1",
    "thousands before": "Of 1,200 words, the order is 2, 3, 1",
    "a share before": "I am 90% sure: 2, 3, 1",
    "words behind": "2, 3, 1\n\nI left out 40 words.",
    "a chain behind a list": "From [1], [2], [3] I get [2] > [3] > [1]",
    "a thought before": "First 1 > 2 > 3?</think>\n2 > 3 > 1",
    "a title": "## Ranking of 3 documents\n[2] > [3] > [1]",
    "a year": "By relevance as of [2024 data] the ranking is: [2], [3], [1]",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_in_which_models_answer(form):
    parsed = parse_ranking(FORMS[form], 3)
    named = [2] if form == "FIRST" else [2, 3, 1]
    found = (parsed.order + 1).tolist()
    assert found[: len(named)] == named
    assert (parsed.missing, parsed.repeated, parsed.invented) == (3 - len(named), 0, 0)


@pytest.mark.parametrize("separator", [",", ", ", ";", " ", "\n", " > ", "],["])
@pytest.mark.parametrize("m", [9, 20, 100, 250])
def test_a_list_is_read_whole_however_it_is_separated(m, separator):
    order = np.random.default_rng(m).permutation(m)
    text = separator.join(str(position + 1) for position in order)
    for written in (f"[{text}]", f'{{"ranking": [{text}]}}'):
        parsed = parse_ranking(written, m)
        assert parsed.order.tolist() == order.tolist()
        assert not parsed.repaired


NOT_IDENTIFIERS = [
    # text, passages, identifiers that are named
    ("I read 1,200 words and 3 passages.", 5, []),
    ("The top 5 of 20 documents, 90% sure.", 20, []),
    ("Score .5 and 0,75 for 2", 9, [2]),
    ("Passage 2 documents the flood, passage 1 does not", 3, [2, 1]),
    ("Doc: 2, Relevance: 3", 3, [2]),
    ("By relevance: 2, 1, 3", 3, [2, 1, 3]),
    ("Rank: 3 > 1 > 2", 3, [3, 1, 2]),
    ("BM25 and GPT-4o prefer 3", 4, [3]),
    ('{"ranking": []}', 3, []),
    ('{"1": 3, "2": 1, "3": 2}', 3, [1, 3, 2]),  # ranks, passages or scores: as it stands
    ('{"ranking": [2,3,', 3, [2, 3]),
]


@pytest.mark.parametrize(("text", "m", "named"), NOT_IDENTIFIERS)
def test_numbers_of_other_things_are_no_identifiers(text, m, named):
    parsed = parse_ranking(text, m)
    assert (parsed.order[: m - parsed.missing] + 1).tolist() == named


@pytest.mark.parametrize(("text", "m", "order", "missing", "repeated", "invented"), READ)
def test_numbers_are_read(text, m, order, missing, repeated, invented):
    parsed = parse_ranking(text, m)
    assert (parsed.order + 1).tolist() == order
    assert (parsed.missing, parsed.repeated, parsed.invented) == (missing, repeated, invented)
    assert parsed.repaired == bool(missing or repeated or invented)


@pytest.mark.parametrize(
    ("text", "m", "order", "missing", "repeated", "invented"),
    [
        ("[B] > [A] > [C]", 3, "BAC", 0, 0, 0),
        ("B > A", 3, "BAC", 1, 0, 0),
        ("b > c > a", 3, "BCA", 0, 0, 0),
        ("[B] > [Z] > [B]", 3, "BAC", 2, 1, 1),
        ("I think B is best. A passage such as C isn't, then A.", 3, "BCA", 0, 0, 0),
        ("1. Passage C\n2. Passage A\n3. Passage B", 3, "CAB", 0, 0, 0),
        ("[B]-[D], [A]", 4, "BCDA", 0, 0, 0),
        ('["C", "A"]', 3, "CAB", 1, 0, 0),
    ],
)
def test_letters_are_read(text, m, order, missing, repeated, invented):
    parsed = parse_ranking(text, m, "alphabetic")
    assert "".join(chr(ord("A") + position) for position in parsed.order) == order
    assert (parsed.missing, parsed.repeated, parsed.invented) == (missing, repeated, invented)


def test_two_letters_follow_the_alphabet_as_in_the_prompt():
    names = identifier_names("alphabetic", 30)
    parsed = parse_ranking(" > ".join(f"[{name}]" for name in reversed(names)), 30, "alphabetic")
    assert parsed.order.tolist() == list(range(30))[::-1]
    assert not parsed.repaired


def test_a_ranking_says_how_much_the_answer_named():
    ranking = parse_ranking("[3] > [7]", 4).ranking()
    assert ranking.ranked.tolist() == [2]
    assert ranking.order.tolist() == [2, 0, 1, 3]


SIGNS = "[]> \n-127ABz."
SCRAPS = [*SIGNS, "12", "...", "<think>", "</think>", "to", "no", "1. "]
SCRAP_TEXT = st.lists(st.sampled_from(SCRAPS), max_size=40).map("".join)
ANY_TEXT = st.one_of(st.text(max_size=80), SCRAP_TEXT)


@pytest.mark.slow
@given(text=ANY_TEXT, m=st.integers(1, 30), kind=st.sampled_from(["numeric", "alphabetic"]))
def test_whatever_the_text_a_permutation_results(text, m, kind):
    parsed = parse_ranking(text, m, kind)
    assert sorted(parsed.order.tolist()) == list(range(m))
    left_out = parsed.order[m - parsed.missing :]
    assert (np.diff(left_out) > 0).all()
    assert min(parsed.missing, parsed.repeated, parsed.invented) >= 0


@given(st.data())
def test_what_a_prompt_asks_for_is_read_exactly(data):
    kind = data.draw(st.sampled_from(["numeric", "alphabetic"]))
    m = data.draw(st.integers(1, 40))
    named = data.draw(st.permutations(range(m)))[: data.draw(st.integers(1, m))]
    names = identifier_names(kind, m)
    before = data.draw(st.sampled_from(["", "Sure! ", "<think>[2] > [1]</think>"]))
    sign = data.draw(st.sampled_from([" > ", ">", "\n> ", " -> ", ", ", "\n"]))
    answer = sign.join(f"[{names[position]}]" for position in named)
    parsed = parse_ranking(before + answer, m, kind)
    assert parsed.order[: len(named)].tolist() == list(named)
    assert (parsed.missing, parsed.repeated, parsed.invented) == (m - len(named), 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "[1] " * 9000,
        "[ " * 9000,
        "[1," * 9000,
        "<think>" * 9000,
        "1" + "." * 9000 + "x 2",
        "1 " + "no..." * 9000 + "x 2",
        "[" + " " * 9000,
        "1 " + "-- " * 9000 + "x 2",
        "1-" * 9000,
        "no " * 9000 + "1",
        "1. 2\n" * 9000,
        "1," * 9000,
        "0,1," * 9000,
        "[" * 9000 + "1",
        '{"a":' * 9000,
        "Doc: 1, Relevance: 2 " * 3000,
        "a b c: 1 " * 9000,
        "9 most " * 9000,
        "1 relevance " * 9000,
    ],
    ids=lambda text: text[:8],
)
def test_a_long_rambling_answer_is_read_in_no_time(text):
    start = time.process_time()
    parse_ranking(text, 20)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("m", "kind", "problem"),
    [(0, "numeric", "at least 1"), (3, "roman", "identifiers=roman: use one of numeric")],
)
def test_impossible_lists_are_refused(m, kind, problem):
    with pytest.raises(ValueError, match=problem):
        parse_ranking("[1]", m, kind)
