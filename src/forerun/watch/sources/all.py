"""Every kind of source, by the word before the colon."""

from __future__ import annotations

import importlib
from pathlib import Path

from forerun.base.errors import SourceError
from forerun.base.lab import Lab
from forerun.watch.sources import own, tables
from forerun.watch.sources.source import Source

KINDS: tuple[tuple[str, str, str], ...] = (
    ("wandb", "forerun.watch.sources.wandb", "wandb:ENTITY/PROJECT/RUN"),
    ("wandb+fast", "forerun.watch.sources.wandb_buckets", "wandb+fast:ENTITY/PROJECT/RUN"),
    ("tensorboard", "forerun.watch.sources.tensorboard", "tensorboard:DIR"),
    ("mlflow", "forerun.watch.sources.mlflow", "mlflow:http://HOST/RUN_ID, mlflow:FILE.db#RUN_ID or mlflow:mlruns/0/RUN_ID"),
    ("trackio", "forerun.watch.sources.trackio", "trackio:FILE.db#RUN"),
    ("csv", "forerun.watch.sources.tables", "csv:FILE"),
    ("parquet", "forerun.watch.sources.tables", "parquet:FILE"),
    ("jsonl", "forerun.watch.sources.tables", "jsonl:FILE"),
    ("json", "forerun.watch.sources.tables", "json:FILE"),
)
"""Word, module (imported when used), form."""


def connect(source: str, lab: Lab) -> Source:
    """The source a command line names: `kind:where`, the path of a table or of a run's folder, or a run id of the lab.

    Raises: SourceError for an unknown kind.
    """
    if Path(source).is_file():
        return tables.connect(source)
    if (Path(source) / "run.json").is_file():
        return own.connect(source)
    kind, colon, where = source.partition(":")
    if not colon:
        return own.connect(str(lab.run(source)))
    for word, module, _ in KINDS:
        if kind == word:
            return importlib.import_module(module).connect(where)
    raise SourceError(f"there is no source {kind!r}", hint="sources: a run id, " + ", ".join(form for _, _, form in KINDS))
