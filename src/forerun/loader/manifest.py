"""A data set as plain data: sources, cells, shards, held-out text, the steps that made it, and documents removed since.

The manifest is the only description of a store. Its digest is `digest_of(manifest)` and names both the file and the run's data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from forerun.base.config import added, digest_of, load_json
from forerun.base.errors import DataError
from forerun.base.lab import Lab

NUM_QUALITY_BUCKETS = 5  # Q0-Q4, edges .2 .4 .6 .8 of the calibrated score
MAX_UINT16_VOCAB = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of token ids, documents back to back."""

    path: str
    """Under the store's folder; its documents lie beside it in `<name>.docs.parquet`."""
    num_tokens: int
    """Ids in the file."""
    num_documents: int
    """Documents in the file."""
    digest: str
    """SHA-256 of the token file."""
    docs_digest: str
    """SHA-256 of the document table."""

    @property
    def docs_path(self) -> str:
        """The table of the shard's documents."""
        return self.path.removesuffix(".bin") + ".docs.parquet"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """All text of one domain and quality, or one domain's held-out text."""

    name: str
    """`<domain>/q<bucket>`, or the domain when held out."""
    domain: str
    """Domain as a folder name."""
    quality: int | None
    """Bucket 0-4, 4 best; none for held-out text, which mixes them as the domain does."""
    split: Literal["train", "held_out"]
    """Held-out text is never trained on."""
    num_documents: int
    """Documents in all shards."""
    num_tokens: int
    """Tokens in all shards, one end-of-document token a document included."""
    num_bytes: int
    """UTF-8 bytes of the documents."""
    shards: tuple[Shard, ...]
    """In reading order."""


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What people say about a source besides its licence; decides no document."""

    category: str = added("")
    """What kind of text it is, as stated; empty: not stated."""
    synthetic: bool | None = added(None)
    """Made by a model; none: not stated."""
    machine_translated: bool | None = added(None)
    """Translated by a machine; none: not stated."""


@dataclass(frozen=True, kw_only=True)
class Source(Stated):
    """Where documents came from and how many survived."""

    name: str
    """Short name; documents carry it."""
    licence: str
    """As stated by the source."""
    revision: str
    """Version, commit or content digest that pins the source."""
    num_documents_in: int
    """Documents read."""
    num_documents: int
    """Documents in the store."""
    num_tokens: int
    """Tokens in the store."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stage of the pipeline: what it did, counted from the files it wrote."""

    name: str
    """Stage."""
    identity: str
    """Hash of name, version, every parameter and the inputs' digests."""
    documents_in: int
    """Documents the step read."""
    documents_out: int
    """Documents it passed on."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Reason to documents dropped; in = out + dropped."""
    report: dict[str, Any] = field(default_factory=dict)
    """What the step measured about itself."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """A document taken out after the store was built."""

    id: str
    """Document."""
    reason: str
    """As given by whoever removed it."""
    cell: str
    """Where it lies."""
    shard: int
    """Index into the cell's shards."""
    token_offset: int
    """First id of the document in the shard."""
    num_tokens: int
    """Ids of the document, end-of-document token included."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A whole data set."""

    schema: Literal[1] = 1
    """Of this file."""
    name: str
    """For people."""
    tokenizer_digest: str
    """SHA-256 of tokenizer.json."""
    vocab_size: int
    """Ids are below it."""
    dtype: Literal["uint16", "uint32"]
    """Of the shards, little-endian."""
    end_of_document: int
    """Id that ends every document."""
    sources: tuple[Source, ...]
    """By name."""
    cells: tuple[Cell, ...]
    """Training cells by name."""
    held_out: tuple[Cell, ...]
    """Held-out cells by domain."""
    steps: tuple[Step, ...] = ()
    """In order."""
    domain_titles: dict[str, str] = field(default_factory=dict)
    """Domain folder name to its name for people."""
    removed: tuple[Removal, ...] = ()
    """Documents no longer read; their shards are unchanged."""
    amends: str = ""
    """Digest of the manifest whose shards this one reads; empty for a store's first manifest."""

    @property
    def digest(self) -> str:
        """Names the manifest."""
        return digest_of(self)

    @property
    def store_digest(self) -> str:
        """Names the folder of the shards: removals amend the manifest, never the store."""
        return self.amends or self.digest


def stated_of(source: Stated) -> Stated:
    """The statements alone, to carry them over."""
    return Stated(category=source.category, synthetic=source.synthetic, machine_translated=source.machine_translated)


def load_manifest(lab: Lab, digest: str) -> Manifest:
    """The manifest of a digest, or of an unambiguous beginning of one.

    Raises: DataError when there is none, several match, or the content does not hash to its name.
    """
    found = sorted(lab.manifests.glob(f"{digest}*.json")) if digest else []
    if len(found) != 1:
        known = ", ".join(path.stem[:12] for path in sorted(lab.manifests.glob("*.json"))[:5]) or "none"
        problem = "is ambiguous" if found else "does not exist"
        raise DataError(f"data.manifest {digest!r} {problem} in {lab.manifests}", hint=f"manifests here: {known}")
    manifest = load_json(found[0], Manifest)
    if manifest.digest != found[0].stem:
        raise DataError(
            f"{found[0]} was changed: its content has digest {manifest.digest[:12]}, its name says {found[0].stem[:12]}",
            hint="restore the file from a copy; a manifest is never edited",
        )
    return manifest
