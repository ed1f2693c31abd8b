"""The table of docs/reference/demo-corpus.md, counted over the gathered files.

usage: corpus_table.py LAB [packages|debian]     (after `forerun demo --lab LAB`)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import zstandard

from forerun.demo.corpus.recipe import PACKAGES


def rows(folder: Path) -> list[dict]:
    """One per source: name, field, package, licence, documents, bytes of text."""
    found = []
    for path in sorted(folder.glob("*.jsonl.zst")):
        content = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).readall().decode()
        documents = [json.loads(line) for line in content.split("\n") if line]
        first = documents[0]
        size = sum(len(document["text"].encode()) for document in documents)
        found.append(
            {key: first[key] for key in ("source", "domain_hint", "revision", "licence")} | {"documents": len(documents), "bytes": size}
        )
    return found


def main() -> None:
    """Print the table."""
    lab, kind = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "packages"
    quick = {package.source for package in PACKAGES if package.quick}
    found = rows(lab / "corpus" / kind)
    fields, size = len({row["domain_hint"] for row in found}), sum(row["bytes"] for row in found)
    print(f"{len(found)} sources, {fields} fields, {size / 1e6:.1f} MB of UTF-8 text.\n")
    last = " also in `--quick` |" if kind == "packages" else ""
    print(f"| source | field | package | licence | documents | MB |{last}\n|---|---|---|---|---|---|{'---|' if last else ''}")
    for row in found:
        mark = f" {'yes' if row['source'] in quick else ''} |" if last else ""
        print(
            f"| `{row['source']}` | {row['domain_hint']} | `{row['revision']}` | {row['licence']} | {row['documents']:,} | {row['bytes'] / 1e6:.2f} |{mark}"
        )


if __name__ == "__main__":
    main()
