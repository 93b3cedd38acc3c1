"""What docs/serving.md shows works as it is written there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from backpack_rank.serving.bodies import RerankBody

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
CLIENTS = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_request_of_the_first_example_is_answered(server):
    (command,) = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    command = command.replace("http://127.0.0.1:8000", server.url)
    done = subprocess.run(
        ["bash", "-c", f"NO_PROXY=127.0.0.1 {command}"], capture_output=True, text=True
    )
    assert [row["document"]["text"] for row in json.loads(done.stdout)["results"]][1:]


def test_every_field_is_described_and_no_other():
    table = PAGE[PAGE.index("| field |") : PAGE.index("Fields of other servers")]
    named = {
        name for row in table.split("\n|")[2:] for name in re.findall(r"`(\w+)`", row.split("|")[0])
    }
    assert named == set(RerankBody.model_fields)


@pytest.mark.packaging
@pytest.mark.parametrize("code", CLIENTS, ids=["cohere", "rerankers", "requests", "haystack"])
def test_clients_get_an_answer(server, code, capsys):
    for package in re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE):
        pytest.importorskip(package)
    exec(code.replace("http://127.0.0.1:8000", server.url).replace('"DATE"', '"tiny"'), {})
    assert re.search(r"\d\.\d", capsys.readouterr().out)
