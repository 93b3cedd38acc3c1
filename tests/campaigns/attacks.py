"""Attacks through files of others, each really tried: ``python -m tests.campaigns.attacks``.

Those on the server are in tests/serving (test_access.py, test_bad_input.py), on checkpoints of an
interrupted run in tests/pipelines/test_run_folder.py, on the page in tests/reporting/test_page.py.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1] / "shared"),
    str(Path(__file__).resolve().parents[2]),
]

from damaged_folders import WEIGHTS, small_saved_ranker  # noqa: E402
from input_cases import _explained  # noqa: E402
from readers_of_files import _ALIASES  # noqa: E402
from rich.console import Console  # noqa: E402

from backpack_rank.attributes.attribute import Attribute  # noqa: E402
from backpack_rank.attributes.lexicon import load_lexicon  # noqa: E402
from backpack_rank.data.json_lines import read_jsonl  # noqa: E402
from backpack_rank.data.trec import read_run, write_run  # noqa: E402
from backpack_rank.models.folder_checks import CHECKSUMS  # noqa: E402
from backpack_rank.models.loading import load_ranker  # noqa: E402
from backpack_rank.pipelines.run_folder import plain_values, run_config  # noqa: E402
from backpack_rank.pipelines.settings import slugify  # noqa: E402
from backpack_rank.reporting.explanation import coloured_text, explanation_html  # noqa: E402
from backpack_rank.reporting.writers import csv_text, latex_escape  # noqa: E402
from backpack_rank.senses.attribution import ExplainedWord, Explanation  # noqa: E402

TRACE = "trace"
"""A file that an attack makes when its code is run."""


class _Payload:
    """What a pickle runs when it is read."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


def _copy(folder: Path) -> Path:
    """A saved ranker without checksums, as a stranger would send it."""
    ranker = small_saved_ranker(folder)
    (ranker / CHECKSUMS).unlink()
    return ranker


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except (ValueError, OSError):
        return True
    return False


def _changed(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def pickle_in_weights(folder: Path) -> bool:
    ranker = _copy(folder)
    (ranker / WEIGHTS).unlink()
    (ranker / "pytorch_model.bin").write_bytes(pickle.dumps(_Payload(folder / TRACE)))
    return _refused(lambda: load_ranker(ranker))


def code_named_by_the_configuration(folder: Path) -> bool:
    ranker = _copy(folder)
    (ranker / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(folder / TRACE)!r}).touch()\nclass Evil: ...\n"
    )
    _changed(ranker / "config.json", auto_map={"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"})
    return _refused(lambda: load_ranker(ranker))


def code_named_by_the_tokenizer(folder: Path) -> bool:
    ranker = _copy(folder)
    (ranker / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(folder / TRACE)!r}).touch()\nclass Evil: ...\n"
    )
    _changed(
        ranker / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    )
    return _refused(lambda: load_ranker(ranker))


def target_in_a_run_s_configuration(folder: Path) -> bool:
    (folder / "config.yaml").write_text(
        f"data: {{_target_: pathlib.Path.touch, self: {folder / TRACE}}}\n"
    )
    return "_target_" not in str(plain_values(folder))


def target_in_a_run_s_options(folder: Path) -> bool:
    (folder / "overrides.yaml").write_text(
        f"- data={{_target_:builtins.open,file:{folder / TRACE},mode:w}}\n"
    )
    return _refused(lambda: run_config(folder))


def secret_in_a_run_s_configuration(folder: Path) -> bool:
    (folder / "config.yaml").write_text("data: {folder: '${oc.env:HOME}'}\n")
    return "HOME" not in str(plain_values(folder)) and str(Path.home()) not in str(
        plain_values(folder)
    )


def secret_in_a_text_to_explain(folder: Path) -> bool:
    return _explained("query", "what is ${oc.env:HOME}?") == "what is ${oc.env:HOME}?"


def object_in_yaml(folder: Path) -> bool:
    (folder / "config.yaml").write_text(
        f"a: !!python/object/apply:pathlib.Path.touch [{folder / TRACE}]\n"
    )
    return _refused(lambda: plain_values(folder))


def alias_bomb(folder: Path) -> bool:
    (folder / "config.yaml").write_text(_ALIASES)
    (folder / "size.yaml").write_text(_ALIASES)
    return _refused(lambda: plain_values(folder)) and _refused(
        lambda: Attribute.named(str(folder / "size.yaml"))
    )


def gzip_bomb_of_a_run(folder: Path) -> bool:
    (folder / "a.run.gz").write_bytes(gzip.compress((b" " * 999 + b"\n") * 80_000))
    return _refused(lambda: read_run(folder / "a.run.gz"))


