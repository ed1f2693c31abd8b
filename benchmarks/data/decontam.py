"""Bar 6: the 13-gram scan against datatrove's filter and a Python dictionary, with planted items in five disguises.

usage: python benchmarks/data/decontam.py CORPUS.parquet [--evals FILE ...] [--bars datatrove,dictionary] [--rounds 3]

Items are passages of documents held out from the corpus, 13 to 60 words, and short ones of 5 to 12 words; 200 of each are planted
verbatim, in 200 documents each. Recall of re-wrapped, respelled and embedded copies is that of the leak report.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from side_by_side import Bar, facts_of, main, timed

PEERS = {
    "datatrove": ["datatrove==0.10.1", "xxhash<4", "orjson", "pyarrow", "nltk", "regex", "tldextract", "tokenizers"],
    "dictionary": ["xxhash", "pyarrow", "numpy"],
}
NUM_ITEMS, NUM_SHORT, NUM_PLANTED, WORDS = 30_000, 2000, 200, 13
_SEPARATORS = re.compile(rb"[^a-z0-9\x80-\xff]+")


def normal(text: str) -> str:
    return _SEPARATORS.sub(b" ", text.encode().lower()).decode("utf-8", "replace").strip()


def prepare(options, out: Path) -> None:
    """Write `documents.parquet` with planted items and `items.parquet`; words of items are drawn anew, so that clean text holds none."""
    if (out / "items.parquet").exists():
        return
    rng = np.random.default_rng(0)
    table = pq.read_table(options.corpus, columns=["text", "source"])
    words = np.array(
        sorted({word for row in rng.permutation(table.num_rows)[:300].tolist() for word in normal(table["text"][row].as_py()).split()})
    )
    lengths = np.concatenate([rng.integers(WORDS, 60, NUM_ITEMS), rng.integers(5, WORDS, NUM_SHORT)])
    items = [" ".join(rng.choice(words, length)) for length in lengths.tolist()]
    texts, of = table["text"].to_pylist(), np.full(table.num_rows, -1)
    hosts = rng.permutation(table.num_rows)[: 2 * NUM_PLANTED]
    for number, row in enumerate(hosts.tolist()):
        item = number if number < NUM_PLANTED else NUM_ITEMS + number - NUM_PLANTED
        texts[row] += "\n\n" + items[item] + "\n"
        of[row] = item
    pq.write_table(pa.table({"text": pa.array(texts, pa.large_string()), "source": table["source"], "of": of}), out / "documents.parquet")
    pq.write_table(pa.table({"id": [str(index) for index in range(len(items))], "text": items}), out / "items.parquet")


def ours(options, out: Path) -> dict:
    from forerun.curate.text.decontaminate import DecontaminateConfig, index_of, judge, search
    from forerun.curate.text.gram_index import scan
    from forerun.curate.text.leaks import leak_report

    table, items, config, facts = pq.read_table(out / "documents.parquet"), pq.read_table(out / "items.parquet"), DecontaminateConfig(), {}
    ids, sources = [str(index) for index in range(table.num_rows)], table["source"].to_pylist()
    search(ids[:3], sources[:3], table["text"][:3], items[:10], config)
    with timed(facts):
        index = index_of(items, config)
        hits = scan(table["text"], index)
        found = judge(ids, sources, table["text"], items, index, hits, config)
    of = np.asarray(table["of"])
    named = dict(zip(found.rows["id"].to_pylist(), found.rows["items"].to_pylist()))
    rows = np.flatnonzero(of >= 0).tolist()
    long = [row for row in rows if of[row] < NUM_ITEMS]
    facts["long_found"] = sum(str(of[row]) in named.get(str(row), []) for row in long)
    facts["short_found"] = sum(str(of[row]) in named.get(str(row), []) for row in set(rows) - set(long))
    facts["clean_flagged"] = sum(of[int(name)] < 0 for name in named) / int((of < 0).sum())
    documents = pa.table({"id": ids, "source": sources, "text": table["text"]})
    facts["report"] = {key: value for key, value in leak_report(documents, items, found, config).items() if key in ("planted", "decoys")}
    return facts


def dictionary(options, out: Path) -> dict:
    import xxhash

    texts, items, facts = (
        pq.read_table(out / "documents.parquet")["text"].to_pylist(),
        pq.read_table(out / "items.parquet")["text"].to_pylist(),
        {},
    )
    with timed(facts):
        grams = {}
        for number, item in enumerate(items):
            words = normal(item).split()
            for at in range(len(words) - WORDS + 1):
                grams[xxhash.xxh3_64_intdigest(" ".join(words[at : at + WORDS]).encode())] = number
        found = []
        for row, text in enumerate(texts):
            words = normal(text).split()
            hit = {grams.get(xxhash.xxh3_64_intdigest(" ".join(words[at : at + WORDS]).encode())) for at in range(len(words) - WORDS + 1)}
            if hit - {None}:
                found.append(row)
    return facts | {"found": len(found)}


def datatrove(options, out: Path) -> dict:
    import datatrove.pipeline.decont.n_grams as steps
    from datatrove.data import Document
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.text import TextNormConfig, simplify_text

    class Whitespace:
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

    steps.load_word_tokenizer = lambda language: Whitespace()
    norm = TextNormConfig(norm_numbers=False, norm_weekdays=False, norm_monthnames=False, norm_unicode_diacritics=False)
    config = steps.NGramsDecontConfig(n_grams=WORDS, norm_config=norm, hash_config=HashConfig(precision=64, hash_fc="xxhash"))
    texts, items, facts = (
        pq.read_table(out / "documents.parquet")["text"].to_pylist(),
        pq.read_table(out / "items.parquet")["text"].to_pylist(),
        {},
    )
    with timed(facts):
        worker = steps.NGramsDecontFilter(str(out / "datatrove-index"), config=config)
        grams = {}  # its own indexer needs the lighteval package even for texts of one's own
        for number, item in enumerate(items):
            words = worker.tokenizer.word_tokenize(simplify_text(item, norm))
            grams.update((worker.hash_func(" ".join(words[at : at + WORDS])), str(number)) for at in range(len(words) - WORDS + 1))
        worker._index_hashes = grams
        found = sum(not _kept(worker.filter(Document(text=text, id=str(row)))) for row, text in enumerate(texts))
    return facts | {"found": found}


def _kept(answer) -> bool:
    return answer[0] if isinstance(answer, tuple) else bool(answer)


def sees(out: Path) -> tuple[bool, str]:
    facts = facts_of(out, "ours")
    planted = facts["report"]["planted"]
    share = {name: counts["found"] / max(counts["planted"], 1) for name, counts in planted.items()}
    good = facts["long_found"] == NUM_PLANTED and facts["short_found"] >= 0.99 * NUM_PLANTED and facts["clean_flagged"] <= 0.001
    good &= share["rewrapped"] >= 0.99 and share["embedded"] >= 0.90 and facts["report"]["decoys"]["reported"] == 0
    said = f"planted {facts['long_found']}/200, short {facts['short_found']}/200, clean flagged {facts['clean_flagged']:.4%}, "
    return good, said + ", ".join(f"{name} {value:.1%}" for name, value in share.items())


BARS = [
    Bar(name="datatrove", ours="ours", peer="datatrove", least=15, holds=sees),
    Bar(name="dictionary", ours="ours", peer="dictionary", least=10, holds=sees),
]

if __name__ == "__main__":
    sys.exit(main(__file__, BARS, {side.__name__: side for side in (ours, datatrove, dictionary)}, PEERS, prepare=prepare))
