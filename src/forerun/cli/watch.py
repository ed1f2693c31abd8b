"""`forerun watch`: is a run on course, and if not, why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import HERE, LabOption

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def watch(
    source: Annotated[str, typer.Argument(help="run id, or wandb:ENTITY/PROJECT/RUN, tensorboard:DIR, mlflow:..., trackio:..., csv:FILE")],
    forecast: Annotated[Path | None, typer.Option(help="forecast JSON, as written by `forerun forecast`")] = None,
    rungs: Annotated[
        list[str] | None, typer.Option("--rung", help="a healthy smaller run of the same recipe (a source); repeat it")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="judge once and leave; rows without a time are judged as they stand")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the report as JSON, one line a judgement")] = False,
    every: Annotated[str, typer.Option(help="time between judgements: 120s, 2m, 1h")] = "120s",
    notify: Annotated[
        str, typer.Option(help="webhook address or command; told when the state changes or is not on course, report as JSON")
    ] = "",
    limits: Annotated[Path | None, typer.Option(help="limits calibrated by `forerun replay --calibrate`")] = None,
    afterwards: Annotated[bool, typer.Option("--afterwards", help="the run is over: nothing can be late")] = False,
    lab: LabOption = HERE,
) -> int:
    """Say whether a run is on course: 0 on course, 1 off course, 3 cannot tell.

    Example: forerun watch 007-top-k --forecast ledger/forecasts/007.json --once
    """
    import sys
    import time

    import orjson
    from rich.console import Console

    from forerun.base.lab import Lab
    from forerun.watch import live
    from forerun.watch.case import dated
    from forerun.watch.course import judge
    from forerun.watch.inputs import load_forecast, load_limits
    from forerun.watch.screen import screen
    from forerun.watch.sources.all import connect

    home = Lab(lab)
    promise, calibrated = load_forecast(forecast), load_limits(limits)
    every_s = live.seconds(every)
    healthy = [connect(rung, home).read() for rung in rungs or []]
    run = connect(source, home)
    telling = live.Telling(notify)
    if once:
        record = run.read()
        as_it_stands = afterwards or not dated(record)
        report = judge(record, promise, rungs=healthy, now=None if as_it_stands else time.time(), limits=calibrated)
        if as_json:
            print(orjson.dumps(report.as_json()).decode())
        else:
            Console().print(screen(record, report))
        if any("record_stale" in finding.signals for finding in report.findings):
            print("a run that is over is judged with --afterwards", file=sys.stderr)
        if failure := telling.hear(report):
            print(f"--notify: {failure}", file=sys.stderr)
        return report.exit_code
    console = Console()
    for record, report, problem in live.watch(run, promise, every_s=every_s, limits=calibrated, rungs=healthy):
        if report is None or record is None:
            print(problem, file=sys.stderr)
            continue
        if as_json:
            print(orjson.dumps(report.as_json()).decode(), flush=True)
        else:
            console.clear()
            console.print(screen(record, report))
        if failure := telling.hear(report):
            print(f"--notify: {failure}", file=sys.stderr)
    return 0
