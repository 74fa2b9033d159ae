"""A small server on loopback in the form of the Hugging Face hub: hub loading is tested for real without a network.

It answers what `huggingface_hub` asks for when it downloads a pinned snapshot or file of a model or data set:
repository info, tree listing, and files by HEAD and GET, with the hub's own headers and error codes. The client reads
`HF_ENDPOINT` and `HF_HOME` when it is imported, so a test runs its load in a subprocess with `env()`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self
from urllib.parse import unquote, urlsplit

Repo = tuple[str, str]  # ("model" or "dataset", "owner/name")
Files = Mapping[str, bytes]  # content by path


class Hub:
    """Serves `repos` while the context is open; `gated` ones answer 401 as the real hub does without a token.

    `repos` maps ("model" | "dataset", "owner/name") to revisions (full commit hashes), and those to files by path.
    """

    def __init__(self, repos: Mapping[Repo, Mapping[str, Files]], gated: Collection[Repo] = ()) -> None:
        self.repos = repos
        self.gated = gated
        self.requests: list[str] = []  # "METHOD /path", in order of arrival
        self.saw_token = False  # whether any request carried one
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        """The endpoint, for `HF_ENDPOINT`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def env(self, home: Path, **extra: str) -> dict[str, str]:
        """The environment of a subprocess that uses this hub, with its cache under `home`, and `extra` on top."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        return kept | {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            **extra,
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        self.hub.saw_token |= "Authorization" in self.headers
        path = unquote(urlsplit(self.path).path).strip("/")
        is_api = path.startswith("api/")
        parts = path.removeprefix("api/").split("/")
        kind = "dataset" if parts[0] == "datasets" else "model"
        if parts[0] in ("datasets", "models"):
            parts = parts[1:]
        if len(parts) < 4:
            return self._refuse(404, "RepoNotFound")
        repo, verb, revision, rest = (kind, "/".join(parts[:2])), parts[2], parts[3], "/".join(parts[4:])
        if repo in self.hub.gated:
            return self._refuse(401, "GatedRepo")
        if repo not in self.hub.repos:
            return self._refuse(401, "RepoNotFound")  # the hub does not tell a missing repository from a private one
        if revision not in self.hub.repos[repo]:
            return self._refuse(404, "RevisionNotFound")
        files = self.hub.repos[repo][revision]
        if is_api and verb == "revision":
            siblings = [{"rfilename": name} for name in files]
            return self._answer_json({"_id": repo[1], "id": repo[1], "sha": revision, "siblings": siblings}, revision)
        if is_api and verb == "tree":
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": _blob_id(data)} for name, data in files.items()
            ]
            return self._answer_json(entries, revision)
        if verb == "resolve" and rest in files:
            return self._answer(files[rest], revision, "application/octet-stream")
        return self._refuse(404, "EntryNotFound", revision)

    do_HEAD = do_GET  # noqa: N815 (the name http.server calls)

    def _answer_json(self, value: Any, revision: str) -> None:
        self._answer(json.dumps(value).encode(), revision, "application/json")

    def _answer(self, body: bytes, revision: str, content_type: str) -> None:
        self.send_response(200)
        self.send_header("X-Repo-Commit", revision)
        self.send_header("ETag", f'"{_blob_id(body)}"')
        self.send_header("Content-Type", content_type)
        self._finish(body)

    def _refuse(self, status: int, code: str, revision: str | None = None) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", f"{code} (said by the test hub)")
        if revision:
            self.send_header("X-Repo-Commit", revision)
        self._finish(b"")

    def _finish(self, body: bytes) -> None:
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent: `Hub.requests` is the log."""


def _blob_id(data: bytes) -> str:
    """Git's object id of a file, which the hub uses as its ETag."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
