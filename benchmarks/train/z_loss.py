"""Does the logit z-loss keep a run stable at learning rates that are too high? Three seeds with it and without, two optimizers.

    python benchmarks/train/z_loss.py

Writes `z_loss.json` beside itself: per run the loss and the mean squared logsumexp (the quantity the z-loss holds down) along the
way. Text is drawn from a fixed random bigram table, so that the best loss is known: its conditional entropy.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

from forerun.kernels.host_memory import keep_heap_between_steps
from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.optim.config import OptimConfig
from forerun.train.config import RunConfig, SpikePolicy, TrainConfig
from forerun.train.state import init_state
from forerun.train.step import ModelBatch, build_step

VOCAB_SIZE, SEQ_LEN, BATCH_SIZE, NUM_STEPS, EVERY = 256, 64, 8, 400, 20
SEEDS = (0, 1, 2)
COEFFICIENTS = (0.0, 1e-4)  # the second is the recipe's
RATES = {  # recipe, then MuonH and Adam peaks: several times what trains best at this size
    "muonh, high": ("muonh", 0.1, 0.1),
    "adamw, high": ("adamw", 0.02, 0.05),
}
GROWTH = 2.0  # logsumexp at the end over its value after a tenth of the run, from which on the logits are said to grow

MODEL = ModelConfig(
    vocab_size=VOCAB_SIZE,
    d_model=32,
    num_layers=2,
    num_heads=2,
    d_head=16,
    num_kv_heads=1,
    num_global_kv_heads=1,
    window=32,
    num_experts=8,
    top_k=2,
    d_expert=16,
    d_latent=16,
    d_shared=16,
    gated_norm_rank=4,
)


class Bigrams:
    """Batches of a language whose next token depends on the last one only."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        weights = rng.dirichlet(np.full(VOCAB_SIZE, 0.05), VOCAB_SIZE)
        self._cumulative = np.cumsum(weights, 1)
        self.entropy_nats = float(-(weights * np.log(np.maximum(weights, 1e-300))).sum(1).mean())

    def batch(self, seed: int, step: int) -> ModelBatch:
        rng = np.random.default_rng((seed, step))
        ids = np.empty((BATCH_SIZE, SEQ_LEN + 1), np.int32)
        ids[:, 0] = rng.integers(VOCAB_SIZE, size=BATCH_SIZE)
        for column in range(SEQ_LEN):
            draws = rng.random(BATCH_SIZE)[:, None]
            ids[:, column + 1] = (self._cumulative[ids[:, column]] < draws).sum(1).clip(max=VOCAB_SIZE - 1)
        positions = np.broadcast_to(np.arange(SEQ_LEN, dtype=np.int32), (BATCH_SIZE, SEQ_LEN))
        ones = np.ones((BATCH_SIZE, SEQ_LEN), np.int32)
        return ModelBatch(ids[:, :-1].copy(), ids[:, 1:].copy(), ones, positions.copy(), ones.astype(np.float32))


def run_config(setting: str, coefficient: float, seed: int) -> RunConfig:
    recipe, muonh, adam = RATES[setting]
    return RunConfig(
        name="z-loss",
        model=replace(MODEL, z_loss_coefficient=coefficient),
        optim=OptimConfig(recipe=recipe, muonh_learning_rate=muonh, adam_learning_rate=adam),  # type: ignore[arg-type]
        data=DataConfig(manifest=""),
        train=TrainConfig(num_steps=NUM_STEPS, batch_size=BATCH_SIZE, seq_len=SEQ_LEN, seed=seed),
        spikes=SpikePolicy(on_nonfinite="stop"),
    )


def trained(setting: str, coefficient: float, text: Bigrams) -> list[dict[str, Any]]:
    """One row per seed; all share one compiled step."""
    step_fn = build_step(run_config(setting, coefficient, 0))
    rows = []
    for seed in SEEDS:
        state = init_state(run_config(setting, coefficient, seed))
        loss, lse, grad_norm, worst = [], [], [], 0.0
        for step in range(NUM_STEPS):
            state, report = step_fn(state, text.batch(seed, step))
            tokens = float(report.num_tokens)
            worst = max(worst, float(report.grad_norm["total"]))
            if (step + 1) % EVERY == 0:
                loss.append(round(float(report.nats_sum) / tokens, 4))
                lse.append(round((float(report.z_sum) / tokens) ** 0.5, 3))
                grad_norm.append(round(float(report.grad_norm["total"]), 4))
        early = lse[len(lse) // 10]
        rows.append({
            "setting": setting, "z_loss_coefficient": coefficient, "seed": seed, "loss_nats": loss, "logsumexp_rms": lse,
            "grad_norm": grad_norm, "largest_grad_norm": round(worst, 3), "logits_grew": lse[-1] > GROWTH * early,
        })  # fmt: skip
        print(
            f"{setting:14} z {coefficient:<7g} seed {seed}  loss {loss[-1]:.3f}  logsumexp {early:.2f} -> {lse[-1]:.2f}  largest gradient {worst:.2f}",
            flush=True,
        )
    return rows


def main() -> None:
    keep_heap_between_steps()
    text = Bigrams()
    rows = [row for setting in RATES for coefficient in COEFFICIENTS for row in trained(setting, coefficient, text)]
    result = {"schema": 1, **provenance(), "every_steps": EVERY, "entropy_nats": round(text.entropy_nats, 4), "rates": RATES, "runs": rows}
    Path(__file__).with_name("z_loss.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
