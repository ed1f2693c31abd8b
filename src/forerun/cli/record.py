"""`forerun record`: look at runs, bring foreign ones in, take own ones out, serve the W&B endpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from forerun.base import units
from forerun.cli.options import HERE, JsonOption, LabOption

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Look at the records of runs, import and export them.\n\nExample: forerun record show 007-top-k",
)


@app.command("list")
def list_(lab: LabOption = HERE, as_json: JsonOption = False) -> None:
    """All runs of the lab, newest first. Example: forerun record list"""
    from dataclasses import asdict

    import orjson

    from forerun.base.lab import Lab
    from forerun.record.catalogue import list_runs

    lines = list_runs(Lab(lab))
    if as_json:
        print(orjson.dumps([asdict(line) for line in lines]).decode())
        return
    if not lines:
        print(f"no run in {Lab(lab).runs}", file=sys.stderr)
    for line in lines:
        print(
            f"{line.run_id}  {_where(line.last_step, line.num_steps)}  {'registered' if line.registered else 'unregistered'}  {line.experiment}"
        )


@app.command()
def show(run: str, lab: LabOption = HERE, as_json: JsonOption = False) -> None:
    """Metrics, segments and events of one run. Example: forerun record show 007-top-k"""
    import msgspec
    import orjson

    from forerun.base.lab import Lab
    from forerun.record.reader import open_run

    record = open_run(Lab(lab).run(run))
    series = {metric: record.series(metric) for metric in record.metrics()}
    events = record.events()
    if as_json:
        last = {
            metric: {"rows": len(part), "last_step": int(part.step[-1]), "last": part.last} for metric, part in series.items() if len(part)
        }
        plain = {
            "info": msgspec.to_builtins(record.info),
            "last_step": record.last_step,
            "torn_lines": record.num_torn_lines,
            "metrics": last,
            "events": events,
        }
        print(orjson.dumps(plain).decode())
        return
    print(
        f"{record.info.run_id}  {_where(record.last_step, record.info.num_steps)}  "
        f"{units.counted(record.num_torn_lines, 'torn line')}  {units.counted(len(events), 'event')}"
    )
    for number, segment in enumerate(record.info.segments):
        print(f"  segment {number} from step {segment.first_step:,}  {segment.kind} {segment.changed}".rstrip())
    for metric, part in series.items():
        print(f"  {metric}  {len(part):,} rows  last {part.last:.6g}")


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(help="what `forerun watch` takes")],
    as_: Annotated[str, typer.Option("--as", help="name of the run in the lab")],
    lab: LabOption = HERE,
) -> None:
    """Copy a foreign run into the lab. Example: forerun record import tensorboard:logs/ --as borrowed"""
    from forerun.base.lab import Lab
    from forerun.record.copy import copy_run
    from forerun.watch.sources.all import connect

    rows = copy_run(connect(source, Lab(lab)).read(), Lab(lab), as_)
    print(f"{as_}  {rows:,} rows")


@app.command()
def export(
    run: str,
    to: Annotated[str, typer.Option(help="tensorboard, csv or parquet")],
    out: Annotated[Path, typer.Option(help="file, or folder for tensorboard")],
    lab: LabOption = HERE,
) -> None:
    """Write a run for another tool. Example: forerun record export 007-top-k --to csv --out run.csv"""
    from forerun.base.lab import Lab
    from forerun.record.export import export as write
    from forerun.record.reader import open_run

    print(write(open_run(Lab(lab).run(run)), to, out))


@app.command()
def query(run: str, sql: str, lab: LabOption = HERE, as_json: JsonOption = False) -> None:
    """SQL over the table `metrics`. Example: forerun record query 007 "SELECT max(step), min(loss_nats) FROM metrics" """
    import orjson

    from forerun.base.lab import Lab
    from forerun.record.query import query as ask
    from forerun.record.reader import open_run

    names, rows = ask(open_run(Lab(lab).run(run)), sql)
    if as_json:
        print(orjson.dumps([dict(zip(names, row)) for row in rows], default=str).decode())
        return
    print("\t".join(names))
    for row in rows:
        print("\t".join(str(value) for value in row))


@app.command()
def catalogue(lab: LabOption = HERE) -> None:
    """Rebuild the SQLite catalogue from the files. Example: forerun record catalogue"""
    from forerun.base.lab import Lab
    from forerun.record.catalogue import rebuild

    print(rebuild(Lab(lab)))


@app.command("serve-wandb")
def serve_wandb(port: Annotated[int, typer.Option(min=1, max=65_535, help="on 127.0.0.1")] = 8931, lab: LabOption = HERE) -> None:
    """Take what W&B-instrumented trainers log. Example: forerun record serve-wandb, then WANDB_BASE_URL=http://127.0.0.1:8931"""
    import uvicorn

    from forerun.base.lab import Lab
    from forerun.base.listening import listening
    from forerun.record.ingest.server import application

    place = listening("127.0.0.1", port)
    print(f"listening; run trainers with WANDB_BASE_URL=http://127.0.0.1:{port} and any 40-character WANDB_API_KEY", file=sys.stderr)
    uvicorn.Server(uvicorn.Config(application(Lab(lab)), log_level="warning")).run(sockets=[place])


def _where(last_step: int, num_steps: int) -> str:
    """Planned steps are not known of a foreign run."""
    return f"step {last_step:,}" + (f"/{num_steps:,}" if num_steps else "") if last_step >= 0 else "no step yet"
