"""The published family listed rung by rung, lengths and peak rates from one dial."""

from __future__ import annotations

from typing import Any

from forerun.ladder.transfer import transferred
from forerun.model import count
from forerun.plan.length import TOKENS_PER_ACTIVE_PARAM
from forerun.plan.presets import HERO_D_MODEL, RUNGS, marin_rung

HERO_TOKENS = 18.0e12  # derived: the published hero rates 0.003291 and 0.000759 are those of 18.0T tokens, its 390,251 steps make 18.005T


def marin_ladder(tokens_per_active_param: float = TOKENS_PER_ACTIVE_PARAM) -> list[dict[str, Any]]:
    """One row a rung, smallest first, the hero last. Raises: ConfigError unless the ratio is positive."""
    rows = []
    for d_model in RUNGS:
        run = marin_rung(d_model, tokens_per_active_param)
        published = d_model == HERO_D_MODEL and tokens_per_active_param == TOKENS_PER_ACTIVE_PARAM
        optim = transferred(d_model=d_model, train_tokens=HERO_TOKENS if published else run.train_tokens, batch_tokens=run.batch_tokens)
        rows.append(
            {
                "name": run.name,
                "d_model": d_model,
                "num_layers": run.model.num_layers,
                "num_active_params": count.num_active_params(run.model),
                "num_params": count.num_params(run.model),
                "batch_size": run.batch_size,
                "batch_tokens": run.batch_tokens,
                "num_steps": run.num_steps,
                "train_tokens": run.train_tokens,
                "train_flops": run.train_flops,
                "muonh_learning_rate": optim.muonh_learning_rate,
                "adam_learning_rate": optim.adam_learning_rate,
                "beta2": optim.beta2,
                "eps": optim.eps,
            }
        )
    return rows
