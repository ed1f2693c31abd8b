"""Plain data in and out: strict decoding of frozen dataclasses, canonical JSON, digests, `--set` overrides.

One schema serves files, forms and the command line: a frozen dataclass whose `__post_init__` raises `ConfigError`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forerun.base.errors import ConfigError, PlatformError

T = TypeVar("T")
ADDED = "added"


def added(default: Any) -> Any:
    """A field that joins a dataclass whose files exist already: left out of plain data while it has its default.

    So a config registered, or a manifest written, before the field was there keeps its digest.
    """
    return dataclasses.field(default=default, metadata={ADDED: True})


def plain(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists; what files, digests and the registry hold."""
    return msgspec.to_builtins(_without_unused(value))


def canonical_json(value: Any) -> bytes:
    """The one byte string for a value: sorted keys, no spaces, UTF-8, no NaN. Dataclasses become objects."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(value: Any) -> str:
    """SHA-256 over `canonical_json(value)`, 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, 64 hex digits; reads in 1 MiB pieces."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            sha.update(piece)
    return sha.hexdigest()


def decode(data: Any, kind: type[T], *, where: str) -> T:
    """Build `kind` from plain data, refusing unknown fields and wrong types.

    Args:
        data: what JSON or TOML gave.
        where: the file or flag the data came from; named in the error.
    Raises: ConfigError, with the path of the field; errors of `__post_init__` pass through unchanged.
    """
    _refuse_unknown_fields(data, kind, path=where)
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, PlatformError):
            raise cause from None
        raise ConfigError(f"{where}: {error}", hint="see docs/reference/config.md for the fields and their types") from None


def load_json(path: Path, kind: type[T]) -> T:
    """Read one JSON file as `kind`. Raises: ConfigError when it is absent, not JSON, or breaks a rule."""
    return decode(_parsed(path, json.loads), kind, where=str(path))


def load_toml(path: Path, kind: type[T]) -> T:
    """Read one TOML file as `kind`. Raises: ConfigError when it is absent, not TOML, or breaks a rule."""
    return decode(_parsed(path, tomllib.loads), kind, where=str(path))


def with_overrides(config: T, overrides: list[str]) -> T:
    """A copy of a config with `dotted.field=value` changes applied; values are JSON, or bare strings.

    Raises: ConfigError for a missing `=`, an unknown field (near names are offered) or a broken rule.
    """
    tree = msgspec.to_builtins(config)
    for override in overrides:
        dotted, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--set needs field=value, got {override!r}", hint="for example --set model.top_k=4")
        _place(tree, dotted.split("."), _value_of(text), dotted)
    return decode(tree, type(config), where="--set")


def _without_unused(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        unused = [field.name for field in dataclasses.fields(value) if field.metadata.get(ADDED) and kept[field.name] == field.default]
        return {name: _without_unused(inner) for name, inner in kept.items() if name not in unused}
    if isinstance(value, dict):
        return {key: _without_unused(inner) for key, inner in value.items()}
    return [_without_unused(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _place(tree: dict[str, Any], keys: list[str], value: Any, dotted: str) -> None:
    for depth, key in enumerate(keys):
        if not isinstance(tree, dict) or key not in tree:
            near = get_close_matches(key, list(tree) if isinstance(tree, dict) else [], n=1)
            way_out = f"did you mean {'.'.join([*keys[:depth], near[0]])}?" if near else f"fields here: {', '.join(tree)}"
            raise ConfigError(f"--set {dotted}: there is no field {key!r}", hint=way_out)
        if depth == len(keys) - 1:
            tree[key] = value
        else:
            tree = tree[key]


def _parsed(path: Path, parse: Any) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", hint="check the path") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, expected a file", hint="name the file inside it") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{path} cannot be parsed: {error}", hint="mend the file's syntax") from None


def _refuse_unknown_fields(data: Any, kind: Any, *, path: str) -> None:
    """msgspec ignores unknown keys of plain dataclasses; a misspelt field must not be silently dropped."""
    if not (dataclasses.is_dataclass(kind) and isinstance(data, dict)):
        return
    hints = msgspec.inspect.type_info(kind).fields  # type: ignore[union-attr]
    known = {field.encode_name: field.type for field in hints}
    for key, value in data.items():
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            raise ConfigError(
                f"{path}: unknown field {key!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"fields here: {', '.join(sorted(known))}",
            )
        for inner, element in _dataclasses_inside(known[key], value):
            _refuse_unknown_fields(element, inner, path=f"{path}: {key}")


def _dataclasses_inside(info: Any, value: Any) -> list[tuple[Any, Any]]:
    """Pairs (dataclass, plain value) found in a field of the given msgspec type."""
    if isinstance(info, msgspec.inspect.DataclassType):
        return [(info.cls, value)]
    if isinstance(info, msgspec.inspect.UnionType):
        return [pair for option in info.types for pair in _dataclasses_inside(option, value)]
    if isinstance(info, (msgspec.inspect.ListType, msgspec.inspect.VarTupleType)) and isinstance(value, list):
        return [pair for item in value for pair in _dataclasses_inside(info.item_type, item)]
    if isinstance(info, msgspec.inspect.DictType) and isinstance(value, dict):
        return [pair for item in value.values() for pair in _dataclasses_inside(info.value_type, item)]
    return []
