"""Incidents to plant on a healthy run: one function a class, one signature `plant(run, at, rng)`, one written-out list.

`at` is the step at which the incident begins. Sizes are those of real incidents where one is known (`watch/incidents.toml`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from forerun.watch.replay.healthy import GROUPS, HELD, Run

Plant = Callable[[Run, int, np.random.Generator], int | None]
"""Edits the run; returns the step at which the incident begins where that is not the one asked for."""


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One class: what is planted and which answers are right."""

    name: str
    plant: Plant
    causes: tuple[str, ...]
    """Starts of the causes that are right, any of which must be first or second; `unknown cause` where the record says unknown."""
    within: int
    """Steps (measured by rows) within which the bar wants an alarm; 0 when it names none."""
    live: bool = False
    """Judged with a clock, as a live watch would."""
    passing: bool = False
    """Over when it is seen: no alarm is due, the diagnosis must name it."""
    clean_telemetry: bool = True
    """False where the right state is "cannot tell"."""


def step_up(run: Run, at: int, rng: np.random.Generator, size: float = 0.01) -> None:
    """The loss moves by 1% and stays; held-out moves with it."""
    _scale_loss(run, at, lambda n: np.full(n, 1 + size))
    _scale_evals(run, at, 1 + size)


def leak(run: Run, at: int, rng: np.random.Generator) -> None:
    """Held-out text among the training data: train and held-out loss fall by 3%."""
    step_up(run, at, rng, size=-0.03)


def drift(run: Run, at: int, rng: np.random.Generator) -> None:
    """2% over 4,000 steps."""
    _scale_loss(run, at, lambda n: 1 + 0.02 * np.minimum(1, np.arange(n) / 4000))
    for name, (step, value) in run.evals.items():
        run.evals[name] = (step, value * (1 + 0.02 * np.clip((step - at) / 4000, 0, 1)))


def spike(run: Run, at: int, rng: np.random.Generator) -> None:
    """Five steps 0.15 to 0.3 nats too high."""
    run.rows["loss_nats"][at : at + 5] += rng.uniform(0.15, 0.3)
    run.rows["grad_norm"][at : at + 5] *= rng.uniform(1.5, 3)


def plateau(run: Run, at: int, rng: np.random.Generator) -> None:
    """Learning stops: the trend stays where it is."""
    stuck = np.where(run.step > at, run.trend[at - 1] / run.trend, 1.0)
    run.rows["loss_nats"] *= stuck
    for name, (step, value) in run.evals.items():
        run.evals[name] = (step, value * stuck[step - 1])


def diverge(run: Run, at: int, rng: np.random.Generator) -> None:
    """The loss runs away exponentially."""
    extra = np.where(run.step > at, 0.02 * np.exp(np.clip((run.step - at) / 250, 0, 5)), 0.0)
    run.rows["loss_nats"] += extra
    for name, (step, value) in run.evals.items():
        run.evals[name] = (step, value + extra[step - 1])
    run.rows["grad_norm"][at:] *= np.exp(np.minimum(np.arange(run.num_steps - at) / 500, 2))


def nan_early(run: Run, at: int, rng: np.random.Generator) -> int:
    """Not a number within the first 1,000 steps (a batch size too far)."""
    begin = min(at, int(rng.integers(300, 900)))
    run.rows["loss_nats"][begin:] = np.nan
    run.rows["grad_norm"][begin:] = np.nan
    return begin


def data_level(run: Run, at: int, rng: np.random.Generator) -> None:
    """A data change nobody declared: train loss +1.8% (the size of a real mixture swap), held-out flat."""
    _scale_loss(run, at, lambda n: np.full(n, 1.018))


def group_gradient(run: Run, at: int, rng: np.random.Generator) -> None:
    """One group's gradient norm doubles over a tenth of the run; the others and the loss do not move."""
    group = GROUPS[int(rng.integers(len(GROUPS)))]
    growth = np.exp(np.log(2.1) * np.clip((run.step - at) / (0.1 * run.num_steps), 0, 1))
    square = run.rows["grad_norm"] ** 2 + run.rows[f"grad_norm/{group}"] ** 2 * (growth**2 - 1)
    run.rows["grad_norm"] = np.sqrt(square)
    run.rows[f"grad_norm/{group}"] *= growth
    run.events.append(_event(run, at, "planted", group=group))


