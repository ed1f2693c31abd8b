"""The first half as a whole: its counts, its independence of order and workers, what it redoes after a kill, and what it names."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.text_samples import planted, sentence, write_lines
from forerun.base.errors import ConfigError, DataError
from forerun.base.lab import Lab
from forerun.curate.engine.config import EngineConfig
from forerun.curate.ingest.source import SourceFile, sources_in
from forerun.curate.text.exact import ExactConfig
from forerun.curate.text.filters import FilterConfig
from forerun.curate.text.normalize import NormalizeConfig
from forerun.curate.text.pipeline import CleanText, TextConfig, clean
from forerun.curate.text.survivors import SurvivorConfig

SMALL = TextConfig(held_out_fraction=0.1, normalize=NormalizeConfig(partition_bytes=40_000))
HERE = EngineConfig(runner="loop")


def run(folder: Path, lab: Path, config: TextConfig = SMALL, engine: EngineConfig = HERE, **more) -> CleanText:
    return clean(Lab(lab), sources_in(folder), config, engine=engine, quiet=True, **more)


def bytes_of(result: CleanText) -> dict[str, bytes]:
    """Everything that goes on to the store, by file name."""
    files = {path.name: path.read_bytes() for path in result.partitions}
    return files | {name: path.read_bytes() for name, path in result.evidence.items()}


def rows(result: CleanText) -> list[dict]:
    return [row for path in result.partitions for row in pq.read_table(path).to_pylist()]


def test_every_document_is_accounted_for_and_the_planted_ones_go_for_their_reason(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", planted())
    result = run(tmp_path / "in", tmp_path / "lab")
    for step in result.steps:
        assert step.documents_in == step.documents_out + sum(step.dropped.values())
    assert {reason: count for step in result.steps for reason, count in step.dropped.items()} == {
        "blank": 1,
        "too_short": 1,
        "exact_duplicate": 5,
        "near_duplicate": 10,
    }
    assert len(result.partitions) > 2
    ids = [row["id"] for row in rows(result)]
    assert ids == sorted(set(ids)) and len(ids) == 200
    decisions = pq.read_table(result.evidence["fuzzy_dedup"]).to_pylist()
    assert len(decisions) == 10 and {decision["id"] for decision in decisions}.isdisjoint(ids)


def test_columns_of_text_have_64_bit_offsets_in_every_file(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", planted())
    run(tmp_path / "in", tmp_path / "lab")
    kinds = {
        (path.parent.parent.name, field.type)
        for path in (tmp_path / "lab").rglob("*.parquet")
        for field in pq.read_schema(path)
        if field.name == "text" and path.name not in ("pairs.parquet", "hits.parquet")  # samples of bounded size
    }
    assert len(kinds) >= 3
    assert {kind for _, kind in kinds} == {pa.large_string()}, kinds  # 2 GiB of text in a column overflow the offsets of `string`


def test_order_of_documents_and_files_changes_nothing_down_to_the_step_identities(tmp_path):
    texts = planted()
    records = [json.dumps({"text": text, "id": f"d{i}"}) for i, text in enumerate(texts)]
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.jsonl").write_text("\n".join(records))
    random.Random(1).shuffle(records)
    (tmp_path / "two" / "a").mkdir(parents=True)
    (tmp_path / "two" / "a" / "y.jsonl").write_text("\n".join(records[:90]))
    (tmp_path / "two" / "a" / "x.jsonl").write_text("\n".join(records[90:]))
    one, two = run(tmp_path / "one", tmp_path / "lab1"), run(tmp_path / "two", tmp_path / "lab2")
    assert bytes_of(one) == bytes_of(two)
    assert (one.steps, one.sources) == (two.steps, two.sources)


def test_worker_processes_give_the_bytes_of_this_process(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", planted())
    here = run(tmp_path / "in", tmp_path / "lab1")
    workers = run(tmp_path / "in", tmp_path / "lab2", engine=EngineConfig(workers=2, worker_bytes=20_000))  # the two heavy stages
    assert bytes_of(here) == bytes_of(workers)
    assert here.steps == workers.steps


def written(lab: Path) -> dict[str, int]:
    return {str(path.relative_to(lab)): path.stat().st_mtime_ns for path in lab.rglob("*.parquet")}


def test_an_unchanged_run_writes_nothing_and_a_changed_parameter_only_what_depends_on_it(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", planted())
    first = run(tmp_path / "in", tmp_path / "lab")
    before = written(tmp_path / "lab")
    again = run(tmp_path / "in", tmp_path / "lab")
    assert (again.steps, written(tmp_path / "lab")) == (first.steps, before)
    changed = TextConfig(held_out_fraction=0.1, normalize=SMALL.normalize, survivors=SurvivorConfig(containment=0.9))
    other = run(tmp_path / "in", tmp_path / "lab", changed)
    fresh = {path.split("/")[1] for path in set(written(tmp_path / "lab")) - set(before)}
    assert fresh <= {"fuzzy_dedup", "decontaminate", "passed"} and "fuzzy_dedup" in fresh
    assert [a.identity == b.identity for a, b in zip(first.steps, other.steps)][:4] == [True, True, True, False]


def test_a_lost_or_cut_part_is_made_again_and_nothing_else(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", planted())
    first = run(tmp_path / "in", tmp_path / "lab")
    before, content = written(tmp_path / "lab"), bytes_of(first)
    (lost,) = (tmp_path / "lab" / "work" / "exact_dedup").glob("*/part-00001.parquet")
    lost.write_bytes(lost.read_bytes()[:100])
    again = run(tmp_path / "in", tmp_path / "lab")
    assert bytes_of(again) == content
    assert {path for path, time in written(tmp_path / "lab").items() if time != before[path]} == {str(lost.relative_to(tmp_path / "lab"))}


def test_the_copy_that_stays_is_that_of_the_first_source_in_the_stated_order(tmp_path):
    text = sentence(random.Random(3), 60)
    for name in ("a", "b", "c"):
        write_lines(tmp_path / "in" / f"{name}.jsonl", [text, sentence(random.Random(name), 60)])
    assert {row["source"] for row in rows(run(tmp_path / "in", tmp_path / "lab")) if row["text"] == text} == {"a"}
    ordered = TextConfig(exact=ExactConfig(source_order=("c", "b")))
    result = run(tmp_path / "in", tmp_path / "lab", ordered)
    assert {row["source"] for row in rows(result) if row["text"] == text} == {"c"}
    assert [step.dropped for step in result.steps if step.name == "exact_dedup"] == [{"exact_duplicate": 2}]
    with pytest.raises(ConfigError, match="source 'nope' is named by a stage"):
        run(tmp_path / "in", tmp_path / "lab", TextConfig(exact=ExactConfig(source_order=("nope",))))


def test_two_texts_under_one_name_are_both_kept_and_the_name_is_reported(tmp_path):
    rng = random.Random(4)
    (tmp_path / "in").mkdir()
    records = [{"text": sentence(rng, 60), "id": name} for name in ("same", "same", "other")]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    result = run(tmp_path / "in", tmp_path / "lab")
    assert len(rows(result)) == 3
    assert result.steps[1].report["names_with_several_texts"] == 1
    assert result.steps[1].report["examples"] == ["a: same"]


def test_filters_drop_for_a_stated_reason_and_count(tmp_path):
    english = "The history of the town begins with the bridge that was built over the river when the mill was still in use. " * 4
    german = "Die Geschichte der Stadt beginnt mit der Brücke, die über den Fluss gebaut wurde, als die Mühle noch in Betrieb war. " * 4
    records = [
        {"text": english + "one", "id": "1", "lic": "MIT"},
        {"text": german, "id": "2", "lic": "MIT"},
        {"text": english + "Write to jane.doe@somewhere.org about it.", "id": "3", "lic": "CC-BY-4.0"},
        {"text": english + "four", "id": "4", "lic": "CC-BY-NC-4.0"},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)))
    source = SourceFile(name="x", path=str(tmp_path / "x.jsonl"), licence_field="lic")
    filters = FilterConfig(languages=("en",), refused_licences=("*-NC-*",), personal_data=("email",))
    loose = SurvivorConfig(containment=1.0)
    result = clean(Lab(tmp_path / "lab"), [source], TextConfig(filters=filters, survivors=loose), engine=HERE, quiet=True)
    (step,) = [step for step in result.steps if step.name == "filters"]
    assert step.dropped == {"language_not_listed": 1, "licence_refused": 1, "personal_data_email": 1}
    assert [(row["source_id"], row["licence"], row["language"]) for row in rows(result)] == [("1", "MIT", "en")]


def test_an_attribute_that_belongs_to_other_documents_stops_the_run(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", planted())
    run(tmp_path / "in", tmp_path / "lab")
    (part,) = (tmp_path / "lab" / "work" / "exact_dedup").glob("*/part-00000.parquet")
    table = pq.read_table(part)
    moved = table.set_column(0, "id", pa.array(table["id"].to_pylist()[::-1]))
    changed = TextConfig(held_out_fraction=0.2, normalize=SMALL.normalize)
    pq.write_table(moved, part)
    done = json.loads((part.parent / "done.json").read_bytes())
    done["files"][part.name] = part.stat().st_size  # so that only the ids give it away
    (part.parent / "done.json").write_text(json.dumps(done))
    with pytest.raises(DataError, match="its partition has"):
        run(tmp_path / "in", tmp_path / "lab", changed)


def test_a_field_that_no_document_has_stops_the_run_whatever_it_was_for(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": f"a text long enough to stay, number {n} " * 3}) + "\n" for n in range(3))
    )
    for field in ("licence_field", "id_field"):
        source = SourceFile(name="s", path=str(tmp_path / "a.jsonl"), **{field: "lisence"})
        with pytest.raises(DataError, match=f"no document of source 's' has its {field} 'lisence'"):
            clean(Lab(tmp_path / "lab"), [source], TextConfig(), quiet=True)


def test_files_that_are_not_read_are_named(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a text long enough to stay in the corpus, by all means " * 2}) + "\n")
    (tmp_path / "b.docx").write_bytes(b"PK")
    clean(Lab(tmp_path / "lab"), [SourceFile(name="s", path=str(tmp_path))], TextConfig())
    assert "s: 1 files are not read, their names do not say how: b.docx" in capsys.readouterr().err


def test_nothing_left_says_why(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("hi")
    with pytest.raises(DataError, match=r"no document is left of 1 read.*too_short 1"):
        run(tmp_path / "in", tmp_path / "lab")
    (tmp_path / "in" / "a.txt").write_text("")
    with pytest.raises(DataError, match=r"no document is left of 1 read.*blank 1"):
        run(tmp_path / "in", tmp_path / "lab")
