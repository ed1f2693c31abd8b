"""A loopback server that speaks the GitHub REST calls we use, and counts what was written."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse


class GitHubServer:
    """One repository `lab/runs` in memory. Use as a context manager."""

    def __init__(self) -> None:
        self.issues: list[dict] = []
        self.comments: dict[int, list[dict]] = {}
        self.pulls: list[dict] = []
        self.refs = {"main": "a" * 40}
        self.files: dict[tuple[str, str], str] = {}
        self.writes: list[str] = []

    def __enter__(self) -> GitHubServer:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                data = json.loads(self.rfile.read(length)) if length else {}
                if self.headers["Authorization"] != "Bearer secret":
                    code, body = 401, {}
                else:
                    code, body = owner.handle(self.command, self.path, data)
                text = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_PUT = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def handle(self, method: str, path: str, data: dict) -> tuple[int, object]:
        url = urlparse(path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = url.path.removeprefix("/repos/lab/runs/").split("/")
        if method != "GET":
            self.writes.append(f"{method} {'/'.join(parts)}")
        match method, parts:
            case "GET", ["issues"]:
                return 200, self._page(self.issues, query)
            case "POST", ["issues"]:
                return 201, self._added(self.issues, data)
            case "PATCH", ["issues", "comments", number]:
                comment = next(one for all_ in self.comments.values() for one in all_ if one["id"] == int(number))
                comment |= data
                return 200, comment
            case "PATCH", ["issues", number]:
                self.issues[int(number) - 1] |= data
                return 200, self.issues[int(number) - 1]
            case "GET", ["issues", number, "comments"]:
                return 200, self._page(self.comments.get(int(number), []), query)
            case "POST", ["issues", number, "comments"]:
                return 201, self._added(self.comments.setdefault(int(number), []), data)
            case "GET", ["git", "ref", "heads", *branch]:
                sha = self.refs.get("/".join(branch))
                return (200, {"object": {"sha": sha}}) if sha else (404, {})
            case "POST", ["git", "refs"]:
                self.refs[data["ref"].removeprefix("refs/heads/")] = data["sha"]
                return 201, {}
            case "GET", ["contents", *name]:
                content = self.files.get((query["ref"], "/".join(name)))
                return (200, {"content": content, "sha": "b" * 40}) if content else (404, {})
            case "PUT", ["contents", *name]:
                if ((data["branch"], "/".join(name)) in self.files) != ("sha" in data):
                    return 409, {}
                self.files[data["branch"], "/".join(name)] = data["content"]
                return 200, {}
            case "GET", ["pulls"]:
                return 200, self._page(self.pulls, query)
            case "POST", ["pulls"]:
                return 201, self._added(self.pulls, data | {"head": {"ref": data["head"]}})
        return 404, {}

    def _added(self, rows: list[dict], data: dict) -> dict:
        number = len(rows) + 1
        rows.append({"number": number, "id": number, "html_url": f"https://example.org/{number}", **data})
        return rows[-1]

    @staticmethod
    def _page(rows: list[dict], query: dict) -> list[dict]:
        size, page = int(query["per_page"]), int(query["page"])
        return rows[(page - 1) * size : page * size]
