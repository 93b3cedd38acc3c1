"""``store=s3://...`` against a server that speaks S3: tasks in processes of their own that are
killed, and what is said where the bucket cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from reranked import LARGE, finished, run_bytes, start, wait_until, write_large_run
from workplace import Workplace

from backpack_rank.scale.store import Store

pytest.importorskip("s3fs", reason="needs s3fs: pip install '.[integrations]'")
pytest.importorskip("moto.server", reason="needs moto and flask: pip install '.[integrations]'")
pytestmark = pytest.mark.packaging
SHARDS = 12
PARTS = 2


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """A server on this machine with an empty bucket; the environment names it to every process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3().mkdir("bucket")
        yield
    server.stop()


def s3() -> fsspec.AbstractFileSystem:
    """The server's files, as they are now."""
    return fsspec.filesystem("s3", use_listings_cache=False)


def objects(folder: str) -> dict[str, str]:
    """Name and time of every object below a folder of the bucket."""
    found = s3().find(folder, detail=True)
    times = {}
    for path, about in found.items():
        # A folder whose first object appears while it is listed comes as a directory.
        if about["type"] == "file":
            times[path.rpartition("/")[2]] = str(about["LastModified"])
    return times


@pytest.fixture
def task(trained: Workplace, tmp_path: Path):
    """A function that starts a task, with its own folder, over 6,000 pairs."""
    run = write_large_run(tmp_path / "large.trec")
    common = [f"run={run}", *LARGE, "alpha=[1,0.5,0]", f"shards={SHARDS}", "workers=1"]

    def started(folder: str, *options: str):
        return start(trained, *common, f"folder={tmp_path / folder}", *options)

    return started


def test_killed_tasks_go_on_elsewhere_to_the_bytes_of_one_process(task, tmp_path: Path) -> None:
    finished(task("one"))
    expected = run_bytes(tmp_path / "one")
    assert {len(content.splitlines()) for content in expected.values()} == {6000}

    store = "store=s3://bucket/reranked"
    finished(task("planned", store, "action=plan"))
    score = [store, "action=score", f"parts={PARTS}"]
    tasks = [task(f"first-{part}", *score, f"part={part}") for part in range(PARTS)]
    wait_until(lambda: bool(objects("bucket/reranked/scores")), tasks[0])
    for process in tasks:
        process.kill()
        process.communicate()
    before = objects("bucket/reranked/scores")
    assert 0 < len(before) < SHARDS, "killed too late to test anything"

    for part in range(PARTS):
        finished(task(f"second-{part}", *score, f"part={part}"))
    after = objects("bucket/reranked/scores")
    assert set(after) == {f"{number:05}.safetensors" for number in range(SHARDS)}
    assert {name: after[name] for name in before} == before

    finished(task("merged", store, "action=merge"))
    assert run_bytes(tmp_path / "merged") == expected
    files = s3()
    stored = {
        path.split("/")[-2]: files.cat_file(path)
        for path in files.glob("bucket/reranked/runs/*/run.txt")
    }
    assert stored == expected


def test_a_bucket_that_is_not_there_is_one_sentence(task) -> None:
    output = finished(task("planned", "store=s3://nowhere/reranked", "action=plan"), 2)
    (line,) = output.strip().splitlines()
    assert line.startswith("store=s3://nowhere/reranked: The specified bucket does not exist")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9", "Could not connect to the endpoint URL"),
        ("AWS_ACCESS_KEY_ID", None, "credentials"),
    ],
)
def test_a_store_that_cannot_be_reached_is_one_sentence(
    name: str, value: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    # Keys that this machine may have are not looked for.
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(OSError, match=rf"^store=s3://bucket/reranked: .*{sentence}"):
        Store("s3://bucket/reranked").has("plan/plan.json")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
