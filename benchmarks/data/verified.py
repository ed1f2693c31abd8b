"""Bar 5: no removal without cause. Every removal of the near-duplicate set is checked again with Python sets; traps must survive.

usage: python benchmarks/data/verified.py CORPUS.parquet [--preset marin|fineweb]

Traps: files that share only a licence header, and stubs of an interface that share their frame. 95% of them must be kept.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from planted import plant

from forerun.curate.text.fuzzy import near_duplicates
from forerun.curate.text.minhash import PRESETS
from forerun.curate.text.survivors import SurvivorConfig

NUM_TRAPS = 300
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="marin")
    parser.add_argument("--work", type=Path, default=Path("benchmarks/.peers/out/minhash"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    plant(options.corpus, options.work / "planted.parquet")
    table = pq.read_table(options.work / "planted.parquet", columns=["text", "source"])
    made = traps()
    texts, sources = table["text"].to_pylist() + [text for text, _ in made], table["source"].to_pylist() + [source for _, source in made]
    ids = [f"{index:07d}" for index in range(len(texts))]
    documents = pa.table({"id": ids, "source": sources, "text": pa.array(texts, pa.large_string())})
    removed = near_duplicates(documents, PRESETS[options.preset], SurvivorConfig())
    wrong = 0
    for gone, kept in zip(removed["id"].to_pylist(), removed["kept_id"].to_pylist()):
        one, other = grams(texts[int(gone)]), grams(texts[int(kept)])
        wrong += len(one & other) / len(one | other) < 0.7 and len(one & other) / len(one) < 0.75
    lost = {source: removed["source"].to_pylist().count(source) for source in ("trap: licence header", "trap: stub")}
    worst = 1 - max(lost.values()) / NUM_TRAPS
    print(f"{options.preset}: {removed.num_rows} removed, {wrong} without cause; traps kept: at least {worst:.1%} of each kind {lost}")
    return int(wrong > 0 or worst < 0.95)


if __name__ == "__main__":
    sys.exit(main())
