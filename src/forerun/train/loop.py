"""One run from start to end: restore or begin, step, watch for trouble, evaluate, save, record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
from jax.sharding import Mesh

from forerun.base.config import digest_of
from forerun.base.errors import CheckFailed, StorageError
from forerun.base.lab import Lab
from forerun.base.progress import Progress
from forerun.kernels.compiling import keep_compiled
from forerun.kernels.host_memory import keep_heap_between_steps
from forerun.loader.batches import Batches
from forerun.loader.prefetch import Fetched, Prefetcher
from forerun.loader.store import TokenStore, open_store
from forerun.optim.schedule import schedule
from forerun.parallel import ragged
from forerun.parallel.mesh import in_turn
from forerun.parallel.processes import as_the_first, is_first, must_agree, on_first_host, wait_for_all
from forerun.record.journal import Journal
from forerun.record.mirror import tracker_of
from forerun.record.reader import open_run
from forerun.registry.live import LiveRules
from forerun.registry.register import Registration
from forerun.train.checkpoint import Checkpoints, Outcome
from forerun.train.config import RunConfig
from forerun.train.drops import DropCount
from forerun.train.evaluate import Evaluator
from forerun.train.memory import memory_gib
from forerun.train.metrics import Rows
from forerun.train.moments import moments, step_at
from forerun.train.opening import check_vocabulary, declared_change, journal_of, last_evaluation, mesh_of, open_segment
from forerun.train.promised import live_rules
from forerun.train.pulse import Pulse
from forerun.train.sample import Sampler
from forerun.train.spikes import Rewound, bad_step, batch_of, load_skips
from forerun.train.state import TrainState, init_state, shardings_of, state_shapes
from forerun.train.step import StepReport, compile_step, model_batch

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


def train(
    config: RunConfig,
    lab: Lab,
    *,
    run_id: str,
    registration: Registration | None,
    on_eval: OnEval | None = None,
    quiet: bool = False,
    stop_after: int = 0,
    changed: str = "",
    watchdog_s: float = 0.0,
    mirror: str = "",
) -> RunResult:
    """Train a run to its end, from its newest good checkpoint if there is one; the same call continues a killed run.

    Args:
        registration: the promise it runs under; None marks the record as unregistered for ever.
        stop_after: last step of this call: the state there is kept for ever, for an amendment or a fork; 0 goes to the end.
        changed: of an unregistered run, what differs from the config it was started with; registered runs have it from their amendment.
        watchdog_s: longest any phase may last before the process writes its stacks and ends; 0 waits for ever.
        mirror: another tracker that gets every row too, `wandb` or `trackio`; its project is named as the lab's folder.
    Raises: CheckFailed when the run ends as crashed under its own policy; ConfigError when it cannot start.
    """
    began = time.perf_counter()
    if mirror:
        tracker_of(mirror)
    last = min(stop_after or config.train.num_steps, config.train.num_steps)
    keep_compiled(lab.root / "cache" / "compiled", has_collectives=config.mesh.num_devices > 1)
    must_agree(config=digest_of(config), run_id=run_id, stop_at_step=str(last))
    mesh = mesh_of(config)
    keep_heap_between_steps()
    store = open_store(lab, config.data.manifest)
    check_vocabulary(config, store.manifest.vocab_size)
    run = _Run(config, lab, store, mesh, run_id, last, changed, registration, on_eval, quiet, watchdog_s, mirror)
    while True:
        try:
            num_steps, evaluation = run.attempt()
        except Rewound:
            continue
        return RunResult(run_id=run_id, num_steps=num_steps, evaluation=evaluation, seconds=time.perf_counter() - began)


@dataclass
class _Run:
    """One run in this process; `attempt` goes from the newest good checkpoint to the end."""

    config: RunConfig
    lab: Lab
    store: TokenStore
    mesh: Mesh | None
    run_id: str
    last: int
    changed: str
    registration: Registration | None
    on_eval: OnEval | None
    quiet: bool
    watchdog_s: float
    mirror: str

    def attempt(self) -> tuple[int, dict[str, float]]:
        """Steps finished and the last evaluation. Raises: Rewound after a bad step under the policy `rewind`."""
        config, run_dir, config_digest = self.config, self.lab.run(self.run_id), digest_of(self.config)
        milestones = {step_at(config, fraction) for fraction in config.checkpoint.milestones} | {self.last}
        checkpoints = Checkpoints(
            run_dir / "checkpoints",
            config_digest=config_digest,
            num_rolling=config.checkpoint.num_rolling,
            milestones=frozenset(milestones),
            timeout_s=config.checkpoint.timeout_s,
        )
        shapes = state_shapes(config)
        restored = checkpoints.restore_newest(shapes, None if self.mesh is None else shardings_of(shapes, self.mesh))
        first, state = (restored.step, restored.state) if restored else (0, init_state(config, self.mesh))
        if first >= self.last:
            return first, last_evaluation(self.lab, self.run_id)
        registration = self.registration
        change = self.changed or declared_change(self.lab, self.run_id, registration, config_digest)
        wait_for_all("the state of the run is known")
        if is_first():
            open_segment(config, run_dir, registration, first=first, change=change)
        wait_for_all("the run is open")
        rules = live_rules(config, registration, open_run(run_dir))
        with (
            journal_of(config, self.lab, self.run_id, self.mirror) as journal,
            Pulse(journal, rank=jax.process_index(), watchdog_s=self.watchdog_s) as pulse,
        ):
            promised = registration.id if registration else None
            journal.event(
                "start",
                first,
                registration_id=promised,
                resumed=first > 0,
                devices=config.mesh.num_devices,
                mesh={"replica": config.mesh.replica, "data": config.mesh.data, "expert": config.mesh.expert},
                processes=jax.process_count(),
                transport=config.transport.kind,
            )
            if config.transport.kind == "ragged" and self.mesh is not None and ragged.is_emulated():
                journal.event("fallback", first, what="transport ragged", reason=f"emulated: no ragged exchange on {jax.default_backend()}")
            for refusal in restored.refused if restored else ():
                journal.event("checkpoint_refused", first, reason=refusal)
            evaluation = self._steps(state, first, journal, checkpoints, pulse, rules)
            if self.last == config.train.num_steps:
                journal.event("finished", self.last)
            else:
                journal.event("stopped", self.last, reason="asked to stop here")
        return self.last, evaluation

    def _steps(
        self, state: TrainState, first: int, journal: Journal, checkpoints: Checkpoints, pulse: Pulse, rules: LiveRules
    ) -> dict[str, float]:
        config, last, batch_tokens = self.config, self.last, self.config.train.batch_tokens
        num_steps, run_dir = config.train.num_steps, self.lab.run(self.run_id)
        planned = config.optim.schedule.planned_steps or num_steps  # an amended length moves no phase of the mixture
        batches = Batches(self.store, config.data, num_steps=planned, batch_size=config.train.batch_size, seq_len=config.train.seq_len)
        passed_over = load_skips(run_dir)
        evaluator, rows = Evaluator(config, self.store, self.mesh), Rows(config)
        pulse.phase("compile", first)
        step_fn, flops_ratio = compile_step(config, self.mesh)
        journal.event("compiled", first, flops_over_expected=round(flops_ratio, 4))
        sampler, drops = Sampler(config, self.store, self.mesh), DropCount(config) if config.transport.capacity_factor else None
        factors = jax.device_get(jax.vmap(schedule(config.optim.schedule, num_steps))(jax.numpy.arange(num_steps))).tolist()
        evals, saves = moments(config, config.eval.every_fraction), moments(config, config.checkpoint.every_fraction)
        evaluation: dict[str, float] = {}
        pending: list[_Pending] = []
        word, stopped_by, clock = "", list[str](), time.perf_counter()

        def settle(num_steps_done: int) -> None:
            nonlocal clock
            finished = [pending.pop(0) for _ in range(num_steps_done)]
            jax.block_until_ready(finished[-1].report)
            began, clock = clock, time.perf_counter()  # a step is handed over while the one before runs: it begins where that one ended
            for each in finished:  # two that end together share the time: the later one was under way while the other was waited for
                record(each, (clock - began) / len(finished))

        def record(finished: _Pending, step_time_s: float) -> None:
            row = rows.row(finished.report, step_time_s=step_time_s, learning_factor=factors[finished.step - 1])
            row |= {"loader_wait_s": finished.fetched.wait_s, "loader_occupancy": finished.fetched.occupancy}
            journal.log(finished.step, row)
            if drops is not None:
                drops.add(finished.report)
            obey(finished.step, row)
            if not bool(finished.report.good):
                as_the_first(
                    lambda: bad_step(config, run_dir, journal, finished.step, row, batches, checkpoints), outcomes=(Rewound, CheckFailed)
                )
            progress.advance(batch_tokens, note=f"step {finished.step}/{num_steps}  loss_nats {row['loss_nats']:.3f}  {word}".rstrip())

        def obey(step: int, row: dict[str, float]) -> None:
            for fired in rules.observe(step, row):
                journal.event("rule", step, promised=fired.kind, rule=fired.rule)
                if fired.kind != "alarm":
                    stopped_by.append(fired.rule)

        def saved(outcome: Outcome | None) -> None:
            if outcome and outcome.problem:
                journal.event("checkpoint_failed", outcome.step, message=outcome.problem, seconds=round(outcome.seconds, 3))

        with (
            Prefetcher(lambda step: batches.batch(batch_of(step, passed_over)), first, last) as loader,
            Progress(self.run_id, last * batch_tokens, "tokens", done=first * batch_tokens, quiet=self.quiet or not is_first()) as progress,
        ):
            for fetched in loader:
                pulse.phase("step", fetched.step)
                state, report = step_fn(in_turn(self.mesh, state), model_batch(fetched.batch, self.mesh))
                done = fetched.step + 1
                pending.append(_Pending(done, report, fetched))
                if done in evals or done in saves or done == last:
                    settle(len(pending))
                elif len(pending) > 1:
                    settle(1)
                if done in evals or done == last:
                    pulse.phase("evaluate", done)
                    evaluation = evaluator(state)
                    journal.log(done, {**evaluation, "memory_gib": memory_gib(), "skipped_steps": float(state.num_skipped)})
                    obey(done, evaluation)
                    if drops is not None:
                        journal.event("drops", done, **drops.take())
                    for sample in sampler(state, done):
                        journal.event("sample", done, **sample)
                    word = self.on_eval(done, evaluation) if self.on_eval else ""
                if stopped_by and pending:
                    settle(len(pending))
                if done in saves or done == last or stopped_by:
                    pulse.phase("save", done)
                    whole = on_first_host(state)
                    if is_first():
                        blocked_s, before = checkpoints.begin(whole, done)
                        saved(before)
                        journal.log(done, {"checkpoint_time_s": blocked_s})
                if stopped_by:
                    break
                if not pending:
                    clock = time.perf_counter()  # after evaluating and saving, which no step's time holds
            pulse.phase("finish", last)
            outcome = checkpoints.finish()
            saved(outcome)
            wait_for_all("the last checkpoint is written")
        if outcome and outcome.problem:
            raise StorageError(f"the last checkpoint failed: {outcome.problem}", hint="free space; the same command repeats the last steps")
        if stopped_by:
            raise CheckFailed(
                f"step {done} of {num_steps}: the promised rule holds: {stopped_by[0]}",
                hint="`forerun close EXPERIMENT --outcome stopped`; the checkpoint and the record are kept",
            )
        return evaluation
