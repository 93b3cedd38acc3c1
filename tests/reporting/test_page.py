"""The report page: well-formed, self-contained, everything escaped, and figures where the numbers
say.
"""

from __future__ import annotations

import datetime
import re
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from html_outline import Outline
from hypothesis import given, settings
from hypothesis import strategies as st
from page_example import (
    ABOUT,
    HOSTILE,
    LEXICON,
    LONG,
    POLICIES,
    ROWS,
    changed,
    full_page,
    row,
    with_policies,
)

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.data import (
    Changes,
    Gallery,
    Page,
    RankedDocument,
    SensePanel,
    Span,
)
from backpack_rank.reporting.page.pictures import page_charts, write_pictures
from backpack_rank.reporting.page.provenance import git_commit, provenance
from backpack_rank.reporting.page.render import GROUPS, SECTIONS, Limits, render, write_page
from backpack_rank.reporting.page.text import cut, mark_words
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table
from backpack_rank.reporting.vega import COLOURS, DARK, chart_script
from backpack_rank.senses.profiles import RelatedWord, SenseProfile

STYLE = (Path(__file__).parents[2] / "backpack_rank/reporting/page/templates/style.css").read_text(
    "utf-8"
)


@pytest.fixture(scope="module")
def html() -> str:
    return render(full_page())


@pytest.fixture(scope="module")
def outline(html: str) -> Outline:
    return Outline(html)


def test_every_section_is_there_in_order_and_reachable(outline: Outline):
    assert [attributes["id"] for attributes in outline.all("section")] == list(SECTIONS)
    assert [attributes["href"] for attributes in outline.all("a")][1:] == [
        f"#{name}" for name in SECTIONS
    ]


def test_ids_are_unique_and_references_lead_somewhere(outline: Outline):
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in outline.tags:
        for name in ("href", "for", "aria-labelledby"):
            if name in attributes:
                assert attributes[name].lstrip("#") in ids


def test_nothing_is_asked_from_anywhere(html: str, outline: Outline):
    for tag, attributes in outline.tags:
        assert tag not in ("link", "img", "iframe", "object", "base")
        assert "src" not in attributes
        assert not attributes.get("href", "#").startswith(("http", "//", "file"))
    # The policy below forbids what the script of the charts could ask for.
    assert not re.search(
        r"url\(|@import|https?://|fetch\(|XMLHttpRequest", html.replace(chart_script(), "")
    )
    (policy,) = outline.all("meta", http_equiv="Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none';")


def test_the_configuration_keeps_its_blank_lines_and_indentation():
    text = "a:\n  b: 1\n\n\n  c: 2  # end\n"
    assert f">{text}</pre>" in render(Page("t", configuration=text))


def test_every_text_is_escaped(html: str, outline: Outline):
    scripts = [attributes.get("type", "") for attributes in outline.all("script")]
    assert sorted(set(scripts)) == ["", "application/json"]
    assert scripts.count("") == 2  # the charts' and the page's
    assert "alert(1)</script>" not in html
    # Query, sense words, table cell, YAML, command line: all show the text as it is.
    for tag in ("span", "td", "th", "pre", "dd"):
        assert HOSTILE in "".join(outline.text[tag]), tag


def test_names_of_systems_measures_groups_and_policies_are_escaped():
    bad = "<i>\"'&\x1b[2J\x9b2J"
    page = with_policies(full_page(), {bad: POLICIES["paired_tokens"]})
    page = replace(page, groups=(bad, "female"), title=bad)
    rows = [row(bad, None, 0.3, 0.1), row("alpha=1", 1.0, 0.4, 0.2)]
    built = page_of_rows(bad, {bad: rows, "b": ROWS}, ABOUT)
    text = render(
        replace(page, headline=built.headline, tradeoff=built.tradeoff, cutoffs=built.cutoffs)
    )
    assert "<i>" not in text
    assert not {"\x1b", "\x9b"} & set(text)
    Outline(text)


def test_headings_do_not_skip_a_level(outline: Outline):
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_tables_have_captions_and_figures_descriptions(outline: Outline):
    assert len(outline.all("table")) == len(outline.all("caption")) > 5
    pictures = [
        attributes
        for tag in ("div", "span")
        for attributes in outline.all(tag)
        if attributes.get("role") == "img"
    ]
    assert len(pictures) > 10
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in pictures)
    assert all("scope" in attributes for attributes in outline.all("th"))


