"""The server: pages as the files are now, ranges, refusals, a stream that goes on, and writes for the token alone."""

from __future__ import annotations

import asyncio
import json
import shutil
import time

import orjson
import pytest
from starlette.testclient import TestClient

from forerun.base.errors import ConfigError
from forerun.base.lab import Lab
from forerun.dashboard.feed import parse_place
from forerun.dashboard.ingest import MAX_BODY, read_token
from forerun.dashboard.live import Fresh, Hub
from forerun.dashboard.serve import application
from forerun.record.journal import Journal
from forerun.record.reader import open_run
from forerun.record.run import start_run

TOKEN = "a-long-enough-secret"
LOOK_S = 0.3  # the server looks at files at most four times a second


@pytest.fixture
def lab(tmp_path):
    lab = Lab(tmp_path / "lab")
    start_run(lab.run("first"), num_steps=4, unregistered=True)
    with Journal(lab.run("first")) as journal:
        for step in range(1, 5):
            journal.log(step, {"loss_nats": 5.0 - step / 10, "eval/macro_loss_nats": 5.1 - step / 10, "grad_norm": 1.0})
    return lab


def test_new_rows_are_on_the_next_page_and_unchanged_runs_are_not_read_again(lab, planner):
    fresh = Fresh(lab, planner)
    assert b"4.7" in (fresh.get("runs/first.html") or b"")
    known = fresh._files.runs["first"]
    (lab.experiments / "x").mkdir(parents=True)
    (lab.experiments / "x" / "report.md").write_text("x")
    time.sleep(LOOK_S)
    fresh.get("index.html")
    assert fresh._files.runs["first"] is known
    with Journal(lab.run("first")) as journal:
        journal.log(5, {"eval/macro_loss_nats": 3.25})
    time.sleep(LOOK_S)
    assert b"3.25" in (fresh.get("index.html") or b"")


def test_a_run_that_is_removed_while_it_is_watched_takes_nothing_else_away(lab, planner):
    start_run(lab.run("gone"), num_steps=4, unregistered=True)
    with Journal(lab.run("gone")) as journal:
        journal.log(1, {"loss_nats": 5.0})
    fresh = Fresh(lab, planner)
    assert fresh.get("runs/gone.html") and fresh.get("rows/gone/index.json")

    async def watched() -> list[bytes]:
        hub, got = Hub(lab), []
        poller = asyncio.create_task(hub.poll_for_ever())
        stream = hub.stream("gone", {})
        for _ in range(2):
            got.append(await asyncio.wait_for(anext(stream), 5))
        shutil.rmtree(lab.run("gone"))
        async with asyncio.timeout(5):
            async for message in stream:
                got.append(message)
                if b"changed" in message:
                    break
        poller.cancel()
        return got

    assert b'"loss_nats":5.0' in b"".join(asyncio.run(watched()))
    time.sleep(LOOK_S)
    assert fresh.get("runs/gone.html") is None and fresh.get("rows/gone/index.json") is None
    assert b"gone" not in (fresh.get("index.html") or b"") and fresh.get("runs/first.html")


def test_nothing_but_reading_is_allowed_and_no_path_leaves_the_site(lab, planner):
    with TestClient(application(lab, planner)) as client:
        for path in (
            "/../lab/runs/first/run.json",
            "/%2e%2e/%2e%2e/lab/runs/first/run.json",
            "/..%2f..%2fetc/passwd",
            "/static/../pages.py",
            "/rows/../../runs/first/run.json",
            "/rows/first/..%2findex.json",
            "//etc/passwd",
            "/static/%00",
        ):
            assert client.get(path).status_code == 404, path
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert client.request(method, "/index.html").status_code == 405
        assert client.post("/ingest/first", json={}).status_code == 405
        response = client.get("/")
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_parts_of_a_file_are_what_was_asked_for(lab, planner):
    with TestClient(application(lab, planner)) as client:
        whole = client.get("/rows/first/0.parquet").content
        assert whole[:4] == whole[-4:] == b"PAR1"
        for asked, expected in (
            ("bytes=0-3", whole[:4]),
            ("bytes=-4", whole[-4:]),
            (f"bytes={len(whole) - 2}-", whole[-2:]),
            ("bytes=2-999999999", whole[2:]),
        ):
            answer = client.get("/rows/first/0.parquet", headers={"range": asked})
            assert (answer.status_code, answer.content) == (206, expected)
        assert client.get("/rows/first/0.parquet", headers={"range": f"bytes={len(whole)}-"}).status_code == 416
        assert client.get("/rows/first/0.parquet", headers={"range": "bytes=-"}).content == whole
        tag = client.get("/index.html").headers["etag"]
        assert client.get("/index.html", headers={"if-none-match": tag}).status_code == 304


