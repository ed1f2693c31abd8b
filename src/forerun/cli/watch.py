"""`forerun watch`: is a run on course, and if not, why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def watch(
    source: Annotated[str, typer.Argument(help="run id, or wandb:ENTITY/PROJECT/RUN, tensorboard:DIR, mlflow:..., trackio:..., csv:FILE")],
    forecast: Annotated[Path | None, typer.Option(help="forecast JSON, as written by `forerun forecast`")] = None,
    once: Annotated[bool, typer.Option("--once", help="judge once and leave")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the report as JSON")] = False,
    lab: Annotated[Path, typer.Option(help="folder of the lab")] = Path("."),
) -> int:
    """Say whether a run is on course: 0 on course, 1 off course, 3 cannot tell.

    Example: forerun watch 007-top-k --forecast ledger/forecasts/007.json --once
    """
    import orjson

    from forerun.base.lab import Lab
    from forerun.record.reader import open_run
    from forerun.watch.course import judge

    record = open_run(Lab(lab).run(source))
    promise = orjson.loads(forecast.read_bytes()) if forecast else None
    report = judge(record, promise)
    print(orjson.dumps(report.as_json()).decode() if as_json else report.words())
    return report.exit_code
