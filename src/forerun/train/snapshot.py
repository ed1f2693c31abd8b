"""A state on the host: copied quickly, described to the bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import xxhash

from forerun.optim.paths import path_of

MAX_COPY_THREADS = 4  # assumed: a few cores fill a memory bus


class Snapshot:
    """A host copy whose memory is kept and filled again: fresh pages cost more than the copy itself.

    Whoever reads the copy must be done before the next `take`.
    """

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def take(self, state: Any) -> Any:
        """The numbers of `state` as they are now, in a tree of NumPy arrays that lives until the next call."""
        leaves, structure = jax.tree.flatten(state)
        for leaf in leaves:
            if isinstance(leaf, jax.Array):
                leaf.copy_to_host_async()
        if [(buffer.shape, buffer.dtype) for buffer in self._buffers] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
            self._buffers = [np.empty(leaf.shape, leaf.dtype) for leaf in leaves]
        with ThreadPoolExecutor(min(MAX_COPY_THREADS, os.cpu_count() or 1)) as threads:
            list(threads.map(_copy, self._buffers, leaves))
        return jax.tree.unflatten(structure, self._buffers)


def _copy(buffer: np.ndarray, leaf: Any) -> None:
    np.copyto(buffer, np.asarray(leaf), casting="no")


def described(arrays: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of each leaf, with its shape, dtype and digest.

    The digest (128 bits of XXH3) finds any accident of storage at the speed of memory; it does not resist a forger, who could as
    well write another manifest.
    """
    for key_path, leaf in jax.tree_util.tree_flatten_with_path(arrays)[0]:
        array = np.asarray(leaf, order="C")
        digest = xxhash.xxh3_128_hexdigest(array.reshape(-1).view(np.uint8).data)
        yield path_of(key_path), {"shape": list(array.shape), "dtype": str(array.dtype), "xxh3_128": digest}


def shapes(tree: Any) -> Iterator[tuple[str, tuple[tuple[int, ...], str]]]:
    """Name of each leaf, with its shape and dtype."""
    for key_path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield path_of(key_path), (tuple(leaf.shape), str(leaf.dtype))
