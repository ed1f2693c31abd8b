"""`forerun bench forecast`: the public benchmark of forecasts, as a table against what usual methods get."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Benchmarks on shipped public data.\n\nExample: forerun bench forecast")


@app.callback()
def main() -> None:
    pass


@app.command(
    help="Forecasts on public ladders against their outcomes, about two minutes (nearly all of it the usual fits).\n\nExample: forerun bench forecast --json"
)
def forecast(as_json: Annotated[bool, typer.Option("--json", help="rows and tasks as JSON")] = False) -> int:
    from dataclasses import asdict

    from forerun.ladder.bench import run_bench
    from forerun.ladder.text import bench_text

    rows, tasks = run_bench()
    print(
        json.dumps({"rows": [asdict(row) for row in rows], "tasks": [asdict(task) for task in tasks]})
        if as_json
        else bench_text(rows, tasks)
    )
    return 0 if all(row.met for row in rows) else 1
