"""Explanations as terminal output, JSON and HTML."""

import json
import re
from dataclasses import replace

import pytest
from html_outline import Outline
from terminal_text import terminal_text

from backpack_rank.reporting.explanation import (
    EXPLANATION_CSS,
    explanation_html,
    print_explanation,
    write_explanations,
    write_profiles,
)
from backpack_rank.senses.attribution import (
    ExplainedGroup,
    ExplainedSense,
    ExplainedWord,
    Explanation,
)
from backpack_rank.senses.profiles import RelatedWord, SenseProfile

WORDS = (
    ExplainedWord("good", "query", 0.25),
    ExplainedWord("nurse", "query", -0.5),
    ExplainedWord("<|end|>", "separator", 0.125),
    ExplainedWord("She", "document", 1.0, group="female"),
    ExplainedWord("<b>", "document", -0.75),
    ExplainedWord(",", "document", 0.0, space=False),
    ExplainedWord('"[red]', "document", 0.0625),
    ExplainedWord("She", "document", 0.5, group="female"),
    ExplainedWord("<|end|>", "end", 0.0),
)
SENSES = (ExplainedSense(0, 0.9375, 0.25, 0.5), ExplainedSense(1, -0.25, None))
ROW = Explanation("d7 & alpha=0.5", WORDS, SENSES, score=1.1875, empty_score=0.5, cut=3)
CHANGED = replace(
    ROW,
    words=tuple(replace(word, change=0.125) for word in WORDS),
    senses=tuple(replace(sense, change=-0.375) for sense in SENSES),
    score_before=2.0,
)


def printed(row, **options):
    return terminal_text(lambda console: print_explanation(row, console), width=200, **options)


BY_WORDS = Explanation(
    "d7",
    (
        ExplainedWord("nurse", "query", None),
        ExplainedWord("She", "document", 0.5, group="female", change=-0.25),
        ExplainedWord("cooks <b>.", "document", -1.0, change=0.0),
    ),
    (),
    score=1.25,
    empty_score=None,
    score_before=2.0,
    groups=(ExplainedGroup("female", 1, 0.5, -0.25),),
    renditions=ExplainedGroup("gender", 1, 0.125, -0.5),
)


def test_words_that_were_left_out_are_shown_with_groups_and_renditions():
    text = printed(BY_WORDS)
    sentences = " ".join(text.split())
    assert "Score 1.2500. The number of a word is what the score loses without it;" in text
    assert "What its 1 gender words did by their group: +0.1250" in text
    assert "the score less the mean of its renditions (changed by -0.5000)" in sentences
    assert "Senses" not in text
    assert "empty mix" not in text
    assert re.search(r"cooks <b>\. *│ document │ +│ +1 │ +-1\.0000", text)
    assert re.search(r"female │ +1 │ +\+0\.5000 │ +-0\.2500", text)
    assert not re.search(r"nurse *│", text), "the only word of a query was not left out"

    html = Outline(explanation_html(BY_WORDS))
    titles = [span[0].get("title") for span in html.spans]
    assert titles[:3] == [
        "a query needs a word, so its only one is not left out",
        "+0.5000, changed by -0.2500, female word",
        "-1.0000, changed by +0.0000",
    ]
    assert "Listed words of each group" in html.whole_text
    assert "marks:" not in html.whole_text
    without = printed(replace(BY_WORDS, renditions=None, groups=()))
    assert "The query itself has words of the attribute" in without
    assert "no gender words" in printed(
        replace(BY_WORDS, renditions=ExplainedGroup("gender", 0, 0.0))
    )


def test_the_print_has_score_text_words_and_senses():
    text = printed(ROW)
    assert "d7 & alpha=0.5" in text
    assert "Score 1.1875 = 0.5000 (empty mix) +0.6875 (contributions)." in text
    assert "The last 3 tokens of the document did not fit" in text
    assert "query: good nurse" in text
    assert 'document: She <b>, "[red] She' in text
    assert "At alpha 1" not in text


def test_equal_words_are_added_up_and_the_strongest_stand_first():
    lines = [line for line in printed(ROW).splitlines() if "│" in line]
    words = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    first = next(cells for cells in words if len(cells) == 5)
    assert first == ["She", "document", "female", "2", "+1.5000"]
    values = [abs(float(cells[4])) for cells in words if len(cells) == 5 and cells[3].isdigit()]
    assert len(values) == 8
    assert values == sorted(values, reverse=True)


def test_senses_show_contribution_sensitivity_and_weight():
    text = printed(ROW)
    assert re.search(r"0 │ +\+0\.9375 │ +0\.250 │ +0\.5 ", text)
    assert re.search(r"1 │ +-0\.2500 │ +- │ +1 ", text)
    assert "change" not in text


def test_changes_by_a_control_are_shown_against_the_score_without_it():
    text = printed(CHANGED)
    assert "At alpha 1: 2.0000, a change of -0.8125." in text
    assert re.search(r"0 │ +\+0\.9375 │ +-0\.3750 │ +0\.250 │", text)


