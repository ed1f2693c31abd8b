"""The few GitHub REST calls an open lab needs: one issue a promise, one comment a milestone, one pull request a config.

Every call is idempotent: texts carry a marker and are updated, never posted twice. The ledger in git stays the source of truth.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import httpx

from forerun.base.errors import ConfigError, SourceError

API = "https://api.github.com"
PER_PAGE = 100


class GitHub:
    """One repository, `owner/name`. Use as a context manager.

    Args:
        token: by default the environment's GITHUB_TOKEN.
        api: base address, another one for GitHub Enterprise.
    """

    def __init__(self, repository: str, *, token: str = "", api: str = API) -> None:
        token = token or os.environ.get("GITHUB_TOKEN", "")
        if repository.count("/") != 1:
            raise ConfigError(f"repository must be owner/name, got {repository!r}", hint="for example --repo lab/runs")
        if not token:
            raise ConfigError("no token for GitHub", hint="set GITHUB_TOKEN, or use --dry-run to print the text")
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        self._client = httpx.Client(base_url=f"{api}/repos/{repository}", headers=headers, timeout=30.0)

    def __enter__(self) -> GitHub:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def put_issue(self, *, title: str, body: str, marker: str, labels: tuple[str, ...] = ("experiment",)) -> str:
        """Make the issue that carries `marker`, or bring its text up to date. Returns its address."""
        known = self.find_issue(marker)
        if known is None:
            return self._call("POST", "/issues", {"title": title, "body": body, "labels": list(labels)})["html_url"]
        if (known["title"], known["body"]) != (title, body):
            self._call("PATCH", f"/issues/{known['number']}", {"title": title, "body": body})
        return known["html_url"]

    def put_comment(self, *, issue_marker: str, body: str, marker: str) -> str:
        """Make or update one comment on the issue that carries `issue_marker`. Returns its address."""
        issue = self.find_issue(issue_marker)
        if issue is None:
            raise SourceError("the experiment has no issue yet", hint="`forerun publish issue` first")
        for comment in self._pages(f"/issues/{issue['number']}/comments"):
            if marker in (comment["body"] or ""):
                if comment["body"] != body:
                    self._call("PATCH", f"/issues/comments/{comment['id']}", {"body": body})
                return comment["html_url"]
        return self._call("POST", f"/issues/{issue['number']}/comments", {"body": body})["html_url"]

    def put_pull_request(self, *, branch: str, title: str, body: str, files: dict[str, bytes], base: str = "main") -> str:
        """Put files on a branch and open a pull request for it, or update the branch of the open one. Returns its address."""
        if self._get(f"/git/ref/heads/{branch}") is None:
            start = self._call("GET", f"/git/ref/heads/{base}")["object"]["sha"]
            self._call("POST", "/git/refs", {"ref": f"refs/heads/{branch}", "sha": start})
        for path, content in files.items():
            encoded = base64.b64encode(content).decode()
            known = self._get(f"/contents/{path}?ref={branch}")
            if known is not None and known["content"].replace("\n", "") == encoded:
                continue
            change = {"message": f"{title}: {path}", "content": encoded, "branch": branch}
            self._call("PUT", f"/contents/{path}", change | ({"sha": known["sha"]} if known else {}))
        for request in self._pages(f"/pulls?state=open&base={base}"):
            if request["head"]["ref"] == branch:
                return request["html_url"]
        return self._call("POST", "/pulls", {"title": title, "body": body, "head": branch, "base": base})["html_url"]

    def find_issue(self, marker: str) -> dict[str, Any] | None:
        """The oldest issue whose text carries the marker."""
        found = [issue for issue in self._pages("/issues?state=all") if marker in (issue["body"] or "") and "pull_request" not in issue]
        return min(found, key=lambda issue: issue["number"]) if found else None

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        page, joint = 1, "&" if "?" in path else "?"
        while True:
            rows: Any = self._call("GET", f"{path}{joint}per_page={PER_PAGE}&page={page}")
            yield from rows
            if len(rows) < PER_PAGE:
                return
            page += 1

    def _get(self, path: str) -> dict[str, Any] | None:
        answer = self._send("GET", path, None)
        return None if answer.status_code == httpx.codes.NOT_FOUND else self._checked(answer)

    def _call(self, method: str, path: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._checked(self._send(method, path, data))

    def _send(self, method: str, path: str, data: dict[str, Any] | None) -> httpx.Response:
        try:
            return self._client.request(method, path, json=data)
        except httpx.HTTPError as error:
            raise SourceError(
                f"GitHub cannot be reached: {error}", hint="the ledger is safe in git; run the same command again later"
            ) from None

    @staticmethod
    def _checked(answer: httpx.Response) -> dict[str, Any]:
        if answer.is_success:
            return answer.json()
        place = f"{answer.request.method} {answer.request.url.path}"
        raise SourceError(
            f"GitHub refused {place}: {answer.status_code} {answer.reason_phrase}",
            hint="check the token's rights and the repository's name",
        )
