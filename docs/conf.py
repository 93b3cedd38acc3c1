"""The site of the documentation: `make docs` writes it to outputs/docs.

Pages stay Markdown. The reference is made of the docstrings.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

# First of all: its pydantic models cannot be made once autodoc has begun.
import llama_index.core.postprocessor.types  # noqa: F401
from sphinx.application import Sphinx

import backpack_rank

project = "backpack_rank"
author = "the authors of backpack_rank"
release = backpack_rank.__version__

extensions = [
    "myst_nb",  # pages in Markdown, and notebooks with the outputs that are saved in them
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
nb_execution_mode = "off"
myst_heading_anchors = 4
myst_links_external_new_tab = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what a type is for, and signatures stay short
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"backpack_rank {release}"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_LINK_UPWARDS = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")
_SECTIONS = ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:", "Example:")


def setup(app: Sphinx) -> None:
    """Sphinx calls this once."""
    app.connect("source-read", name_files_outside)
    # Before napoleon, which runs at 500: it would make a quotation of an indented block.
    app.connect("autodoc-process-docstring", show_indented_blocks_as_code, priority=400)


def name_files_outside(app: Sphinx, page: str, source: list[str]) -> None:
    """Links to files of the repository that are no pages become the names of the files."""
    folder = posixpath.dirname(f"docs/{page}")

    def named(match: re.Match[str]) -> str:
        text, link = match.groups()
        path = posixpath.normpath(posixpath.join(folder, link))
        return match.group(0) if path.startswith("docs/") else f"{text} (`{path}`)"

    source[0] = _LINK_UPWARDS.sub(named, source[0])


def show_indented_blocks_as_code(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Examples and formulas of a docstring stand as indented blocks, as in Markdown."""
    shown: list[str] = []
    is_in_section = False
    is_in_block = False
    last = ""  # the last line that is not blank
    for number, line in enumerate(lines):
        is_indented = line.startswith("    ")
        if line and not is_indented:
            is_in_section = line in _SECTIONS
            is_in_block = False
        is_marked = last.endswith("::")
        begins = is_indented and not (is_in_section or is_in_block or is_marked)
        follows_a_blank_line = number == 0 or not lines[number - 1].strip()
        if begins and follows_a_blank_line:
            shown += [".. code-block:: python", "   :force:", ""]
            is_in_block = True
        shown.append(line)
        last = line if line.strip() else last
    lines[:] = shown