def test_colours_are_blue_for_up_and_orange_for_down_and_lexicon_words_are_underlined():
    text = printed(ROW, color_system="truecolor", force_terminal=True)
    strongest = re.search(r"\x1b\[([\d;]+)mShe\x1b", text)[1]
    assert "48;2;86;180;233" in strongest
    assert strongest.split(";")[0] == "4"
    red, _, blue = map(int, re.search(r"\x1b\[30;48;2;(\d+);(\d+);(\d+)m<b>", text).groups())
    assert red > blue
    red, _, blue = map(int, re.search(r"\x1b\[30;48;2;(\d+);(\d+);(\d+)mgood", text).groups())
    assert blue > red


def test_an_explanation_of_nothing_prints():
    text = printed(Explanation("", (ExplainedWord("[END]", "end", 0.0),), (), 0.5, 0.5))
    assert "document: (empty)" in text


def test_every_word_is_a_span_with_its_strength_side_and_number():
    page = Outline(explanation_html(ROW))
    spans = page.spans[: len(WORDS)]
    shown = [word for word in WORDS if word.segment == "query"] + [
        word for word in WORDS if word.segment == "document"
    ]
    shown += [word for word in WORDS if word.segment in ("separator", "end")]
    assert [text for _, text in spans] == [word.text for word in shown]
    for (attributes, _), word in zip(spans, shown, strict=True):
        assert attributes["style"] == f"--strength:{abs(word.contribution):.3f}"  # the largest is 1
        assert attributes["title"].startswith(f"{word.contribution:+.4f}")
        assert attributes["class"] == ("up" if word.contribution > 0 else "down")
    assert spans[2][0]["title"] == "+1.0000, female word"
    assert page.count("u") == 2


def test_texts_are_escaped():
    row = replace(ROW, title="<script>alert(1)</script>")
    words = (ExplainedWord('"><img src=x>', "document", 0.1, group='"<i>'), *WORDS)
    text = explanation_html(replace(row, words=words))
    page = Outline(text)
    assert not {"script", "img", "b>"} & {tag for tag, _ in page.tags}
    assert "alert(1)" in page.whole_text
    assert page.count("b") == 2, "the names of the two segments"
    assert '"><img src=x>' in [text for _, text in page.spans]


def test_spaces_stand_where_the_text_has_them():
    page = Outline(explanation_html(ROW))
    assert 'document She <b>, "[red] She' in page.whole_text


def test_the_fragment_says_what_changed_and_lists_the_senses():
    page = Outline(explanation_html(CHANGED))
    assert page.spans[0][0]["title"] == "+0.2500, changed by +0.1250"
    assert "At alpha 1: 2.0000" in page.whole_text
    assert page.count("tr") == 3
    assert "-0.3750" in page.whole_text


def test_the_style_sheet_sets_the_colours_once_and_serves_both_modes():
    assert "color:#" not in EXPLANATION_CSS
    assert EXPLANATION_CSS.count("var(--strength)") == 2
    assert EXPLANATION_CSS.count("{") == EXPLANATION_CSS.count("}")
    assert "url(" not in EXPLANATION_CSS


def test_explanations_are_written_with_all_digits(tmp_path):
    write_explanations(tmp_path / "a.json", [ROW, replace(CHANGED, score_before=1 / 3)])
    payload = json.loads((tmp_path / "a.json").read_text())
    assert payload["format"] == "backpack_rank explanations 1"
    first, second = payload["explanations"]
    assert (first["score"], first["score_before"], second["score_before"]) == (1.1875, None, 1 / 3)
    assert first["senses"][0] == {
        "index": 0,
        "contribution": 0.9375,
        "sensitivity": 0.25,
        "weight": 0.5,
        "change": None,
        "name": "0",
    }
    assert [word["text"] for word in first["words"]] == [word.text for word in WORDS]
    assert second["senses"][1]["change"] == -0.375


def test_numbers_that_are_not_finite_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_explanations(tmp_path / "a.json", [replace(ROW, score=float("nan"))])
    assert list(tmp_path.iterdir()) == []


PROFILE = SenseProfile(
    3,
    "gender: male",
    0.125,
    (RelatedWord("[nurse]", 0.5), RelatedWord("ward", 0.25)),
    {"he": (RelatedWord("she", 0.75),)},
    (RelatedWord("good", 0.5),),
    (),
    {"female": 0.25, "neutral": -0.5},
    {"female": 0.0625},
)


def test_profiles_are_written_as_json(tmp_path):
    write_profiles(tmp_path / "senses.json", [PROFILE])
    payload = json.loads((tmp_path / "senses.json").read_text())
    assert payload["format"] == "backpack_rank senses 1"
    assert payload["senses"][0]["neighbours"] == {"he": [{"word": "she", "value": 0.75}]}
    assert payload["senses"][0]["mean_contribution"] == {"female": 0.25, "neutral": -0.5}
