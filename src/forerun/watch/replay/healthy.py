"""A healthy run, made up: every series the watch reads, with the noise that real runs show. No incident in it."""

# N steps

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forerun.record.run import RunInfo, Segment
from forerun.record.series import Series, TableRecord
from forerun.watch.detect import ewma

GROUPS = ("embed", "attention", "router", "routed", "shared", "head")
HELD = ("attention", "routed", "shared", "head")  # derived: the groups whose norm MuonH and AdamH keep
DOMAINS = ("astronomy", "chemistry", "history", "law", "medicine")
NUM_LAYERS, NUM_EXPERTS = 4, 64
START_TIME = 1.76e9  # assumed: any fixed date; replays must not depend on the clock


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How a healthy run scatters."""

    loss_sd: float = 0.006
    """Measured: relative, per step; a 535B run's train loss scatters 0.006 about its trend at steps 3,000-9,400."""
    loss_dof: float = 5.0
    """Assumed: tails of Student t; evaluations of public ladders have excess kurtosis 0-20, median about 2.5."""
    loss_correlation: float = 0.1
    """Assumed: between neighbouring steps; public curves logged every 128 steps show -0.1 to 0.1 away from schedule changes."""
    eval_sd: float = 0.0017
    """Measured: relative; the same run's macro loss about a smooth trend from step 20,000 on."""
    eval_dof: float = 4.0
    """Measured: excess kurtosis of evaluation scatter on public ladders, 0 to 20."""
    grad_sd: float = 0.08
    """Assumed: log-normal scatter of a gradient norm per step."""
    forecast_sd: float = 0.01
    """Assumed: relative error of the forecast, one draw a run; its stated interval has this width."""
    early_bias: float = 0.02
    """Measured: sd of the forecast's extra error at 5% of training, gone by 50%; rungs predict rungs 2.1-2.5% off there."""


@dataclass
class Run:
    """Arrays of one made-up run; incidents edit them in place."""

    step: np.ndarray
    """[N] 1..N"""
    time: np.ndarray
    """[N] Unix seconds."""
    rows: dict[str, np.ndarray]
    """Per-step metrics, [N] each."""
    evals: dict[str, tuple[np.ndarray, np.ndarray]]
    """Metric to (steps, values)."""
    events: list[dict[str, Any]]
    segments: list[Segment]
    trend: np.ndarray
    """[N] the loss without noise."""
    forecast: dict[str, Any]
    noise: Noise
    now: float | None = None
    """The clock at which it is judged; None for afterwards."""
    last_step: int = 0
    """Where logging stopped; 0 when it did not."""
    hidden: set[str] = field(default_factory=set)
    """Series that the record does not show."""
    memory: dict[str, np.ndarray] = field(default_factory=dict)
    """Per host, GiB, [N]."""

    @property
    def num_steps(self) -> int:
        """Planned length."""
        return len(self.step)

    def record(self, last_step: int = 0) -> TableRecord:
        """The run as a reader sees it, up to and including `last_step` (0: all that was logged)."""
        end = last_step or self.last_step or self.num_steps
        table = {
            name: Series(self.step[:end], value[:end], self.time[:end])
            for name, value in (self.rows | self.memory).items()
            if name not in self.hidden
        }
        for name, (step, value) in self.evals.items():
            if name not in self.hidden:
                keep = step <= end
                table[name] = Series(step[keep], value[keep], self.time[step[keep] - 1])
        info = RunInfo(
            run_id="replay",
            num_steps=self.num_steps,
            created=START_TIME,
            segments=tuple(part for part in self.segments if part.first_step <= end),
        )
        events = [event for event in self.events if event["step"] <= end]
        return TableRecord(
            info=info,
            table={name: series for name, series in table.items() if len(series)},
            event_list=sorted(events, key=lambda event: event["time"]),
        )


def healthy_run(seed: int, num_steps: int, *, num_evals: int = 20, noise: Noise | None = None, step_time_s: float = 20.0) -> Run:
    """One healthy run and the forecast made for it.

    The loss falls as a power of the step with a linear decay at the end; the forecast is off by one draw of `forecast_sd`, and
    early in the run by a further draw of `early_bias` that fades.
    """
    rng = np.random.default_rng(seed)
    noise = noise or Noise()
    step = np.arange(1, num_steps + 1)
    fraction = step / num_steps
    trend = 2.0 + 9.0 * (step + 20.0) ** -0.33 - 0.12 * fraction**2
    time = START_TIME + np.cumsum(step_time_s * np.exp(rng.normal(0, 0.01, num_steps)))
    rows = {"loss_nats": trend * (1 + _correlated(rng, num_steps, noise))}
    rows |= _norms(rng, fraction, noise)
    rows |= _routing(rng, fraction)
    rows["mfu"] = 0.21 * np.exp(rng.normal(0, 0.01, num_steps))
    rows["step_time_s"] = step_time_s * 0.21 / rows["mfu"]
    eval_step = np.unique(np.linspace(0, num_steps, num_evals + 1).astype(int)[1:])
    evals = _evals(rng, trend, eval_step, noise)
    events = [
        {"kind": "checkpoint_saved", "step": int(at), "time": float(time[at - 1]), "seconds": float(30 * np.exp(rng.normal(0, 0.1)))}
        for at in eval_step
    ]
    memory = {f"memory_gib/host_{host}": 96 + rng.normal(0, 0.2, num_steps) for host in range(8)}
    start = Segment(run_id="replay", first_step=0, time=START_TIME)
    forecast = _forecast(rng, trend, num_steps, noise)
    return Run(step, time, rows, evals, events, [start], trend, forecast, noise, memory=memory)


