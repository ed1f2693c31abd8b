"""What a source is, which files it consists of, and how each is read. Paths are local, or any URL fsspec opens (file, http, s3, gs, hf)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import xxhash

from forerun.base.errors import DataError
from forerun.curate.ingest import remote
from forerun.loader.manifest import Stated

Format = Literal["by_name", "tree", "jsonl", "json", "parquet", "arrow", "text", "html", "warc"]

TEXT_SUFFIXES = frozenset(
    (".txt", ".md", ".rst", ".tex", ".org", ".pod", ".py", ".js", ".ts", ".c", ".h", ".cpp", ".rs", ".go", ".java", ".css", ".sql")
)
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".warc": "warc",
    ".wet": "warc",
    **dict.fromkeys(sorted(TEXT_SUFFIXES), "text"),
}
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
PIECE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SourceFile(Stated):
    """One source: a file of documents, a folder, a pattern with `*`, or a URL."""

    name: str
    """Documents carry it."""
    path: str
    """Local path or URL."""
    licence: str = "unstated"
    """As stated by the source; a document that states its own keeps that."""
    revision: str = ""
    """Version or commit; empty takes a digest of the documents."""
    format: Format = "by_name"
    """How to read the files. By default their names say it; `tree` reads text and HTML and leaves other files."""
    text_field: str = "text"
    """Field or column of the text."""
    id_field: str = ""
    """Field or column that names a document; empty takes the first there is of `id`, `source_id`, `path`, `url`."""
    licence_field: str = ""
    """Field or column of a document's own licence; empty: all have the source's."""


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file of a source."""

    url: str
    """As fsspec opens it; local files by absolute path."""
    name: str
    """Path inside the source: names a document that has no name of its own."""
    format: Format
    """Never `by_name` or `tree`."""
    num_bytes: int
    """As stored; 0 when the server does not say."""


def input_files(source: SourceFile) -> list[InputFile]:
    """Every file of a source that can hold documents, in order of name.

    Raises: DataError when there is none; ConfigError when the path or its protocol cannot be opened.
    """
    return listed(source)[0]


def listed(source: SourceFile) -> tuple[list[InputFile], list[str]]:
    """As `input_files`, and the names of the files that nothing says how to read."""
    place = remote.Place.of(source.path)
    found = remote.files_at(place)
    arrow = _arrow_names(place, [name for name, _ in found]) if source.format in ("by_name", "arrow") else None
    files, left_out = [], []
    for name, url in found:
        kind: Format = ("arrow" if name in arrow else "by_name") if arrow is not None else format_of(name, source.format)
        if kind == "json" and source.format == "by_name" and len(found) > 1 and not _holds_records(url, source):
            kind = "by_name"  # settings, packages and the like beside the documents
        if kind == "by_name":
            left_out.append(name)
        else:
            files.append(InputFile(url=url, name=name, format=kind, num_bytes=remote.size_of(url)))
    if not found:
        raise DataError(f"source {source.name!r}: {source.path} matches no file", hint="check the path; relative ones start at the recipe")
    if not files:
        raise DataError(
            f"source {source.name!r}: {source.path} holds no file whose name says how to read it",
            hint="set the source's format to jsonl, json, parquet, arrow, text, html or warc",
        )
    return files, [] if arrow is not None else left_out


def _holds_records(url: str, source: SourceFile) -> bool:
    from forerun.curate.ingest.lists import holds_records

    return holds_records(url, source.text_field)


def content_digest(file: InputFile) -> str:
    """A fingerprint of the file's bytes; for a remote file of what its server promises about them, if it promises anything."""
    promise = remote.promised(file.url)
    if promise:
        return xxhash.xxh3_128_hexdigest(json.dumps([file.url, file.num_bytes, promise], sort_keys=True).encode())
    state = xxhash.xxh3_128()
    with remote.opened(file.url) as stream:
        while piece := stream.read(PIECE_BYTES):
            state.update(piece)
    return state.hexdigest()


def sources_in(folder: Path) -> list[SourceFile]:
    """What a user's folder holds: every file of documents is a source, so is every sub-folder; loose text files make one more.

    Raises: DataError when there is nothing to read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder", hint="name a folder of text, JSONL, Parquet or WARC files")
    if _is_arrow_folder(folder):
        return [SourceFile(name=folder.resolve().name, path=str(folder))]
    found: list[SourceFile] = []
    loose = False
    for entry in sorted(folder.iterdir()):
        if not (entry.is_file() or entry.is_dir() or entry.is_symlink()):
            continue  # pipes and devices
        kind = format_of(entry.name, "by_name")
        if entry.is_dir():
            if any(path.is_file() and format_of(path.name, "by_name") != "by_name" for path in entry.rglob("*")):
                found.append(SourceFile(name=entry.name, path=str(entry)))
        elif kind in ("text", "html"):
            loose = True
        elif kind == "json" and not _holds_records(str(entry), SourceFile(name="", path=str(entry))):
            continue
        elif kind != "by_name":
            found.append(SourceFile(name=entry.name.split(".")[0], path=str(entry)))
    if loose:
        found.append(SourceFile(name=folder.resolve().name, path=str(folder / "*"), format="tree"))
    if not found:
        known = ", ".join(sorted(SUFFIXES))
        raise DataError(
            f"{folder} holds no text",
            hint=f"files read: {known}; each also with {' or '.join(COMPRESSED)}; for other names write a recipe that states the format",
        )
    uses = Counter(source.name for source in found)
    return [replace(source, name=Path(source.path).name) if uses[source.name] > 1 else source for source in found]


def format_of(name: str, stated: Format) -> Format:
    """How to read a file: as stated, or by its name; `by_name` when the name says nothing."""
    if stated not in ("by_name", "tree"):
        return stated
    plain = name.rsplit("/", 1)[-1].lower()
    for suffix in COMPRESSED:
        plain = plain.removesuffix(suffix)
    kind = SUFFIXES.get("." + plain.rsplit(".", 1)[-1], "by_name") if "." in plain else "by_name"
    return kind if stated == "by_name" or kind in ("text", "html") else "by_name"


def _is_arrow_folder(folder: Path) -> bool:
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def _arrow_names(place: remote.Place, names: list[str]) -> frozenset[str] | None:
    """Files that the `state.json` of a Hugging Face data set lists (a dictionary of splits has one in each); None for other folders."""
    states = [name for name in names if name.rsplit("/", 1)[-1] == "state.json"]
    if not states:
        return None
    listed = set()
    for name in states:
        with remote.opened(place.child(name)) as stream:
            try:
                state = json.load(stream)
                files = [entry["filename"] for entry in state["_data_files"]]
            except (ValueError, KeyError, TypeError):
                return None
        if state.get("_indices_data_files"):
            raise DataError(f"{place.child(name)} selects rows by an index file", hint="save it again after flatten_indices()")
        folder = name.removesuffix("state.json")
        listed.update(folder + file for file in files)
    missing = sorted(listed - set(names))
    if missing:
        raise DataError(
            f"{place.child(missing[0])} is listed in the data set's state.json but is not there", hint="copy the data set again"
        )
    return frozenset(listed)
