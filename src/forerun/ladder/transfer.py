"""Learning rates, eps and beta2 of a run from its width, tokens and batch: what makes rungs of one family comparable.

Source of all constants: the published run's transfer fit (reference model-and-training 2.2; R^2 = 0.978, fitted at context 8192,
applied at 4096 through the tokens per step). Assumed for other corpora, depths and contexts: not measured here.
"""

from __future__ import annotations

import math

from forerun.base.errors import ConfigError
from forerun.optim.config import OptimConfig
from forerun.plan.length import TOKENS_PER_ACTIVE_PARAM, num_steps

__all__ = ["BATCH_EXPONENT", "TOKENS_EXPONENT", "TOKENS_PER_ACTIVE_PARAM", "WIDTH_EXPONENT", "num_steps", "transferred"]

ADAM_SCALE = 0.087571  # source: module docstring
TOKENS_EXPONENT = -0.3461  # source: module docstring
WIDTH_EXPONENT = -0.3448  # source: module docstring
BATCH_EXPONENT = 0.5  # source: module docstring; the square-root rule for Adam kinds
MUONH_OVER_ADAM = 13 / 3  # source: module docstring
LARGEST_LEARNING_RATE = 0.05  # source: module docstring
EPS_SCALE = 9.676e-18  # source: module docstring
BETA2_AT_REFERENCE, REFERENCE_BATCH_TOKENS = 0.999, 131_072  # source: module docstring
SMALLEST_BETA2, LARGEST_BETA2 = 0.95, 0.9999  # source: module docstring


def transferred(*, d_model: int, train_tokens: float, batch_tokens: int) -> OptimConfig:
    """The recipe's optimizer settings at this size: peak rates, eps, beta2; everything else at its default.

    Args:
        train_tokens: planned length, not tokens so far.
        batch_tokens: per optimizer step over all devices.
    Raises: ConfigError when a size is not positive.
    """
    for name, value in (("model.d_model", d_model), ("train.train_tokens", train_tokens), ("train.batch_tokens", batch_tokens)):
        if not value > 0:
            raise ConfigError(f"{name} must be positive to transfer learning rates, got {value}", hint="give the planned run's size")
    adam = ADAM_SCALE * train_tokens**TOKENS_EXPONENT * d_model**WIDTH_EXPONENT * batch_tokens**BATCH_EXPONENT
    return OptimConfig(
        adam_learning_rate=min(LARGEST_LEARNING_RATE, adam),
        muonh_learning_rate=min(LARGEST_LEARNING_RATE, MUONH_OVER_ADAM * min(LARGEST_LEARNING_RATE, adam)),
        beta2=min(LARGEST_BETA2, max(SMALLEST_BETA2, BETA2_AT_REFERENCE ** (batch_tokens / REFERENCE_BATCH_TOKENS))),
        eps=EPS_SCALE * math.sqrt(train_tokens / batch_tokens),
    )
