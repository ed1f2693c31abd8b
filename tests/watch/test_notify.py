"""Telling someone: only when the state changes, by webhook or command, and a hook that fails never ends the watch."""

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from forerun.base.errors import SourceError
from forerun.watch import live
from forerun.watch.replay.healthy import healthy_run
from forerun.watch.replay.incidents import step_up


@contextmanager
def webhook(status=200):
    """A loopback server that keeps what is posted to it."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append((self.headers["Content-Type"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
    finally:
        server.shutdown()
        thread.join()


class Reads:
    """A source that shows more of a run at each read; an exception is raised where it stands."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def read(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def reports():
    """On course, then off course."""
    run = healthy_run(7, 2000)
    before = run.record(1000)
    step_up(run, 1200, None, size=0.05)
    watched = live.watch(
        Reads(before, before, SourceError("busy", hint="wait"), run.record(1400), run.record(1400)),
        run.forecast,
        every_s=1,
        sleep=lambda s: None,
        clock=lambda: float(run.time[0]),
    )
    return [next(watched) for _ in range(5)]


def test_a_failed_read_is_said_and_the_watch_goes_on():
    states = [(report.state if report else problem) for _, report, problem in reports()]
    assert states == ["on_course", "on_course", "busy (wait)", "off_course", "off_course"]


def test_only_a_change_of_state_is_told_and_the_whole_report_is_posted():
    with webhook() as (url, posted):
        telling = live.Telling(url)
        failures = [telling.hear(report) for _, report, _ in reports() if report is not None]
    assert failures == ["", "", "", ""]
    [(content_type, body)] = posted
    assert content_type == "application/json"
    assert body["state"] == "off_course"
    assert "off course" in body["text"]
    assert {"findings", "diagnosis", "checklist"} <= set(body)


def test_a_run_that_is_off_course_at_the_first_look_is_told_at_once():
    off = reports()[3][1]
    with webhook() as (url, posted):
        assert live.Telling(url).hear(off) == ""
    assert len(posted) == 1


def test_a_command_gets_the_report_on_its_standard_input(tmp_path):
    off = reports()[3][1]
    script = tmp_path / "hook.py"
    script.write_text("import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())")
    assert live.notify(f"{sys.executable} {script} '{tmp_path / 'told to me.json'}'", off) == ""
    assert json.loads((tmp_path / "told to me.json").read_bytes())["state"] == "off_course"


def test_hooks_that_fail_come_back_as_words():
    off = reports()[3][1]
    with webhook(status=500) as (url, _):
        assert live.notify(url, off) == "webhook answered HTTP 500"
    assert "ConnectError" in live.notify(url, off)
    assert live.notify(f"{sys.executable} -c 'import sys; sys.exit(\"no pager\")'", off) == "command ended with 1: no pager\n"
    assert "FileNotFoundError" in live.notify("/nowhere/pager", off)
    assert "ValueError" in live.notify("unclosed 'quote", off)


def test_a_state_that_could_not_be_told_is_told_at_the_next_look():
    off = reports()[3][1]
    telling = live.Telling("/nowhere/pager")
    assert telling.hear(off)
    with webhook() as (url, posted):
        telling.target = url
        assert telling.hear(off) == ""
    assert len(posted) == 1
