"""Errors meant for people: what was wrong (field, rule, value) and the way out, on one line each.

Our own mistakes are `assert`s and ordinary exceptions; everything a user can cause is a `PlatformError`.
"""

from __future__ import annotations


class PlatformError(Exception):
    """Something the user can mend. `exit_code` is what the command line returns for it."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})"


class ConfigError(PlatformError):
    """A configuration field breaks a rule."""


class DataError(PlatformError):
    """A document, shard, manifest or table cannot be used as it is."""


class RecordError(PlatformError):
    """A run record is missing, torn beyond repair, or not what its digest says."""


class RegistryError(PlatformError):
    """A promise is missing, malformed, or contradicts the ledger."""


class CheckpointError(PlatformError):
    """A checkpoint is corrupt, half-written or does not fit the run."""


class StorageError(PlatformError):
    """The file system refused: disk full, read-only, quota, permission."""


class SourceError(PlatformError):
    """A remote or foreign source of metrics cannot be read."""


class ProcessLost(PlatformError):
    """One process of a run of several is gone, and the run with it; started again, it goes on from its newest checkpoint."""

    exit_code = 75  # sysexits.h EX_TEMPFAIL, which schedulers restart


class CheckFailed(PlatformError):
    """A check ran and its answer is no (exit code 1): a verification, a gate, a missed promise."""

    exit_code = 1
