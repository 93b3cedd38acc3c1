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


SCRAPS = st.sampled_from(
    [
        "[",
        "]",
        ">",
        " ",
        "\n",
        "-",
        "1",
        "2",
        "7",
        "12",
        "A",
        "B",
        "z",
        "...",
        ".",
        "<think>",
        "</think>",
        "to",
        "no",
        "1. ",
    ]
)
ANY_TEXT = st.one_of(st.text(max_size=80), st.lists(SCRAPS, max_size=40).map("".join))


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
    before, sign = (
        data.draw(st.sampled_from(["", "Sure! ", "<think>[2] > [1]</think>"])),
        data.draw(st.sampled_from([" > ", ">", "\n> ", " -> ", ", ", "\n"])),
    )
    parsed = parse_ranking(
        before + sign.join(f"[{names[position]}]" for position in named), m, kind
    )
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