def test_the_style_has_dark_and_print_and_narrow_parts(html: str):
    for part in (
        "prefers-color-scheme: dark",
        "@media print",
        "@media (max-width",
        "details-content",
    ):
        assert part in html


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour: str, other: str) -> float:
    high, low = sorted((luminance(colour), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_have_the_contrast_of_wcag_aa(theme: int):
    blocks = re.findall(r":root \{(.*?)\n ?\s*\}", STYLE, re.S)[:2]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[theme]))
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    for ground in ("paper", "panel"):
        for ink in ("ink", "soft", "link"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for name in ("c0", "c1", "c2", "c3", "c4", "c5", "ref", "g0", "g1", "g2", "g3"):
        assert contrast(colours[name], colours["paper"]) >= 3, name
    for name in ("c2", "c3"):  # text of the moves
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in ("g0", "g1", "g2", "g3", "rest"):
        assert contrast(colours["ink"], colours[f"{name}-soft"]) >= 4.5, name
        assert contrast(colours["soft"], colours[f"{name}-soft"]) >= 4.5, name


def test_charts_have_the_colours_of_the_page():
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in STYLE.split("@media")[:2]
    )
    assert tuple(light[f"c{n}"] for n in range(len(COLOURS))) == COLOURS
    assert tuple(light[f"g{n}"] for n in range(GROUPS)) == COLOURS[:GROUPS]
    assert tuple(DARK[colour] for colour in COLOURS) == tuple(
        dark[f"c{n}"] for n in range(len(COLOURS))
    )


def test_the_tradeoff_opens_at_the_first_bias_measure_with_a_chart_for_each_policy():
    page = page_of_rows(
        "t",
        {"policy=a": ROWS, "policy=b": ROWS, "policy=uniform": ROWS},
        replace(ABOUT, alpha=None),
    )
    assert page.tradeoff is not None
    panel = page.tradeoff.panels[page.tradeoff.first]
    assert panel.choice == ("ARaB(tf)", "10")
    assert [figure.title for figure in panel.figures] == ["a", "b"]  # the control is in both
    legend = [layer["encoding"]["color"]["scale"]["domain"] for layer in panel.figures[0].spec["layer"]
              if layer["mark"]["type"] == "line"]  # fmt: skip
    assert legend == [["a", "uniform"]]
    values = panel.figures[0].values
    assert values is not None
    cells = [Cell("0.0500 [0.0400, 0.0600]"), Cell("0.4000 [0.3800, 0.4200]")]
    assert values.rows[1] == Row(("alpha=1",), cells)
    assert len({name for name, _, _ in page_charts(page)}) == len(page_charts(page))
    Outline(render(page))


def test_the_cutoffs_have_every_system_at_every_cutoff():
    page = page_of_rows("t", {"": ROWS}, ABOUT)
    assert page.cutoffs is not None
    assert page.cutoffs.panels[0].choice == ("RaB(tf)",)
    (figure,) = page.cutoffs.panels[0].figures
    assert figure.values is not None
    labels = [labels for labels, _ in figure.values.rows]
    assert labels == [("BM25",), ("alpha=1",), ("alpha=0.5 (this report)",), ("alpha=0",)]
    assert figure.values.headings == ["cut-off 5", "cut-off 10"]


def test_the_main_numbers_have_the_ranker_as_it_is_once():
    headline = page_of_rows("t", {"": ROWS}, ABOUT).headline
    assert headline is not None
    names = [labels for labels, _ in headline.rows]
    assert names == [("BM25",), ("alpha 1 (as is)",), ("alpha 0.5",), ("alpha 0",)]
    assert headline.marked == [2]
    assert headline.headings[:2] == ["nDCG@10", "RaB@10 TF"]
    assert "0.3800<small>[0.360, 0.400]</small>" in render(Page("t", headline=headline))
    both = page_of_rows(
        "t",
        {"policy=a": ROWS, "policy=b": ROWS},
        ABOUT,
        significant=lambda name, entry, _: entry.alpha == 0,
    ).headline
    assert both is not None
    assert [section.heading for section in both.sections] == ["", "a", "b"]
    labels = [labels for labels, _ in both.rows[1:]]
    assert labels == [("alpha 1 (as is)",), *[("  alpha 0.5",), ("  alpha 0",)] * 2]
    assert both.rows[3].cells[0].change == "-15.0%*"
    changes, significance, explained = both.notes
    assert significance.startswith("* marks significant changes")
    # Each measure once, whatever its magnitudes and cut-offs.
    assert explained.startswith("nDCG: quality of the ranking, 1 is perfect; RaB: how far")
    assert explained.count("ARaB:") == 1
    assert headline.notes == [changes, explained]


