"""Checkpoints a run can trust: orbax writes the arrays, our manifest says what they must be, to the bit.

orbax restores flipped bytes and other dtypes without a word, so every array carries a digest here and is checked on restore;
a checkpoint without a manifest is half-written and does not exist.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from forerun.base.errors import CheckpointError, StorageError
from forerun.base.files import storage_errors, write_json
from forerun.parallel.mesh import placed
from forerun.train.snapshot import Snapshot, described, shapes

MANIFEST = "checkpoint.json"


@dataclass(frozen=True)
class Restored:
    """A state read back and what was wrong with newer checkpoints that had to be passed over."""

    state: Any
    step: int
    refused: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a save ended."""

    step: int
    seconds: float
    """From the copy to the last byte, in the background."""
    problem: str
    """Empty when the checkpoint is whole."""


class Checkpoints:
    """The checkpoints of one run: `<folder>/<step>/` with the arrays and `checkpoint.json`.

    `begin` copies the state and returns; one thread writes. A save that fails or hangs is an `Outcome` with a problem, never an
    exception in the loop: the run goes on with the checkpoints it has.

    Args:
        num_rolling: newest checkpoints kept besides those of the role `forever`, which is written into each manifest, so that
            neither age nor a changed config ever deletes one.
        milestones: steps saved with the role `forever`; they are read back at once.
        timeout_s: longest a save or a restore may take.
    """

    def __init__(
        self,
        folder: Path,
        *,
        config_digest: str,
        num_rolling: int = 2,
        milestones: frozenset[int] = frozenset(),
        timeout_s: float = 600.0,
    ) -> None:
        import absl.logging
        import orbax.checkpoint as ocp

        absl.logging.set_verbosity(absl.logging.FATAL)  # orbax logs a page of stacks for a full disk; what it says is in the outcome
        self.folder, self._config_digest = folder, config_digest
        self._num_rolling, self._milestones, self._timeout_s = max(1, num_rolling), milestones, timeout_s
        self._orbax = ocp.StandardCheckpointer(multiprocessing_options=_alone(jax.process_index(), jax.process_count()))
        self._snapshot = Snapshot()
        self._writing: threading.Thread | None = None
        self._writing_step, self._began = 0, 0.0
        self._outcome: Outcome | None = None

    def begin(self, state: Any, step: int) -> tuple[float, Outcome | None]:
        """Start a save of the state as it is now; the caller may go on and give its memory away.

        Returns: seconds the caller was blocked, and how the save before ended (None when none was under way). While that one still hangs
            after `timeout_s`, nothing new is started.
        """
        started = time.perf_counter()
        before = self.finish()
        if self._writing is None:
            arrays = self._snapshot.take(state)
            self._writing_step, self._began = step, started
            self._writing = threading.Thread(target=self._write, args=(arrays, step), name="forerun-checkpoint", daemon=True)
            self._writing.start()
        return time.perf_counter() - started, before

    def finish(self) -> Outcome | None:
        """Wait for the save under way, at most `timeout_s` from its start, and say how it ended."""
        if self._writing is None:
            return None
        self._writing.join(max(0.0, self._began + self._timeout_s - time.perf_counter()))
        if self._writing.is_alive():
            return Outcome(self._writing_step, time.perf_counter() - self._began, f"not written after {self._timeout_s:g} s")
        self._writing = None
        outcome, self._outcome = self._outcome, None
        return outcome

    def save(self, state: Any, step: int) -> float:
        """Write one checkpoint and wait for it. Returns the seconds it took. Raises: StorageError when it could not be written."""
        started = time.perf_counter()
        self.begin(state, step)
        outcome = self.finish()
        if outcome and outcome.problem:
            raise StorageError(
                f"checkpoint of step {step} failed: {outcome.problem}",
                hint="free space; older checkpoints are intact, the run can be resumed",
            )
        return time.perf_counter() - started

    def _write(self, arrays: Any, step: int) -> None:
        place, problem = self.folder / f"{step:09d}", ""
        try:
            with storage_errors(place):
                if place.exists():
                    shutil.rmtree(place)
                self.folder.mkdir(parents=True, exist_ok=True)
                self._orbax.save((place / "arrays").absolute(), arrays)
                self._orbax.wait_until_finished()
            role = "forever" if step in self._milestones else "rolling"
            manifest = {"schema": 1, "step": step, "role": role, "config_digest": self._config_digest, "arrays": dict(described(arrays))}
            write_json(place / MANIFEST, manifest)
            if role == "forever":
                self._restore(step, arrays)
            self._forget_old()
        except (OSError, ValueError, RuntimeError, StorageError, CheckpointError) as error:
            problem = _in_words(error, place)
            with contextlib.suppress(OSError):  # the storage that refused the save may refuse the clearing away too
                if place.is_dir():
                    (place / MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(place, ignore_errors=True)
        self._outcome = Outcome(step, time.perf_counter() - self._began, problem)

    def steps(self) -> list[int]:
        """Steps of complete checkpoints, oldest first."""
        return sorted(int(place.parent.name) for place in self.folder.glob(f"*/{MANIFEST}") if place.parent.name.isdigit())

    def restore_newest(self, like: Any, shardings: Any = None) -> Restored | None:
        """The newest checkpoint whose every array is what its manifest says; None when the run has none at all.

        Args:
            like: a state of the shapes and dtypes to expect; its numbers are not read.
            shardings: where each array shall lie, on whatever mesh: files know none. None for one device.
        Raises: CheckpointError when there are checkpoints and every one is corrupt.
        """
        refused: list[str] = []
        for step in reversed(self.steps()):
            try:
                return Restored(self.restore(step, like, shardings), step, tuple(refused))
            except CheckpointError as error:
                refused.append(str(error))
        if refused:
            raise CheckpointError(
                refused[0], hint=f"all {len(refused)} checkpoints in {self.folder} are unusable; restore the folder from a copy"
            )
        return None

    def restore(self, step: int, like: Any, shardings: Any = None) -> Any:
        """The state of one checkpoint, checked array by array.

        Raises: CheckpointError when it is absent, corrupt, of another shape, or not read within `timeout_s`.
        """
        if step not in self.steps():
            known = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"{self.folder} has no checkpoint of step {step}", hint=f"it has {known}")
        outcome: list[Any] = []

        def read() -> None:
            try:
                arrays = self._restore(step, like)
                outcome.append(arrays if shardings is not None else jax.device_put(arrays))
            except CheckpointError as error:
                outcome.append(error)

        reader = threading.Thread(target=read, name="forerun-restore", daemon=True)
        reader.start()
        reader.join(self._timeout_s)
        if not outcome:
            raise CheckpointError(
                f"{self.folder / f'{step:09d}'}: not read within {self._timeout_s:g} s",
                hint="raise checkpoint.timeout_s, or check the disk",
            )
        if isinstance(outcome[0], CheckpointError):
            raise outcome[0]
        return outcome[0] if shardings is None else placed(outcome[0], shardings)

    def _restore(self, step: int, like: Any) -> Any:
        place = self.folder / f"{step:09d}"
        try:
            expected = json.loads((place / MANIFEST).read_bytes())["arrays"]
            held = {name: (tuple(entry["shape"]), entry["dtype"]) for name, entry in expected.items()}
            digests = {name: entry["xxh3_128"] for name, entry in expected.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # whatever a damaged file may decode to
            raise CheckpointError(f"{place}: its manifest cannot be read: {error}", hint="an older checkpoint is used") from None
        wanted = dict(shapes(like))
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
        for name, entry in described(arrays):
            if entry["xxh3_128"] != digests[name]:
                raise CheckpointError(f"{place}: array {name} has changed since it was saved", hint="an older checkpoint is used")
        return arrays

    def _forget_old(self) -> None:
        rolling = [step for step in self.steps() if self._role(step) == "rolling"]
        for step in rolling[: -self._num_rolling]:
            place = self.folder / f"{step:09d}"
            (place / MANIFEST).unlink()
            shutil.rmtree(place, ignore_errors=True)

    def _role(self, step: int) -> str:
        """The role in a manifest; what cannot be read is never deleted."""
        try:
            return str(json.loads((self.folder / f"{step:09d}" / MANIFEST).read_bytes())["role"])
        except (ValueError, KeyError, TypeError):
            return "unreadable"


def _alone(process: int, num_processes: int) -> Any:
    """orbax without its barriers: the first of several processes saves whole arrays, each restores them by itself."""
    from orbax.checkpoint.options import MultiprocessingOptions

    if num_processes == 1:
        return MultiprocessingOptions()
    return MultiprocessingOptions(primary_host=process, active_processes={process}, barrier_sync_key_prefix=f"process_{process}")


def _in_words(error: Exception, place: Path) -> str:
    """One line; of orbax's long ones only what the operating system said."""
    text = str(error)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO):
        if os.strerror(number) in text and not isinstance(error, StorageError):
            return f"cannot write {place}: {os.strerror(number)}"
    return f"{type(error).__name__}: {text}".splitlines()[0][:300]
