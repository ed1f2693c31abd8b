"""Clean documents become a store with readable domains; kills, partitions and unchanged re-runs change nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from forerun.base.config import decode
from forerun.base.errors import ConfigError, DataError
from forerun.base.lab import Lab
from forerun.curate.build import build_store
from forerun.curate.build_identity import BuildConfig, identity_of, located
from forerun.curate.cluster.ask_names import NamerConfig
from forerun.curate.cluster.domains import ClusterConfig
from forerun.curate.embed.encoders import EmbedConfig
from forerun.curate.quality.model import QualityConfig
from forerun.curate.quality.teacher import EndpointConfig
from forerun.curate.sample import sample_texts
from forerun.curate.tokenise import TokeniseConfig, train_tokenizer
from forerun.curate.verify import verify_store
from forerun.loader.manifest import Source

SUBJECTS = {
    "astronomy": "galaxy star telescope orbit planet comet nebula light mass moon spectrum redshift dwarf cluster dust sun eclipse",
    "cooking": "butter oven recipe flour sauce garlic onion boil simmer pepper dough bake salt spoon cream lemon roast",
    "law": "court judge statute plaintiff contract appeal jury evidence defendant liability clause tribunal verdict motion counsel",
    "sailing": "harbour mast sail keel rudder anchor wind tide deck hull crew knot compass storm rope lee starboard",
    "music": "melody chord violin rhythm opera harmony piano sonata tempo choir orchestra flute concert string bass song note",
    "garden": "soil seed root leaf prune compost bulb tomato rose hedge weed shade bloom lawn water harvest fruit",
}
CONFIG = BuildConfig(
    cluster=ClusterConfig(num_domains=6, num_fine=48, floor=0.05),
    quality=QualityConfig(num_labels=300),
    tokenise=TokeniseConfig(vocab_size=600),
    held_out_fraction=0.05,
)


def documents(num: int, seed: int = 0) -> pa.Table:
    rng = random.Random(seed)
    glue = ["the", "of", "and", "to", "a", "in", "is", "that", "it", "for", "was", "as", "with", "be", "by", "on"]
    rows = []
    for index in range(num):
        source = rng.choice(list(SUBJECTS))
        words = [rng.choice(SUBJECTS[source].split() if rng.random() < 0.6 else glue) for _ in range(rng.randrange(30, 120))]
        text = f"{' '.join(words).capitalize()}. Note {index}."
        rows.append(
            {"id": xxhash.xxh3_128_hexdigest(text.encode()), "source": source, "source_id": str(index), "text": text, "language": "en"}
        )
    return pa.Table.from_pylist(rows).sort_by("id")


def partitions(folder: Path, table: pa.Table, count: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // count)
    paths = [folder / f"part-{index}.parquet" for index in range(count)]
    for index, path in enumerate(paths):
        pq.write_table(table.slice(index * size, size), path)
    return paths


def sources() -> list[Source]:
    return [Source(name=name, licence="CC0", revision="1", num_documents_in=0, num_documents=0, num_tokens=0) for name in SUBJECTS]


def store_files(lab: Lab, digest: str) -> dict[str, bytes]:
    folder = lab.store / digest
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("build")
    lab = Lab(root / "lab")
    paths = partitions(root / "in", documents(900), 3)
    return lab, paths, build_store(lab, "subjects", paths, sources(), CONFIG, quiet=True)


def test_domains_are_the_subjects_and_carry_their_names(built):
    lab, _, manifest = built
    assert verify_store(lab, manifest.digest, quiet=True).problems == ()
    assert {cell.domain for cell in manifest.cells} == set(SUBJECTS)
    report = next(step.report for step in manifest.steps if step.name == "cluster")
    assert report["intruder_test"]["accuracy"] > 0.9
    assert report["stability_adjusted_rand"] > 0.9
    assert len(manifest.held_out) == 6
    assert {step.name for step in manifest.steps} == {"embed", "cluster", "quality", "tokenise"}


def test_the_manifest_says_which_teacher_and_engine_ran(built):
    reports = {step.name: step.report for step in built[2].steps}
    assert reports["quality"]["teacher"] == "heuristic-1"
    assert reports["tokenise"]["engine"] in ("gigatoken", "tokenizers")
    assert reports["embed"]["quantization"]["mean_cosine"] > 0.999


def test_other_partitions_give_a_byte_identical_store(built, tmp_path: Path):
    lab, _, manifest = built
    other = Lab(tmp_path / "lab")
    again = build_store(other, "subjects", partitions(tmp_path / "in", documents(900), 7), sources(), CONFIG, quiet=True)
    assert again.digest == manifest.digest
    assert store_files(other, again.digest) == store_files(lab, manifest.digest)


def test_an_unchanged_build_is_not_built_again_and_a_changed_parameter_never_reuses_it(built):
    lab, paths, manifest = built
    started = time.process_time()
    assert build_store(lab, "subjects", paths, sources(), CONFIG, quiet=True) == manifest
    assert time.process_time() - started < 0.5
    changed = BuildConfig(cluster=CONFIG.cluster, quality=CONFIG.quality, tokenise=TokeniseConfig(vocab_size=500), held_out_fraction=0.05)
    assert build_store(lab, "subjects", paths, sources(), changed, quiet=True).vocab_size == 500


def test_a_build_killed_at_any_stage_continues_to_the_same_store(built, tmp_path: Path):
    lab, _, manifest = built
    paths = partitions(tmp_path / "in", documents(900), 3)
    home = tmp_path / "lab"
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\nfrom pathlib import Path\n"
        "import test_store_build as t\nfrom forerun.base.lab import Lab\n"
        f"paths = [Path(p) for p in {[str(path) for path in paths]!r}]\n"
        "print(t.build_store(Lab(Path(sys.argv[1])), 'subjects', paths, t.sources(), t.CONFIG, quiet=True).digest)"
    )
    command = [sys.executable, "-c", code, str(home), str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    for wait_for in ("vectors-000001.npy", "quality.npz", "store/runs/000001"):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and not list(home.glob(f"store/.build-*/{wait_for}")):
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not list(home.glob("manifests/*.json"))
    final = subprocess.run(command, capture_output=True, text=True, check=True)
    assert final.stdout.strip() == manifest.digest
    assert store_files(Lab(home), manifest.digest) == store_files(lab, manifest.digest)


def test_the_training_sample_is_bounded_in_bytes_and_the_same_however_the_input_is_cut(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("forerun.curate.sample.SAMPLE_BYTES", 5000)
    whole = documents(200)
    samples = [sample_texts(partitions(tmp_path / str(count), whole, count)) for count in (1, 3)]
    sizes = [len(text.encode()) for text in samples[0]["text"].to_pylist()]
    assert 5000 - 1500 < sum(sizes) <= 5000
    assert samples[0]["id"].to_pylist() == samples[1]["id"].to_pylist() == whole["id"].to_pylist()[: len(sizes)]


def test_a_text_that_spells_the_end_of_document_token_stays_text(tmp_path: Path):
    table = documents(60)
    texts = table["text"].to_pylist()
    texts[0] += " <|endoftext|> and on"
    table = table.set_column(table.column_names.index("text"), "text", pa.array(texts))
    lab = Lab(tmp_path / "lab")
    manifest = build_store(lab, "injected", partitions(tmp_path / "in", table, 1), sources(), CONFIG, quiet=True)
    assert verify_store(lab, manifest.digest, quiet=True).problems == ()  # verification counts end tokens against documents


def test_a_recipe_s_tokenizer_lies_beside_it_and_the_store_does_not_depend_on_where_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    digests, identities = set(), set()
    for place in ("here", "there/deeper"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "tok.json").write_text(train_tokenizer(["some words here"] * 9, TokeniseConfig(vocab_size=300)))
        config = located(replace(CONFIG, tokenise=TokeniseConfig(tokenizer="tok.json")), folder)
        assert Path(config.tokenise.tokenizer).is_absolute()
        lab = Lab(tmp_path / f"lab-{folder.name}")
        manifest = build_store(lab, "subjects", partitions(folder / "in", documents(60), 1), sources(), config, quiet=True)
        digests.add(manifest.digest)
        identities.add(next(step.identity for step in manifest.steps if step.name == "tokenise"))
        assert (
            build_store(lab, "subjects", [folder / "in" / path.name for path in (folder / "in").iterdir()], sources(), config) == manifest
        )
    assert len(digests) == len(identities) == 1
    (tmp_path / "here" / "tok.json").write_text(train_tokenizer(["other things there"] * 9, TokeniseConfig(vocab_size=300)))
    config = located(replace(CONFIG, tokenise=TokeniseConfig(tokenizer="tok.json")), tmp_path / "here")
    other = build_store(
        Lab(tmp_path / "lab-here"), "subjects", partitions(tmp_path / "in3", documents(60), 1), sources(), config, quiet=True
    )
    assert next(step.identity for step in other.steps if step.name == "tokenise") not in identities
    monkeypatch.chdir(tmp_path / "here")
    assert located(replace(CONFIG, tokenise=TokeniseConfig(tokenizer="tok.json")), tmp_path / "elsewhere") == config


def test_unusable_input_says_what_to_do(tmp_path: Path):
    lab = Lab(tmp_path / "lab")
    with pytest.raises(DataError, match="no document is left"):
        build_store(lab, "none", partitions(tmp_path / "empty", documents(3).slice(0, 0), 1), sources(), CONFIG, quiet=True)
    manifest = build_store(lab, "few", partitions(tmp_path / "few", documents(5), 1), sources(), CONFIG, quiet=True)
    assert {cell.quality for cell in manifest.cells} <= {2}  # five documents are not judged, and the manifest says so
    assert "too few" in next(step.report["teacher"] for step in manifest.steps if step.name == "quality")
    with pytest.raises(DataError, match="not among the sources"):
        build_store(lab, "undeclared", partitions(tmp_path / "some", documents(60), 1), sources()[:1], CONFIG, quiet=True)
    with pytest.raises(ConfigError, match=r"embed\.model must be given"):
        EmbedConfig(encoder="onnx")


def leaves(value: object, path: tuple[str, ...] = ()):
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), (*path, field.name))
    else:
        yield path, value


OTHER_WORDS = {"encoder": "tfidf", "url": "http://127.0.0.1:9/v1"}


def test_every_parameter_is_part_of_the_identity(tmp_path: Path):
    paths = partitions(tmp_path / "in", documents(10), 2)
    endpoint = EndpointConfig(url="http://127.0.0.1:1/v1", model="m")
    namer = NamerConfig(url="http://127.0.0.1:1/v1", model="m")
    config = replace(CONFIG, quality=replace(CONFIG.quality, teacher=endpoint), cluster=replace(CONFIG.cluster, namer=namer))
    base = identity_of("n", paths, sources(), config)
    plain = msgspec.to_builtins(config)
    names = [path for path, _ in leaves(config)]
    assert len(names) > 25
    for path, value in leaves(config):
        changed = json.loads(json.dumps(plain))
        inside = changed
        for name in path[:-1]:
            inside = inside[name]
        if isinstance(value, bool):
            inside[path[-1]] = not value
        elif isinstance(value, (int, float)):
            inside[path[-1]] = value + 1 if isinstance(value, int) else value * 0.9
        else:
            inside[path[-1]] = OTHER_WORDS.get(path[-1], f"{value}x")
        assert identity_of("n", paths, sources(), decode(changed, BuildConfig, where="test")) != base, path
    assert identity_of("other", paths, sources(), config) != base
    assert identity_of("n", paths[:1], sources(), config) != base
    assert identity_of("n", paths, sources()[:1], config) != base


def test_another_model_or_tokenizer_under_the_same_path_is_another_build(tmp_path: Path):
    paths = partitions(tmp_path / "in", documents(10), 1)
    config = dataclasses.replace(
        CONFIG,
        embed=EmbedConfig(encoder="static", model=str(tmp_path)),
        tokenise=dataclasses.replace(CONFIG.tokenise, tokenizer=str(tmp_path / "t.json")),
    )
    seen = {identity_of("n", paths, sources(), config)}
    for name in ("model.safetensors", "tokenizer.json", "t.json"):
        (tmp_path / name).write_bytes(b"one")
        seen.add(identity_of("n", paths, sources(), config))
        (tmp_path / name).write_bytes(b"two")
        seen.add(identity_of("n", paths, sources(), config))
    assert len(seen) == 7
