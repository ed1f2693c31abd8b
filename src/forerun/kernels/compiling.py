"""What XLA is told when a step is compiled."""

from __future__ import annotations

from pathlib import Path

import jax

KEEP_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""On CPUs, jaxlib before 0.12 takes optimisation barriers away before it merges equal products: what is to be made again in the backward
pass is then kept after all, and rematerialisation saves nothing. Measured with jaxlib 0.10.2 at 4 layers, d_model 192 (2026-11-30): 326 MB
with blocks made again, 98 MB with this pass left out; jaxlib 0.12.0.1 takes 98 MB either way."""


def compiler_options() -> dict[str, str]:
    """For `jax.jit` of a step that is differentiated."""
    return KEEP_BARRIERS if jax.default_backend() == "cpu" else {}


def keep_compiled(folder: Path, *, has_collectives: bool) -> None:
    """Keep executables in a folder, and take them from there, for what compiles from now on.

    Not those with collectives on CPUs: XLA:CPU orders collectives by a token they share, and reading an executable back makes a token of
    its own for each. Two processes may then wait for each other in different ones: seen once among a dozen runs of four processes.
    """
    from jax.experimental.compilation_cache import compilation_cache

    kept = not has_collectives or jax.default_backend() != "cpu"
    compilation_cache.reset_cache()  # JAX looks at these settings once, when it first compiles
    jax.config.update("jax_compilation_cache_dir", str(folder) if kept else None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
