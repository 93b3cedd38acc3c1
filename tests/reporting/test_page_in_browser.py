"""The report page in a real browser: no error, every figure drawn, selectors work, nothing wider than the window."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from page_example import full_page

from backpack_rank.reporting.page.render import write_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A window is at least 500 pixels wide, so the narrow page stands in a frame, which tells its parent what it sees.
FRAME = """<!DOCTYPE html><title>frame</title><body style="margin:0"><script>
addEventListener("message", (event) => Object.assign(document.documentElement.dataset, event.data));
</script><iframe src="{page}" style="width:{width}px;height:900px;border:0"></iframe></body>"""
TELL = """<script>addEventListener("load", () => setTimeout(() => {
  const root = document.documentElement;
  parent.postMessage({...root.dataset, width: root.clientWidth, wide: root.scrollWidth}, "*");
}));</script>"""
SELECT = """<script>addEventListener("load", () => {
  const root = document.documentElement, shown = [];
  const gallery = document.querySelector('[data-gallery="tradeoff"]');
  const [measure, cutoff] = gallery.querySelectorAll("select");
  const titles = () => [...gallery.querySelectorAll(".panel")].filter((one) => one.offsetParent !== null)
    .map((one) => one.querySelector("strong").textContent);
  const choose = (select, value) => {
    select.value = value;
    select.dispatchEvent(new Event("change", {bubbles: true}));
    shown.push(titles().join("+") + "=" + root.dataset.figuresDrawn + "/" + root.dataset.figures);
  };
  shown.push(titles().join("+"));
  choose(cutoff, "5");
  choose(measure, "NFaiRR");
  root.dataset.closed = String([...cutoff.options].filter((one) => one.disabled).map((one) => one.value));
  choose(cutoff, "50");
  choose(measure, "ARaB(bool)");
  root.dataset.shown = shown.join(" | ");
  const every = [];
  for (const option of measure.options) {
    choose(measure, option.value);
    every.push(root.dataset.figuresDrawn === root.dataset.figures);
  }
  root.dataset.every = String(every.every(Boolean) && every.length === measure.options.length);
});</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    given = os.environ.get("BACKPACK_RANK_BROWSER")
    found = shutil.which(given) if given else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: put {NAMES[0]} on the PATH or set BACKPACK_RANK_BROWSER")
    return found


class Run:
    """One run of the browser: the page after its scripts, and messages of its console."""

    def __init__(self, browser: str, profile: Path, page: Path, *options: str) -> None:
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0", *options, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        self.dom = done.stdout
        self.console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]

    @property
    def said(self) -> dict[str, str]:
        """Data attributes of the ``html`` element."""
        tag = re.search(r"<html[^>]*>", self.dom)
        assert tag, self.dom[:500]
        return dict(re.findall(r'data-([\w-]+)="([^"]*)"', tag[0]))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("page") / "report.html", full_page(queries=12, documents=12))


def with_script(report: Path, name: str, script: str) -> Path:
    """A copy of the page with one more script at its end."""
    text = report.read_text("utf-8")
    assert text.count("</body>") == 1
    path = report.with_name(name)
    path.write_text(text.replace("</body>", f"{script}</body>"), "utf-8")
    return path


def test_a_wide_window_shows_every_figure_without_a_message(browser: str, report: Path, tmp_path: Path):
    run = Run(browser, tmp_path, report, "--window-size=1280,900", "--dump-dom")
    assert run.console == []
    # One trade-off, one of cut-offs, two measures and two policies' preferences over alpha.
    assert run.said == {"errors": "0", "figures": "6", "figures-drawn": "6", "overflow": "false"}


