#!/usr/bin/env python3
"""Verify a forerun ledger with nothing but Python: chain, digests, order, and files beside it. Published with every ledger.

Usage: python verifier.py LAB     where LAB/ledger/registry.jsonl is the ledger
Exit code 0 when everything holds, 1 when something was changed (each problem on a line), 2 for a wrong call.

What a good answer proves: no line was edited, removed or reordered since the last line was made public, each promise's config is
the registered one, and each run's first step came after its promise. It does not prove that no other, secret run came before.
"""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import datetime
from pathlib import Path

FIRST = "0" * 64


def canonical(value: object) -> bytes:
    """Sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path) -> str:
    """Digest of a JSON file's value: its bytes without the one newline at the end; without that newline it fits nothing."""
    content = path.read_bytes()
    return sha256(content[:-1]) if content.endswith(b"\n") else ""


def check_chain(content: bytes, first: int = 0, prev: str = FIRST) -> tuple[list[dict], list[str]]:
    """Good lines up to the first bad one, and what is wrong with that one. A part of a ledger starts at line `first` after digest `prev`."""
    lines, place = [], 0
    if content and not content.endswith(b"\n"):
        return [], [f"ledger: the last line (byte {content.rfind(bytes([10])) + 1}) has no end"]
    for seq, raw in enumerate(content.split(b"\n")[:-1], first):
        where = f"ledger line {seq} (byte {place})"
        try:
            line = json.loads(raw)
            body = {key: value for key, value in line.items() if key != "digest"}
            if canonical(line) != raw:
                return lines, [f"{where}: not in canonical form"]
            if line["digest"] != sha256(canonical(body)):
                return lines, [f"{where}: digest does not fit the content"]
            if line["prev"] != prev or line["seq"] != seq:
                return lines, [f"{where}: does not continue the line before"]
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return lines, [f"{where}: not a ledger line"]
        lines.append(line)
        prev, place = line["digest"], place + len(raw) + 1
    return lines, []


def check_files(lab: Path, lines: list[dict]) -> list[str]:
    """Configs, experiment files, forecasts and manifests that the ledger names, as far as the copy has them."""
    problems = []
    for line in lines:
        if line["kind"] != "promise":
            continue
        body, name = line["body"], line["body"]["experiment"]
        folder = lab / "experiments" / name
        if (folder / "config.json").exists() and file_digest(folder / "config.json") != body["config_digest"]:
            problems.append(f"experiments/{name}/config.json is not the registered config")
        if (folder / "experiment.toml").exists() and sha256((folder / "experiment.toml").read_bytes()) != body["experiment_digest"]:
            problems.append(f"experiments/{name}/experiment.toml is not the registered one")
        for path in sorted(folder.glob("config-*.json")):
            if file_digest(path) not in allowed(lines, line):
                problems.append(f"experiments/{name}/{path.name} is not declared by an amendment")
        for file, digest in body.get("analysis", {}).items():
            if (folder / file).exists() and sha256((folder / file).read_bytes()) != digest:
                problems.append(f"experiments/{name}/{file} is not the registered analysis")
        forecast = body["promise"]["prediction"].get("forecast", "")
        path = lab / "ledger" / "forecasts" / forecast
        if forecast and path.exists() and sha256(path.read_bytes()) != body["forecast_digest"]:
            problems.append(f"ledger/forecasts/{forecast} is not the registered forecast")
    for path in sorted((lab / "manifests").glob("*.json")):
        if file_digest(path) != path.stem:
            problems.append(f"manifests/{path.name} does not fit its name")
    return problems


def check_order(lab: Path, lines: list[dict]) -> list[str]:
    """A run's promise comes before the run, and the run's config is the promised one."""
    promises = {line["digest"][:16]: line for line in lines if line["kind"] == "promise"}
    problems = []
    for path in sorted((lab / "runs").glob("*/run.json")):
        name = f"runs/{path.parent.name}"
        try:
            run = json.loads(path.read_bytes())
            created, promised = float(run["created"]), str(run.get("registration_id") or "")
        except (ValueError, KeyError, TypeError, RecursionError):
            problems.append(f"{name}/run.json cannot be read")
            continue
        promise = promises.get(promised)
        if promised and promise is None:
            problems.append(f"{name} names a promise that is not in the ledger")
        elif promise:
            if created + 1 < datetime.fromisoformat(promise["time"]).timestamp():
                problems.append(f"{name} started before its promise")
            config = path.with_name("config.json")
            if config.exists() and file_digest(config) not in allowed(lines, promise):
                problems.append(f"{name}/config.json is neither the promised config nor declared by an amendment")
        starts = [event for event in started(path.parent) if "registration_id" in event]
        if any((event["registration_id"] or "") != promised for event in starts):
            problems.append(f"{name}/run.json names another promise than its journal")
        if run.get("unregistered") and promised:
            problems.append(f"{name}/run.json names a promise and is marked unregistered")
    return problems


def started(run: Path) -> list[dict]:
    """Start events of a run's journals; lines torn by a crash are left out."""
    events = []
    for path in run.glob("w*/events.jsonl"):
        for raw in path.read_bytes().split(b"\n"):
            try:
                event = json.loads(raw)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("kind") == "start":
                events.append(event)
    return events


def allowed(lines: list[dict], promise: dict) -> set[str]:
    """Digests of the promised config and of those that amendments declare."""
    same = (line["body"] for line in lines if line["kind"] == "amendment" and line["body"]["experiment"] == promise["body"]["experiment"])
    return {promise["body"]["config_digest"], *(body["config_digest"] for body in same if "config_digest" in body)}


def check_head(path: Path, lines: list[dict]) -> list[str]:
    """`head.json` counts the lines, so that lines cut off the end are missed; a crash may leave it one line behind."""
    try:
        head = json.loads(path.read_bytes())
        known, digest = int(head["lines"]), head["digest"]
    except FileNotFoundError:
        return ["ledger/head.json is missing"] if lines else []
    except (ValueError, KeyError, TypeError, RecursionError):
        return ["ledger/head.json cannot be read"]
    if canonical(head) + b"\n" != path.read_bytes():
        return ["ledger/head.json is not in canonical form"]
    if known > len(lines):
        return [f"ledger has {len(lines)} lines, ledger/head.json says {known}: lines are missing from line {len(lines)} on"]
    if known < max(1, len(lines) - 1) or lines[known - 1]["digest"] != digest:
        return ["ledger/head.json does not name a line of this ledger near its end"]
    return []


def verify(lab: Path) -> tuple[list[dict], list[str]]:
    """Ledger lines and every problem found."""
    path = lab / "ledger" / "registry.jsonl"
    lines, problems = check_chain(path.read_bytes() if path.exists() else b"")
    problems += [] if problems else check_head(path.with_name("head.json"), lines)
    return lines, problems or [*check_files(lab, lines), *check_order(lab, lines)]


def main() -> int:
    """Command line."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    lines, problems = verify(Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{len(lines)} lines hold; last digest {lines[-1]['digest'] if lines else FIRST}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
