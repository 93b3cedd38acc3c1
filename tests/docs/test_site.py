"""The site is built without a warning, and has every page, a search box and the reference."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the site needs the extra docs")
pytestmark = pytest.mark.packaging

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it; a warning, such as a link that leads nowhere, fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [*(sys.executable, "-m", "sphinx"), *("-W", "--keep-going", "-E", "-q"), "docs"]
    # Another checkout may be the one that is installed.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [*command, str(folder)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site_and_in_its_menu(site: Path) -> None:
    menu = (site / "index.html").read_text(encoding="utf-8")
    for page in PAGES:
        address = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / address).is_file()
        assert address == "index.html" or f'href="{address}"' in menu, address


def test_links_between_pages_lead_to_a_heading_that_is_there(site: Path) -> None:
    followed = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for file, anchor in re.findall(r'class="reference internal" href="([^"#]*)#([^"]+)"', text):
            target = (page.parent / file).resolve() if file else page
            assert f'id="{anchor}"' in target.read_text(encoding="utf-8"), (page.name, file, anchor)
            followed += 1
    assert followed > 100


def test_the_reference_shows_what_is_called_first_with_its_example(site: Path) -> None:
    page = (site / "reference" / "rank.html").read_text(encoding="utf-8")
    assert 'id="backpack_rank.reranking.load.load"' in page
    blocks = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    shown = [html.unescape(re.sub(r"<[^>]+>", "", block)) for block in blocks]
    assert any("load(" in block for block in shown), shown


def test_it_can_be_searched(site: Path) -> None:
    assert "calibration" in (site / "searchindex.js").read_text(encoding="utf-8")
    assert 'role="search"' in (site / "index.html").read_text(encoding="utf-8")