def _correlated(rng: np.random.Generator, size: int, noise: Noise) -> np.ndarray:
    """Heavy-tailed noise of the stated sd with the stated correlation between neighbours."""
    raw = rng.standard_t(noise.loss_dof, size) * np.sqrt((noise.loss_dof - 2) / noise.loss_dof)
    rho = noise.loss_correlation
    mixed = ewma(raw, 1 - rho) / np.sqrt((1 - rho) / (1 + rho)) if rho > 0 else raw
    return noise.loss_sd * mixed


def _norms(rng: np.random.Generator, fraction: np.ndarray, noise: Noise) -> dict[str, np.ndarray]:
    """Gradient norms that fall after the warm-up, rise until a quarter of the run, then fall; parameter norms held or creeping."""
    shape = 0.15 + 0.9 * np.exp(-fraction / 0.01) + 0.7 * np.exp(-(((fraction - 0.25) / 0.2) ** 2))
    rows, square = {}, np.zeros(len(fraction))
    common = np.exp(rng.standard_t(6, len(fraction)) * noise.grad_sd / 2)
    for group in GROUPS:
        own = rng.uniform(0.1, 0.5) * shape ** rng.uniform(0.8, 1.2) * common * np.exp(rng.standard_t(6, len(fraction)) * noise.grad_sd)
        rows[f"grad_norm/{group}"] = own
        square += own**2
        creep = 0 if group in HELD else rng.uniform(0.02, 0.3)
        rows[f"param_norm/{group}"] = rng.uniform(20, 200) * (1 + creep * fraction) * (1 + rng.normal(0, 1e-6, len(fraction)))
    rows["grad_norm"] = np.sqrt(square)
    rows["update_norm"] = rng.uniform(0.5, 2) * np.exp(rng.normal(0, 0.03, len(fraction))) * (1 - 0.95 * fraction)
    return rows


def _routing(rng: np.random.Generator, fraction: np.ndarray) -> dict[str, np.ndarray]:
    size = len(fraction)
    rows = {
        "drop_fraction": np.clip(0.03 + 0.01 * fraction + rng.normal(0, 0.002, size), 0, 1),
        "router_bias_max": 1 + 0.5 * np.sqrt(fraction) + rng.normal(0, 0.02, size),
        "dead_expert_fraction": np.clip(rng.normal(0, 0.002, size), 0, 1),
    }
    for name, level, scatter in (("load_imbalance", 1.2, 0.02), ("router_entropy_nats", float(np.log(NUM_EXPERTS)) - 0.02, 0.002)):
        layers = [level + rng.normal(0, scatter, size) for _ in range(NUM_LAYERS)]
        rows |= {f"{name}/layer_{index}": layer for index, layer in enumerate(layers)}
        rows[name] = np.max(layers, axis=0) if name == "load_imbalance" else np.mean(layers, axis=0)
    return rows


def _evals(rng: np.random.Generator, trend: np.ndarray, at: np.ndarray, noise: Noise) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    unit = np.sqrt((noise.eval_dof - 2) / noise.eval_dof) * noise.eval_sd
    common = rng.standard_t(noise.eval_dof, len(at)) * unit
    domains = {}
    for index, domain in enumerate(DOMAINS):
        own = rng.standard_t(noise.eval_dof, len(at)) * unit
        domains[f"eval/{domain}/loss_nats"] = (at, trend[at - 1] * (0.9 + 0.05 * index) * (1 + common + own))
    domains["eval/macro_loss_nats"] = (at, np.mean([value for _, value in domains.values()], axis=0))
    return domains


def _forecast(rng: np.random.Generator, trend: np.ndarray, num_steps: int, noise: Noise) -> dict[str, Any]:
    fraction = np.linspace(0.05, 1, 20)
    at = np.maximum((fraction * num_steps).astype(int), 1)
    early = rng.normal(0, noise.early_bias) * np.clip(np.log(0.5 / fraction) / np.log(10), 0, 1)
    loss = trend[at - 1] * (1 + rng.normal(0, noise.forecast_sd) + early)
    curve = [
        {
            "fraction": float(x),
            "step": int(step),
            "loss": float(y),
            "low90": float(y * (1 - 1.645 * noise.forecast_sd)),
            "high90": float(y * (1 + 1.645 * noise.forecast_sd)),
        }
        for x, step, y in zip(fraction, at, loss)
    ]
    return {"schema": 1, "curve": curve, "metric": "eval/macro_loss_nats"}
