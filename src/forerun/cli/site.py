"""`forerun site build|serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import HERE, LabOption, lab_at

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The public pages, from the lab's files alone.")


@app.command(epilog="Example: forerun site build public --lab my-lab")
def build(out: Annotated[Path, typer.Argument(help="Folder to write.")], lab: LabOption = HERE) -> None:
    """Write the site as files that open from disk or any file host."""
    from forerun.dashboard.build import build_site

    build_site(lab_at(lab), out)
    print(out / "index.html")


@app.command(epilog="Example: forerun site serve --lab my-lab --port 8080")
def serve(
    lab: LabOption = HERE,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
) -> None:
    """Serve the same pages, rebuilt as the lab changes; read-only."""
    import sys

    from forerun.dashboard.serve import serve as listen

    print(f"serving {lab} at http://{host}:{port}  (Ctrl-C stops)", file=sys.stderr)
    listen(lab_at(lab), host, port)
