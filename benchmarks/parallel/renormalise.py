"""Whether the weights of a token's surviving experts should be rescaled: dropless loss after training with drops, both ways, paired seeds.

Run from the repository root: python benchmarks/parallel/renormalise.py [--write]

A two-layer model of the 535B recipe's switches at width 32 learns noisy walks; both arms see the same batches and start from the same
numbers. The loss is measured without drops, on batches never trained on, so only what the weights learned counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np

from forerun.loader.config import DataConfig
from forerun.model.presets import marin, reduced
from forerun.model.transformer import token_losses
from forerun.optim.config import OptimConfig
from forerun.parallel.config import TransportConfig
from forerun.train.config import RunConfig, TrainConfig
from forerun.train.state import init_state
from forerun.train.step import build_step, model_batch

NUM_STEPS, NUM_SEEDS, NUM_EVAL = 400, 4, 8
FACTORS = (0.9,)
HERE = Path(__file__).parent


def config_of(capacity_factor: float, renormalize: bool) -> RunConfig:
    model = reduced(marin(768, 8), d_model=32, num_layers=2, vocab_size=64, num_experts=16, window=16)
    return RunConfig(
        name="renormalise",
        model=model,
        optim=OptimConfig(muonh_learning_rate=0.02, adam_learning_rate=0.01),
        data=DataConfig(manifest="0" * 64),
        train=TrainConfig(num_steps=NUM_STEPS, batch_size=16, seq_len=32),
        transport=TransportConfig(capacity_factor=capacity_factor, renormalize_survivors=renormalize),
    )


def batch_of(config: RunConfig, number: int) -> SimpleNamespace:
    """Each row walks over the alphabet at its own pace: context has to tell which."""
    rng = np.random.default_rng(number)
    shape = (config.train.batch_size, config.train.seq_len + 1)
    pace = rng.integers(1, 6, (shape[0], 1))
    walk = (rng.integers(0, 64, (shape[0], 1)) + (pace + rng.integers(0, 2, shape)).cumsum(1)) % 64
    ones = np.ones((shape[0], shape[1] - 1), np.int32)
    positions = np.broadcast_to(np.arange(shape[1] - 1, dtype=np.int32), ones.shape)
    tokens, targets = walk[:, :-1].astype(np.int32), walk[:, 1:].astype(np.int32)
    return SimpleNamespace(tokens=tokens, targets=targets, segment_ids=ones, positions=positions, loss_mask=ones.astype(np.float32))


def trained_losses(config: RunConfig) -> tuple[list[float], float]:
    """Dropless loss of each seed, and the mean drop fraction."""
    step = build_step(config)
    score = jax.jit(lambda params, router, batch: token_losses(params, router, batch, config.model).mean())
    losses, dropped = [], []
    for seed in range(NUM_SEEDS):
        state = init_state(replace(config, train=replace(config.train, seed=seed)))
        for number in range(NUM_STEPS):
            state, report = step(state, model_batch(batch_of(config, number)))  # type: ignore[arg-type]
            dropped.append(float(report.dropped.sum() / report.load.sum()))
        held_out = [model_batch(batch_of(config, 10**6 + number)) for number in range(NUM_EVAL)]  # type: ignore[arg-type]
        losses.append(float(np.mean([score(state.params, state.router, batch) for batch in held_out])))
    return losses, float(np.mean(dropped))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with drops, survivors renormalised or not.")
    parser.add_argument("--write", action="store_true", help="keep the result beside this file")
    arguments = parser.parse_args()
    results = []
    for factor in FACTORS:
        plain, drop = trained_losses(config_of(factor, False))
        scaled, drop_scaled = trained_losses(config_of(factor, True))
        difference = np.array(scaled) - np.array(plain)
        results.append(
            {
                "capacity_factor": factor,
                "drop_fraction": [drop, drop_scaled],
                "plain": plain,
                "renormalised": scaled,
                "difference": float(difference.mean()),
                "standard_error": float(difference.std(ddof=1) / len(difference) ** 0.5),
            }
        )
        print(
            f"capacity {factor}: drops {drop:.3f}, {drop_scaled:.3f}; loss {np.mean(plain):.4f} plain, {np.mean(scaled):.4f} renormalised, "
            f"difference {difference.mean():+.4f} +- {results[-1]['standard_error']:.4f}",
            flush=True,
        )
    if arguments.write:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        kept = {"date": time.strftime("%Y-%m-%d"), "commit": commit, "jax": jax.__version__, "results": results}
        (HERE / "renormalise.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
