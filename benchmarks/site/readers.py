"""How soon 200 readers of one live run see a new row, and whether any of them misses one.

The server is `forerun site serve` in a process of its own; readers are plain sockets in this one, so both share the machine's
cores. Run it on a quiet machine: python benchmarks/site/readers.py [--readers 200] [--rows 20] [--write results.json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import psutil

from forerun.base.lab import Lab
from forerun.record.journal import Journal
from forerun.record.run import start_run

BAR_S = 2.0
EVERY_S = 0.5


async def reader(port: int, run: str, expected: int, seen: dict[int, list[float]]) -> int:
    """Follow a run until `expected` rows came; returns how many did, each counted once."""
    stream, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /live?run={run}&place=0=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode())
    steps: set[int] = set()
    while len(steps) < expected:
        line = await stream.readline()
        if not line:
            break
        if line.startswith(b"data: ["):
            now = time.monotonic()
            for row in json.loads(line[6:]):
                steps.add(row["step"])
                seen.setdefault(row["step"], []).append(now)
    writer.close()
    return len(steps)


async def measure(lab: Lab, port: int, num_readers: int, num_rows: int) -> dict[str, float]:
    """Write rows while all readers listen."""
    seen: dict[int, list[float]] = {}
    written: dict[int, float] = {}
    readers = [asyncio.create_task(reader(port, "run", num_rows, seen)) for _ in range(num_readers)]
    await asyncio.sleep(3)
    with Journal(lab.run("run")) as journal:
        for step in range(1, num_rows + 1):
            journal.log(step, {f"metric_{index}": float(step) for index in range(50)})
            written[step] = time.monotonic()
            await asyncio.sleep(EVERY_S)
        counts = await asyncio.wait_for(asyncio.gather(*readers), 60)
    delays = sorted(moment - written[step] for step, moments in seen.items() for moment in moments)
    return {
        "readers": num_readers,
        "rows": num_rows,
        "delivered": len(delays),
        "lost": num_readers * num_rows - sum(counts),
        "median_s": round(statistics.median(delays), 3),
        "p99_s": round(delays[int(0.99 * len(delays))], 3),
        "worst_s": round(delays[-1], 3),
    }


def run(num_readers: int, num_rows: int) -> dict[str, float]:
    """The whole measurement in a lab of its own."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        lab = Lab(Path(folder))
        start_run(lab.run("run"), num_steps=num_rows, unregistered=True)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [sys.executable, "-c", "from forerun.cli.main import main; main()", "site", "serve", "--lab", folder, "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port)
            before = sum(psutil.Process(server.pid).cpu_times()[:2])
            found = asyncio.run(measure(lab, port, num_readers, num_rows))
            return found | {"server_cpu_s": round(sum(psutil.Process(server.pid).cpu_times()[:2]) - before, 2)}
        finally:
            server.kill()
            server.wait()


def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/glossary.html", timeout=10).read()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start within a minute")


def main() -> int:
    """Measure, print, and say by the exit code whether the bar is met."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--readers", type=int, default=200)
    options.add_argument("--rows", type=int, default=20)
    options.add_argument("--write", type=Path)
    asked = options.parse_args()
    found = run(asked.readers, asked.rows)
    met = found["lost"] == 0 and found["worst_s"] < BAR_S
    for name, value in found.items():
        print(f"{name:14s} {value}")
    print(f"bar: every row at every reader within {BAR_S} s, none lost: {'met' if met else 'MISSED'}")
    if asked.write:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        asked.write.write_text(json.dumps({"date": datetime.now(UTC).date().isoformat(), "commit": commit, **found}, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