def free_norm(run: Run, at: int, rng: np.random.Generator) -> None:
    """An unconstrained group's norm grows by 60% over a tenth of the run."""
    group = [name for name in GROUPS if name not in HELD][int(rng.integers(len(GROUPS) - len(HELD)))]
    run.rows[f"param_norm/{group}"] *= np.exp(np.log(1.6) * np.clip((run.step - at) / (0.1 * run.num_steps), 0, 1))
    run.events.append(_event(run, at, "planted", group=group))


def update_then_spikes(run: Run, at: int, rng: np.random.Generator) -> None:
    """The update norm doubles, 40 steps later gradient and loss spike, again and again."""
    run.rows["update_norm"][at:] *= 2
    for begin in range(at + 40, min(at + 1000, run.num_steps - 20), 150):
        run.rows["grad_norm"][begin : begin + 12] *= 3
        run.rows["loss_nats"][begin + 2 : begin + 12] += 0.2


def eval_path(run: Run, at: int, rng: np.random.Generator) -> None:
    """The evaluation lacks a piece of state: every domain 2% worse, training unmoved."""
    _scale_evals(run, at, 1.02)


def one_benchmark(run: Run, at: int, rng: np.random.Generator) -> None:
    """One domain 15% worse, the others unmoved."""
    name = "eval/law/loss_nats"
    step, value = run.evals[name]
    run.evals[name] = (step, np.where(step > at, value * 1.15, value))
    domains = [values for key, (_, values) in run.evals.items() if key != "eval/macro_loss_nats"]
    run.evals["eval/macro_loss_nats"] = (step, np.mean(domains, axis=0))


def expert_collapse(run: Run, at: int, rng: np.random.Generator) -> None:
    """One layer's router turns to few experts: load, drops and dead experts rise, entropy falls."""
    layer, ramp = int(rng.integers(4)), np.clip((run.step - at) / 300, 0, 1)
    run.rows[f"load_imbalance/layer_{layer}"] += 3 * ramp
    run.rows["load_imbalance"] = np.maximum(run.rows["load_imbalance"], run.rows[f"load_imbalance/layer_{layer}"])
    run.rows[f"router_entropy_nats/layer_{layer}"] -= 0.8 * ramp
    run.rows["router_entropy_nats"] -= 0.2 * ramp
    run.rows["drop_fraction"] += 0.1 * ramp
    run.rows["dead_expert_fraction"] += 0.1 * ramp


def memory_on_writers(run: Run, at: int, rng: np.random.Generator) -> None:
    """Resident memory of the two hosts that write checkpoints rises with every save."""
    for host in (0, 1):
        saves = np.searchsorted([event["step"] for event in run.events if event["kind"] == "checkpoint_saved"], run.step)
        run.memory[f"memory_gib/host_{host}"] += 4.0 * np.maximum(saves - saves[at - 1], 0)


def save_quota(run: Run, at: int, rng: np.random.Generator) -> None:
    """Writes are refused because the quota is used up."""
    _fail_saves(run, at, "HTTP 405 on write: quota exceeded, 104.56 TiB of 100 TiB")


def save_policy(run: Run, at: int, rng: np.random.Generator) -> None:
    """A storage policy denies the delete that an atomic rename needs."""
    _fail_saves(run, at, "deletion of the temporary source denied by policy")


def save_unknown(run: Run, at: int, rng: np.random.Generator) -> None:
    """A save fails with an error that says nothing of its cause."""
    _fail_saves(run, at, "HTTP 400 reading an older object")


def save_hangs(run: Run, at: int, rng: np.random.Generator) -> None:
    """Saves never finish, so none is recorded any more."""
    run.events[:] = [event for event in run.events if event["kind"] != "checkpoint_saved" or event["step"] <= at]


def link_error(run: Run, at: int, rng: np.random.Generator) -> None:
    """The driver reports a dead link; the other ranks then wait at a barrier and are torn down."""
    _stop(run, at)
    run.events.append(_event(run, at, "error", message="CUDA_ERROR_NVLINK_UNCORRECTABLE on rack 9", rank=333))
    run.events.append(_event(run, at, "error", message="barrier timed out after 600 s", rank=0, phase="teardown"))
    run.now = float(run.time[at - 1]) + 1200


