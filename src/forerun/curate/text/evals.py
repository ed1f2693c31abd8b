"""Evaluation items to keep out of training: from lm-eval-harness task files, or from any file of records.

One record gives several texts to search for: each prompt field, each longer field, and all its fields together. They share the
record's name, so a hit is attributed to the item and says which part of it was found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from forerun.base.errors import DataError
from forerun.curate.ingest.streams import plain

RECORD_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".parquet", ".arrow")
TASK_SUFFIXES = (".yaml", ".yml")
PROMPTS = frozenset(
    ("question", "query", "prompt", "problem", "goal", "premise", "sentence", "ctx", "input", "instruction", "text", "stem", "task")
)  # assumed: fields whose text, however short, is the item itself; answers such as "all of the above", and the text of choices, are not
NAMES = ("id", "_id", "idx", "ind", "task_id", "question_id", "example_id", "uid", "guid")
LONG_WORDS = 13  # derived: the words of a gram; a shorter answer on its own says nothing about its question
HELD_SPLITS = ("test", "validation", "dev", "val", "fewshot")
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.large_string())])
_FIELD = re.compile(r"[A-Za-z_]\w*")
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}|\{%(.*?)%\}", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def load_evals(paths: Sequence[Path], *, data: Path | None = None) -> pa.Table:
    """Items of some files and folders, `id` and `text`; ids look like `task/name#part`.

    Args:
        paths: record files (JSON, JSON lines, Parquet, Arrow; gzip or zstd), task files of lm-eval-harness, or folders of either.
        data: folder with the data sets that task files name, for those that are not local: `DIR/<data set>` or `DIR/<task>.jsonl`.
    Raises: DataError when a file has no item, or a task's data is not there.
    """
    rows: list[tuple[str, str]] = []
    for path in paths:
        for file in _files(path):
            before = len(rows)
            rows += _task(file, data) if file.suffix in TASK_SUFFIXES else _items(_task_of(file), _records(file), None)
            if len(rows) == before and file.suffix not in TASK_SUFFIXES:
                raise DataError(f"{file} has no evaluation item", hint="records need at least one field of text")
    if paths and not rows:
        raise DataError(f"no evaluation item in {', '.join(map(str, paths))}", hint="give task files with a dataset_path, or records")
    ids, texts = zip(*rows) if rows else ((), ())
    return pa.table([list(ids), list(texts)], schema=SCHEMA)


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


def _task_of(file: Path) -> str:
    return file.name.split(".")[0]


# records


def _records(file: Path) -> Iterator[dict[str, Any]]:
    try:
        if file.suffix == ".parquet":
            yield from pq.read_table(file).to_pylist()
        elif file.suffix == ".arrow":
            with pa.memory_map(str(file)) as source:
                yield from ipc.open_stream(source).read_all().to_pylist()
        else:
            yield from _json(file)
    except (pa.ArrowInvalid, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {str(error)[:120]}", hint="fetch the file again") from None


def _json(file: Path) -> Iterator[dict[str, Any]]:
    """Records of JSON lines, of a JSON list, or of a JSON object that holds one list."""
    with plain(str(file)) as stream:
        data = stream.read().decode("utf-8", "replace")
    if ".jsonl" in file.name:
        for number, line in enumerate(data.splitlines(), 1):
            if line.strip():
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise DataError(f"{file} line {number} is not a JSON object", hint="one record a line")
                yield record
        return
    whole = json.loads(data)
    lists = [whole] if isinstance(whole, list) else [part for part in whole.values() if isinstance(part, list)] or [[whole]]
    for part in lists:
        yield from (record for record in part if isinstance(record, dict))


def _items(task: str, records: Iterator[dict[str, Any]], fields: frozenset[str] | None) -> Iterator[tuple[str, str]]:
    """Texts of each record.

    Args:
        fields: top-level fields that make the item; None takes all that hold text.
    """
    for index, record in enumerate(records):
        name = next((str(record[key]) for key in NAMES if isinstance(record.get(key), str | int)), str(index)).removeprefix(f"{task}/")
        chosen = {key: value for key, value in record.items() if fields is None or key in fields}
        parts = [(part, text) for part, text in _texts(chosen, "") if " " in text.strip() or not text.isascii()]
        for part, text in parts:
            if part in PROMPTS or part.rsplit(".", 1)[-1] in PROMPTS - {"text"} or len(text.split()) >= LONG_WORDS or not text.isascii():
                yield f"{task}/{name}#{part}", text
        if len(parts) > 1:
            yield f"{task}/{name}#all", "\n".join(text for _, text in parts)


def _texts(value: Any, part: str) -> Iterator[tuple[str, str]]:
    """Strings inside a record with the fields they are in; a list of strings, such as choices, is one text."""
    if isinstance(value, str):
        if value.strip():
            yield part, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in NAMES:
                yield from _texts(inner, f"{part}.{key}" if part else str(key))
    elif isinstance(value, list):
        strings = [inner for inner in value if isinstance(inner, str)]
        if strings:
            yield part, "\n".join(strings)
        for inner in value:
            if isinstance(inner, dict | list):
                yield from _texts(inner, part)


# task files of lm-eval-harness


def _task(file: Path, data: Path | None) -> Iterator[tuple[str, str]]:
    """Items of one task file; a file that only groups other tasks, or only serves to be included, has none."""
    config = _yaml(file)
    name, dataset = config.get("task"), config.get("dataset_path")
    if not isinstance(name, str) or not isinstance(dataset, str):
        return
    for records in _data_files(file, config, name, dataset, data):
        yield from _items(name, _records(records), _named_fields(config))


def _yaml(file: Path, depth: int = 0) -> dict[str, Any]:
    """A task file with what it includes. Python functions it names are not run: such a field counts as unknown."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
    try:
        config = yaml.load(file.read_text(encoding="utf-8"), Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not YAML: {str(error).splitlines()[0]}", hint="give a task file of lm-eval-harness") from None
    if not isinstance(config, dict):
        return {}
    base: dict[str, Any] = {}
    included = config.get("include")
    for other in [included] if isinstance(included, str) else included or []:
        path = file.parent / other
        if depth > 8 or not path.exists():
            raise DataError(f"{file} includes {other}, which cannot be read", hint="keep the files of a task together")
        base |= _yaml(path, depth + 1)
    return base | config


def _named_fields(config: dict[str, Any]) -> frozenset[str] | None:
    """Fields of the data set that the templates of prompt, answer and choices name; None when a function makes the prompt."""
    if not isinstance(config.get("doc_to_text"), str):
        return None
    names: set[str] = set()
    for key in ("doc_to_text", "doc_to_target", "doc_to_choice"):
        template = config.get(key)
        if not isinstance(template, str):
            continue
        expressions = [first or second for first, second in _EXPRESSION.findall(template)]
        for expression in expressions or [template if _FIELD.fullmatch(template) else ""]:
            names.update(_FIELD.findall(_QUOTED.sub("", expression)))
    return frozenset(names) or None


def _data_files(file: Path, config: dict[str, Any], name: str, dataset: str, data: Path | None) -> list[Path]:
    """The held-out record files of a task."""
    wanted = [split for key in ("test_split", "validation_split") if isinstance(split := config.get(key), str)]
    named = (config.get("dataset_kwargs") or {}).get("data_files")
    if named:
        by_split = named if isinstance(named, dict) else {"": named}
        chosen = [files for split, files in by_split.items() if split in wanted] or list(by_split.values())
        paths = [file.parent / path for files in chosen for path in ([files] if isinstance(files, str) else files)]
        missing = [path for path in paths if not path.exists()]
        if missing:
            raise DataError(f"{file}: data file {missing[0]} does not exist", hint="paths are relative to the task file")
        return paths
    subset = config.get("dataset_name")
    places = [file.parent / dataset]
    if data is not None:
        places += [data / dataset, data / dataset.rsplit("/", 1)[-1], *(data / f"{name}{suffix}" for suffix in RECORD_SUFFIXES)]
    for place in places:
        for inside in [place / subset, place] if isinstance(subset, str) else [place]:
            if inside.is_file():
                return [inside]
            if inside.is_dir() and (found := _held_files(inside, wanted)):
                return found
    raise DataError(
        f"{file}: the data set {dataset!r} is not on this machine",
        hint=f"download it and pass its folder as data, as DIR/{dataset.rsplit('/', 1)[-1]} or DIR/{name}.jsonl",
    )


def _held_files(folder: Path, wanted: Sequence[str]) -> list[Path]:
    """Record files of the wanted splits; of no training split when none is named."""
    files = sorted(path for path in folder.rglob("*") if path.name.endswith(RECORD_SUFFIXES) and "dataset_info" not in path.name)
    for splits in (wanted, HELD_SPLITS):
        chosen = [path for path in files if any(split in str(path.relative_to(folder)).lower() for split in splits)]
        if chosen:
            return chosen
    return [path for path in files if "train" not in path.name.lower() and path.name not in ("state.json", "dataset_dict.json")]
