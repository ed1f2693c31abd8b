"""Files anywhere: the few things the readers need of fsspec, with its refusals turned into one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from forerun.base.errors import ConfigError, SourceError

DRIVERS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub", "http": "aiohttp", "https": "aiohttp"}
PROMISES = frozenset(("etag", "md5", "md5hash", "crc32c", "blob_id", "sha256", "last_modified", "lastmodified", "mtime", "generation"))


@dataclass(frozen=True)
class Place:
    """A file, a folder, or a pattern: file system and path."""

    system: Any
    path: str

    @classmethod
    def of(cls, path: str) -> Place:
        """Raises: ConfigError for a protocol that is unknown or whose driver is not installed."""
        import fsspec

        try:
            system, stripped = fsspec.core.url_to_fs(path)
        except ImportError:
            protocol = path.split("://", maxsplit=1)[0]
            driver = DRIVERS.get(protocol, "its fsspec driver")
            raise ConfigError(f"{path}: {protocol}:// needs the package {driver}", hint="pip install 'forerun[remote]'") from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}", hint="protocols: file, http, https, s3, gs, hf, and what fsspec knows") from None
        return cls(system, stripped)

    @property
    def is_local(self) -> bool:
        """Whether this is the machine's own file system."""
        protocol = self.system.protocol
        return "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def child(self, name: str) -> str:
        """The URL of a file below this folder."""
        return self.system.unstrip_protocol(f"{self.path.rstrip('/')}/{name}")


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn what a server or a disk answers into one line. Raises: SourceError."""
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"{what} does not exist", hint="check the path or URL") from None
    except PermissionError:
        raise SourceError(f"{what}: access refused", hint="check your permissions or credentials") from None
    except (OSError, TimeoutError) as error:
        raise SourceError(f"{what} cannot be read: {error}", hint="check the connection and run again; finished parts are kept") from None


def files_at(place: Place) -> list[tuple[str, str]]:
    """(name inside the place, URL) of every file, in order of name; a single file has its last path part as name."""
    system, path = place.system, place.path
    with refusals(str(path)):
        if any(mark in path for mark in "*?[") and not system.exists(path):
            root = path.split("*")[0].split("?")[0].split("[")[0].rsplit("/", 1)[0]
            found = [entry for entry in system.glob(path) if system.isfile(entry)]
        elif system.isfile(path) or not system.exists(path):
            if not system.exists(path):
                raise FileNotFoundError(path)
            return [(path.rstrip("/").rsplit("/", 1)[-1], _url(place, path))]
        else:
            root, found = path, system.find(path)
    if place.is_local:
        found = [
            entry for entry in found if os.path.isfile(entry) or os.path.islink(entry)
        ]  # no pipes and devices; a dangling link is said
    for entry in found:
        if not entry.isprintable() and entry != entry.encode("utf-8", "replace").decode():
            raise SourceError(f"file name {os.fsencode(entry)!r} is not UTF-8", hint="rename it: documents are named by their files")
    prefix = root.rstrip("/") + "/"
    named = [(entry.removeprefix(prefix), _url(place, entry)) for entry in found]
    return sorted((name, url) for name, url in named if not any(part.startswith(".") for part in name.split("/")))


def _url(place: Place, path: str) -> str:
    return path if place.is_local else cast(str, place.system.unstrip_protocol(path))


def size_of(url: str) -> int:
    """Bytes as stored; 0 when the server does not say."""
    place = Place.of(url)
    with refusals(url):
        return int(place.system.info(place.path).get("size") or 0)


def promised(url: str) -> dict[str, str]:
    """What a remote store says about the content (entity tag, checksum, time of change); nothing for local files."""
    place = Place.of(url)
    if place.is_local:
        return {}
    with refusals(url):
        info = place.system.info(place.path)
    return {key: str(value) for key, value in info.items() if key.lower().replace("-", "_") in PROMISES and value}


@contextmanager
def opened(url: str) -> Iterator[BinaryIO]:
    """The file's bytes as a stream. Raises: SourceError."""
    place = Place.of(url)
    with refusals(url):
        stream = place.system.open(place.path, "rb") if not place.is_local else open(place.path, "rb")  # noqa: SIM115  closed below
    with stream:
        yield cast(BinaryIO, stream)
