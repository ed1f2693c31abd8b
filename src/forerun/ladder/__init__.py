"""From one dial to a family of runs, and from runs to a forecast. Never imports JAX."""
