"""`forerun replay`: test the alarms before trusting them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import HERE, LabOption

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def replay(
    runs: Annotated[int, typer.Option(help="healthy runs; each incident gets a third as many")] = 30,
    steps: Annotated[int, typer.Option(help="steps of every made-up run")] = 20_000,
    incident: Annotated[list[str] | None, typer.Option("--incident", help="only incidents whose name contains this; repeat it")] = None,
    seed: Annotated[int, typer.Option(help="first seed")] = 0,
    rungs: Annotated[list[str] | None, typer.Option("--rung", help="make runs with the noise of this run (a source); repeat it")] = None,
    calibrate: Annotated[
        Path | None, typer.Option(help="write limits that at most 5% of the healthy runs exceed, for `watch --limits`")
    ] = None,
    limits: Annotated[Path | None, typer.Option(help="limits to test; the shipped ones by default")] = None,
    shipped: Annotated[bool, typer.Option("--shipped", help="print the shipped tables instead of replaying")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the tables as JSON")] = False,
    lab: LabOption = HERE,
) -> None:
    """Replay healthy runs and planted incidents; print false alarms, detections, delays and diagnoses.

    Example: forerun replay --runs 12 --incident "+1% step"
    """
    from dataclasses import asdict

    import orjson

    from forerun.base.errors import ConfigError
    from forerun.base.files import write_atomic
    from forerun.base.lab import Lab
    from forerun.base.progress import Progress
    from forerun.watch.inputs import load_limits
    from forerun.watch.replay import results
    from forerun.watch.replay.calibrate import limits_from, noise_of
    from forerun.watch.replay.incidents import INCIDENTS
    from forerun.watch.replay.runner import replay_healthy, replay_incident
    from forerun.watch.sources.all import connect

    if shipped:
        print(orjson.dumps(results.shipped()).decode())
        return
    if runs < 1 or steps < 400:
        raise ConfigError(f"--runs must be at least 1 and --steps at least 400, got {runs} and {steps}", hint="the defaults take minutes")
    chosen = [entry for entry in INCIDENTS if not incident or any(word in entry.name for word in incident)]
    if not chosen:
        raise ConfigError(f"no incident is named like {incident}", hint="incidents: " + ", ".join(entry.name for entry in INCIDENTS))
    tested = load_limits(limits)
    noise = noise_of([connect(rung, Lab(lab)).read() for rung in rungs]) if rungs else None
    with Progress("healthy", runs, "runs", quiet=as_json) as progress:
        healthy = replay_healthy(range(seed, seed + runs), steps, noise=noise, limits=tested, done=progress.advance)
    if calibrate is not None:
        moved = limits_from(healthy, tested)
        write_atomic(
            calibrate,
            orjson.dumps({"schema": 1, "limits": {rule: asdict(limit) for rule, limit in moved.items()}}, option=orjson.OPT_INDENT_2),
        )
        print(calibrate)
        return
    seeds = range(seed + 10_000, seed + 10_000 + max(runs // 3, 1))
    with Progress("incidents", len(chosen), "classes", quiet=as_json) as progress:
        found = []
        for entry in chosen:
            found.append(replay_incident(entry, seeds, steps, noise=noise, limits=tested))
            progress.advance(note=entry.name)
    if as_json:
        print(orjson.dumps(results.as_plain(healthy, found)).decode())
    else:
        print("\n".join(results.as_lines(healthy, found)))