@pytest.mark.parametrize("width", [320, 360, 768])
def test_a_narrow_window_shows_every_figure_and_does_not_scroll(browser: str, report: Path, tmp_path: Path, width: int):
    page = with_script(report, f"narrow{width}.html", TELL)
    frame = report.with_name(f"frame{width}.html")
    frame.write_text(FRAME.format(page=page.name, width=width), "utf-8")
    run = Run(browser, tmp_path, frame, "--virtual-time-budget=5000", "--window-size=1280,900", "--dump-dom")
    assert run.console == []
    wanted = {"figures": "6", "figures-drawn": "6", "overflow": "false", "errors": "0"}
    assert run.said == {**wanted, "width": str(width), "wide": str(width)}


def test_the_selectors_show_one_figure_and_close_what_does_not_exist(browser: str, report: Path, tmp_path: Path):
    run = Run(browser, tmp_path, with_script(report, "select.html", SELECT), "--window-size=1280,900", "--dump-dom")
    assert run.console == []
    assert run.said["shown"].split(" | ") == [
        "nDCG@10 against RaB(tf)@10",
        "nDCG@10 against RaB(tf)@5=6/6",
        "nDCG@10 against NFaiRR@10=6/6",  # there is no NFaiRR@5
        "nDCG@10 against NFaiRR@50=6/6",
        "nDCG@10 against ARaB(bool)@5=6/6",  # nor ARaB@50
    ]
    assert run.said["closed"] == "5"
    assert run.said["every"] == "true"


def test_without_scripts_one_figure_of_each_gallery_is_shown(browser: str, report: Path, tmp_path: Path):
    page = report.with_name("plain.html")
    page.write_text(re.sub(r"<script>.*?</script>", "", report.read_text("utf-8"), flags=re.S), "utf-8")
    probe = """<script>addEventListener("load", () => { document.documentElement.dataset.shown = [
      ...document.querySelectorAll(".panel, .selectors")].filter((one) => one.offsetParent !== null)
      .map((one) => one.querySelector("strong").textContent).join("|"); });</script>"""
    run = Run(browser, tmp_path, with_script(page, "probed.html", probe), "--dump-dom")
    assert run.said["shown"] == "nDCG@10 against RaB(tf)@10|RaB(tf) at every cut-off"


def test_an_error_in_a_script_would_be_noticed(browser: str, report: Path, tmp_path: Path):
    broken = with_script(report, "broken.html", "<script>noSuchFunction();</script>")
    run = Run(browser, tmp_path, broken, "--dump-dom")
    assert any("noSuchFunction" in line for line in run.console)
    assert run.said["errors"] == "1"


def test_a_figure_that_is_not_drawn_would_be_noticed(browser: str, report: Path, tmp_path: Path):
    hidden = with_script(report, "hidden.html", "<style>#figure-policies-nDCG-10 svg { display: none }</style>")
    run = Run(browser, tmp_path, hidden, "--dump-dom")
    assert (run.said["figures"], run.said["figures-drawn"]) == ("6", "5")


@pytest.mark.parametrize(("scheme", "light"), [(1, True), (0, False)])
def test_the_page_follows_the_reader_s_colour_scheme(
    browser: str, report: Path, tmp_path: Path, scheme: int, light: bool
):
    picture = tmp_path / "page.png"
    options = (f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}", "--window-size=1280,900")
    Run(browser, tmp_path / "profile", report, *options)
    brightness = float(np.median(imread(picture)[..., :3]))
    assert brightness > 0.95 if light else brightness < 0.2


def test_the_page_can_be_printed_with_everything_open(browser: str, report: Path, tmp_path: Path):
    short, whole = tmp_path / "short.pdf", tmp_path / "whole.pdf"
    Run(browser, tmp_path / "profile", report, f"--print-to-pdf={whole}")
    assert whole.read_bytes().startswith(b"%PDF")
    closed = report.with_name("closed.html")
    text = re.sub(r"<details.*?</details>", "", report.read_text("utf-8"), flags=re.S)
    closed.write_text(text, "utf-8")
    Run(browser, tmp_path / "profile", closed, f"--print-to-pdf={short}")
    assert pages(whole) > pages(short) + 5


def pages(pdf: Path) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))
