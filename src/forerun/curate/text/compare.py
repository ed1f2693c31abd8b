"""The stages that compare documents with each other or with evaluation items: near-duplicates and contamination."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from forerun.base.config import load_json, plain
from forerun.base.errors import DataError
from forerun.base.files import write_json
from forerun.curate.engine.tasks import Task
from forerun.curate.steps import StepFolder, StepKey
from forerun.curate.text import evidence
from forerun.curate.text.attributes import kept_mask, part_name, write_part
from forerun.curate.text.contamination_stage import CONTAMINATED, gather_items, judge_all
from forerun.curate.text.decontaminate import DecontaminateConfig
from forerun.curate.text.fuzzy import removal_report
from forerun.curate.text.leaks import leak_report
from forerun.curate.text.minhash import MinHashConfig
from forerun.curate.text.near_stage import NEAR_DUPLICATE, find_candidates
from forerun.curate.text.stages import mark_part
from forerun.curate.text.survivors import SurvivorConfig
from forerun.curate.text.walk import (
    RULES_CODE,
    SHARED_CODE,
    WORDS_CODE,
    Attribute,
    Walk,
    finish_attribute,
    num_partitions,
    part_tasks,
    parts,
    text_bytes,
)

TEXT = "forerun.curate.text"
NEAR, CONTAMINATION = f"{TEXT}.near_stage", f"{TEXT}.contamination_stage"
BAND_CODE = (*SHARED_CODE, *WORDS_CODE, NEAR, f"{TEXT}.minhash", f"{TEXT}.lsh")
FUZZY_CODE = (*BAND_CODE, *RULES_CODE, *(f"{TEXT}.{name}" for name in ("fuzzy", "survivors", "containment", "evidence")))
CONTAMINATION_CODE = (
    *(*SHARED_CODE, *WORDS_CODE, CONTAMINATION, "forerun.curate.store", "forerun.curate.growing"),
    *(f"{TEXT}.{name}" for name in ("decontaminate", "gram_index", "leaks", "evidence")),
)
SAMPLE_BYTES = 256 << 20  # assumed: text that evidence and the recall report are drawn from


def fuzzy_step(
    walk: Walk, partitions: Attribute, earlier: Sequence[Attribute], fuzzy: MinHashConfig, survivors: SurvivorConfig
) -> Attribute:
    """Near-duplicates: candidates by band keys, every removal decided with both texts and written to `decisions.parquet`."""
    keys = _band_keys(walk, partitions, earlier, fuzzy)
    key = StepKey(
        name="fuzzy_dedup",
        version=1,
        parameters={"fuzzy": fuzzy, "survivors": survivors},
        inputs=(partitions.outcome.digest, *(one.outcome.digest for one in earlier), keys.outcome.digest),
        modules=FUZZY_CODE,
    )
    folder = StepFolder(walk.root, key)
    outcome = folder.outcome()
    if outcome is None:
        path = folder.prepare()
        decisions = _decide(walk, path, partitions, keys, survivors)
        write_part(decisions, path / "decisions.parquet")
        write_part(_pairs(partitions, earlier, decisions, fuzzy, survivors), path / "pairs.parquet")
        sources = []
        for index in range(num_partitions(partitions)):
            table = pq.read_table(partitions.part(index), columns=["id", "source"])
            sources.append(table.filter(pa.array(kept_mask(table["id"], parts(earlier, index))))["source"])
            mark_part(partitions.part(index), parts(earlier, index), decisions, NEAR_DUPLICATE, path / part_name(index))
        report = removal_report(pa.chunked_array([chunk for column in sources for chunk in column.chunks], pa.string()), decisions)
        outcome = finish_attribute(folder, partitions, earlier, report=report, more=["decisions.parquet", "pairs.parquet"])
        folder.clear("candidates")
        folder.clear("decisions")
    walk.taken(key, outcome)
    return Attribute(folder, outcome)


def _band_keys(walk: Walk, partitions: Attribute, earlier: Sequence[Attribute], fuzzy: MinHashConfig) -> Attribute:
    """A step of its own, so that another threshold of survival does not hash the corpus again. Not part of the manifest."""
    key = StepKey(
        name="band_keys",
        version=1,
        parameters=fuzzy,
        inputs=(partitions.outcome.digest, *(one.outcome.digest for one in earlier)),
        modules=BAND_CODE,
    )
    folder = StepFolder(walk.root, key)
    outcome = folder.outcome()
    if outcome is None:
        folder.prepare()
        aside = walk.run(
            "hash shingles", part_tasks(folder, partitions, earlier, f"{NEAR}:keys_part", {"config": plain(fuzzy)}), folder.path
        )
        if aside:
            raise _too_large(aside)
        names = [part_name(index) for index in range(num_partitions(partitions))]
        rows = sum(pq.read_metadata(folder.path / name).num_rows for name in names)
        outcome = folder.finish(names, documents_in=rows, documents_out=rows, dropped={}, report={})
    return Attribute(folder, outcome)


def _decide(walk: Walk, path: Path, partitions: Attribute, keys: Attribute, survivors: SurvivorConfig) -> pa.Table:
    """All decisions, in order of id."""
    indices = range(num_partitions(partitions))
    candidates = [path / "candidates" / part_name(index) for index in indices]
    found = path / "candidates" / "found.json"
    if not found.exists():
        num_batches = find_candidates([keys.part(index) for index in indices], candidates)
        write_json(found, num_batches)
    num_batches = load_json(found, int)
    texts = [path / "candidates" / f"text-{index:05d}.parquet" for index in indices]
    tasks = [
        Task(
            name=f"text-{index:05d}",
            call=f"{NEAR}:candidate_text_part",
            arguments={"partition": str(partitions.part(index)), "candidates": str(candidates[index]), "out": str(texts[index])},
            num_bytes=text_bytes(partitions.part(index)),
        )
        for index in indices
        if not texts[index].exists()
    ]
    aside = walk.run("collect candidates", tasks, path, light=True)
    total = sum(text_bytes(text) for text in texts if text.exists())
    batches = [path / "decisions" / f"batch-{batch:05d}.parquet" for batch in range(num_batches)]
    tasks = [
        Task(
            name=out.stem,
            call=f"{NEAR}:decide_batch",
            arguments={"texts": [str(text) for text in texts], "batch": batch, "out": str(out), "config": plain(survivors)},
            num_bytes=total // num_batches,
        )
        for batch, out in enumerate(batches)
        if not out.exists()
    ]
    aside = aside or walk.run("verify near-duplicates", tasks, path)
    if aside:
        raise _too_large(aside)
    if not batches:
        from forerun.curate.text.survivors import SCHEMA

        return SCHEMA.empty_table()
    return pa.concat_tables([pq.read_table(out) for out in batches]).sort_by("id")


def _pairs(
    partitions: Attribute, earlier: Sequence[Attribute], decisions: pa.Table, fuzzy: MinHashConfig, survivors: SurvivorConfig
) -> pa.Table:
    """Sampled removals and near misses with both texts, for people to check the rule by."""
    sampled = decisions.slice(0, evidence.MOST_ROWS)
    wanted = pa.concat_arrays([sampled["id"].combine_chunks(), sampled["kept_id"].combine_chunks()])
    return evidence.pairs(_documents(partitions, earlier, wanted), decisions, fuzzy, survivors)


def _documents(partitions: Attribute, earlier: Sequence[Attribute], wanted: pa.Array) -> pa.Table:
    """Documents that are still in: those with the least ids, up to `SAMPLE_BYTES` of text, and some by name wherever they are."""
    tables, size = [], 0
    for index in range(num_partitions(partitions)):
        path = partitions.part(index)
        ids = pq.read_table(path, columns=["id"])["id"]
        mask = pa.array(kept_mask(ids, parts(earlier, index)))
        if size >= SAMPLE_BYTES:
            mask = pc.and_(mask, pc.is_in(ids, wanted).combine_chunks())
        if pc.any(mask).as_py():
            tables.append(pq.read_table(path, columns=["id", "source", "text"]).filter(mask))
        size += text_bytes(path)
    return pa.concat_tables(tables) if tables else pq.read_table(partitions.part(0), columns=["id", "source", "text"]).slice(0, 0)


def _too_large(aside: dict[str, str]) -> DataError:
    name = min(aside)
    return DataError(f"{name} {aside[name]}", hint="lower normalize.partition_bytes, use fewer workers, or a machine with more memory")


def decontaminate_step(
    walk: Walk,
    partitions: Attribute,
    earlier: Sequence[Attribute],
    config: DecontaminateConfig,
    held_out_fraction: float,
    evals: pa.Table | None,
) -> Attribute:
    """Training documents that hold a held-out document or an evaluation item; every hit named in `contaminated.parquet`."""
    key = StepKey(
        name="decontaminate",
        version=1,
        parameters={"decontaminate": config, "held_out_fraction": held_out_fraction},
        inputs=(partitions.outcome.digest, *(one.outcome.digest for one in earlier), _evals_digest(evals)),
        modules=CONTAMINATION_CODE,
    )
    folder = StepFolder(walk.root, key)
    outcome = folder.outcome()
    if outcome is None:
        path = folder.prepare()
        indices = range(num_partitions(partitions))
        where = [partitions.part(index) for index in indices], [parts(earlier, index) for index in indices]
        items_path = path / "items" / "items.parquet"
        if not items_path.exists():
            write_part(gather_items(*where, held_out_fraction, evals), items_path)
        arguments = {"items": str(items_path), "held_out_fraction": held_out_fraction, "config": plain(config)}
        tasks = part_tasks(folder, partitions, earlier, f"{CONTAMINATION}:scan_part", arguments, below="hits")
        aside = walk.run("look for evaluation text", tasks, path)
        if aside:
            raise _too_large(aside)
        items = pq.read_table(items_path)
        found, searched = judge_all(*where, [path / "hits" / part_name(index) for index in indices], items, held_out_fraction, config)
        write_part(found.rows, path / "contaminated.parquet")
        for index in indices:
            mark_part(partitions.part(index), parts(earlier, index), found.rows, CONTAMINATED, path / part_name(index))
        documents = _documents(partitions, earlier, found.rows["id"].slice(0, evidence.MOST_ROWS).combine_chunks())
        write_part(evidence.hits(documents, found.rows.drop_columns(["source"]), items), path / "hits.parquet")
        report = {**leak_report(documents, items, found, config), "flagged_fraction": found.rows.num_rows / max(searched, 1)}
        outcome = finish_attribute(folder, partitions, earlier, report=report, more=["contaminated.parquet", "hits.parquet"])
        folder.clear("items")
        folder.clear("hits")
    walk.taken(key, outcome)
    return Attribute(folder, outcome)


def _evals_digest(evals: pa.Table | None) -> str:
    if evals is None:
        return ""
    state = xxhash.xxh3_128()
    for column in ("id", "text"):
        for value in evals[column].to_pylist():
            state.update(str(value).encode("utf-8", "surrogatepass") + b"\0")
    return state.hexdigest()
