"""One run from start to end: restore or begin, step, watch for trouble, evaluate, save, record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import jax

from forerun.base.config import digest_of
from forerun.base.errors import CheckFailed, ConfigError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.base.progress import Progress
from forerun.loader.batches import Batches
from forerun.loader.prefetch import Fetched, Prefetcher
from forerun.loader.store import TokenStore, open_store
from forerun.optim.schedule import schedule
from forerun.record.journal import Journal
from forerun.record.reader import open_run
from forerun.record.run import load_run, start_run
from forerun.registry.live import LiveRules
from forerun.registry.register import Registration
from forerun.train.checkpoint import Checkpoints
from forerun.train.config import RunConfig
from forerun.train.evaluate import Evaluator
from forerun.train.memory import memory_gib
from forerun.train.metrics import Rows
from forerun.train.promised import live_rules
from forerun.train.state import TrainState, init_state
from forerun.train.step import StepReport, build_step, model_batch

OnEval = Callable[[int, dict[str, float]], str]
"""Told the step and the evaluation row; what it returns is shown beside the progress."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended."""

    run_id: str
    num_steps: int
    evaluation: dict[str, float]
    """The last one."""
    seconds: float
    """Of this process, compilation included."""


@dataclass
class _Pending:
    """A step whose numbers are still on the device."""

    step: int
    report: StepReport
    fetched: Fetched
    started: float