def test_wrong_input_says_what_is_wrong():
    with pytest.raises(ValueError, match="at least one system"):
        page_of_rows("t", {"": []}, ABOUT)
    with pytest.raises(
        ValueError, match=r"none of the measures P@3 was computed; there are nDCG@10"
    ):
        page_of_rows("t", {"": ROWS}, ABOUT, measures=["P@3"])
    with pytest.raises(ValueError, match="first=0 is none of them"):
        Gallery("g", ("a",), ())


def test_a_page_without_data_is_a_title_alone():
    outline = Outline(render(Page("Only this")))
    assert outline.all("section") == []
    assert outline.text["h1"] == ["Only this"]


def test_missing_sections_say_why():
    why = "the run file ranks documents whose texts are not here <x>"
    page = Page("t", changes=why, senses="the ranker has no senses", attribution=why)
    outline = Outline(render(page))
    assert [attributes["id"] for attributes in outline.all("section")] == [
        "changes",
        "senses",
        "attribution",
    ]
    paragraphs = [text.strip() for text in outline.text["p"] if text.strip()]
    assert paragraphs == [
        f"Not shown: {why}",
        "Not shown: the ranker has no senses",
        f"Not shown: {why}",
    ]


def test_rankings_without_texts_are_shown_by_ids():
    query = changed()
    before = tuple(RankedDocument(document.doc_id) for document in query.before)
    bare = replace(query, before=before, after=before[::-1])
    text = render(Page("t", changes=(Changes("a", "b", (bare,)),)))
    assert "texts are not available" in text
    assert "<mark" not in text
    assert text.count("d1-2") == 2


def test_documents_say_where_they_came_from_and_texts_stand_once():
    outline = Outline(render(Page("t", changes=(Changes("alpha=1", "alpha=0.5", (changed(),)),))))
    moves = [
        attributes["class"]
        for attributes in outline.all("span")
        if attributes.get("class", "").startswith("move")
    ]
    assert moves == ["move down", "move same", "move up", "move up", "move same", "move down"]
    text = render(
        Page("t", changes=(Changes("a", "b", (changed(documents=1, text="The man in town. "),)),))
    )
    assert text.count('<mark class="g0" title="male">man</mark>') == 2  # short: in both lists
    long = render(Page("t", changes=(Changes("a", "b", (changed(documents=1),)),)))
    # 30 sentences with two words of the lexicon in the list after, four words in the first 60
    # characters before; two in the legend are of the groups of the page.
    assert long.count("<mark") == 60 + 4 + 2
    assert long.count('<details class="rest">') == 1


def test_long_texts_are_cut_and_what_is_left_out_is_said():
    limits = Limits(snippet=50, text=200)
    text = render(Page("t", changes=(Changes("a", "b", (changed(documents=1),)),)), limits)
    left = re.search(r"\((\d+) more characters are left out\)", text)
    assert left
    assert 800 < int(left[1]) <= len(LONG) + 2 - 180


def test_queries_over_the_limit_are_listed_without_documents():
    queries = tuple(changed(n, query=f"query number {n}") for n in range(5))
    text = render(Page("t", changes=(Changes("a", "b", queries),)), Limits(queries=2))
    assert "3 further queries" in text
    assert text.count('class="query"') == 2
    assert all(f"query number {n}" in text for n in range(5))


@pytest.mark.slow
def test_two_hundred_queries_with_forty_documents_stay_small(tmp_path: Path):
    page = full_page(queries=200, documents=40)
    assert write_page(tmp_path / "report.html", page) == tmp_path / "report.html"
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    rendered = render(page, Limits(queries=200, documents=40, snippet=120, text=120))
    assert len(rendered.encode()) < 10_000_000


def test_equal_pages_give_equal_files(tmp_path: Path):
    first, second = (write_page(tmp_path / name, full_page()) for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from(["he", "She", "MAN", "the", "woman,", "x-he", "hers", "\n", "he's"]),
        max_size=12,
    )
)
def test_marked_pieces_join_to_the_text(words: list[str]):
    text = " ".join(words)
    pieces = mark_words(text, LEXICON)
    assert "".join(piece.text for piece in pieces) == text
    male = sum(piece.group == "male" for piece in pieces)
    assert male == sum(word in ("he", "MAN", "x-he", "he's") for word in words)
    head, rest = cut(pieces, 10)
    assert "".join(piece.text for piece in (*head, *rest)) == text


