"""The tables shipped as `watch/replay/results.json`: false alarms over several lengths, and every planted class of incident.

Run: python benchmarks/watch/replay.py [HEALTHY_RUNS] [OUT]      90 healthy runs take about 15 CPU minutes
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import orjson

from forerun.base.files import write_atomic
from forerun.watch.replay import results
from forerun.watch.replay.incidents import INCIDENTS
from forerun.watch.replay.runner import Found, Healthy, replay_healthy, replay_incident

STEPS = 20_000
LONGER = ((100_000, 4), (400_000, 15))
"""Other lengths, and the share of the healthy runs (one in so many) made at them; longer runs cost more."""
FIRST_HEALTHY, FIRST_INCIDENT = 20_000, 10_000
"""Seeds; no limit was set on these runs."""


def main(num_runs: int, out: Path) -> None:
    """Replay in two processes, write the JSON, print the tables."""
    begin = time.process_time()
    seeds = range(FIRST_INCIDENT, FIRST_INCIDENT + max(num_runs // 6, 1))
    with ProcessPoolExecutor(2) as pool:
        healthy = pool.submit(replay_healthy, range(FIRST_HEALTHY, FIRST_HEALTHY + num_runs), STEPS)
        longer = [
            pool.submit(replay_healthy, range(FIRST_HEALTHY, FIRST_HEALTHY + max(num_runs // share, 1)), steps) for steps, share in LONGER
        ]
        found: list[Found] = list(pool.map(replay_one, range(len(INCIDENTS)), [seeds] * len(INCIDENTS)))
        by_length: list[Healthy] = [healthy.result(), *(part.result() for part in longer)]
    plain = results.as_plain(by_length[0], found)
    plain["lengths"] = [{"num_steps": part.num_steps, "num_runs": part.num_runs, "any_alarm": part.any_alarm} for part in by_length]
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    plain |= {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit}
    write_atomic(out, orjson.dumps(plain, option=orjson.OPT_INDENT_2) + b"\n")
    print("\n".join(results.as_lines(by_length[0], found)))
    for part in by_length[1:]:
        print(f"{part.num_runs} healthy runs of {part.num_steps:,} steps: {part.any_alarm:.1%} raise any alarm")
    print(f"{time.process_time() - begin:.0f} CPU s in the parent; {out}")


def replay_one(index: int, seeds: range) -> Found:
    """One class, by its place in the list: functions travel between processes, closures do not."""
    return replay_incident(INCIDENTS[index], seeds, STEPS)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 90, Path(sys.argv[2] if len(sys.argv) > 2 else "src/forerun/watch/replay/results.json"))
