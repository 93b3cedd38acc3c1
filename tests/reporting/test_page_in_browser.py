"""The report page in a real browser: every chart drawn, no label on another, nothing wider than the
window.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from browsers import OPTIONS, found_browser
from page_example import ABOUT, ROWS, full_page

from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.render import write_page

pytestmark = pytest.mark.browser
# A window is at least 500 pixels wide, so the narrow page stands in a frame, which tells its parent
# what it sees.
FRAME = """<!DOCTYPE html><title>frame</title><body style="margin:0"><script>
addEventListener("message", (event) => {{ document.body.dataset.said = event.data; }});
</script><iframe src="{page}" style="width:{width}px;height:900px;border:0"></iframe></body>"""
# Labels of a chart, and texts of the page, that share more than 2 pixels in both directions; each
# panel in its turn.
LOOK = """<script>addEventListener("load", async () => {
  const root = document.documentElement, wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const drawn = async () => {
    for (let n = 0; n < 100 && root.dataset.figures !== root.dataset.figuresDrawn; n++) await wait(50);
    await wait(50);
  };
  const found = [], boxes = (texts) => texts.map((one) => ({text: one.textContent, box: one.getBoundingClientRect()}))
    .filter(({text, box}) => text.trim() && box.width > 0);
  const look = () => {
    for (const svg of document.querySelectorAll(".figure .chart svg")) {
      if (svg.getBoundingClientRect().width === 0) continue;
      const all = boxes([...svg.querySelectorAll("text")]);
      all.forEach((a, n) => all.slice(n + 1).forEach((b) => {
        const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
        const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
        if (across > 2 && down > 2) found.push(`${a.text} / ${b.text}`);
      }));
    }
  };
  await drawn(); look();
  const shown = [];
  for (const select of [...document.querySelectorAll("select")].reverse()) {
    for (const option of select.options) {
      if (option.disabled) continue;
      select.value = option.value;
      select.dispatchEvent(new Event("change", {bubbles: true}));
      await drawn(); look();
      shown.push(option.value);
    }
  }
  const said = JSON.stringify({...root.dataset, overlaps: found, shown, width: root.clientWidth,
    wide: root.scrollWidth, paper: getComputedStyle(document.body).backgroundColor,
    ink: [...document.querySelectorAll(".chart svg text")].map((one) => one.getAttribute("fill"))[0]});
  document.body.dataset.said = said;
  parent.postMessage(said, "*");
});</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    return found_browser()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every section, with the charts of a sweep."""
    settings = {
        "policy=lowest_senses": ROWS,
        "policy=paired_tokens": ROWS[:3],
        "policy=uniform": ROWS,
    }
    sweep = page_of_rows("What the dial does", settings, replace(ABOUT, alpha=None))
    page = replace(
        full_page(queries=4, documents=10),
        tradeoff=sweep.tradeoff,
        cutoffs=sweep.cutoffs,
        headline=sweep.headline,
    )
    return write_page(tmp_path_factory.mktemp("page") / "report.html", page)


def looked(
    browser: str, page: Path, profile: Path, width: int, light: bool, script: str = LOOK
) -> tuple[dict, list[str]]:
    """What the page says of itself in a window of a width, and messages of the console."""
    head, _, tail = page.read_text("utf-8").rpartition("</body>")
    copy = page.with_name(f"looked{width}.html")
    copy.write_text(f"{head}{script}</body>{tail}", "utf-8")
    frame = page.with_name(f"frame{width}.html")
    frame.write_text(FRAME.format(page=copy.name, width=width), "utf-8")
    command = [
        browser,
        *OPTIONS,
        f"--user-data-dir={profile}",
        f"--blink-settings=preferredColorScheme={int(light)}",
    ]
    command += [
        "--window-size=1400,1000",
        "--virtual-time-budget=60000",
        "--dump-dom",
        frame.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = re.search(r'data-said="([^"]*)"', done.stdout)
    assert answer, done.stdout[:500]
    return json.loads(html.unescape(answer[1])), [
        line for line in done.stderr.splitlines() if ":CONSOLE" in line
    ]


@pytest.mark.parametrize(
    ("width", "light"), [(1300, True), (1300, False), (400, True), (400, False)]
)
def test_every_chart_is_drawn_and_nothing_overlaps_or_overflows(
    browser: str, report: Path, tmp_path: Path, width: int, light: bool
):
    measured, console = looked(browser, report, tmp_path, width, light)
    assert console == []
    assert measured["errors"] == "0"
    assert measured["overlaps"] == []
    assert (measured["width"], measured["wide"]) == (width, width)
    assert int(measured["figures"]) > 5
    assert measured["figures"] == measured["figuresDrawn"]
    assert {"RaB(tf)", "NFaiRR", "5", "paired_tokens", "other alpha=0"} <= set(measured["shown"])
    assert (measured["paper"], measured["ink"]) == (
        ("rgb(255, 255, 255)", "#5b6270") if light else ("rgb(20, 23, 28)", "#a3abb8")
    )


def test_overlaps_and_errors_would_be_noticed(browser: str, report: Path, tmp_path: Path):
    broken = report.with_name("broken.html")
    text = report.read_text("utf-8").replace('"dy": -13', '"dy": 14').replace('"dy":-13', '"dy":14')
    head, _, tail = text.rpartition("</body>")
    style = "<style>.top { width: 3000px }</style>"
    broken.write_text(f"{head}{style}<script>noSuchFunction();</script></body>{tail}", "utf-8")
    measured, console = looked(browser, broken, tmp_path, 1300, True)
    assert any("noSuchFunction" in line for line in console)
    assert measured["errors"] == "1"
    assert measured["wide"] > measured["width"]


def test_the_page_can_be_printed_with_everything_open(browser: str, report: Path, tmp_path: Path):
    pdf = tmp_path / "whole.pdf"
    command = [
        browser,
        *OPTIONS,
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--print-to-pdf={pdf}",
        report.as_uri(),
    ]
    subprocess.run(command, capture_output=True, timeout=240, check=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) > 5
