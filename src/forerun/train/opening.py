"""What happens before the first step: devices, the segment of the record a start or restart opens, and who writes it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import jax
from jax.sharding import Mesh

from forerun.base.config import digest_of, plain
from forerun.base.errors import ConfigError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.parallel.config import check_counts, check_header_ids
from forerun.parallel.mesh import build_mesh
from forerun.parallel.processes import is_first
from forerun.record.journal import Journal
from forerun.record.mirror import Mirror
from forerun.record.reader import open_run
from forerun.record.run import load_run, start_run
from forerun.registry.register import Registration
from forerun.train.config import RunConfig
from forerun.train.pulse import SignsOfLife

RECORDED_VERSIONS = ("forerun", "jax", "jaxlib", "numpy", "orbax-checkpoint")


def mesh_of(config: RunConfig) -> Mesh | None:
    """The run's mesh, or None on one device. Raises: ConfigError for too few devices, ids that rows cannot carry, counts beyond 32 bits."""
    if config.model.num_experts:
        num_tokens = config.train.batch_tokens // config.train.num_microbatches
        check_counts(num_tokens, config.model.top_k, config.model.num_experts, config.mesh, config.transport)
    if config.transport.kind == "pooled_wave" and config.model.num_experts:
        check_header_ids(config.model.num_experts // config.mesh.expert, config.train.compute_dtype)
    return build_mesh(config.mesh) if config.mesh.num_devices > 1 else None


def check_vocabulary(config: RunConfig, num_ids: int) -> None:
    """Raises: ConfigError when the store holds ids the model has no row for; XLA clamps them in silence."""
    if config.model.vocab_size < num_ids:
        raise ConfigError(
            f"model.vocab_size must be at least {num_ids:,}, the vocabulary of the store, got {config.model.vocab_size:,}",
            hint=f"set model.vocab_size={num_ids}, or train on a store made with a smaller tokenizer",
        )


def declared_change(lab: Lab, run_id: str, registration: Registration | None, config_digest: str) -> str:
    """What an amendment says of a config that differs from the one the run had so far; empty for a plain start or restart.

    Raises: ConfigError when the run was started under another promise: a run is registered, or not, for ever.
    """
    if not (lab.run(run_id) / "run.json").exists():
        return ""
    info = load_run(lab.run(run_id))
    if info.registration_id != (registration.id if registration else None):
        raise ConfigError(
            f"run {run_id!r} was started under {info.registration_id or 'no promise'} and goes on that way only",
            hint="start another run with --run-id",
        )
    return registration.change if registration and info.config_digest != config_digest else ""


def open_segment(config: RunConfig, run_dir: Path, registration: Registration | None, *, first: int, change: str) -> None:
    """Enter a start, restart or change into the run's lineage, and freeze the config beside it.

    Args:
        first: finished steps so far.
        change: what differs from the segment before; empty when nothing does.
    """
    start_run(
        run_dir,
        num_steps=config.train.num_steps,
        experiment=registration.experiment if registration else "",
        registration_id=registration.id if registration else None,
        unregistered=registration is None,
        config_digest=digest_of(config),
        versions={name: version(name) for name in RECORDED_VERSIONS},
        first_step=first + 1,
        changed=change,
    )
    write_json(run_dir / "config.json", config)


def journal_of(config: RunConfig, lab: Lab, run_id: str, mirror: str) -> Journal | SignsOfLife:
    """The writer of this process: the record for the first one, with a mirror when asked for, signs of life for the others."""
    run_dir, rank = lab.run(run_id), jax.process_index()
    if not is_first():
        return SignsOfLife(run_dir, rank)
    if not mirror:
        return Journal(run_dir, rank)
    project = lab.root.resolve().name
    return Journal(run_dir, rank, mirror=Mirror(mirror, project=project, run_id=run_id, folder=run_dir, config=plain(config)))


def last_evaluation(lab: Lab, run_id: str) -> dict[str, float]:
    """Of a run that needs no more steps."""
    record = open_run(lab.run(run_id))
    names = [name for name in record.metrics() if name.startswith("eval")]
    return {name: float(record.series(name).value[-1]) for name in names}