def train(
    config: RunConfig, lab: Lab, *, run_id: str, registration: Registration | None, on_eval: OnEval | None = None, quiet: bool = False
) -> RunResult:
    """Train a run to its end, from its newest good checkpoint if there is one; the same call continues a killed run.

    Args:
        registration: the promise it runs under; None marks the record as unregistered for ever.
    Raises: CheckFailed when the run ends as crashed under its own policy; ConfigError when it cannot start.
    """
    began = time.perf_counter()
    _check_devices(config)
    jax.config.update("jax_compilation_cache_dir", str(lab.root / "cache" / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    store = open_store(lab, config.data.manifest)
    run_dir, config_digest = lab.run(run_id), digest_of(config)
    checkpoints = Checkpoints(
        run_dir / "checkpoints",
        config_digest=config_digest,
        num_rolling=config.checkpoint.num_rolling,
        milestones=frozenset(_at(config, fraction) for fraction in config.checkpoint.milestones),
    )
    state = init_state(config)
    restored = checkpoints.restore_newest(state)
    first = restored.step if restored else 0
    state = restored.state if restored else state
    if first >= config.train.num_steps:
        return RunResult(run_id=run_id, num_steps=first, evaluation=_last_evaluation(lab, run_id), seconds=time.perf_counter() - began)
    start_run(
        run_dir,
        num_steps=config.train.num_steps,
        experiment=registration.experiment if registration else "",
        registration_id=registration.id if registration else None,
        unregistered=registration is None,
        config_digest=config_digest,
        versions={name: version(name) for name in ("forerun", "jax", "jaxlib", "numpy", "orbax-checkpoint")},
        first_step=first + 1,
        changed=_declared_change(lab, run_id, registration, config_digest),
    )
    write_json(run_dir / "config.json", config)
    rules = live_rules(config, registration, open_run(run_dir))
    with Journal(run_dir) as journal:
        promised = registration.id if registration else None
        journal.event(
            "start", first, registration_id=promised, resumed=first > 0, devices=jax.device_count(), transport=config.transport.kind
        )
        for refusal in restored.refused if restored else ():
            journal.event("checkpoint_refused", first, reason=refusal)
        evaluation = _run(config, store, state, first, journal, checkpoints, on_eval, quiet, run_id, rules)
        journal.event("end", config.train.num_steps)
    return RunResult(run_id=run_id, num_steps=config.train.num_steps, evaluation=evaluation, seconds=time.perf_counter() - began)


def _run(
    config: RunConfig,
    store: TokenStore,
    state: TrainState,
    first: int,
    journal: Journal,
    checkpoints: Checkpoints,
    on_eval: OnEval | None,
    quiet: bool,
    run_id: str,
    rules: LiveRules,
) -> dict[str, float]:
    num_steps, train_config = config.train.num_steps, config.train
    batches = Batches(store, config.data, num_steps=num_steps, batch_size=train_config.batch_size, seq_len=train_config.seq_len)
    step_fn, evaluator, rows = build_step(config), Evaluator(config, store), Rows(config)
    factor_at = schedule(config.optim.schedule, num_steps)
    factors = jax.vmap(factor_at)(jax.numpy.arange(num_steps))
    factors = [float(factor) for factor in jax.device_get(factors)]
    evals, saves = _moments(config, config.eval.every_fraction), _moments(config, config.checkpoint.every_fraction)
    evaluation: dict[str, float] = {}
    pending: _Pending | None = None

    def settle(finished: _Pending, now: float) -> None:
        row = rows.row(finished.report, step_time_s=now - finished.started, learning_factor=factors[finished.step - 1])
        row |= {"loader_wait_s": finished.fetched.wait_s, "loader_occupancy": finished.fetched.occupancy}
        if not bool(finished.report.finite):
            _on_nonfinite(config, journal, finished.step, row)
        journal.log(finished.step, row)
        obey(finished.step, row)
        progress.advance(
            train_config.batch_tokens, note=f"step {finished.step}/{num_steps}  loss_nats {row['loss_nats']:.3f}  {word}".rstrip()
        )

    def obey(step: int, row: dict[str, float]) -> None:
        for fired in rules.observe(step, row):
            journal.event("rule", step, promised=fired.kind, rule=fired.rule)
            if fired.kind != "alarm":
                stopped_by.append(fired.rule)

    word, stopped_by = "", list[str]()
    with (
        Prefetcher(batches.batch, first, num_steps) as loader,
        Progress(run_id, config.train.train_tokens, "tokens", done=first * train_config.batch_tokens, quiet=quiet) as progress,
    ):
        for fetched in loader:
            started = time.perf_counter()
            state, report = step_fn(state, model_batch(fetched.batch))
            if pending is not None:
                settle(pending, started)
            done = fetched.step + 1
            pending = _Pending(done, report, fetched, started)
            if done in evals or done in saves or done == num_steps:
                jax.block_until_ready(report)
                settle(pending, time.perf_counter())
                pending = None
            if done in evals:
                evaluation = evaluator(state)
                journal.log(done, {**evaluation, "memory_gib": memory_gib(), "skipped_steps": float(state.num_skipped)})
                obey(done, evaluation)
                word = on_eval(done, evaluation) if on_eval else ""
            if stopped_by and pending is not None:
                jax.block_until_ready(report)
                settle(pending, time.perf_counter())
                pending = None
            if done in saves or stopped_by:
                journal.log(done, {"checkpoint_time_s": checkpoints.save(state, done)})
            if stopped_by:
                raise CheckFailed(
                    f"step {done} of {num_steps}: the promised rule holds: {stopped_by[0]}",
                    hint="`forerun close EXPERIMENT --outcome stopped`; the checkpoint and the record are kept",
                )
    assert step_fn._cache_size() == 1, "the step was compiled more than once"  # type: ignore[attr-defined]
    return evaluation


def _on_nonfinite(config: RunConfig, journal: Journal, step: int, row: dict[str, float]) -> None:
    journal.event("nonfinite", step, loss_nats=row["loss_nats"], grad_norm=row["grad_norm"], policy=config.spikes.on_nonfinite)
    skipped = len([event for event in open_run(journal.folder.parent).events("nonfinite")])
    if config.spikes.on_nonfinite == "stop" or skipped > config.spikes.max_skips:
        journal.event("crash", step, reason="non-finite loss or gradient")
        raise CheckFailed(
            f"step {step} gave a non-finite loss or gradient ({skipped} so far, spikes.max_skips={config.spikes.max_skips})",
            hint="the record names the step; lower the learning rate, or declare another policy with `forerun amend`",
        )


def _declared_change(lab: Lab, run_id: str, registration: Registration | None, config_digest: str) -> str:
    """What an amendment says of a config that differs from the one the run had so far; empty for a plain start or restart."""
    if registration is None or not (lab.run(run_id) / "run.json").exists() or load_run(lab.run(run_id)).config_digest == config_digest:
        return ""
    return registration.change


def _moments(config: RunConfig, every_fraction: float) -> frozenset[int]:
    """Steps after which something happens: at every fraction of the run, and always at the end."""
    if every_fraction == 0:
        return frozenset({config.train.num_steps})
    count = round(1 / every_fraction)
    return frozenset({_at(config, index * every_fraction) for index in range(1, count + 1)} | {config.train.num_steps}) - {0}


def _at(config: RunConfig, fraction: float) -> int:
    return min(config.train.num_steps, round(fraction * config.train.num_steps))


def _check_devices(config: RunConfig) -> None:
    available = jax.device_count()
    if config.mesh.num_devices > available:
        raise ConfigError(
            f"mesh.replica x data x expert must be at most {available} devices here, got {config.mesh.num_devices}", hint="shrink the mesh"
        )
    if config.mesh.num_devices > 1 or config.transport.kind != "local":
        raise ConfigError(
            f"transport.kind must be local on a mesh of one device in this version, got {config.transport.kind} on {config.mesh.num_devices}",
            hint="set mesh sizes to 1 and transport.kind=local",
        )


def _last_evaluation(lab: Lab, run_id: str) -> dict[str, float]:
    record = open_run(lab.run(run_id))
    names = [name for name in record.metrics() if name.startswith("eval")]
    return {name: float(record.series(name).value[-1]) for name in names}
