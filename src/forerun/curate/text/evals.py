"""Evaluation items to keep out of training: from lm-eval-harness task files, or from any file of records.

One record gives several texts to search for: each prompt field, each longer field, and all its fields together. They share the
record's name, so a hit is attributed to the item and says which part of it was found. A short prompt that several different
records put ("Which of the following is true?") is a phrase and no item; those records are known by their other parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from forerun.base.errors import DataError
from forerun.curate.text.eval_records import RECORD_SUFFIXES, Item, items_of, records_of
from forerun.curate.text.eval_tasks import TASK_SUFFIXES, task_items

PHRASE_RECORDS = 4  # assumed: records with one short prompt and different contents; entailment sets ask three times of one premise
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.large_string())])


def load_evals(paths: Sequence[Path], *, data: Path | None = None) -> pa.Table:
    """Items of some files and folders, `id` and `text`; ids look like `task/name#part`.

    Args:
        paths: record files (JSON, JSON lines, CSV, Parquet, Arrow; gzip or zstd), task files of lm-eval-harness, or folders of either.
        data: folder with the data sets that task files name, for those that are not local: `DIR/<data set>` or `DIR/<task>.jsonl`.
    Raises: DataError when a file or a task has no item, or a task's data is not there.
    """
    items: list[Item] = []
    for path in paths:
        for file in _files(path):
            if file.suffix in TASK_SUFFIXES:
                items += task_items(file, data)
                continue
            found = list(items_of(file.name.split(".")[0], records_of(file)))
            if not found:
                raise DataError(f"{file} has no evaluation item", hint="records need at least one field of text")
            items += found
    if paths and not items:
        raise DataError(f"no evaluation item in {', '.join(map(str, paths))}", hint="give task files with a dataset_path, or records")
    items = _without_phrases(items)
    return pa.table([[item.id for item in items], [item.text for item in items]], schema=SCHEMA)


def _without_phrases(items: Sequence[Item]) -> list[Item]:
    """Drop short prompts that many different records share."""
    contexts: dict[str, set[int]] = defaultdict(set)
    for item in items:
        if item.context:
            contexts[" ".join(item.text.lower().split())].add(item.context)
    return [item for item in items if not item.context or len(contexts[" ".join(item.text.lower().split())]) < PHRASE_RECORDS]


def _files(path: Path) -> list[Path]:
    """Files of a folder: its task files when it has any, else its records."""
    if path.is_file():
        if not path.name.endswith((*RECORD_SUFFIXES, *TASK_SUFFIXES)):
            raise DataError(f"{path} is no file of evaluation items", hint=f"files read: {', '.join((*RECORD_SUFFIXES, *TASK_SUFFIXES))}")
        return [path]
    if not path.is_dir():
        raise DataError(f"{path} does not exist", hint="name a file or folder of evaluation items")
    inside = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    tasks = [file for file in inside if file.suffix in TASK_SUFFIXES]
    records = [file for file in inside if file.name.endswith(RECORD_SUFFIXES)]
    if not tasks and not records:
        raise DataError(f"{path} holds no evaluation items", hint=f"files read: {', '.join((*RECORD_SUFFIXES, *TASK_SUFFIXES))}")
    return tasks or records
