"""Checkpoints a run can trust: orbax writes the arrays, our manifest says what they must be, to the bit.

orbax restores flipped bytes and other dtypes without a word, so every array carries a SHA-256 here and is checked on restore;
a checkpoint without a manifest is half-written and does not exist.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from forerun.base.errors import CheckpointError
from forerun.base.files import storage_errors, write_json
from forerun.optim.paths import path_of

MANIFEST = "checkpoint.json"


@dataclass(frozen=True)
class Restored:
    """A state read back and what was wrong with newer checkpoints that had to be passed over."""

    state: Any
    step: int
    refused: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one run: `<folder>/<step>/` with the arrays and `checkpoint.json`.

    Args:
        num_rolling: newest checkpoints kept besides milestones.
        milestones: steps kept for ever.
    """

    def __init__(self, folder: Path, *, config_digest: str, num_rolling: int = 2, milestones: frozenset[int] = frozenset()) -> None:
        import orbax.checkpoint as ocp

        self.folder, self._config_digest = folder, config_digest
        self._num_rolling, self._milestones = max(1, num_rolling), milestones
        self._orbax = ocp.StandardCheckpointer()

    def save(self, state: Any, step: int) -> float:
        """Write one checkpoint whole, then forget the ones no rule keeps. Returns the seconds it took.

        Raises: StorageError when the disk refuses; what was there before stays valid.
        """
        started = time.perf_counter()
        place = self.folder / f"{step:09d}"
        with storage_errors(place):
            if place.exists():
                shutil.rmtree(place)
            self.folder.mkdir(parents=True, exist_ok=True)
            arrays = jax.tree.map(np.asarray, state)
            self._orbax.save((place / "arrays").absolute(), arrays)
            self._orbax.wait_until_finished()
        write_json(place / MANIFEST, {"schema": 1, "step": step, "config_digest": self._config_digest, "arrays": dict(_described(arrays))})
        self._forget_old()
        return time.perf_counter() - started

    def steps(self) -> list[int]:
        """Steps of complete checkpoints, oldest first."""
        return sorted(int(place.parent.name) for place in self.folder.glob(f"*/{MANIFEST}") if place.parent.name.isdigit())

    def restore_newest(self, like: Any) -> Restored | None:
        """The newest checkpoint whose every array is what its manifest says; None when the run has none at all.

        Args:
            like: a state of the shapes and dtypes to expect; its numbers are not read.
        Raises: CheckpointError when there are checkpoints and every one is corrupt.
        """
        refused: list[str] = []
        for step in reversed(self.steps()):
            try:
                return Restored(self._restore(step, like), step, tuple(refused))
            except CheckpointError as error:
                refused.append(str(error))
        if refused:
            raise CheckpointError(
                refused[0], hint=f"all {len(refused)} checkpoints in {self.folder} are unusable; restore the folder from a copy"
            )
        return None

    def _restore(self, step: int, like: Any) -> Any:
        place = self.folder / f"{step:09d}"
        try:
            manifest = json.loads((place / MANIFEST).read_bytes())
            expected = manifest["arrays"]
        except (ValueError, KeyError) as error:
            raise CheckpointError(f"{place}: its manifest cannot be read: {error}", hint="an older checkpoint is used") from None
        wanted = dict(_shapes(like))
        held = {name: (tuple(entry["shape"]), entry["dtype"]) for name, entry in expected.items()}
        if wanted != held:
            name = next(iter(sorted(set(wanted.items()) ^ set(held.items()))))[0]
            raise CheckpointError(
                f"{place}: array {name} does not fit the run (shape, dtype or presence)", hint="resume with the config it was saved under"
            )
        abstract = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), like)
        try:
            arrays = self._orbax.restore((place / "arrays").absolute(), abstract)
        except (ValueError, KeyError, FileNotFoundError, OSError) as error:
            raise CheckpointError(
                f"{place}: arrays cannot be read: {str(error).splitlines()[0][:200]}", hint="an older checkpoint is used"
            ) from None
        for name, entry in _described(arrays):
            if entry["sha256"] != expected[name]["sha256"]:
                raise CheckpointError(f"{place}: array {name} has changed since it was saved", hint="an older checkpoint is used")
        return jax.tree.map(jax.numpy.asarray, arrays)

    def _forget_old(self) -> None:
        rolling = [step for step in self.steps() if step not in self._milestones]
        for step in rolling[: -self._num_rolling]:
            place = self.folder / f"{step:09d}"
            (place / MANIFEST).unlink()
            shutil.rmtree(place, ignore_errors=True)


def _described(arrays: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for key_path, leaf in jax.tree_util.tree_flatten_with_path(arrays)[0]:
        array = np.asarray(leaf, order="C")
        yield (
            path_of(key_path),
            {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": hashlib.sha256(array.tobytes()).hexdigest()},
        )


def _shapes(tree: Any) -> Iterator[tuple[str, tuple[tuple[int, ...], str]]]:
    for key_path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield path_of(key_path), (tuple(leaf.shape), str(leaf.dtype))
