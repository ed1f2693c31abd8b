"""What every reader yields: a document, or a problem that says why there is none. And the parameters all readers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from forerun.base.errors import ConfigError, DataError
from forerun.curate.ingest.source import SourceFile

ID_FIELDS = ("id", "source_id", "path", "url")
DRIFT_RECORDS = 8192  # Marin's batch: the schema is what the first so many records show


@dataclass(frozen=True, kw_only=True)
class IngestConfig:
    """How bytes become documents; all of it is part of the step's identity."""

    max_document_bytes: int = 64 << 20
    """A longer document, or line, is dropped. Source: Marin cuts at 64 Mi characters."""
    max_replaced_fraction: float = 0.01
    """Documents with invalid UTF-8 are kept, the bad bytes replaced, unless more than this share of their characters is bad."""
    broken_files: Literal["refuse", "keep_readable"] = "refuse"
    """What to do with a cut or damaged file: stop, or keep what could be read and report the rest."""
    html: Literal["main_content", "all_text"] = "main_content"
    """Which text of a page is kept; pages without recognisable main content give all their text."""

    def __post_init__(self) -> None:
        if self.max_document_bytes < 1:
            raise ConfigError(
                f"ingest.max_document_bytes must be at least 1, got {self.max_document_bytes}", hint="67108864, 64 MiB, is usual"
            )
        if not 0 <= self.max_replaced_fraction <= 1:
            raise ConfigError(
                f"ingest.max_replaced_fraction must lie in 0..1, got {self.max_replaced_fraction}", hint="0 drops every invalid document"
            )


@dataclass(frozen=True, slots=True)
class Document:
    """One text."""

    text: str
    name: str
    """What the source calls it; empty when it has no name of its own."""
    licence: str = ""
    """Its own licence; empty: the source's."""
    repaired: bool = False
    """Whether invalid bytes were replaced."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A document that is not there, and why."""

    place: str
    """File and line, row or record."""
    reason: str
    num_bytes: int = 0
    """Size of what was left out, as far as known."""


def decoded(data: bytes, config: IngestConfig) -> tuple[str, bool] | None:
    """The text and whether bytes were replaced; None when too many would have to be. NUL counts as invalid: UTF-16 is full of it."""
    try:
        text, bad = data.decode("utf-8-sig"), 0
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", "replace")
        bad = text.count("\ufffd")
    if "\0" in text:
        bad += text.count("\0")
        text = text.replace("\0", "\ufffd")
    return None if bad > config.max_replaced_fraction * len(text) else (text, bad > 0)


def without_surrogates(text: str) -> str:
    """The text with halves of surrogate pairs, which JSON can spell and UTF-8 can not, replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def value_of(record: Mapping[str, Any], field: str) -> Any:
    """The value of a field, or of one inside it: `doc.text`; None when there is none."""
    if field in record or "." not in field:
        return record.get(field)
    outer, _, inner = field.partition(".")
    value = record.get(outer)
    return value_of(value, inner) if isinstance(value, dict) else None


def name_in(record: Mapping[str, Any], source: SourceFile) -> str:
    """The name a record gives itself."""
    fields = (source.id_field,) if source.id_field else ID_FIELDS
    for field in fields:
        value = value_of(record, field)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if value is not None and not isinstance(value, dict | list):
            return without_surrogates(str(value))
    return ""


def licence_in(record: Mapping[str, Any], source: SourceFile) -> str:
    """The licence a record gives itself, of several all that hold; empty when it gives none."""
    value = value_of(record, source.licence_field) if source.licence_field else None
    if isinstance(value, list):
        return " AND ".join(str(one) for one in value if one)
    return "" if value is None else without_surrogates(str(value))


class SchemaWatch:
    """Raises when a source changes its shape in the middle: nothing that follows would be read as what came before.

    A single record without text is counted and left out; a whole batch, or a whole file, in which no record has the fields that
    the first batch had, with the type it had, is another schema.
    """

    def __init__(self, source: SourceFile) -> None:
        self._text_field = source.text_field
        self._fields = [field for field in (source.text_field, source.id_field, source.licence_field) if field]
        self._known: dict[str, set[str]] = {}
        self._seen: dict[str, set[str]] = {field: set() for field in self._fields}
        self._count = 0

    @property
    def first(self) -> dict[str, tuple[str, ...]]:
        """Types of the watched fields in the first batch."""
        return {field: tuple(sorted(kinds)) for field, kinds in self._known.items()}

    def see(self, record: Mapping[str, Any], place: str) -> None:
        """Note one record. Raises: DataError at the end of a batch that does not fit the first."""
        for field in self._fields:
            value = value_of(record, field)
            if value is not None:
                self._seen[field].add("str" if isinstance(value, bytes) else type(value).__name__)
            elif field not in record and not ("." in field and field.partition(".")[0] in record):
                self._seen[field].add("missing")
        self._count += 1
        if self._count == DRIFT_RECORDS:
            self.end_batch(place)

    def end_batch(self, place: str) -> None:
        """Compare what was seen since the last call; also called at the end of a file.

        Raises: DataError when the fields are other than in the first batch, or none of the first batch has the text field.
        """
        if not self._count:
            return
        if self._seen[self._text_field] == {"missing"}:
            raise DataError(
                f"no document has a text field {self._text_field!r} up to {place}",
                hint="set the source's text_field, or leave the file out",
            )
        for field, kinds in self._seen.items():
            if kinds:  # nothing but nulls is no other schema
                known = self._known.setdefault(field, set(kinds))
                require_same_schema(field, known, kinds, place)
        self._seen = {field: set() for field in self._fields}
        self._count = 0


def require_same_schema(field: str, known: set[str], kinds: set[str], place: str) -> None:
    """Raises: DataError when no record has the field in a form that was known before."""
    if not known & kinds:
        raise DataError(
            f"schema drift: field {field!r} is {_words(kinds)} up to {place}, but was {_words(known)} before",
            hint="split the source in two, each with its own text_field and id_field",
        )


def _words(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))
