"""Names of leaves: `layers/3/attention/w_q`, the same in groups, norms, checkpoints and records."""

from __future__ import annotations

from typing import Any

import jax


def path_of(key_path: tuple[Any, ...]) -> str:
    """The slash-separated name of a leaf from JAX's key path."""
    return "/".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in key_path)


def named_leaves(tree: Any) -> dict[str, Any]:
    """All leaves by name, in tree order."""
    return {path_of(key_path): leaf for key_path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
