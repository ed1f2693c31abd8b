"""`forerun demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import JsonOption, lab_at, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun demo --quick --lab /tmp/lab")
def demo(
    lab: Annotated[Path, typer.Option("--lab", help="folder of the lab; made if it does not exist")] = Path("lab"),
    quick: Annotated[bool, typer.Option("--quick", help="the same steps at smaller sizes, a few minutes")] = False,
    corpus: Annotated[str, typer.Option(help="packages, debian, or a folder of your own text")] = "packages",
    seed: Annotated[int, typer.Option(help="of parameters and data order; another seed is another trial of the forecast")] = 0,
    as_json: JsonOption = False,
) -> int:
    """The whole chain on real text: data, ladder, forecast, promise, run, verdict, site. Killed, it continues."""
    import sys
    from dataclasses import replace

    from forerun.base import units
    from forerun.demo.run import run_demo
    from forerun.demo.settings import FULL, QUICK

    settings = replace(QUICK if quick else FULL, seed=seed)
    outcome = run_demo(lab_at(lab), settings, corpus=corpus, say=lambda words: print(words, file=sys.stderr, flush=True))
    if as_json:
        print_json(outcome)
        return 0
    print(f"\n{outcome.verdict.words}")
    print("time: " + ", ".join(f"{part} {units.duration(seconds)}" for part, seconds in outcome.seconds.items()))
    print(f"site: {outcome.site / 'index.html'}   (open it, or `forerun site serve --lab {lab}`)")
    return 0