def test_a_changed_ledger_is_not_shown(lab, planner):
    lab.ledger.parent.mkdir(parents=True)
    lab.ledger.write_bytes(b'{"schema":1}\n')
    with TestClient(application(lab, planner)) as client:
        answer = client.get("/index.html")
        assert answer.status_code == 503 and "ledger line 0" in answer.text


def test_the_stream_gives_a_reader_what_it_lacks_and_then_what_is_written(lab):
    async def listen() -> list[tuple[str, list[int]]]:
        hub = Hub(lab)
        poller = asyncio.create_task(hub.poll_for_ever())
        got: list[tuple[str, list[int]]] = []
        stream = hub.stream("first", parse_place("0=2"))
        written = False
        async for message in stream:
            fields = dict(line.split(": ", 1) for line in message.decode().strip().split("\n"))
            if fields.get("event") == "rows":
                got.append((fields["id"], [row["step"] for row in json.loads(fields["data"])]))
                if not written:
                    written = True
                    with Journal(lab.run("first")) as journal:
                        journal.log(9, {"loss_nats": float("inf")})
                else:
                    break
        await stream.aclose()
        poller.cancel()
        return got

    assert asyncio.run(asyncio.wait_for(listen(), 20)) == [("0=4", [3, 4]), ("0=5", [9])]


def test_who_has_the_token_may_write_rows_and_nobody_else(lab, planner):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    rows = {
        "num_steps": 100,
        "rows": [{"step": 1, "metrics": {"loss_nats": 5.0, "grad_norm": "NaN"}}],
        "events": [{"kind": "note", "step": 1, "words": "<b>"}],
    }
    with TestClient(application(lab, planner, write_token=TOKEN)) as client:
        assert client.post("/ingest/new", json=rows).status_code == 401
        assert client.post("/ingest/new", json=rows, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert not lab.run("new").exists()
        assert client.post("/ingest/new", json=rows, headers=headers).json() == {"rows": 1}
        assert client.post(
            "/ingest/new", json={"rows": [{"step": 2, "metrics": {"loss_nats": 4.0}}], "end": True}, headers=headers
        ).json() == {"rows": 1}
        assert client.get("/ingest/new", headers=headers).status_code in (404, 405)
    record = open_run(lab.run("new"))
    assert record.info.unregistered and record.info.num_steps == 100
    assert record.series("loss_nats").value.tolist() == [5.0, 4.0]
    assert [event["words"] for event in record.events("note")] == ["<b>"]


@pytest.mark.parametrize(
    ("run", "body"),
    [
        ("..", b"{}"),
        (".hidden", b"{}"),
        ("a b", b"{}"),
        ("ok", b"not json"),
        ("ok", b"[]"),
        ("ok", b'{"rows": 5}'),
        ("ok", b'{"rows": [{"step": -1, "metrics": {}}]}'),
        ("ok", b'{"rows": [{"step": 1, "metrics": {"a": "text"}}]}'),
        ("ok", b'{"rows": [{"step": 1, "metrics": {"a\\n": 1}}]}'),
        ("ok", b'{"rows": [{"step": true, "metrics": {"a": 1}}]}'),
        ("ok", b'{"rows": [{"step": 1, "metrics": {"step": 1}}]}'),
        ("ok", b'{"events": [{"kind": "x"}]}'),
        ("ok", b'{"events": [{"kind": "x", "step": 1, "time": 5}]}'),
        ("ok", b'{"num_steps": "many"}'),
        ("ok", b" " * (MAX_BODY + 1)),
    ],
)
def test_bad_writes_are_refused_with_a_reason_and_leave_no_row(lab, planner, run, body):
    with TestClient(application(lab, planner, write_token=TOKEN)) as client:
        answer = client.post(f"/ingest/{run}", content=body, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code in (400, 404, 405, 413), answer.text
        assert "Traceback" not in answer.text
    assert not list(lab.runs.glob("ok/w0/seg-*"))


def test_a_run_that_another_process_writes_is_a_conflict(lab, planner):
    with Journal(lab.run("first")), TestClient(application(lab, planner, write_token=TOKEN)) as client:
        body = orjson.dumps({"rows": [{"step": 9, "metrics": {"loss_nats": 1.0}}]})
        assert client.post("/ingest/first", content=body, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 409


def test_a_token_file_must_be_long_and_private(tmp_path):
    path = tmp_path / "token"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(path)
    path.write_text(TOKEN + "\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="readable by others"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    path.write_text("short")
    with pytest.raises(ConfigError, match="at least 16"):
        read_token(path)
