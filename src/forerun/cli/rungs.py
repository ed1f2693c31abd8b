"""Training a folder of run configs, rungs of a ladder or mixtures of a swarm, under the promises they have or get."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from forerun.registry.register import Registration
    from forerun.train.config import RunConfig

OwnerOption = Annotated[str, typer.Option(help="register runs that have no promise yet, in this name")]
UnregisteredOption = Annotated[bool, typer.Option("--unregistered", help="run without a promise; the record says so for ever")]


def train_folder(folder: Path, lab: Path, *, claim: Mapping[str, str], owner: str, unregistered: bool, as_json: bool) -> int:
    """Train every run of the folder that is not finished, and print how far each is. Returns 1 when one did not get to its end.

    Args:
        claim: what runs that are registered here are promised for.
        owner: in whose name they are registered; when empty, every run must have a promise.
    """
    from forerun.base.config import digest_of
    from forerun.base.lab import Lab
    from forerun.ladder.folder import read_plan
    from forerun.ladder.promise import promise_rung
    from forerun.ladder.run import run_ladder
    from forerun.ladder.text import status_rows, status_text
    from forerun.registry.gate import require_registered
    from forerun.train.loop import train

    where = Lab(lab)

    def registration_of(config: RunConfig) -> Registration | None:
        if unregistered:
            return None
        return promise_rung(config, where, owner=owner, claim=claim) if owner else require_registered(where, digest_of(config))

    done = run_ladder(
        read_plan(folder),
        where,
        train=train,
        registration_of=registration_of,
        on_rung=lambda rung: print(f"{rung.run_id}: {rung.state}", file=sys.stderr),
    )
    print(json.dumps(status_rows(done)) if as_json else status_text(done))
    return 0 if all(rung.state == "finished" for rung in done) else 1
