"""`forerun bench forecast`: the public benchmark of forecasts, as a table against what usual methods get."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Benchmarks on shipped public data.\n\nExample: forerun bench forecast")


@app.callback()
def main() -> None:
    pass


@app.command(
    help="Forecasts on public ladders against their outcomes, about two minutes (nearly all of it the usual fits).\n\nExample: forerun bench forecast --json"
)
def forecast(
    as_json: Annotated[bool, typer.Option("--json", help="rows and tasks as JSON")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="also keep the result in the package, where the site reads it")] = False,
    out: Annotated[Path | None, typer.Option(help="also write the result to this file")] = None,
) -> int:
    from dataclasses import asdict

    from forerun.ladder.bench import run_bench
    from forerun.ladder.bench_result import STORED, result_of
    from forerun.ladder.bench_result import keep as store
    from forerun.ladder.text import bench_text

    rows, tasks = run_bench()
    result = result_of(rows, tasks)
    print(json.dumps(asdict(result)) if as_json else bench_text(rows, tasks))
    for path in (STORED if keep else None, out):
        if path is not None:
            print(f"wrote {store(result, path)}", file=sys.stderr)
    return 0 if all(row.met for row in rows) else 1
