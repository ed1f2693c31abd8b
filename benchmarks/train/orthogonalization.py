"""Newton-Schulz against a singular value decomposition, and whether the cheaper form trains as well.

    python benchmarks/train/orthogonalization.py
    python benchmarks/train/orthogonalization.py --only convergence,gram        parts of it, about a minute each

First table: what becomes of singular values, and how far the result is from U V' of the decomposition. Second: loss at the end of
300 steps on the bigram text of `z_loss.py`, three seeds, same batches. Parts measured are replaced in `orthogonalization.json`, each with its date and commit.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from provenance import provenance
from z_loss import MODEL, SEEDS, Bigrams, run_config

from forerun.kernels.host_memory import keep_heap_between_steps
from forerun.optim.orthogonal import orthogonalize, orthogonalize_by_gram
from forerun.train.state import init_state
from forerun.train.step import build_step

FORMS = {
    "quintic, 3 steps": functools.partial(orthogonalize, num_steps=3),
    "quintic, 5 steps": functools.partial(orthogonalize, num_steps=5),
    "quintic, 7 steps": functools.partial(orthogonalize, num_steps=7),
    "gram": functools.partial(orthogonalize_by_gram, precision="float32"),
    "gram_bfloat16": functools.partial(orthogonalize_by_gram, precision="bfloat16"),
}
SPECTRA = {"gaussian": None, "decays 100-fold": 1e-2, "decays 10,000-fold": 1e-4}
TRAINED = ("quintic", "gram", "gram_bfloat16")
NUM_STEPS = 300
RESULTS = Path(__file__).with_name("orthogonalization.json")
LAST = 50  # steps whose mean loss is compared


def convergence() -> dict[str, dict[str, dict[str, float]]]:
    """By spectrum and form: range of singular values after, share of directions within 30% of 1, distance to U V' per direction."""
    rng, table = np.random.default_rng(0), {}
    for spectrum, smallest in SPECTRA.items():
        matrix = rng.normal(size=(128, 256))
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        if smallest is not None:
            values = np.geomspace(1.0, smallest, 128)
        matrix, polar = (left * values) @ right, left @ right
        table[spectrum] = {}
        for name, form in FORMS.items():
            result = np.asarray(form(jnp.asarray(matrix[None], jnp.float32)))[0]
            reached = np.diag(left.T @ result @ right.T)
            table[spectrum][name] = {
                "smallest": float(reached.min()), "largest": float(reached.max()), "share_near_1": float((np.abs(reached - 1) < 0.3).mean()),
                "distance": float(np.linalg.norm(result - polar) / 128**0.5),
                "mixed": float(np.linalg.norm(left.T @ result @ right.T - np.diag(reached)) / 128**0.5),
            }  # fmt: skip
            print(f"{spectrum:20} {name:17}", "  ".join(f"{key} {value:.3f}" for key, value in table[spectrum][name].items()), flush=True)
    return table


def training(form: str) -> dict[str, Any]:
    """Mean loss of the last steps by seed; a seed sees the same batches under every form."""
    text, losses = Bigrams(), list[float]()
    base = replace(run_config("muonh, high", 1e-4, 0), model=MODEL)
    base = replace(
        base,
        train=replace(base.train, num_steps=NUM_STEPS),
        optim=replace(base.optim, orthogonalization=form, muonh_learning_rate=0.02, adam_learning_rate=0.02),  # type: ignore[arg-type]
    )
    step_fn = build_step(base)
    for seed in SEEDS:
        state, last = init_state(replace(base, train=replace(base.train, seed=seed))), []
        for step in range(NUM_STEPS):
            state, report = step_fn(state, text.batch(seed, step))
            if step >= NUM_STEPS - LAST:
                last.append(float(report.nats_sum) / float(report.num_tokens))
        losses.append(statistics.mean(last))
    print(f"{form:17} loss_nats {' '.join(f'{loss:.4f}' for loss in losses)}  mean {statistics.mean(losses):.4f}", flush=True)
    return provenance() | {"loss_nats": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(("convergence", *TRAINED)), help="parts to measure")
    chosen = parser.parse_args().only.split(",")
    keep_heap_between_steps()
    for part in chosen:
        measured = provenance() | {"spectra": convergence()} if part == "convergence" else training(part)
        kept = json.loads(RESULTS.read_text())["parts"] if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({"schema": 1, "parts": kept | {part: measured}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
