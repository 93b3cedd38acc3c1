"""The report page: well-formed, self-contained, everything escaped, and figures where the numbers say."""

from __future__ import annotations

import datetime
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import matplotlib.image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from page_example import ABOUT, HOSTILE, LEXICON, LONG, ROWS, changed, full_page, row

from backpack_rank.data.lexicon import Lexicon
from backpack_rank.reporting.explanation import RelatedWord, SenseProfile
from backpack_rank.reporting.page.axes import dial_axis, value_axis
from backpack_rank.reporting.page.build import comparison_table, page_of_rows, sense_panel
from backpack_rank.reporting.page.charts import Axis, Chart, Gallery, Point, Series, ShareChart
from backpack_rank.reporting.page.data import (
    Attribution,
    Changes,
    Missing,
    Page,
    RankedDocument,
    Sense,
    SensePanel,
    Span,
    Table,
)
from backpack_rank.reporting.page.labels import place_labels
from backpack_rank.reporting.page.pictures import page_charts, write_pictures
from backpack_rank.reporting.page.provenance import git_commit, provenance
from backpack_rank.reporting.page.render import SECTIONS, Limits, render, write_page
from backpack_rank.reporting.page.styles import COLOURS, GROUP_COLOURS
from backpack_rank.reporting.page.svg import chart_svg, share_svg
from backpack_rank.reporting.page.text import cut, mark_words
from backpack_rank.reporting.rows import Cell, Grid

MINUS = "\N{MINUS SIGN}"
VOID = {"meta", "link", "br", "img", "hr", "input"}
STYLE = (Path(__file__).parents[2] / "backpack_rank/reporting/page/templates/style.css").read_text("utf-8")


