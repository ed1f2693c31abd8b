"""`forerun verify`."""

from __future__ import annotations

import typer

from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun verify --lab my-lab")
def verify(lab: LabOption = HERE, as_json: JsonOption = False) -> int:
    """Check the ledger to the byte: chain, digests, order of promises and runs. Exit code 1 when something was changed."""
    from forerun.registry.verifier import verify as check

    lines, problems = check(lab_at(lab).root)
    if as_json:
        print_json({"lines": len(lines), "problems": problems, "head": lines[-1]["digest"] if lines else ""})
    else:
        print("\n".join(problems) if problems else f"{len(lines)} lines hold; last digest {lines[-1]['digest'] if lines else 'none'}")
    return 1 if problems else 0
