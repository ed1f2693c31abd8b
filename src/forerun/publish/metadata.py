"""RO-Crate 1.1 and Croissant 1.0 descriptions of a folder, so that archives and data search can read it."""

from __future__ import annotations

import mimetypes
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forerun.base.config import file_digest
from forerun.base.files import write_json

CRATE, CROISSANT = "ro-crate-metadata.json", "croissant.json"
VERSION = "1.0.0"
_TERMS = (
    "citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset jsonPath key md5 parentField "
    "path recordSet references regex repeated replace samplingRate separator source subField transform"
)
CROISSANT_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _TERMS.split()},
}
"""The standard context of Croissant 1.0; readers warn about any other."""


def write_metadata(folder: Path, *, name: str, description: str, licence: str = "https://spdx.org/licenses/Apache-2.0") -> None:
    """Write both files; they list every other file of the folder with its size and SHA-256."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (CRATE, CROISSANT, "SHA256SUMS")]
    today = datetime.now(UTC).date().isoformat()
    write_json(folder / CRATE, _crate(folder, files, name, description, licence, today))
    write_json(folder / CROISSANT, _croissant(folder, files, name, description, licence, today))


def _crate(folder: Path, files: list[Path], name: str, description: str, licence: str, today: str) -> dict[str, Any]:
    parts = [
        {
            "@id": str(path.relative_to(folder)),
            "@type": "File",
            "name": path.name,
            "encodingFormat": _kind(path),
            "contentSize": path.stat().st_size,
        }
        for path in files
    ]
    about: dict[str, Any] = {"@id": "./", "@type": "Dataset", "name": name, "description": description, "datePublished": today}
    about |= {"license": {"@id": licence}, "hasPart": [{"@id": part["@id"]} for part in parts]}
    descriptor = {"@id": CRATE, "@type": "CreativeWork", "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"}, "about": {"@id": "./"}}
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": [descriptor, about, *parts]}


def _croissant(folder: Path, files: list[Path], name: str, description: str, licence: str, today: str) -> dict[str, Any]:
    distribution = [
        {
            "@type": "cr:FileObject",
            "@id": str(path.relative_to(folder)),
            "name": path.name,
            "contentUrl": str(path.relative_to(folder)),
            "encodingFormat": _kind(path),
            "contentSize": f"{path.stat().st_size} B",
            "sha256": file_digest(path),
        }
        for path in files
    ]
    columns = {"metric": "sc:Text", "step": "sc:Integer", "value": "sc:Float"}
    fields = [
        {"@type": "cr:Field", "@id": f"metrics/{column}", "name": column, "dataType": kind,
         "source": {"fileObject": {"@id": "metrics.parquet"}, "extract": {"column": column}}}
        for column, kind in columns.items()
    ]  # fmt: skip
    return {
        "@context": CROISSANT_CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": description,
        "license": licence,
        "datePublished": today,
        "version": VERSION,
        "citeAs": f"{name}: {description}, {today}",
        "distribution": distribution,
        "recordSet": [{"@type": "cr:RecordSet", "@id": "metrics", "name": "metrics", "field": fields}],
    }


def _kind(path: Path) -> str:
    known = {".parquet": "application/x-parquet", ".jsonl": "application/jsonlines", ".md": "text/markdown"}
    return known.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
