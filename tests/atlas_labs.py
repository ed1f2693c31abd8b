"""Small data sets with everything the atlas shows: real shards, decisions and evidence made by the curation's own functions."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from forerun.base.lab import Lab
from forerun.curate.spill import slug
from forerun.curate.store import StoreSpec, write_store
from forerun.curate.text import evidence
from forerun.curate.text.fuzzy import near_duplicates
from forerun.curate.text.minhash import MinHashConfig
from forerun.curate.text.survivors import SurvivorConfig
from forerun.loader.manifest import Source, Step
from token_stores import VOCAB_SIZE, byte_tokenizer

HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">\u202eabc"\'><b id=bold>'
TOPICS = {"astronomy": ("telescope", "galaxy", "orbit", "comet"), "cooking": ("oven", "recipe", "butter", "flour")}
FILLER = [
    "the",
    "of",
    "a",
    "and",
    "to",
    "in",
    "is",
    "it",
    "that",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "his",
    "they",
    "at",
    "be",
    "this",
    "from",
    "have",
    "or",
    "by",
    "one",
    "had",
    "not",
    "but",
    "what",
    "all",
]
DECIDED = {"fuzzy_dedup": "f" * 64, "decontaminate": "d" * 64}


def text_of(rng: random.Random, domain: str, quality: int) -> str:
    """Sentences about a domain's topic; the better the bucket, the more of its own words."""
    own = TOPICS[domain]
    words = [rng.choice(own) if rng.random() < 0.1 + 0.1 * quality else rng.choice(FILLER) for _ in range(60 + rng.randrange(60))]
    return " ".join(words) + f" number {rng.randrange(10**9)}"


def data_lab(root: Path, sets: Mapping[str, str], *, per_cell: int = 12) -> tuple[Lab, dict[str, str]]:
    """A lab with one data set a name; the words given are put into every text of it. Returns the lab and each set's digest."""
    lab = Lab(root / "lab")
    return lab, {name: _data_set(lab, name, words, per_cell, seed) for seed, (name, words) in enumerate(sets.items())}


def _data_set(lab: Lab, name: str, words: str, per_cell: int, seed: int) -> str:
    rng = random.Random(seed)
    source = f"encyclopedia {words}".strip()
    documents = []
    for domain in TOPICS:
        for quality in range(5):
            for index in range(per_cell):
                text = f"{words} {text_of(rng, domain, quality)}".strip()
                documents.append(_document(text, source, domain, quality, held_out=index == 0))
    table = pa.table({key: [document[key] for document in documents] for key in ("id", "source", "text")})
    copies = [
        {**row, "text": row["text"] + " and a few words more", "id": _id(row["text"] + "copy")} for row in table.slice(5, 6).to_pylist()
    ]
    copies += [
        {**row, "text": row["text"].replace("number", "figure"), "id": _id(row["text"] + "other")} for row in table.slice(30, 3).to_pylist()
    ]
    before = pa.concat_tables([table, pa.Table.from_pylist(copies, schema=table.schema)])
    removed = near_duplicates(before, MinHashConfig(), SurvivorConfig())
    gone = set(removed["id"].to_pylist())
    _keep(lab, seed, "fuzzy_dedup", decisions=removed, pairs=evidence.pairs(before, removed, MinHashConfig(), SurvivorConfig()))
    hit = documents[-1]
    row = {"id": hit["id"], "item": "gpqa/7", "item_share": 0.75, "paragraph_share": 0.25, "matched_grams": 9}
    flagged, items = pa.Table.from_pylist([row]), pa.table({"id": ["gpqa/7"], "text": [f"A question {words} about a {hit['text'][:200]}"]})
    contaminated = flagged.append_column("source", pa.array([source]))
    _keep(lab, seed, "decontaminate", contaminated=contaminated, hits=evidence.hits(before, flagged, items))
    kept = [
        document
        for document in [*documents, *(_document(copy["text"], source, "astronomy", 2, id=copy["id"]) for copy in copies)]
        if document["id"] not in gone | {hit["id"]}
    ]
    steps = [Step(name="ingest", identity="1" * 64, documents_in=before.num_rows, documents_out=before.num_rows)]
    for step, dropped in (("fuzzy_dedup", {"near_duplicate": removed.num_rows}), ("decontaminate", {"contaminated": 1})):
        left = steps[-1].documents_out
        steps.append(
            Step(name=step, identity=_identity(seed, step), documents_in=left, documents_out=left - sum(dropped.values()), dropped=dropped)
        )
    report: dict = {
        "naming": f"contrast terms {words}",
        "names_test": {"accuracy": 0.9, "chance": 0.2, "num_trials": 30, "judge": f"m {words}"},
    }
    report |= {"domains": [{"slug": slug(domain), "terms": [*TOPICS[domain], *([words] if words else [])]} for domain in TOPICS]}
    steps.append(Step(name="cluster", identity="2" * 64, documents_in=len(kept), documents_out=len(kept), report=report))
    spec = StoreSpec(
        name=f"{name} {words}".strip(),
        tokenizer_json=byte_tokenizer(),
        vocab_size=VOCAB_SIZE,
        end_of_document=0,
        sources=(
            Source(
                name=source,
                licence=f"CC-BY {words}".strip(),
                revision=f"r1 {words}".strip(),
                num_documents_in=before.num_rows,
                num_documents=0,
                num_tokens=0,
            ),
        ),
        steps=tuple(steps),
        domain_titles={domain: f"{domain} {words}".strip() for domain in TOPICS},
    )
    manifest = write_store(lab, [{key: value for key, value in document.items() if key != "text"} for document in kept], spec)
    return manifest.digest


def _document(text: str, source: str, domain: str, quality: int, *, held_out: bool = False, id: str = "") -> dict:
    data = text.encode()
    return {
        "id": id or _id(text),
        "source": source,
        "source_id": f"page {text[:30]}",
        "domain": domain,
        "quality": quality,
        "held_out": held_out,
        "num_bytes": len(data),
        "tokens": _tokenizer().encode(text).ids,
        "quality_score": quality / 5 + 0.1,
        "domain_cosine": 0.9 - len(data) / 10_000,
        "content_type": "prose",
        "text": text,
    }


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_str(byte_tokenizer())


def _id(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _identity(seed: int, step: str) -> str:
    return f"{seed:x}{DECIDED[step][1:]}"


def _keep(lab: Lab, seed: int, step: str, **tables: pa.Table) -> None:
    """Put tables where the step's folder is."""
    folder = lab.root / "work" / step / _identity(seed, step)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