def test_words_with_a_hyphen_are_marked_whole():
    lexicon = Lexicon("x", {"a": ("father-in-law",), "b": ("she",)})
    accented = Lexicon("w", {"a": ("fiancé",), "b": ("fiancée",)})
    decomposed = "fiance\u0301"
    assert mark_words(f"My {decomposed}.", accented) == (
        Span("My "),
        Span(decomposed, "a"),
        Span("."),
    )
    assert mark_words("My Father-in-law.", lexicon) == (
        Span("My "),
        Span("Father-in-law", "a"),
        Span("."),
    )


def test_texts_are_cut_between_words():
    head, rest = cut((Span("one two "), Span("three", "g"), Span(" four five six")), 14)
    assert "".join(piece.text for piece in head) == "one two three"
    assert "".join(piece.text for piece in rest) == " four five six"
    assert cut((Span("a" * 11),), 10) == ((Span("a" * 11),), ())
    assert [piece.text for piece in cut((Span("a" * 30),), 10)[0]] == ["a" * 10]


@pytest.mark.slow
def test_every_figure_is_saved_as_png_and_svg(tmp_path: Path):
    page = full_page()
    assert page.tradeoff is not None
    assert page.cutoffs is not None
    page = replace(
        page,
        tradeoff=replace(page.tradeoff, panels=page.tradeoff.panels[:1], first=0),
        cutoffs=replace(page.cutoffs, panels=page.cutoffs.panels[:1], first=0),
    )
    paths = write_pictures(tmp_path, page)
    assert [path.name for path in paths if path.suffix == ".png"] == [
        "tradeoff-RaB-tf-5.png",
        "cutoffs-RaB-tf.png",
        "policies-abs-gap-std.png",
        "policies-nDCG-10.png",
        "shares-lowest_2_senses.png",
        "shares-paired_tokens.png",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in paths[1].read_bytes()


def test_figures_with_names_that_look_alike_are_kept_apart():
    page = with_policies(
        full_page(), {"a/b": POLICIES["lowest_2_senses"], "A-b": POLICIES["paired_tokens"]}
    )
    assert [name for name, _, _ in page_charts(page)][-2:] == ["shares-a-b", "shares-A-b-2"]


def test_a_comparison_has_letters_raised_and_the_best_bold():
    rows = [Row(("a", "BM25"), [Cell("0.3000")]), Row(("b", "<x>"), [Cell("0.4000", True, "a")])]
    table = Table(
        "", "<t>", ("", "system"), [Group("", ("nDCG@10",))], [Section("", rows)], ["note"]
    )
    html = render(Page("t", comparison=(table,)))
    assert '<th scope="row">a BM25</th>' in html
    assert "<b>0.4000</b><sup>a</sup>" in html
    assert "b &lt;x&gt;" in html


def test_a_sense_panel_shows_profiles():
    words = (RelatedWord("he", 0.9), RelatedWord("she", 0.8))
    profiles = [
        SenseProfile(0, "gender: male", 0.2, words, {}, (), (), {"male": 0.1, "neutral": -0.1}, {})
    ]
    panel = SensePanel(profiles, [0.5], "caption", words=1)
    assert panel.groups == ("male", "neutral")
    assert panel.contributions(profiles[0]) == (0.1, -0.1)
    assert '<td class="words">he</td>' in render(Page("t", senses=panel))
    with pytest.raises(ValueError, match="2 weights for 1 profiles"):
        SensePanel(profiles, [1, 1])


def test_provenance_names_versions_data_command_and_sign():
    date = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    items = dict(provenance(ABOUT, ["msmarco/train"], date, ["evaluate.py", "run=a b"]))
    assert items["date"] == "2026-01-02 03:04 UTC"
    assert items["command"] == "evaluate.py 'run=a b'"
    assert items["data"] == "wikiqa/test; wikiqa/test: 20 gender-neutral queries; msmarco/train"
    assert items["sign"].startswith("male minus female")
    assert {"backpack-rank", "torch", "transformers", "Python"} <= items.keys()


def test_the_commit_is_that_of_the_folder(tmp_path: Path):
    def git(*arguments: str) -> str:
        names = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.run(
            ["git", *names, *arguments], cwd=tmp_path, capture_output=True, text=True
        ).stdout.strip()

    assert git_commit(tmp_path) == ""
    git("init", "-q")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.py").write_text("1\n")
    (tmp_path / "ignored").mkdir()
    git("add", ".")
    git("commit", "-q", "-m", "x")
    commit = git("rev-parse", "HEAD")
    assert len(commit) == 40
    assert git_commit(tmp_path / "inside") == commit
    assert git_commit(tmp_path / "ignored") == ""
    (tmp_path / "inside" / "a.py").write_text("2\n")
    assert git_commit(tmp_path / "inside") == f"{commit} (changed)"
