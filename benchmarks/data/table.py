"""Writes docs/reference/data-bars.md from the results kept beside the benches.

usage: python benchmarks/data/table.py
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "data-bars.md"
PEERS = {  # results file and bar to what is compared, in the order of the page
    ("minhash", "whitespace"): "MinHash, bands, components, 14 x 8 words | datatrove 0.10.1, words between white space",
    ("minhash", "documented"): "same | datatrove 0.10.1 as documented: spaCy words, its own normalisation",
    ("minhash", "daft"): "same | Daft `minhash`",
    ("minhash", "rensa"): "same | rensa 0.5.0",
    ("minhash", "dupekit"): "26 x 11 characters | marin-dupekit 0.1.1",
    ("decontam", "datatrove"): "13-gram scan | datatrove filter",
    ("decontam", "dictionary"): "same | Python dictionary and xxhash",
    ("encode", "encode"): "encode, cold process | tokenizers `encode_batch_fast`",
    ("embed", "embed"): "embed, full text, one static table | model2vec",
    ("kmeans", "faiss"): "k-means, 5,000 on 200,000 x 384 | faiss flat, 6 iterations",
    ("kmeans", "vectors"): "k-means on the corpus's own vectors | faiss flat, 6 iterations",
    ("scoring", "scoring"): "score four kinds, full text | fastText predict",
    ("web_text", "warc_to_text"): "WARC to text | trafilatura 2.0.0",
}
HEAD = """# Data bars, measured

Written by `benchmarks/data/table.py` from the results beside the benches; `make bench-data` repeats all. Two shared cores, one thread a side, the
two sides in turn, median of the rounds. CPU-seconds are of the whole process tree. The corpus is that of `benchmarks/data/gather.py`: 45
sources of Debian packages, at most 3 MB of each, 100 MB in 27,736 documents; near-duplicate bars add 3,000 planted copies.

| step | peer | ours / peer CPU s | ratio | bar | rounds | holds in the same run | date, commit |
|---|---|---|---|---|---|---|---|
"""


def results(name: str) -> dict[str, dict[str, Any]]:
    path = HERE / f"{name}.results.json"
    return {row["bar"]: row for row in json.loads(path.read_text())} if path.exists() else {}


def compared() -> list[str]:
    lines = []
    for (file, bar), words in PEERS.items():
        row = results(file).get(bar)
        if row is None:
            lines.append(f"| {words} | not measured | | | | | |")
            continue
        ours, peer = (statistics.median(row[side]) for side in ("ours_cpu_s", "peer_cpu_s"))
        met = "" if row["ratio"] >= row["least"] else ", **missed**"
        said = row["said"] if row["holds"] else f"**not all:** {row['said']}"
        lines.append(
            f"| {words} | {ours:.2f} / {peer:.2f} | {row['ratio']:.1f}x | {row['least']}x{met} | {len(row['ours_cpu_s'])} | {said} "
            f"| {row['date'][:10]}, {row['commit']} |"
        )
    return lines


def verified() -> list[str]:
    """Removals checked again, and documents that only look alike."""
    rule = (
        "A removal needs Jaccard .7 or containment .75 of word 3-grams to the document kept for it; 95% of each kind of trap must be kept."
    )
    lines = ["", "## Verified removal", "", rule, "", "| bar | measured | holds | date, commit |", "|---|---|---|---|"]
    for name, row in results("verified").items():
        kept = ", ".join(f"{share:.1%} of the {kind.removeprefix('trap: ')} traps" for kind, share in row["traps_kept"].items())
        said = (
            f"{row['removed']:,} of {row['num_documents']:,} documents removed, {row['without_cause']} without cause "
            f"(lowest containment {row['lowest_containment']:.3f}); kept {kept}"
        )
        lines.append(f"| removals, `{name}` | {said} | {'yes' if row['holds'] else '**no**'} | {row['date'][:10]}, {row['commit']} |")
    return lines


def engine() -> list[str]:
    rows = results("engine")
    lines = ["", "## Engine", "", "| bar | measured | holds | date, commit |", "|---|---|---|---|"]
    for name, row in rows.items():
        if "over_loop" in row:
            said = (
                f"{statistics.median(row['wall_s']):.1f} s wall for {row['megabytes']} MB, {row['over_loop']:.2f}x the loop; "
                f"{row['apart_over_loop']:.2f}x apart from starting workers; {len(row['wall_s'])} round(s)"
            )
        elif "share" in row:
            said = f"{statistics.median(row['cpu_s']):.2f} CPU s, {row['share']:.2%} of the first run's {row['first_cpu_s']:.0f}"
        elif "peak_mib" in row:
            said = f"{row['peak_mib']:,.0f} MiB over all processes, {row['wall_s']:.0f} s wall, {row['stored_mb']:.0f} MB of text stored"
        elif "lost" in row:
            said = f"{row['before_cpu_s']:.1f} + {row['after_cpu_s']:.1f} CPU s, {row['lost']:.1%} of an unbroken run lost; same manifest"
        else:
            said = f"{len(set(row['sides'].values()))} distinct store from {len(row['sides'])} runs: {'; '.join(row['sides'])}"
        lines.append(f"| {name} | {said} | {'yes' if row['holds'] else '**no**'} | {row['date'][:10]}, {row['commit']} |")
    return lines


def main() -> None:
    PAGE.write_text(HEAD + "\n".join([*compared(), *verified(), *engine()]) + "\n")


if __name__ == "__main__":
    main()
