"""Weights as others load them: safetensors, a `config.json`, and a reference model for Hugging Face transformers beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from forerun.base.config import plain
from forerun.base.errors import CheckpointError
from forerun.base.files import storage_errors, write_atomic, write_json
from forerun.base.lab import Lab
from forerun.model.config import ModelConfig
from forerun.model.params import unstack
from forerun.optim.paths import path_of
from forerun.train.checkpoint import Checkpoints
from forerun.train.config import RunConfig
from forerun.train.state import init_state

TEMPLATES = Path(__file__).parent / "templates"


class Weights(NamedTuple):
    """One checkpoint, as forward passes need it."""

    params: dict[str, Any]
    """Unrolled; leaves are float32 arrays."""
    router_bias: np.ndarray
    """Effective routing bias per routed layer."""
    step: int
    """Finished steps."""
    optimizer: Any
    """State of the optimizer."""


def load_weights(lab: Lab, run_id: str, config: RunConfig) -> Weights:
    """The newest good checkpoint of a run. Raises: CheckpointError when it has none."""
    restored = Checkpoints(lab.run(run_id) / "checkpoints", config_digest="").restore_newest(init_state(config))
    if restored is None:
        raise CheckpointError(f"run {run_id!r} has no checkpoint", hint="`forerun train` saves one at the end of a run")
    state = restored.state
    params = state.params if isinstance(state.params["layers"], list) else unstack(state.params)
    return Weights(params, np.asarray(state.router.bias), restored.step, state.optim)


def write_weights(out: Path, params: dict[str, Any], router_bias: np.ndarray, config: ModelConfig) -> None:
    """Write `model.safetensors`, `config.json` and `modeling_forerun.py`; transformers loads the folder with `trust_remote_code`."""
    named = {"router_bias": np.asarray(router_bias, np.float32), **_dotted(params)}
    save_arrays(out / "model.safetensors", {f"weights.{name}": array for name, array in named.items()})
    write_json(
        out / "config.json",
        {
            "architectures": ["ForerunForCausalLM"],
            "auto_map": {"AutoConfig": "modeling_forerun.ForerunConfig", "AutoModelForCausalLM": "modeling_forerun.ForerunForCausalLM"},
            "model_type": "forerun",
            "dtype": "float32",
            "model": plain(config),
            "shapes": {name: list(array.shape) for name, array in named.items()},
        },
    )
    write_atomic(out / "modeling_forerun.py", (TEMPLATES / "modeling_forerun.py").read_bytes())


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """One safetensors file, whole or absent."""
    from safetensors.numpy import save

    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata={"format": "pt"}))


def optimizer_arrays(state: Any) -> dict[str, np.ndarray]:
    """The optimizer's arrays by dotted name."""
    return _dotted(state)


def _dotted(tree: Any) -> dict[str, np.ndarray]:
    return {path_of(path).replace("/", "."): np.asarray(leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
