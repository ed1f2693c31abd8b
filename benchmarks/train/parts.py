"""Parts of training measured by themselves, each against something that does the same work. CPU seconds, sides alternating, medians."""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from shapes import batch_of, peer_run

from forerun.kernels.grouped_matmul import swiglu
from forerun.kernels.host_memory import keep_heap_between_steps
from forerun.optim.build import build
from forerun.optim.config import OptimConfig
from forerun.optim.paths import named_leaves
from forerun.parallel.config import TransportConfig
from forerun.parallel.contract import ExpertParams
from forerun.parallel.local import run_experts
from forerun.train.checkpoint import Checkpoints
from forerun.train.config import RunConfig
from forerun.train.state import init_state
from forerun.train.step import gradient_of

ROUNDS = 5
LAYER_SHAPES = {"E16 top-2": (16, 2, 512), "E64 top-8": (64, 8, 128)}
TOKENS, D_MODEL = 2048, 256


def cpu_seconds(sides: dict[str, Callable[[], Any]], rounds: int = ROUNDS, repeat: int = 3) -> dict[str, float]:
    """Median CPU seconds of one call of each side, warmed up, in alternating rounds."""
    for call in sides.values():
        jax.block_until_ready(call())
    seen: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            started = time.process_time()
            for _ in range(repeat):
                jax.block_until_ready(call())
            seen[name].append((time.process_time() - started) / repeat)
    return {name: statistics.median(values) for name, values in seen.items()}


def moe_layer(capacity_factor: float = 1.25) -> dict[str, float]:
    """Forward and backward of routed experts over the same products without routing (equal groups, nothing moved).

    Both sides give their value too: without it XLA leaves the ideal's last forward product out, one of nine.
    """
    ratios = {}
    for name, (num_experts, top_k, d_expert) in LAYER_SHAPES.items():
        rng = np.random.default_rng(0)
        weights = [
            jnp.asarray(rng.normal(size=shape) * 0.05, jnp.float32)
            for shape in ((num_experts, D_MODEL, d_expert), (num_experts, D_MODEL, d_expert), (num_experts, d_expert, D_MODEL))
        ]
        rows = jnp.asarray(rng.normal(size=(TOKENS, D_MODEL)), jnp.float32)
        index = jnp.asarray(np.stack([rng.permutation(num_experts)[:top_k] for _ in range(TOKENS)]).astype(np.int32))
        weight = jnp.asarray(rng.random((TOKENS, top_k)), jnp.float32)
        valid, cotangent = jnp.ones(TOKENS, bool), jnp.asarray(rng.normal(size=(TOKENS, D_MODEL)), jnp.float32)
        shape = (num_experts, TOKENS * top_k // num_experts, D_MODEL)
        grouped, grouped_cotangent = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(2))
        routed = functools.partial(run_experts, config=TransportConfig(capacity_factor=capacity_factor))

        def of_layer(rows, weight, weights, routed=routed, index=index, valid=valid, cotangent=cotangent):
            return (routed(rows, index, weight, valid, ExpertParams(*weights))[0] * cotangent).sum()

        def ideal(grouped, weights, cotangent=grouped_cotangent):
            return (swiglu(grouped, *weights) * cotangent).sum()

        layer_gradient, ideal_gradient = jax.jit(jax.value_and_grad(of_layer, (0, 1, 2))), jax.jit(jax.value_and_grad(ideal, (0, 1)))
        seconds = cpu_seconds({
            "ours": functools.partial(layer_gradient, rows, weight, weights),
            "ideal": functools.partial(ideal_gradient, grouped, weights),
        })  # fmt: skip
        ratios[name] = seconds["ours"] / seconds["ideal"]
    return ratios


def muonh() -> dict[str, float]:
    """One MuonH update of the 25M expert parameters over forward and backward of the 2048-token step, by form of the orthogonalisation."""
    run = peer_run("muonh")
    state = init_state(run)
    gradient = jax.jit(functools.partial(gradient_of, run, None))
    batch = batch_of(run)
    gradients = gradient(state, batch)[0]
    experts = {name: leaf for name, leaf in named_leaves(state.params).items() if "/experts/" in name}
    own = {name: leaf for name, leaf in named_leaves(gradients).items() if name in experts}
    sides: dict[str, Callable[[], Any]] = {"forward and backward": lambda: gradient(state, batch)}
    for form in ("quintic", "gram", "gram_bfloat16"):
        optimizer = build(OptimConfig(muonh_learning_rate=0.01, adam_learning_rate=0.01, orthogonalization=form), 100)
        held = jax.jit(optimizer.init)(experts)

        def update(gradients, state, params, optimizer=optimizer):
            change, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, change), state

        sides[form] = functools.partial(jax.jit(update), own, held, experts)
    seconds = cpu_seconds(sides, repeat=1)
    whole = seconds.pop("forward and backward")
    return {"num_params": sum(leaf.size for leaf in experts.values()), "forward_backward_s": whole} | {
        name: value / whole for name, value in seconds.items()
    }


def checkpoints() -> dict[str, float]:
    """Wall seconds, as both sides wait for the same disk: blocked time of a save over `np.savez`; checked restore over plain orbax."""
    import orbax.checkpoint as ocp

    state = init_state(peer_run("adamw"))
    jax.block_until_ready(state)
    like = jax.eval_shape(lambda: state)
    blocked, savez, checked, plain = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        ours, reader = Checkpoints(Path(folder) / "ours", config_digest="x"), ocp.StandardCheckpointer()
        for step in range(1, ROUNDS + 2):
            blocked.append(ours.begin(state, step)[0])
            ours.finish()
            started = time.perf_counter()
            arrays: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in named_leaves(state).items()}
            np.savez(Path(folder) / "state.npz", **arrays)
            savez.append(time.perf_counter() - started)
        for _ in range(ROUNDS):
            started = time.process_time()
            jax.block_until_ready(reader.restore(Path(folder).absolute() / "ours" / f"{step:09d}" / "arrays", like))
            plain.append(time.process_time() - started)
            started = time.process_time()
            jax.block_until_ready(ours.restore(step, like))
            checked.append(time.process_time() - started)
    middle = statistics.median
    return {
        "state_mib": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) / 2**20,
        "blocked_over_savez": middle(blocked[1:]) / middle(savez[1:]),
        "checked_restore_over_plain": middle(checked) / middle(plain),
    }


def small_step(run: RunConfig) -> dict[str, float]:
    """CPU milliseconds of one step of a small run and of its parts."""
    from forerun.train.step import compile_step

    state, batch, (step_fn, ratio) = init_state(run), batch_of(run), compile_step(run)
    kept = state

    def step() -> Any:
        nonlocal kept
        kept, report = step_fn(kept, batch)
        return report

    seconds = cpu_seconds({"step": step}, repeat=2)["step"]
    return {"cpu_ms": 1000 * seconds, "tokens_per_cpu_second": run.train.batch_tokens / seconds, "flops_over_expected": ratio}


def first_step(run: RunConfig) -> float:
    """CPU seconds from a made state to the end of the first step, compiling or reading the compiled step."""
    from forerun.train.step import compile_step

    state, batch = init_state(run), batch_of(run)
    jax.block_until_ready(state)
    started = time.process_time()
    step_fn, _ = compile_step(run)
    jax.block_until_ready(step_fn(state, batch))
    return time.process_time() - started


keep_heap_between_steps()
