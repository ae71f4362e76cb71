"""A hub on this machine: repositories from folders, by the requests of `huggingface_hub`."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Hub:
    """The folders that it serves, by ``organisation/name``, and the paths of the requests that it got.

    The main branch of a repository is at a commit that is a digest of its files.
    """

    def __init__(self, address: str, cache: Path) -> None:
        self.address, self.cache = address, cache
        self.folders: dict[str, Path] = {}
        self.requests: list[str] = []

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process that uses this hub."""
        return {"HF_ENDPOINT": self.address, "HF_HOME": str(self.cache), "HF_HUB_OFFLINE": "0"}

    def commit(self, repo: str) -> str:
        """Return the commit of the main branch."""
        digest = hashlib.sha1()
        for file in sorted(self.folders[repo].iterdir()):
            digest.update(file.name.encode() + file.read_bytes())
        return digest.hexdigest()

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and content for a request."""
        parts = path.partition("?")[0].strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        parts = parts[2:] if is_api else parts
        repo, rest = "/".join(parts[:2]), parts[2:]
        if repo not in self.folders:
            return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
        commit, files = self.commit(repo), sorted(self.folders[repo].iterdir())
        if len(rest) > 1 and rest[1] not in ("main", commit):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if not is_api:
            content = (self.folders[repo] / rest[2]).read_bytes()
            return 200, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": commit}, content
        if rest[:1] == ["tree"]:
            oids = ((file, hashlib.sha1(file.read_bytes()).hexdigest()) for file in files)
            rows = [{"type": "file", "path": file.name, "size": file.stat().st_size, "oid": oid} for file, oid in oids]
            return 200, {"X-Repo-Commit": commit}, json.dumps(rows).encode()
        info = {"id": repo, "sha": commit, "siblings": [{"rfilename": file.name} for file in files]}
        return 200, {}, json.dumps(info).encode()


@contextmanager
def serving(cache: Path) -> Iterator[Hub]:
    """Serve a hub without repositories; its cache is in a folder."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.requests.append(self.path)
            status, headers, content = hub.answer(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub = Hub(f"http://127.0.0.1:{server.server_port}", cache)
        thread = threading.Thread(target=server.serve_forever, args=[0.01])  # seconds between looks at its end
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def used(hub: Hub) -> Iterator[None]:
    """Let `huggingface_hub` use a hub in this process, as the variables would in another one."""
    from huggingface_hub import constants

    from dropbench.adapters.hub import fetch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", hub.address)
        patch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        patch.setattr(constants, "HF_HUB_CACHE", str(hub.cache / "hub"))
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        fetch.cache_clear()
        yield
        fetch.cache_clear()
