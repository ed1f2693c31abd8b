"""Files anywhere: the few things the readers need of fsspec, with its refusals turned into one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tarfile import ReadError
from typing import Any, BinaryIO, cast
from zipfile import BadZipFile

from forerun.base.errors import ConfigError, SourceError

DRIVERS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub", "http": "aiohttp", "https": "aiohttp"}
FAILURES = (
    ("aiohttp", "ClientError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("httpx", "HTTPError"),
    ("httpx2", "HTTPError"),
    ("huggingface_hub.errors", "HfHubHTTPError"),
)  # source: what drivers let through that is no OSError
PROMISES = frozenset(("etag", "md5", "md5hash", "crc32c", "blob_id", "sha256", "last_modified", "lastmodified", "mtime", "generation"))


@dataclass(frozen=True)
class Place:
    """A file, a folder, or a pattern: file system and path."""

    system: Any
    path: str
    given: str = ""
    """As it was named."""

    @classmethod
    def of(cls, path: str) -> Place:
        """Raises: ConfigError for a protocol that is unknown or whose driver is not installed; SourceError for an archive that cannot be opened."""
        import fsspec

        try:
            with refusals(path):
                system, stripped = fsspec.core.url_to_fs(path)
        except ImportError:
            protocol = path.split("://", maxsplit=1)[0]
            driver = DRIVERS.get(protocol, "its fsspec driver")
            raise ConfigError(f"{path}: {protocol}:// needs the package {driver}", hint="pip install 'forerun[remote]'") from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}", hint="protocols: file, http, https, s3, gs, hf, and what fsspec knows") from None
        except (BadZipFile, ReadError) as error:
            raise SourceError(f"{path} cannot be read: {error}", hint="fetch the archive again") from None
        return cls(system, stripped, path)

    @property
    def is_local(self) -> bool:
        """Whether this is the machine's own file system."""
        protocol = self.system.protocol
        return "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def child(self, name: str) -> str:
        """The URL of a file below this folder."""
        return self.url_of(f"{self.path.rstrip('/')}/{name}")

    def url_of(self, path: str) -> str:
        """The URL of a file of the same file system; inside an archive (`zip://inner::outer`) with the way to that.

        Raises: ConfigError for chains such as `simplecache::`, of which only single files have a URL.
        """
        if self.is_local or path == self.path:
            return path if self.is_local else self.given
        head, chained, rest = self.given.partition("::")
        if not chained:
            return cast(str, self.system.unstrip_protocol(path))
        if "://" not in head:
            raise ConfigError(f"{self.given} names more than one file behind {head}::", hint="name the files one by one, or without it")
        return f"{head.partition('://')[0]}://{path}::{rest}"


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn what a server or a disk answers into one line. Raises: SourceError."""
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"{what} does not exist", hint="check the path or URL") from None
    except PermissionError:
        raise SourceError(f"{what}: access refused", hint="check your permissions or credentials") from None
    except (OSError, *failures()) as error:
        raise unreachable(what, error) from None


def failures() -> tuple[type[BaseException], ...]:
    """Errors of the drivers in use that mean a server, a connection, or credentials."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in FAILURES)
    return tuple(kind for kind in found if kind is not None)


def unreachable(what: str, error: BaseException) -> SourceError:
    """One line about a file that could not be read."""
    told = (str(error).strip() or type(error).__name__).splitlines()[0]
    return SourceError(f"{what} cannot be read: {told}", hint="check connection and credentials and run again; finished parts are kept")


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
            name = path.rstrip("/").rsplit("/", 1)[-1]
            return [(name if "://" not in path else name.partition("?")[0], place.url_of(path))]  # an address may end in `?download=true`
        else:
            root, found = path, system.find(path)
    if place.is_local:
        found = [
            entry for entry in found if os.path.isfile(entry) or os.path.islink(entry)
        ]  # no pipes and devices; a dangling link, or one to a folder, is said
    for entry in found:
        if not entry.isprintable() and entry != entry.encode("utf-8", "replace").decode():
            raise SourceError(f"file name {os.fsencode(entry)!r} is not UTF-8", hint="rename it: documents are named by their files")
    prefix = root.rstrip("/") + "/"
    named = [(entry.removeprefix(prefix), place.url_of(entry)) for entry in found]
    return sorted((name, url) for name, url in named if not any(part.startswith(".") for part in name.split("/")))


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
        try:
            yield cast(BinaryIO, stream)
        except failures() as error:  # in the middle of the file
            raise unreachable(url, error) from None