def gzip_bomb_of_one_line(folder: Path) -> bool:
    (folder / "a.run.gz").write_bytes(gzip.compress(b"x" * 80_000_000))
    return _refused(lambda: read_run(folder / "a.run.gz"))


def gzip_bomb_of_a_word_list(folder: Path) -> bool:
    (folder / "words.csv.gz").write_bytes(gzip.compress(b"word,group\n" + b"x" * 80_000_000))
    return _refused(lambda: load_lexicon(folder / "words.csv.gz"))


def nested_json(folder: Path) -> bool:
    (folder / "a.jsonl").write_text('{"a":' * 100_000)
    return _refused(lambda: list(read_jsonl(folder / "a.jsonl", dict)))


def header_of_weights_as_long_as_the_memory(folder: Path) -> bool:
    ranker = _copy(folder)
    (ranker / WEIGHTS).write_bytes(struct.pack("<Q", 2**62) + b"{}")
    return _refused(lambda: load_ranker(ranker))


def path_out_of_the_folder_in_checksums(folder: Path) -> bool:
    ranker = small_saved_ranker(folder)
    _changed(ranker / CHECKSUMS, files={"../../../../etc/passwd": {"bytes": 1, "sha256": ""}})
    return _refused(lambda: load_ranker(ranker))


def path_out_of_the_folder_in_a_label(folder: Path) -> bool:
    name = slugify("../../../etc/passwd")
    return "/" not in name and (folder / f"{name}.run").parent == folder


def line_in_an_id(folder: Path) -> bool:
    return _refused(lambda: write_run(folder / "a.run", {"q1": {"d1 1 9 x\nq1 Q0 d2": 1.0}}, "tag"))


def formula_in_an_id(folder: Path) -> bool:
    cells = [
        line.split(",")[0]
        for line in csv_text(("id", "value"), [("=cmd|' /C calc'!A0", 1.0)]).splitlines()
    ]
    return not any(cell.strip('"').startswith(("=", "+", "-", "@")) for cell in cells)


def command_of_latex_in_a_label(folder: Path) -> bool:
    return "\\input{" not in latex_escape("\\input{/etc/passwd}")


def _explanation(text: str) -> Explanation:
    words = tuple(ExplainedWord(text, part, 1.0) for part in ("query", "document"))
    return Explanation(text, words, (), 1.0, 0.0)


def escape_sequence_in_a_document(folder: Path) -> bool:
    out = io.StringIO()
    console = Console(file=out, color_system=None)
    for part in ("query", "document"):
        console.print(coloured_text(_explanation("\x1b]0;gone\x07\x1b[2J\x9b31m"), part))
    return not {"\x1b", "\x9b", "\x07"} & set(out.getvalue())


def script_in_a_document(folder: Path) -> bool:
    page = explanation_html(_explanation("<script>alert(1)</script><img src=x onerror=alert(1)>"))
    return "<script" not in page and "<img" not in page


ATTACKS: tuple[Callable[[Path], bool], ...] = (
    *(pickle_in_weights, code_named_by_the_configuration, code_named_by_the_tokenizer),
    *(target_in_a_run_s_configuration, target_in_a_run_s_options, secret_in_a_run_s_configuration),
    *(secret_in_a_text_to_explain, object_in_yaml, alias_bomb),
    *(gzip_bomb_of_a_run, gzip_bomb_of_one_line, gzip_bomb_of_a_word_list, nested_json),
    *(
        header_of_weights_as_long_as_the_memory,
        path_out_of_the_folder_in_checksums,
        path_out_of_the_folder_in_a_label,
    ),
    *(line_in_an_id, formula_in_an_id, command_of_latex_in_a_label),
    *(escape_sequence_in_a_document, script_in_a_document),
)


def stopped(attack: Callable[[Path], bool], folder: Path) -> bool:
    """Whether an attack came to nothing: what it tried was refused or harmless, and no code of it
    was run.
    """
    return attack(folder) and not (folder / TRACE).exists()


def main() -> None:
    results = {}
    for attack in ATTACKS:
        with tempfile.TemporaryDirectory() as folder:
            results[attack.__name__.replace("_", " ")] = stopped(attack, Path(folder))
    print("| attack | outcome |\n|---|---|")
    for name, well in results.items():
        print(f"| {name} | {'stopped' if well else 'NOT STOPPED'} |")
    print(f"\n{sum(results.values())} of {len(results)} stopped")
    raise SystemExit(0 if all(results.values()) else 1)


if __name__ == "__main__":
    main()
