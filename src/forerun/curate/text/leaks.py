"""How well a run's decontamination sees: items planted in its own documents in several disguises, and decoys it must not report."""

# I items, N documents

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from forerun.curate.text.decontaminate import Contamination, DecontaminateConfig, index_of, judge
from forerun.curate.text.gram_index import GramIndex, scan

NUM_PLANTED = 200  # source: the public recall harness plants 300; 200 leave a standard error of 2 points at 90%
NUM_HOSTS = 50  # assumed: enough different surroundings
LINE_WORDS = 8  # source: the same harness re-wraps to lines of 8 words
FILLER_WORDS = 200  # assumed: words of the host before and after an embedded item


def leak_report(
    documents: pa.Table, items: pa.Table, found: Contamination, config: DecontaminateConfig, *, seed: int = 0
) -> dict[str, Any]:
    """Recall by disguise and reports of decoys, for the manifest.

    Args:
        documents: `id`, `source`, `text` that were searched.
        items: what was searched for.
        found: what the search gave; flagged documents are not hosts.
    """
    rng = np.random.default_rng(seed)
    index = index_of(items, config)
    hosts = _hosts(documents, set(found.rows["id"].to_pylist()), rng)
    short = np.zeros(items.num_rows, bool)
    short[index.entry_item[index.entry_starts[index.num_grams] :]] = True
    planted: dict[str, dict[str, int]] = {}
    decoys = {"reported": 0, "planted": 0}
    for prefix, group in (("", (index.item_grams > 0) & ~short), ("short_", short)):
        chosen = rng.permutation(np.flatnonzero(group))[:NUM_PLANTED].tolist() if hosts else []
        texts = [items["text"][one].as_py() for one in chosen]
        around = [hosts[number % len(hosts)] for number in range(len(chosen))]
        for disguise, hide in DISGUISES.items():
            reported = _reported([hide(text, host) for text, host in zip(texts, around)], items, index, config)
            hits = sum(items["id"][one].as_py() in names for one, names in zip(chosen, reported))
            planted[prefix + disguise] = {"found": hits, "planted": len(chosen)}
        changed = [embedded(_decoy(text, host), host) for text, host in zip(texts, around)]
        decoys["reported"] += sum(bool(names) for names in _reported(changed, items, index, config))
        decoys["planted"] += len(chosen)
    return {
        "planted": planted,
        "decoys": decoys,
        "flagged_fraction": found.rows.num_rows / max(documents.num_rows, 1),
        "num_items": items.num_rows,
        "too_short": {"num_items": len(found.too_short), "first": list(found.too_short[:20])},
        "boilerplate": {"num_items": len(found.boilerplate), "first": list(found.boilerplate[:20])},
        "samples": found.rows.select(["id", "source", "item", "item_share", "excerpt"]).slice(0, 8).to_pylist(),
    }


def verbatim(text: str, host: str) -> str:
    """As a paragraph of its own."""
    return f"{host}\n\n{text}\n\n{host}"


def rewrapped(text: str, host: str) -> str:
    """In lines of eight words."""
    words = text.split()
    return verbatim("\n".join(" ".join(words[at : at + LINE_WORDS]) for at in range(0, len(words), LINE_WORDS)), host)


def respelled(text: str, host: str) -> str:
    """In capitals, with other punctuation."""
    return verbatim(re.sub(r"[^\w\s]+", " – ", text.upper()), host)


def embedded(text: str, host: str) -> str:
    """In the middle of a paragraph of something else."""
    words = host.split()[:FILLER_WORDS]
    return " ".join([*words, *text.split(), *reversed(words)])


DISGUISES: dict[str, Callable[[str, str], str]] = {
    "verbatim": verbatim,
    "rewrapped": rewrapped,
    "respelled": respelled,
    "embedded": embedded,
}


def _decoy(text: str, host: str) -> str:
    """The item with every fourth word from somewhere else: alike, but another item."""
    words, others = text.split(), host.split()
    if len(words) < 4:  # unspaced script, or next to nothing
        return "".join(char if place % 4 else "。" for place, char in enumerate(text))
    return " ".join(word if place % 4 != 2 else others[place % len(others)] for place, word in enumerate(words))


def _hosts(documents: pa.Table, flagged: set[str], rng: np.random.Generator) -> list[str]:
    """Beginnings of clean documents."""
    names, hosts = documents["id"].to_pylist(), []
    for row in rng.permutation(len(names)).tolist():
        if names[row] not in flagged:
            words = documents["text"][row].as_py().split()
            if len(words) >= 20:
                hosts.append(" ".join(words[:FILLER_WORDS]))
        if len(hosts) == NUM_HOSTS:
            break
    return hosts


def _reported(texts: list[str], items: pa.Table, index: GramIndex, config: DecontaminateConfig) -> list[list[str]]:
    """Items reported for each text."""
    column = pa.array(texts, pa.large_string())
    ids = [str(number) for number in range(len(texts))]
    rows = judge(ids, ids, column, items, index, scan(column, index), config).rows
    by_id = dict(zip(rows["id"].to_pylist(), rows["items"].to_pylist()))
    return [by_id.get(name, []) for name in ids]
