"""What happens to a promise after launch: amendments and the one closing."""

from __future__ import annotations

from typing import Any, Literal, get_args

from forerun.base.errors import RegistryError
from forerun.base.lab import Lab
from forerun.registry import ledger
from forerun.registry.gate import closed
from forerun.registry.register import Registration, registrations

Outcome = Literal["succeeded", "failed", "stopped", "crashed", "abandoned", "inconclusive"]


def registration_of(lab: Lab, experiment: str) -> Registration:
    """The promise of an experiment by folder name, or by its number alone."""
    for registration in registrations(lab):
        if registration.experiment == experiment or registration.experiment.split("-")[0] == experiment:
            return registration
    known = ", ".join(registration.experiment for registration in registrations(lab)) or "none yet"
    raise RegistryError(f"no experiment {experiment!r} is registered", hint=f"registered: {known}")


def amend(lab: Lab, experiment: str, *, reason: str, what: str, at_step: int, expected: str, control: str) -> ledger.Entry:
    """Declare a mid-course change. Raises: RegistryError when the experiment is unknown or closed, or a text is empty."""
    registration = _open(lab, experiment)
    for name, text in (("reason", reason), ("what", what), ("expected", expected)):
        if not text.strip():
            raise RegistryError(f"amendment {name} must not be empty", hint="say in one sentence what a reader needs to judge the change")
    if at_step < 0:
        raise RegistryError(f"amendment at_step must not be negative, got {at_step}", hint="the step from which the change holds")
    body: dict[str, Any] = {"experiment": registration.experiment, "registration": registration.id, "reason": reason, "what": what}
    return ledger.append(lab, "amendment", body | {"at_step": at_step, "expected": expected, "control": control})


def close(lab: Lab, experiment: str, outcome: str, *, note: str = "", fraction_done: float = 1.0) -> ledger.Entry:
    """Say how an experiment ended, once and for all. A run that died stays listed with the fraction it got to."""
    registration = _open(lab, experiment)
    if outcome not in get_args(Outcome):
        raise RegistryError(f"outcome must be one of {', '.join(get_args(Outcome))}, got {outcome!r}", hint="choose the nearest")
    if not 0 <= fraction_done <= 1:
        raise RegistryError(f"fraction_done must lie in 0..1, got {fraction_done}", hint="1 when the run reached its end")
    body = {
        "experiment": registration.experiment,
        "registration": registration.id,
        "outcome": outcome,
        "note": note,
        "fraction_done": fraction_done,
    }
    return ledger.append(lab, "closing", body)


def amendments_of(lab: Lab, experiment: str) -> list[ledger.Entry]:
    """Declared changes of an experiment, in order."""
    return [entry for entry in ledger.read(lab) if entry.kind == "amendment" and entry.body["experiment"] == experiment]


def never_closed(lab: Lab) -> list[Registration]:
    """Promises nobody has said the end of."""
    ended = closed(lab)
    return [registration for registration in registrations(lab) if registration.experiment not in ended]


def _open(lab: Lab, experiment: str) -> Registration:
    registration = registration_of(lab, experiment)
    if registration.experiment in closed(lab):
        raise RegistryError(f"experiment {registration.experiment!r} is closed", hint="a closed experiment stays as it is; start a new one")
    return registration
