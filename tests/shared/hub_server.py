"""A stand-in for the HTTP API of the Hugging Face hub on loopback: repositories, commits,
downloads.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

TOKEN = "hf_secret"


@dataclass
class Hub:
    """What was uploaded: ``{repository: {branch: {file: content}}}``, and every request."""

    address: str = ""
    branches: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: list[dict] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def hub_server() -> Iterator[Hub]:
    """A hub without repositories, on a free port."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, content: bytes | dict, status: int = 200, **headers: str) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            path, query = urlparse(self.path).path, parse_qs(urlparse(self.path).query)
            hub.requests.append(f"POST {path}")
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.answer({"error": "Invalid username or password."}, 401)
            parts = path.strip("/").split("/")
            if path == "/api/repos/create":
                asked = json.loads(body)
                name = (
                    f"{asked['organization']}/{asked['name']}"
                    if asked.get("organization")
                    else f"me/{asked['name']}"
                )
                if name in hub.branches:
                    return self.answer(
                        {"error": "exists already", "url": f"{hub.address}/{name}"}, 409
                    )
                hub.branches[name], hub.private[name] = (
                    {"main": {}},
                    asked.get("visibility") == "private",
                )
                return self.answer({"url": f"{hub.address}/{name}"})
            if path == "/api/validate-yaml":
                return self.answer({"errors": [], "warnings": []})
            name, action, branch = "/".join(parts[2:4]), parts[4], parts[5]
            if action == "branch":
                hub.branches[name][branch] = dict(hub.branches[name]["main"])
                return self.answer({})
            if action == "preupload":
                files = [
                    {"path": uploaded["path"], "uploadMode": "regular"}
                    for uploaded in json.loads(body)["files"]
                ]
                return self.answer(
                    {"files": [uploaded | {"shouldIgnore": False} for uploaded in files]}
                )
            assert action == "commit"
            lines = [json.loads(line) for line in body.decode().splitlines()]
            proposed = "create_pr" in query
            branch = "refs/pr/1" if proposed else branch
            kept = hub.branches[name].setdefault(branch, {})
            for line in lines[1:]:
                kept[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            hub.commits.append({"branch": branch, **lines[0]["value"]})
            address = f"{hub.address}/{name}"
            commit = revision(name, branch)
            answer = {"commitUrl": f"{address}/commit/{commit}", "commitOid": commit}
            if proposed:
                answer["pullRequestUrl"] = f"{address}/discussions/1"
            return self.answer(answer)

        def do_GET(self) -> None:
            path = urlparse(self.path).path
            hub.requests.append(f"{self.command} {path}")
            parts = path.strip("/").split("/")
            api = parts[0] == "api"
            if api:  # /api/models/me/one/revision/main
                name = "/".join(parts[2:4])
                asked = (parts[5:] or ["main"])[0]
            else:  # /me/one/resolve/main/config.json
                name = "/".join(parts[:2])
                asked = parts[3]
            branch = None
            for candidate in hub.branches.get(name, {}):
                # A branch may be asked for by its name or by its commit.
                if branch is None and asked in (candidate, revision(name, candidate)):
                    branch = candidate
            if branch is None:
                return self.answer({}, 404, X_Error_Code="RepoNotFound")
            kept = hub.branches[name][branch]
            if api and "tree" in parts:
                files = [
                    {"type": "file", "path": file, "size": len(kept[file]), "oid": file}
                    for file in kept
                ]
                return self.answer(json.dumps(files).encode())
            if api:
                files = [{"rfilename": file} for file in kept]
                return self.answer({"id": name, "sha": revision(name, branch), "siblings": files})
            file = "/".join(parts[4:])
            if file not in kept:
                return self.answer({}, 404, X_Error_Code="EntryNotFound")
            content = kept[file]
            headers = {
                "ETag": f'"{hashlib.sha1(content).hexdigest()}"',
                "X-Repo-Commit": revision(name, branch),
            }
            return self.answer(content, **headers)

        do_HEAD = do_GET  # noqa: N815

    def revision(name: str, branch: str) -> str:
        files = hub.branches[name][branch]
        return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()
