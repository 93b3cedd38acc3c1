"""``backpack-rank data list`` and ``backpack-rank data get NAME``."""

from __future__ import annotations

import shlex
import sys
import textwrap
from argparse import Namespace
from pathlib import Path

from backpack_rank.checks import UsageError
from backpack_rank.data.public.downloads import Downloads
from backpack_rank.data.public.names import GROUPS, VARIABLE, data_folder
from backpack_rank.data.public.sets import SETS, Built, chosen, get, remove_downloads


def list_text(root: Path) -> str:
    """What ``data list`` prints: the sets, whether they are there, what they cost."""
    width = max(map(len, SETS))
    lines = [f"Folder: {root} ({VARIABLE} names another)", ""]
    for name, public in SETS.items():
        state = "there" if (root / name).is_dir() else "-"
        lines.append(f"{name:{width}}  {state:5}  {public.what}")
        lines += textwrap.wrap(
            f"{public.size}; {public.licence}",
            width=100,
            initial_indent=" " * (width + 9),
            subsequent_indent=" " * (width + 9),
        )
    for group, names in GROUPS.items():
        lines += ["", f"{group} is {', '.join(names)}: what recipe=minilm and its measures need"]
    return "\n".join(lines)


def run(options: Namespace) -> None:
    """Answer ``data list`` or ``data get``.

    Raises:
        UsageError: an unknown name, a mirror that is no address, or "no" at the question.
    """
    root = Path(options.folder).expanduser() if options.folder else data_folder()
    if options.action == "list":
        print(list_text(root))
        return
    names = chosen(options.name)
    if not names:
        raise UsageError("data get: name one or more sets; `data list` shows them")
    missing = [name for name in names if not (root / name).is_dir()]
    for name in names:
        if name not in missing:
            print(f"{root / name} is there already")
    if not missing:
        return
    for name in missing:
        public = SETS[name]
        print(f"{name}: {public.what}\n    download: {public.size}\n    licence: {public.licence}")
    if sys.stdin.isatty() and not options.yes and not _agreed(root):
        raise UsageError("data get: nothing was downloaded")
    downloads = Downloads(root / ".downloads", mirror=options.mirror)
    for name in missing:
        _report(name, get(name, root, downloads))
    remove_downloads(root)
    if root.resolve() != data_folder().resolve():
        print(
            f"export {VARIABLE}={shlex.quote(str(root.resolve()))}   # for the options that use it"
        )


def _agreed(root: Path) -> bool:
    return input(f"Download to {root} and keep to these licences? [y/N] ").strip().lower() in (
        "y",
        "yes",
    )


def _report(name: str, built: Built) -> None:
    print(f"{built.folder}: done")
    if built.other:
        print(
            f"    other than what docs/results.md measured: {', '.join(built.other)}; "
            f"docs/contributing/reliability.md says what is known of {name}"
        )
    elif built.same:
        print("    corpus, queries and labels are those that docs/results.md measured")