def silent_hang(run: Run, at: int, rng: np.random.Generator) -> None:
    """No error and normal metrics; all ranks report from inside the step, one rack at 0.6 of the others' CPU."""
    _stop(run, at)
    run.now = float(run.time[at - 1]) + 2000
    for rank in range(16):
        counter = 51_000 + (0 if rank != 3 else -1)
        beat = _event(run, at, "heartbeat", rank=rank, phase="step", cpu=0.6 if rank < 4 else 1.0, collectives=counter)
        run.events.append(beat | {"time": run.now - 20})
    run.events.append(_event(run, at, "error", message="RegisterTask timed out", phase="teardown"))


def host_lost(run: Run, at: int, rng: np.random.Generator) -> None:
    """The heartbeats of three ranks vanish; the rest waits."""
    _stop(run, at)
    run.now = float(run.time[at - 1]) + 700
    for rank in range(16):
        silent = 5 <= rank < 8
        run.events.append(_event(run, at, "heartbeat", rank=rank, phase="step") | {"time": run.now - (690 if silent else 20)})


def stale_record(run: Run, at: int, rng: np.random.Generator) -> None:
    """Rows stop and nobody reports: the tracker or the run is gone."""
    _stop(run, at)
    run.now = float(run.time[at - 1]) + 3600


def frozen_series(run: Run, at: int, rng: np.random.Generator) -> None:
    """The logger repeats its last values."""
    for name in ("loss_nats", "grad_norm"):
        run.rows[name][at:] = run.rows[name][at]


def renamed_series(run: Run, at: int, rng: np.random.Generator) -> None:
    """The evaluation is logged under another name from here on."""
    step, value = run.evals["eval/macro_loss_nats"]
    run.evals["eval/macro_loss"] = (step[step > at], value[step > at])
    run.evals["eval/macro_loss_nats"] = (step[step <= at], value[step <= at])


def time_gap(run: Run, at: int, rng: np.random.Generator) -> None:
    """4.4 hours between two steps: a restore ran out of memory and was repeated."""
    run.time[at:] += 4.4 * 3600
    run.segments.append(replace(run.segments[0], first_step=at + 1, time=float(run.time[at])))
    run.events.append(_event(run, at, "error", message="host out of memory while restoring the pinned master copy"))


def slowdown(run: Run, at: int, rng: np.random.Generator) -> None:
    """Every step takes 40% longer."""
    run.rows["mfu"][at:] /= 1.4
    run.rows["step_time_s"][at:] *= 1.4


def wrong_schedule(run: Run, at: int, rng: np.random.Generator) -> None:
    """A held parameter norm is no longer held after a restart."""
    run.rows["param_norm/routed"] *= 1 + 0.1 * np.clip((run.step - at) / 1000, 0, 1)


