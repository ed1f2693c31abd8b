"""How long a run is, from its active parameters: the one dial of a family."""

from __future__ import annotations

from forerun.base.errors import ConfigError

TOKENS_PER_ACTIVE_PARAM = 791.0  # derived: 18.0T tokens / 22.76B active parameters (reference model-and-training 2.1)


def num_steps(*, num_active_params: int, batch_tokens: int, tokens_per_active_param: float = TOKENS_PER_ACTIVE_PARAM) -> int:
    """Optimizer steps that bring a model to the given ratio, rounded, at least 1. Raises: ConfigError unless the ratio is positive."""
    if not tokens_per_active_param > 0:
        raise ConfigError(
            f"tokens_per_active_param must be positive, got {tokens_per_active_param:g}", hint="the published ladder uses 791"
        )
    return max(1, round(tokens_per_active_param * num_active_params / batch_tokens))
