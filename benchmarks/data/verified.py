"""Bar 5: no removal without cause. Every removal of the near-duplicate set is checked again with Python sets; traps must survive.

usage: python benchmarks/data/verified.py CORPUS.parquet [--presets marin,fineweb]

Traps: files that share only a licence header, and stubs of an interface that share their frame. 95% of them must be kept.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from planted import plant
from side_by_side import keep

from forerun.curate.text.fuzzy import near_duplicates
from forerun.curate.text.minhash import PRESETS
from forerun.curate.text.survivors import SurvivorConfig

NUM_TRAPS = 300
TRAPS = ("trap: licence header", "trap: stub")
LEAST_JACCARD, LEAST_CONTAINMENT, LEAST_TRAPS_KEPT = 0.7, 0.75, 0.95  # the bar: a removal needs one of the first two
LICENCE = " ".join(f"licence{index % 37} clause{index % 53} without warranty of any kind" for index in range(22))


def traps() -> list[tuple[str, str]]:
    """Text and source of each trap."""
    rng = random.Random(0)
    names = [
        f"{a}{b}" for a in ("get", "set", "list", "open", "drop", "scan") for b in ("Volume", "Quota", "Image", "Route", "Share", "Group")
    ]

    def body(count: int) -> str:
        return " ".join(f"{rng.choice(names)}{rng.randrange(10**4)}" for _ in range(count))

    headers = [(f"/* {LICENCE} */\n{body(90)}", "trap: licence header") for _ in range(NUM_TRAPS)]
    stubs = [
        (
            f"Module {body(3)}\n\nThis method is an interface only. {body(6)}\nParameters\n{body(8)}\nReturns\n{body(8)}\nRaises\n{body(4)}",
            "trap: stub",
        )
        for _ in range(NUM_TRAPS)
    ]
    return headers + stubs


def grams(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[at : at + 3]) for at in range(max(1, len(words) - 2))}


def checked(texts: list[str], sources: list[str], preset: str) -> dict[str, Any]:
    """What one preset removes, how much of it without cause, and the share of each kind of trap it keeps."""
    ids = [f"{index:07d}" for index in range(len(texts))]
    documents = pa.table({"id": ids, "source": sources, "text": pa.array(texts, pa.large_string())})
    removed = near_duplicates(documents, PRESETS[preset], SurvivorConfig())
    wrong, lowest_jaccard, lowest_containment = 0, 1.0, 1.0
    for gone, kept in zip(removed["id"].to_pylist(), removed["kept_id"].to_pylist()):
        one, other = grams(texts[int(gone)]), grams(texts[int(kept)])
        jaccard, containment = len(one & other) / len(one | other), len(one & other) / len(one)
        wrong += jaccard < LEAST_JACCARD and containment < LEAST_CONTAINMENT
        lowest_jaccard, lowest_containment = min(lowest_jaccard, jaccard), min(lowest_containment, containment)
    lost = removed["source"].to_pylist()
    traps_kept = {kind: 1 - lost.count(kind) / NUM_TRAPS for kind in TRAPS}
    return {
        "bar": preset,
        "num_documents": len(texts),
        "removed": removed.num_rows,
        "without_cause": wrong,
        "lowest_containment": lowest_containment,
        "lowest_jaccard": lowest_jaccard,
        "traps_kept": traps_kept,
        "holds": wrong == 0 and min(traps_kept.values()) >= LEAST_TRAPS_KEPT,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--presets", default=",".join(sorted(PRESETS, reverse=True)))
    parser.add_argument("--work", type=Path, default=Path("benchmarks/.peers/out/minhash"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    plant(options.corpus, options.work / "planted.parquet")
    table = pq.read_table(options.work / "planted.parquet", columns=["text", "source"])
    made = traps()
    texts, sources = table["text"].to_pylist() + [text for text, _ in made], table["source"].to_pylist() + [source for _, source in made]
    rows = [checked(texts, sources, preset) for preset in options.presets.split(",")]
    for row in rows:
        kept = ", ".join(f"{kind} {share:.1%}" for kind, share in row["traps_kept"].items())
        print(f"{row['bar']}: {row['removed']} of {row['num_documents']} removed, {row['without_cause']} without cause; kept: {kept}")
    keep(Path(__file__).with_suffix(".results.json"), rows)
    return int(not all(row["holds"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