def restart_from_zero(run: Run, at: int, rng: np.random.Generator) -> int:
    """A relaunch finds no checkpoint and begins at the first step; what came after is logged no more."""
    later = float(run.time[at - 1]) + 600
    run.segments.append(replace(run.segments[0], first_step=1, time=later))
    run.events[:] = [{"kind": "rewound", "step": 1, "time": later, "from_step": at}]
    run.last_step = max(run.num_steps // 50, 1)
    return 1


def crash(run: Run, at: int, rng: np.random.Generator) -> None:
    """The run ends right after an evaluation; nothing says why."""
    _stop(run, at)
    run.events.append(_event(run, at, "crashed"))


def out_of_memory(run: Run, at: int, rng: np.random.Generator) -> None:
    """A host runs out of memory while a checkpoint is written."""
    _stop(run, at)
    run.events.append(_event(run, at, "error", message="task 8: host out of memory in serialization"))
    run.events.append(_event(run, at, "error", message="heartbeat timed out, shutting down", phase="teardown"))
    run.events.append(_event(run, at, "crashed"))


def evicted(run: Run, at: int, rng: np.random.Generator) -> None:
    """The scheduler takes a node away; the whole gang is requeued."""
    _stop(run, at)
    run.events.append(_event(run, at, "error", message="task 16 deleted: NoExecute taint on its node"))
    run.now = float(run.time[at - 1]) + 1200


def start_fails(run: Run, at: int, rng: np.random.Generator) -> None:
    """Restarts do not get through: ranks time out while they register, the tracker does not come up."""
    _stop(run, at)
    for message in ("RegisterTask timed out", "tracker init fails", "RegisterTask timed out"):
        run.events.append(_event(run, at, "startup_failed", message=message))
    run.now = float(run.time[at - 1]) + 7200


INCIDENTS: tuple[Incident, ...] = (
    Incident(name="+1% step", plant=step_up, causes=("something real changed", "data became"), within=60),
    Incident(name="2% drift over 4,000 steps", plant=drift, causes=("learning has stopped", "something real changed"), within=1000),
    Incident(name="5-step spike", plant=spike, causes=("bad batch",), within=5),
    Incident(name="-3% leak", plant=leak, causes=("held-out text leaked",), within=60),
    Incident(name="plateau", plant=plateau, causes=("learning has stopped", "something real changed"), within=0),
    Incident(name="divergence", plant=diverge, causes=("training diverges", "something real changed"), within=0),
    Incident(name="NaN within 1,000 steps", plant=nan_early, causes=("training diverges",), within=0),
    Incident(name="train level shift, held-out flat", plant=data_level, causes=("data became",), within=60),
    Incident(name="gradient of one group", plant=group_gradient, causes=("one group's gradient",), within=0),
    Incident(name="free norm drift", plant=free_norm, causes=("free parameters drift",), within=0),
    Incident(name="held norm moves", plant=wrong_schedule, causes=("a norm the optimizer should keep",), within=0),
    Incident(name="update norm, then spikes", plant=update_then_spikes, causes=("update too large",), within=0),
    Incident(name="evaluation path", plant=eval_path, causes=("evaluation path",), within=0),
    Incident(name="one benchmark", plant=one_benchmark, causes=("one benchmark",), within=0),
    Incident(name="expert collapse", plant=expert_collapse, causes=("more tokens dropped",), within=0),
    Incident(name="memory on writers", plant=memory_on_writers, causes=("checkpoint writer keeps",), within=0),
    Incident(name="save: quota", plant=save_quota, causes=("storage quota",), within=0),
    Incident(name="save: policy", plant=save_policy, causes=("save refused",), within=0),
    Incident(name="save: not stated", plant=save_unknown, causes=("unknown cause",), within=0),
    Incident(name="save: never finishes", plant=save_hangs, causes=("a save does not finish",), within=0),
    Incident(name="link error", plant=link_error, causes=("link or device",), within=0, live=True, clean_telemetry=False),
    Incident(name="silent hang", plant=silent_hang, causes=("unknown cause",), within=0, live=True),
    Incident(name="host lost", plant=host_lost, causes=("host lost",), within=0, live=True),
    Incident(
        name="record stale", plant=stale_record, causes=("tracking stopped", "unknown cause"), within=0, live=True, clean_telemetry=False
    ),
    Incident(name="record frozen", plant=frozen_series, causes=(), within=0, clean_telemetry=False),
    Incident(name="evaluation renamed", plant=renamed_series, causes=(), within=0, clean_telemetry=False),
    Incident(name="gap in time", plant=time_gap, causes=("long stop", "out of memory"), within=0, passing=True),
    Incident(name="restart from zero", plant=restart_from_zero, causes=("restarted from scratch",), within=0),
    Incident(name="crash, not stated", plant=crash, causes=("unknown cause",), within=0),
    Incident(name="out of memory at a save", plant=out_of_memory, causes=("out of memory",), within=0),
    Incident(name="evicted", plant=evicted, causes=("evicted",), within=0, live=True, clean_telemetry=False),
    Incident(name="start fails", plant=start_fails, causes=("unknown cause",), within=0, live=True, clean_telemetry=False),
    Incident(name="slower", plant=slowdown, causes=("slower devices",), within=0),
)


def _scale_loss(run: Run, at: int, factor: Callable[[int], np.ndarray]) -> None:
    run.rows["loss_nats"][at:] *= factor(run.num_steps - at)


def _scale_evals(run: Run, at: int, factor: float) -> None:
    for name, (step, value) in run.evals.items():
        run.evals[name] = (step, np.where(step > at, value * factor, value))


def _fail_saves(run: Run, at: int, reason: str) -> None:
    for index, event in enumerate(run.events):
        if event["kind"] == "checkpoint_saved" and event["step"] > at:
            run.events[index] = {"kind": "checkpoint_failed", "step": event["step"], "time": event["time"], "reason": reason}


def _stop(run: Run, at: int) -> None:
    """Nothing is logged after `at`."""
    run.events[:] = [event for event in run.events if event["step"] <= at]
    run.last_step = at


def _event(run: Run, at: int, kind: str, **fields: object) -> dict:
    return {"kind": kind, "step": at, "time": float(run.time[at - 1]), **fields}
