"""From what was asked on the command line to one planned run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from forerun.base.config import decode, with_overrides
from forerun.base.errors import ConfigError
from forerun.base.lab import Lab
from forerun.model import count
from forerun.model.hf_config import read_settings
from forerun.parallel.config import MeshConfig, Transport
from forerun.plan.length import num_steps
from forerun.plan.presets import hugging_face_run, preset
from forerun.plan.run import PlannedRun, parse_mesh, planned
from forerun.train.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Question:
    """A source, and what is to be different from it."""

    source: str = ""
    """Experiment folder, its name under the lab's experiments, or a config.json, of a run or of a Hugging Face model."""
    preset: str = ""
    mesh: str = ""
    num_devices: int = 0
    """0 leaves the source's mesh."""
    transport: str = ""
    tokens_per_active_param: float | None = None
    changes: tuple[str, ...] = ()
    """`field=value` on the run: `model.top_k=4`, `batch_size=512`."""
    lab: Path = Path(".")


def run_of(question: Question) -> PlannedRun:
    """The run meant. Raises: ConfigError naming the flag or field that breaks a rule."""
    if bool(question.source) == bool(question.preset):
        raise ConfigError(
            "plan needs one experiment or one --preset, got " + ("both" if question.source else "neither"),
            hint="for example forerun plan --preset marin-hero",
        )
    run = preset(question.preset) if question.preset else _from_experiment(question)
    if question.changes:
        run = with_overrides(run, list(question.changes))
    if question.transport:
        if question.transport not in get_args(Transport):
            raise ConfigError(
                f"--transport must be one of {', '.join(get_args(Transport))}, got {question.transport!r}", hint="ragged sends no padding"
            )
        run = with_overrides(run, [f'transport.kind="{question.transport}"'])
    if question.tokens_per_active_param is not None:
        steps = num_steps(
            num_active_params=count.num_active_params(run.model),
            batch_tokens=run.batch_tokens,
            tokens_per_active_param=question.tokens_per_active_param,
        )
        run = replace(run, num_steps=steps)
    run = _on_mesh(run, question)
    if run.transport.kind == "local" and run.mesh.expert > 1:
        raise ConfigError(
            f"mesh.expert must be 1 with transport.kind 'local', got {run.mesh.expert}",
            hint="add --transport ragged, or another transport that moves rows",
        )
    return run


def _from_experiment(question: Question) -> PlannedRun:
    path = Path(question.source)
    tried = [path / "config.json", path, Lab(question.lab).experiments / question.source / "config.json"]
    for candidate in tried:
        if candidate.is_file():
            settings = read_settings(candidate)
            foreign = "model_type" in settings or "architectures" in settings
            return hugging_face_run(candidate, settings) if foreign else planned(decode(settings, RunConfig, where=str(candidate)))
    raise ConfigError(
        f"no config.json for experiment {question.source!r}", hint="register the experiment first, or name its folder or config.json"
    )


def _on_mesh(run: PlannedRun, question: Question) -> PlannedRun:
    if question.num_devices < 0:
        raise ConfigError(f"--devices must be at least 1, got {question.num_devices}", hint="leave it out for the source's own mesh")
    if question.mesh:
        mesh = parse_mesh(question.mesh)
        if question.num_devices and question.num_devices != mesh.num_devices:
            raise ConfigError(
                f"--mesh {question.mesh} must multiply to --devices={question.num_devices}, got {mesh.num_devices}",
                hint="change one of them, or leave --devices out",
            )
        return replace(run, mesh=mesh)
    if question.num_devices:
        expert = math.gcd(question.num_devices, run.model.num_experts) if run.model.num_experts else 1
        return replace(run, mesh=MeshConfig(data=question.num_devices // expert, expert=expert))
    return run