class Outline(HTMLParser):
    """Checks that tags are closed in order, and collects what tests ask for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [own for name, own in self.tags if name == tag and wanted.items() <= own.items()]


@pytest.fixture(scope="module")
def html() -> str:
    return render(full_page())


@pytest.fixture(scope="module")
def outline(html: str) -> Outline:
    return Outline(html)


def test_every_section_is_there_in_order_and_reachable(outline: Outline):
    assert [own["id"] for own in outline.all("section")] == list(SECTIONS)
    assert [own["href"] for own in outline.all("a")][1:] == [f"#{name}" for name in SECTIONS]


def test_ids_are_unique_and_references_lead_somewhere(outline: Outline):
    ids = [own["id"] for _, own in outline.tags if "id" in own]
    assert len(ids) == len(set(ids))
    for _, own in outline.tags:
        for name in ("href", "for", "aria-labelledby"):
            if name in own:
                assert own[name].lstrip("#") in ids


def test_nothing_is_asked_from_anywhere(html: str, outline: Outline):
    for tag, own in outline.tags:
        assert tag not in ("link", "img", "iframe", "object", "base")
        assert "src" not in own
        assert not own.get("href", "#").startswith(("http", "//", "file"))
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttpRequest", html)
    (policy,) = outline.all("meta", http_equiv="Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none';")


def test_the_configuration_keeps_its_blank_lines_and_indentation():
    text = "a:\n  b: 1\n\n\n  c: 2  # end\n"
    assert f">{text}</pre>" in render(Page("t", configuration=text))


def test_every_text_is_escaped(html: str, outline: Outline):
    assert html.count("<script") == 1
    assert "alert(1)</script>" not in html
    # Query, sense words, table cell, YAML, command line: all show the text as it is.
    for tag in ("span", "td", "th", "pre", "dd"):
        assert HOSTILE in "".join(outline.text[tag]), tag


def test_names_of_systems_measures_groups_and_policies_are_escaped():
    bad = "<i>\"'&"
    page = full_page()
    assert page.policies is not None
    results = tuple(replace(one, policy=bad) for one in page.policies.results)
    page = replace(page, groups=(bad, "female"), title=bad, policies=replace(page.policies, results=results))
    rows = [row(bad, None, 0.3, 0.1), row("alpha=1", 1.0, 0.4, 0.2)]
    built = page_of_rows(bad, {bad: rows, "b": ROWS}, ABOUT)
    text = render(replace(page, headline=built.headline, tradeoff=built.tradeoff, cutoffs=built.cutoffs))
    assert "<i>" not in text
    Outline(text)


def test_headings_do_not_skip_a_level(outline: Outline):
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_tables_have_captions_and_figures_descriptions(outline: Outline):
    assert len(outline.all("table")) == len(outline.all("caption")) > 5
    pictures = [own for own in outline.all("svg") if {"chart", "ranks", "bar"} & set(own["class"].split())]
    assert len(pictures) > 10
    assert all(own["role"] == "img" and own["aria-label"] for own in pictures)
    assert all("scope" in own for own in outline.all("th"))


def test_the_style_has_dark_and_print_and_narrow_parts(html: str):
    for part in ("prefers-color-scheme: dark", "@media print", "@media (max-width", "details-content"):
        assert part in html


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
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


def test_pictures_have_the_colours_of_the_page():
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", STYLE.partition("@media")[0]))
    assert tuple(light[f"c{n}"] for n in range(6)) == COLOURS
    assert tuple(light[f"g{n}"] for n in range(4)) == GROUP_COLOURS


def test_points_lie_where_the_numbers_say():
    # x from 0 to 10: 2.5 is a quarter. y from 0 to 4: 3 is three quarters up, so a quarter down.
    points = (Point(2.5, 3.0, "a", "here", (0.0, 5.0), (2.0, 4.0)), Point(10.0, 0.0))
    chart = Chart(
        "c", "t", "d", Axis("x", 0, 10, ((5.0, "5"),)), Axis("y", 0, 4, ((1.0, "1"),)), (Series("s", points),)
    )
    outline = Outline(chart_svg(chart))
    assert [(own["x"], own["y"]) for own in outline.all("svg", class_="mark")] == [("25%", "25%"), ("100%", "100%")]
    assert [own["points"] for own in outline.all("polyline")] == ["25,25 100,100"]
    across, upright = outline.all("line", class_="whisker")
    assert [across[name] for name in ("x1", "x2", "y1", "y2")] == ["0%", "50%", "25%", "25%"]
    assert [upright[name] for name in ("x1", "x2", "y1", "y2")] == ["25%", "25%", "50%", "0%"]
    ticks = [(own["x"], own["y"]) for own in outline.all("text", class_="tick")]
    assert ticks == [("-7", "75%"), ("50%", "100%")]
    assert outline.text["title"] == ["here"]
    assert outline.text["text"] == ["1", "5", "a"]


def test_columns_of_shares_stand_on_each_other():
    chart = ShareChart("c", "t", "d", ("a", "b", "rest"), (("0", (0.5, 0.3, 0.2)), ("1", (0.25, 0.75, 0.0))))
    bars = Outline(share_svg(chart)).all("rect")
    # Two columns of 50%, a bar takes 76% of its column.
    assert [(own["x"], own["y"], own["width"], own["height"]) for own in bars] == [
        ("6%", "50%", "38%", "50%"),
        ("6%", "20%", "38%", "30%"),
        ("6%", "0%", "38%", "20%"),
        ("56%", "75%", "38%", "25%"),
        ("56%", "0%", "38%", "75%"),
        ("56%", "0%", "38%", "0%"),
    ]
    assert [own["class"] for own in bars[:3]] == ["part part-0", "part part-1", "part part-rest"]


def test_the_tradeoff_has_signed_bias_effectiveness_and_the_marked_alpha():
    page = page_of_rows("t", {"": ROWS}, ABOUT)
    assert page.tradeoff is not None
    (panel,) = [panel for panel in page.tradeoff.panels if panel.choice == ("RaB(tf)", "10")]
    assert page.tradeoff.panels[page.tradeoff.first] is panel
    dial, reference = panel.chart.series
    assert [(p.label, p.x, p.y, p.marked) for p in dial.points] == [
        ("1", 0.05, 0.40, False),
        ("0.5", 0.02, 0.38, True),
        ("0", -0.01, 0.34, False),
    ]
    assert reference.reference
    assert [(p.label, p.x, p.y) for p in reference.points] == [("BM25", 0.06, 0.30)]
    assert panel.chart.x.zero
    assert (panel.chart.x.low, panel.chart.x.high) == pytest.approx((-0.02, 0.08))
    assert dial.points[1].x_range == pytest.approx((0.01, 0.03))


def test_the_cutoffs_have_every_system_at_every_cutoff():
    page = page_of_rows("t", {"": ROWS}, ABOUT)
    assert page.cutoffs is not None
    assert page.cutoffs.panels[0].choice == ("RaB(tf)",)
    chart = page.cutoffs.panels[0].chart
    assert [one.label for one in chart.series] == ["BM25", "alpha=1", "alpha=0.5 (this report)", "alpha=0"]
    assert [tick for _, tick in chart.x.ticks] == ["5", "10"]
    assert all([point.x for point in one.points] == [0.0, 1.0] for one in chart.series)
    (fair,) = [panel.chart for panel in page.cutoffs.panels if panel.choice == ("NFaiRR",)]
    assert [tick for _, tick in fair.x.ticks] == ["10", "50"]
    assert not fair.y.zero


def test_the_headline_has_references_alpha_one_and_this_alpha():
    headline = page_of_rows("t", {"": ROWS}, ABOUT).headline
    assert headline is not None
    assert [(one.label, one.marked) for one in headline.systems] == [
        ("BM25", False),
        ("alpha=1", False),
        ("alpha=0.5", True),
    ]
    assert headline.measures[:2] == ("nDCG@10", "RaB(tf)@10")
    everything = page_of_rows("t", {"": ROWS}, replace(ABOUT, alpha=None)).headline
    assert everything is not None
    assert len(everything.systems) == 4
    text = render(Page("t", headline=headline))
    assert "0.3800<small>[0.360, 0.400]</small>" in text


def test_settings_of_a_sweep_are_lines_of_one_tradeoff():
    page = page_of_rows("t", {"data=a": ROWS, "data=b": ROWS}, replace(ABOUT, alpha=None))
    assert page.tradeoff is not None
    assert page.cutoffs is not None
    assert [one.label for one in page.tradeoff.panels[0].chart.series] == ["data=a", "data=b", "BM25"]
    assert page.cutoffs.selectors == ("Measure of bias", "Setting")
    assert len({chart.name for chart in page_charts(page)}) == len(page_charts(page))
    Outline(render(page))


def test_wrong_input_says_what_is_wrong():
    with pytest.raises(ValueError, match="at least one system"):
        page_of_rows("t", {"": []}, ABOUT)
    with pytest.raises(ValueError, match=r"none of the measures P@3 was computed; there are nDCG@10"):
        page_of_rows("t", {"": ROWS}, ABOUT, measures=["P@3"])
    with pytest.raises(ValueError, match="row 1 has 1 cells, its header has 2"):
        Table(("a", "b"), (("x",),), "c")
    with pytest.raises(ValueError, match="sense 0 has 1 contributions for 3 groups"):
        SensePanel((Sense(0, 0.1, contributions=(1.0,)),))
    with pytest.raises(TypeError, match=r"must be a markupsafe\.Markup"):
        Attribution("t", "<p>text</p>")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="first=0 is none of them"):
        Gallery("g", ("a",), ())


def test_a_page_without_data_is_a_title_alone():
    outline = Outline(render(Page("Only this")))
    assert outline.all("section") == []
    assert outline.text["h1"] == ["Only this"]


def test_missing_sections_say_why():
    why = "the run file ranks documents whose texts are not here <x>"
    page = Page("t", changes=Missing(why), senses=Missing("the ranker has no senses"), attribution=Missing(why))
    outline = Outline(render(page))
    assert [own["id"] for own in outline.all("section")] == ["changes", "senses", "attribution"]
    said = [text.strip() for text in outline.text["p"] if text.strip()]
    assert said == [f"Not shown: {why}", "Not shown: the ranker has no senses", f"Not shown: {why}"]


def test_rankings_without_texts_are_shown_by_ids():
    query = changed()
    before = tuple(RankedDocument(one.doc_id) for one in query.before)
    bare = replace(query, before=before, after=before[::-1])
    text = render(Page("t", changes=Changes("a", "b", (bare,))))
    assert "texts are not available" in text
    assert "<mark" not in text
    assert text.count("d1-2") == 2


def test_documents_say_where_they_came_from_and_texts_stand_once():
    outline = Outline(render(Page("t", changes=Changes("alpha=1", "alpha=0.5", (changed(),)))))
    moves = [own["class"] for own in outline.all("span") if own.get("class", "").startswith("move")]
    assert moves == ["move down", "move same", "move up", "move up", "move same", "move down"]
    text = render(Page("t", changes=Changes("a", "b", (changed(documents=1, text="The man in town. "),))))
    assert text.count('<mark class="g0" title="male">man</mark>') == 2  # short: in both lists
    long = render(Page("t", changes=Changes("a", "b", (changed(documents=1),))))
    # 30 sentences with two words of the lexicon in the list after, four words in the first 60 characters before;
    # two in the legend are of the groups of the page.
    assert long.count("<mark") == 60 + 4 + 2
    assert long.count('<details class="rest">') == 1


def test_long_texts_are_cut_and_what_is_left_out_is_said():
    limits = Limits(snippet=50, text=200)
    text = render(Page("t", changes=Changes("a", "b", (changed(documents=1),))), limits)
    left = re.search(r"\((\d+) more characters are left out\)", text)
    assert left
    assert 800 < int(left[1]) <= len(LONG) + 2 - 180


def test_queries_over_the_limit_are_listed_without_documents():
    queries = tuple(changed(n, query=f"query number {n}") for n in range(5))
    text = render(Page("t", changes=Changes("a", "b", queries)), Limits(queries=2))
    assert "3 further queries" in text
    assert text.count('class="query"') == 2
    assert all(f"query number {n}" in text for n in range(5))


def test_two_hundred_queries_with_forty_documents_stay_small(tmp_path: Path):
    page = full_page(queries=200, documents=40)
    assert write_page(tmp_path / "report.html", page) == tmp_path / "report.html"
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    whole = render(page, Limits(queries=200, documents=40, snippet=120, text=120))
    assert len(whole.encode()) < 10_000_000


def test_equal_pages_give_equal_files(tmp_path: Path):
    first, second = (write_page(tmp_path / name, full_page()) for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["he", "She", "MAN", "the", "woman,", "x-he", "hers", "\n", "he's"]), max_size=12))
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
    assert mark_words("My Father-in-law.", lexicon) == (Span("My "), Span("Father-in-law", "a"), Span("."))


def test_texts_are_cut_between_words():
    head, rest = cut((Span("one two "), Span("three", "g"), Span(" four five six")), 14)
    assert "".join(piece.text for piece in head) == "one two three"
    assert "".join(piece.text for piece in rest) == " four five six"
    assert cut((Span("a" * 11),), 10) == ((Span("a" * 11),), ())
    assert [piece.text for piece in cut((Span("a" * 30),), 10)[0]] == ["a" * 10]


def test_axes_have_round_ticks():
    axis = value_axis("x", [0.013, 0.061], zero=True)
    assert [text for _, text in axis.ticks] == ["0.00", "0.02", "0.04", "0.06", "0.08"]
    assert [text for _, text in value_axis("x", [-0.3, 0.4]).ticks] == [
        f"{MINUS}0.4",
        f"{MINUS}0.2",
        "0.0",
        "0.2",
        "0.4",
    ]
    flat = value_axis("x", [0.5, 0.5])
    assert flat.low < 0.5 < flat.high
    assert [text for _, text in dial_axis([0, 1]).ticks] == ["0", "0.25", "0.5", "0.75", "1"]
    assert dial_axis([2.0]).ticks[-1] == (2.0, "2")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.booleans())
def test_axes_hold_all_values_within_few_ticks(values: list[float], zero: bool):
    axis = value_axis("x", values, zero)
    span = axis.high - axis.low
    assert all(axis.low - 1e-6 * span <= value <= axis.high + 1e-6 * span for value in values)
    assert 2 <= len(axis.ticks) <= 8
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)


def test_labels_of_close_points_do_not_lie_on_each_other():
    labels = [(0.5, 0.5, "0.5"), (0.52, 0.5, "0.6"), (0.5, 0.53, "0.7")]
    places = place_labels(labels, [])
    for width in (262, 700):
        boxes = []
        for (x, y, text), place in zip(labels, places, strict=True):
            size = 6.8 * len(text)
            left = x * width + place.dx - {"start": 0, "middle": size / 2, "end": size}[place.anchor]
            boxes.append((left, y * 258 + place.dy - 6, left + size, y * 258 + place.dy + 6))
        for one in range(3):
            for other in range(one):
                a, b = boxes[one], boxes[other]
                assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_every_figure_is_saved_as_png_and_svg(tmp_path: Path):
    page = full_page()
    assert page.tradeoff is not None
    assert page.cutoffs is not None
    page = replace(
        page,
        tradeoff=replace(page.tradeoff, panels=page.tradeoff.panels[:1], first=0),
        cutoffs=replace(page.cutoffs, panels=page.cutoffs.panels[:1]),
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
    assert all(matplotlib.image.imread(path).std() > 0.01 for path in paths if path.suffix == ".png")
    assert b"<svg" in paths[1].read_bytes()


def test_figures_with_names_that_look_alike_are_kept_apart():
    page = full_page()
    assert page.policies is not None
    names = {"lowest_2_senses": "a/b", "paired_tokens": "A-b"}
    results = tuple(replace(one, policy=names[one.policy]) for one in page.policies.results)
    page = replace(page, policies=replace(page.policies, results=results))
    assert [chart.name for chart in page_charts(page)][-2:] == ["shares-a-b", "shares-A-b-2"]


def test_a_comparison_has_letters_raised_and_the_best_bold():
    grid = Grid("<t>", ("nDCG@10",), (("a", "BM25", (Cell(0.3),)), ("b", "<x>", (Cell(0.4, True, ("a",)),))))
    table = comparison_table(grid, ("note",))
    assert table.rows == (("a BM25", "0.3000"), ("b <x>", Markup("<b>0.4000</b><sup>a</sup>")))
    html = render(Page("t", comparison=(table,)))
    assert "<b>0.4000</b><sup>a</sup>" in html
    assert "b &lt;x&gt;" in html


def test_a_sense_panel_is_made_from_profiles():
    words = (RelatedWord("he", 0.9), RelatedWord("she", 0.8))
    profiles = [SenseProfile(0, 0.2, words, {}, (), (), {"male": 0.1, "neutral": -0.1}, {})]
    panel = sense_panel(profiles, [0.5], "caption", words=1)
    assert panel.groups == ("male", "neutral")
    assert panel.senses == (Sense(0, 0.2, 0.5, ("he",), (0.1, -0.1)),)
    with pytest.raises(ValueError, match="2 weights for 1 profiles"):
        sense_panel(profiles, [1, 1])


def test_provenance_names_versions_data_command_and_sign():
    date = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    items = dict(provenance(ABOUT, ["msmarco/train"], date, ["evaluate.py", "run=a b"]).items)
    assert items["date"] == "2026-01-02 03:04 UTC"
    assert items["command"] == "evaluate.py 'run=a b'"
    assert items["data"] == "wikiqa/test; wikiqa/test: 20 gender-neutral queries; msmarco/train"
    assert items["sign"].startswith("male minus female")
    assert {"backpack-rank", "torch", "transformers", "Python"} <= items.keys()


def test_the_commit_is_that_of_the_folder(tmp_path: Path):
    def git(*arguments: str) -> str:
        names = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.run(["git", *names, *arguments], cwd=tmp_path, capture_output=True, text=True).stdout.strip()

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
