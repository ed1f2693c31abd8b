"""`forerun site build|serve`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.options import HERE, LabOption, lab_at

if TYPE_CHECKING:
    from forerun.dashboard.lab_files import Planner

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="The public pages, from the lab's files alone.\n\nExample: forerun site build public --lab my-lab",
)


@app.command(epilog="Example: forerun site build public --lab my-lab")
def build(out: Annotated[Path, typer.Argument(help="folder to write")], lab: LabOption = HERE) -> None:
    """Write the site as files that open from disk or any file host."""
    from forerun.dashboard.build import build_site

    build_site(lab_at(lab), out, _planner())
    print(out / "index.html")


@app.command(epilog="Example: forerun site serve --lab my-lab --port 8080")
def serve(
    lab: LabOption = HERE,
    host: Annotated[str, typer.Option(help="address to listen on; anything but loopback shows the lab to others")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="port to listen on")] = 8000,
    write_token_file: Annotated[
        Path | None, typer.Option(help="file with a secret; who sends it may add rows to runs under /ingest/RUN")
    ] = None,
) -> None:
    """Serve the same pages, live: new points appear as they are written. Read-only unless a write token is given."""
    import sys

    from forerun.dashboard.ingest import read_token
    from forerun.dashboard.serve import serve as listen

    token = read_token(write_token_file) if write_token_file else ""
    print(f"serving {lab} at http://{host}:{port}  (Ctrl-C stops)", file=sys.stderr)
    listen(lab_at(lab), _planner(), host=host, port=port, write_token=token)


def _planner() -> Planner:
    from forerun.dashboard.lab_files import Planner
    from forerun.plan.page_inputs import page_inputs, plan_of, planned_of

    return Planner(plan=plan_of, planned=planned_of, inputs=page_inputs())
