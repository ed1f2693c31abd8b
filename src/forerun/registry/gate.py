"""The launch gate: a run starts under a promise that is about exactly its config, or not at all."""

from __future__ import annotations

from dataclasses import replace

from forerun.base.errors import RegistryError
from forerun.base.lab import Lab
from forerun.registry import ledger
from forerun.registry.register import Registration, registrations


def require_registered(lab: Lab, config_digest: str) -> Registration:
    """The open promise about this config, registered at first or by an amendment (then `change` says what it declares).

    Raises: RegistryError when there is none, or when it is closed.
    """
    amended = {
        entry.body["experiment"]: entry.body["what"]
        for entry in ledger.read(lab)
        if entry.kind == "amendment" and entry.body.get("config_digest") == config_digest
    }
    for registration in registrations(lab):
        if registration.config_digest == config_digest or registration.experiment in amended:
            if registration.experiment in closed(lab):
                raise RegistryError(f"experiment {registration.experiment!r} is closed", hint="start a new experiment with `forerun new`")
            return replace(registration, change=amended.get(registration.experiment, ""))
    raise RegistryError(
        f"no registered experiment has the config {config_digest[:12]}",
        hint="`forerun register EXPERIMENT` promises it; --unregistered runs it anyway and marks the record for ever",
    )


def closed(lab: Lab) -> dict[str, str]:
    """Outcome of every closed experiment by name."""
    return {entry.body["experiment"]: entry.body["outcome"] for entry in ledger.read(lab) if entry.kind == "closing"}
