"""Task files of lm-eval-harness: which of their data set's fields make an item, and where the held-out records lie.

No Python of a task is run. What a function would make of a record is not known, so all of the record's text is searched for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from forerun.base.errors import DataError
from forerun.curate.text.eval_records import RECORD_SUFFIXES, Item, items_of, records_of

TASK_SUFFIXES = (".yaml", ".yml")
MOST_INCLUDES = 8  # assumed: deeper nesting is a circle
HELD_SPLITS = ("test", "validation", "valid", "dev", "val", "fewshot")
_FIELD = re.compile(r"[A-Za-z_]\w*")
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}|\{%(.*?)%\}", re.DOTALL)
_NO_FIELD = re.compile(r"'[^']*'|\"[^\"]*\"|[.|]\s*[A-Za-z_]\w*|[A-Za-z_]\w*\s*(?=[(=](?!=))")  # strings, attributes, filters, calls
_JINJA = frozenset(
    [
        "if",
        "elif",
        "else",
        "endif",
        "for",
        "in",
        "endfor",
        "set",
        "endset",
        "and",
        "or",
        "not",
        "is",
        "true",
        "false",
        "none",
        "True",
        "False",
        "None",
        "loop",
    ]
)


def task_items(file: Path, data: Path | None) -> Iterator[Item]:
    """Items of one task file, or of every task written out in a group; a file that only names or only serves tasks has none.

    Args:
        data: folder of data sets that are not beside the task.
    Raises: DataError when a task's data is not there or gives no item.
    """
    config = _yaml(file)
    listed = config.get("task")
    for task in listed if isinstance(listed, list) else [config]:
        if isinstance(task, dict) and isinstance(task.get("task"), str) and ("dataset_path" in task or _is_python(task)):
            count = 0
            for item in _of_task(file, task, data):
                count += 1
                yield item
            if not count:
                raise DataError(f"{file}: task {task['task']!r} has no evaluation item in its data", hint="records need a field of text")


def _is_python(task: dict[str, Any]) -> bool:
    return "class" in task or "custom_dataset" in task


def _of_task(file: Path, task: dict[str, Any], data: Path | None) -> Iterator[Item]:
    name = task["task"]
    files = _data_files(file, task, data)
    arguments = task.get("dataset_kwargs") or {}
    columns = tuple(arguments.get("column_names") or ()) if "header" in arguments else ()
    asked = _names_in(task.get("doc_to_text"))
    prompts = _names_in(task.get("doc_to_decontamination_query")) | (asked if len(asked) == 1 else frozenset())
    for records in files:
        place = f"{records.name.split('.')[0]}:" if len(files) > 1 else ""
        yield from items_of(name, records_of(records, columns), _named_fields(task), prompts, place)


def _yaml(file: Path, depth: int = 0) -> dict[str, Any]:
    """A task file with what it includes; of the Python functions it names nothing stays."""
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
        if depth > MOST_INCLUDES or not path.exists():
            raise DataError(f"{file} includes {other}, which cannot be read", hint="keep the files of a task together")
        base |= _yaml(path, depth + 1)
    return base | config


def _named_fields(task: dict[str, Any]) -> frozenset[str]:
    """Fields that the templates of prompt, answer and choices name; none when a function makes the prompt."""
    if not isinstance(task.get("doc_to_text"), str):
        return frozenset()
    return frozenset().union(*(_names_in(task.get(key)) for key in ("doc_to_text", "doc_to_target", "doc_to_choice")))


def _names_in(template: Any) -> frozenset[str]:
    """Fields a Jinja template reads; a template without one may be a field's name itself."""
    if not isinstance(template, str):
        return frozenset()
    expressions = [first or second for first, second in _EXPRESSION.findall(template)]
    if not expressions:
        return frozenset([template] if _FIELD.fullmatch(template) else [])
    names = {name for expression in expressions for name in _FIELD.findall(_NO_FIELD.sub(" ", expression))}
    return frozenset(names - _JINJA)


def _data_files(file: Path, task: dict[str, Any], data: Path | None) -> list[Path]:
    """The held-out record files of a task."""
    name, dataset = task["task"], str(task.get("dataset_path") or "")
    wanted = [split for key in ("test_split", "validation_split") if isinstance(split := task.get(key), str)]
    named = (task.get("dataset_kwargs") or {}).get("data_files")
    if named:
        by_split = named if isinstance(named, dict) else {"": named}
        chosen = [files for split, files in by_split.items() if split in wanted] or list(by_split.values())
        patterns = [pattern for files in chosen for pattern in ([files] if isinstance(files, str) else files)]
        found = [_files_at(pattern, [file.parent, *([data] if data else [])]) for pattern in patterns]
        if all(found):
            return [path for paths in found for path in paths]
        missing = patterns[found.index([])]
        dataset = missing if "://" in missing else str(file.parent / missing)
    subset = task.get("dataset_name")
    places = [file.parent / dataset] if dataset and not named else []
    if data is not None:
        short = dataset.rsplit("/", 1)[-1]
        places += [data / f"{name}{suffix}" for suffix in RECORD_SUFFIXES]
        places += [data / name, *([data / dataset, data / short] if dataset and not named else [])]
    for place in places:
        for inside in [place / subset, place] if isinstance(subset, str) else [place]:
            if inside.is_file():
                return [inside]
            if inside.is_dir() and (held := _held_files(inside, wanted)):
                return held
    if not dataset or _is_python(task):
        raise DataError(
            f"{file}: the data of {name!r} is made by Python code, which is not run",
            hint=f"write its records to DIR/{name}.jsonl, or leave it out",
        )
    if named:
        raise DataError(
            f"{file}: data file {dataset} does not exist", hint=f"put it beside the task file, or its records into DIR/{name}.jsonl"
        )
    raise DataError(
        f"{file}: the data set {dataset!r} is not on this machine",
        hint=f"download it and pass its folder as data, as DIR/{dataset.rsplit('/', 1)[-1]} or DIR/{name}.jsonl",
    )


def _files_at(pattern: str, folders: Sequence[Path]) -> list[Path]:
    """Files of the first folder that has any by this name or pattern."""
    if "://" in pattern:
        return []
    for folder in folders:
        if (folder / pattern).is_file():
            return [folder / pattern]
        relative = not Path(pattern).is_absolute() and any(mark in pattern for mark in "*?[")
        if relative and (found := sorted(path for path in folder.glob(pattern) if path.is_file())):
            return found
    return []


def _held_files(folder: Path, wanted: Sequence[str]) -> list[Path]:
    """Record files of the wanted splits; of no training split when none is named."""
    files = sorted(path for path in folder.rglob("*") if path.name.endswith(RECORD_SUFFIXES) and "dataset_info" not in path.name)
    for splits in (wanted, HELD_SPLITS):
        chosen = [path for path in files if any(_is_of_split(path.relative_to(folder), split) for split in splits)]
        if chosen:
            return chosen
    return [path for path in files if "train" not in path.name.lower() and path.name not in ("state.json", "dataset_dict.json")]


def _is_of_split(path: Path, split: str) -> bool:
    """Whether a split is a word of a path: `test` is in `test-00000-of-00001` and `data/my_test/`, not in `contest`."""
    return re.search(rf"(?<![^\W\d_]){re.escape(split.lower())}(?![^\W\d_])", str(path).lower()) is not None
