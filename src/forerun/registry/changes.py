"""What happens to a promise after launch: amendments and the one closing."""

from __future__ import annotations

from typing import Any, Literal, get_args

from forerun.base.config import digest_of
from forerun.base.errors import RegistryError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.record.reader import open_run
from forerun.registry import ledger
from forerun.registry.gate import closed
from forerun.registry.naming import named
from forerun.registry.register import Registration, registrations

Outcome = Literal["succeeded", "failed", "stopped", "crashed", "abandoned", "inconclusive"]


def registration_of(lab: Lab, experiment: str) -> Registration:
    """The promise of an experiment by name, number or slug."""
    known = {registration.experiment: registration for registration in registrations(lab)}
    return known[named(experiment, list(known), where="is registered")]


def amend(
    lab: Lab,
    experiment: str,
    *,
    reason: str,
    what: str,
    at_step: int,
    expected: str,
    control: str,
    config: dict[str, Any] | None = None,
) -> ledger.Entry:
    """Declare a mid-course change, before it is made.

    Args:
        at_step: last step before the change.
        config: the run config from then on; when it differs from the ones allowed so far it is frozen as `config-<digest>.json`,
            and the launch gate lets it pass. None when the change is not one of the config.
    Raises: RegistryError when the experiment is unknown or closed, a text is empty, or another experiment promises that config.
    """
    registration = _open(lab, experiment)
    for name, text in (("reason", reason), ("what", what), ("expected", expected)):
        if not text.strip():
            raise RegistryError(f"amendment {name} must not be empty", hint="say in one sentence what a reader needs to judge the change")
    if at_step < 0:
        raise RegistryError(f"amendment at_step must not be negative, got {at_step}", hint="the step from which the change holds")
    body: dict[str, Any] = {"experiment": registration.experiment, "registration": registration.id, "reason": reason, "what": what}
    body |= {"at_step": at_step, "expected": expected, "control": control}
    if config is not None and digest_of(config) not in allowed_configs(lab, registration):
        for other in registrations(lab):
            if digest_of(config) in allowed_configs(lab, other):
                raise RegistryError(f"this config is promised by experiment {other.experiment!r}", hint="change the config")
        body["config_digest"] = digest_of(config)
        write_json(lab.experiments / registration.experiment / f"config-{body['config_digest'][:12]}.json", config)
    return ledger.append(lab, "amendment", body)


def allowed_configs(lab: Lab, registration: Registration) -> set[str]:
    """Digests of the configs an experiment may run: the registered one and those its amendments declare."""
    amended = (entry.body.get("config_digest") for entry in amendments_of(lab, registration.experiment))
    return {registration.config_digest, *(digest for digest in amended if digest)}


def close(lab: Lab, experiment: str, outcome: str, *, note: str = "", fraction_done: float | None = None) -> ledger.Entry:
    """Say how an experiment ended, once and for all. A run that died stays listed with the fraction it got to.

    Args:
        fraction_done: share of the planned run; None takes it from the record of its runs, 0 when there is none.
    """
    registration = _open(lab, experiment)
    fraction_done = fraction_of(lab, registration) if fraction_done is None else fraction_done
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


def fraction_of(lab: Lab, registration: Registration) -> float:
    """How far the furthest run under a promise got, as a share of its planned steps."""
    done = 0.0
    for path in lab.runs.glob("*/run.json"):
        record = open_run(path.parent)
        if record.info.registration_id == registration.id:
            done = max(done, min(1.0, max(record.last_step, 0) / max(record.info.num_steps, 1)))
    return done


def amendments_of(lab: Lab, experiment: str) -> list[ledger.Entry]:
    """Declared changes of an experiment, in order."""
    return [entry for entry in ledger.read(lab) if entry.kind == "amendment" and entry.body["experiment"] == experiment]


def _open(lab: Lab, experiment: str) -> Registration:
    registration = registration_of(lab, experiment)
    if registration.experiment in closed(lab):
        raise RegistryError(f"experiment {registration.experiment!r} is closed", hint="a closed experiment stays as it is; start a new one")
    return registration
