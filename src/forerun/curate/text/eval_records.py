"""Records of evaluation sets, read from the files they come in, and the texts each of them is to be searched for by."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import ipc

from forerun.base.errors import DataError
from forerun.curate.ingest.records import without_surrogates
from forerun.curate.ingest.streams import plain

TABLE_SUFFIXES = (".csv", ".tsv")
RECORD_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst", ".parquet", ".arrow", *TABLE_SUFFIXES)
PROMPTS = frozenset(
    ("question", "query", "prompt", "problem", "goal", "premise", "sentence", "sentence1", "sentence2", "ctx", "input", "instruction")
    + ("stem", "task")
)  # assumed: fields whose text, however short, is the item itself; answers such as "all of the above", and the text of choices, are not
PROMPT_WORDS = frozenset(("question", "query", "prompt", "problem", "sentence", "stem"))  # of longer names: `ex_question`, `sentence_good`
NAMES = ("id", "_id", "idx", "ind", "task_id", "question_id", "example_id", "uid", "guid")
LONG_WORDS = 13  # derived: the words of a gram; a shorter answer on its own says nothing about its question
TITLE_WORDS = 5  # assumed: a first line of a CSV file with so many words in one cell is an item and no head
MOST_FILLERS = 8  # assumed: choices that are put in a blank
_BLANK = re.compile(r"(?<!\w)_+(?!\w)")
_UNSPACED = (
    (re.compile("[\u2e80-\ua4cf\uf900-\ufaff\uff66-\uff9f]"), 2),
    (re.compile("[\u0e00-\u109f\u1780-\u17ff]"), 4),
)  # scripts without spaces, and their characters in a word, as `curate.text.words` counts them


@dataclass(frozen=True, slots=True)
class Item:
    """One text to search for."""

    id: str
    """`task/name#part`."""
    text: str
    context: int
    """Of a short prompt, what else its record says, as a hash; 0 of a text that stands for itself."""


def records_of(file: Path, columns: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The records of a file, by its name.

    Args:
        columns: names of a CSV file's columns, when it has no head.
    Raises: DataError when the file cannot be read as what its name says.
    """
    try:
        if file.suffix == ".parquet":
            yield from pq.read_table(file).to_pylist()
        elif file.suffix == ".arrow":
            with pa.memory_map(str(file)) as source:
                is_file = source.read(6) == b"ARROW1"
                source.seek(0)
                yield from (ipc.open_file if is_file else ipc.open_stream)(source).read_all().to_pylist()
        elif file.suffix in TABLE_SUFFIXES:
            yield from _csv(file, columns)
        else:
            yield from _json(file)
    except (pa.ArrowException, csv.Error, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {str(error)[:120]}", hint="fetch the file again") from None


def _text_of(file: Path) -> str:
    with plain(str(file)) as stream:
        return stream.read().decode("utf-8-sig", "replace")


def _csv(file: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of a table with a head; without one the first column is the question, as in MMLU's files."""
    rows = csv.reader(io.StringIO(_text_of(file), newline=""), delimiter="\t" if file.suffix == ".tsv" else ",")
    first = next(rows, [])
    if not columns and any(len(cell.split()) >= TITLE_WORDS for cell in first):
        columns = ("question", *(f"column{place}" for place in range(2, len(first) + 1)))
    if columns:
        yield dict(zip(columns, first))
    for row in rows:
        yield dict(zip(columns or first, row))


def _json(file: Path) -> Iterator[dict[str, Any]]:
    """Records of JSON lines, of a JSON list, or of a JSON object that holds lists. Many files named `.json` hold lines."""
    text = _text_of(file)
    if ".jsonl" not in file.name:
        try:
            whole = json.loads(text)
        except ValueError:
            if text.lstrip()[:1] != "{":
                raise
        else:
            lists = [whole] if isinstance(whole, list) else [part for part in whole.values() if isinstance(part, list)] or [[whole]]
            for part in lists:
                yield from (record for record in part if isinstance(record, dict))
            return
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines(): JSON may hold U+2028 and its like as they are
        if line.strip():
            record = json.loads(line)
            if not isinstance(record, dict):
                raise DataError(f"{file} line {number} is not a JSON object", hint="one record a line")
            yield record


def items_of(
    task: str,
    records: Iterable[dict[str, Any]],
    fields: frozenset[str] = frozenset(),
    prompts: frozenset[str] = frozenset(),
    place: str = "",
) -> Iterator[Item]:
    """Texts of each record: its prompts, its longer fields, and all of them together.

    Args:
        fields: top-level fields that make the item; those of records that lack one, and an empty set, stand for all that hold text.
        prompts: further fields that are the item by themselves.
        place: what tells apart records of several files that have no name of their own.
    """
    for index, record in enumerate(records):
        own = next((str(record[key]) for key in NAMES if isinstance(record.get(key), str | int)), "")
        name = f"{task}/{own.removeprefix(f'{task}/') or f'{place}{index}'}"
        chosen = {key: value for key, value in record.items() if key in fields} if fields <= record.keys() and fields else record
        strings = [(part, without_surrogates(text)) for part, text in _texts(chosen, "")]
        parts = [(part, text) for part, text in strings if " " in text.strip() or _num_unspaced(text) > 1]
        long = [text for _, text in parts if _is_long(text)]
        context = xxhash.xxh3_64_intdigest(repr(long or strings).encode()) | 1
        for part, text in parts:
            if _is_long(text) or _is_prompt(part, prompts):
                for form in _filled(text, strings):
                    yield Item(f"{name}#{part}", form, 0 if _is_long(text) else context)
        if len(parts) > 1:
            yield Item(f"{name}#all", "\n".join(text for _, text in parts), 0)


def _is_long(text: str) -> bool:
    return _num_words(text) >= LONG_WORDS


def _num_words(text: str) -> int:
    """About as many words as the index counts."""
    return len(text.split()) + _num_unspaced(text)


def _num_unspaced(text: str) -> int:
    return 0 if text.isascii() else sum(len(script.findall(text)) // chars for script, chars in _UNSPACED)


def _is_prompt(part: str, prompts: frozenset[str]) -> bool:
    """Whether a field's name says that its text is the item: `question`, `Question`, `ex_question`, `sentence_good`; `text` if outermost."""
    if part == "text" or part.split(".", maxsplit=1)[0] in prompts:
        return True
    name = part.rsplit(".", 1)[-1].lower()
    return name in PROMPTS or not PROMPT_WORDS.isdisjoint(name.split("_"))


def _filled(text: str, strings: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A text, and where it has one blank also with each of the record's short texts in it: so it is read, and so it leaks."""
    yield text
    if len(_BLANK.findall(text)) == 1:
        fillers = [
            line for _, other in strings if other != text for line in other.split("\n") if len(line) > 1 and len(line.split()) < LONG_WORDS
        ]
        for filler in fillers[:MOST_FILLERS]:
            yield _BLANK.sub(lambda _, filler=filler: filler, text)


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
