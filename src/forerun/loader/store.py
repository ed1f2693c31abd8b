"""The store as the loader sees it: every cell one long ring of token ids, memory-mapped.

Reading wraps around the end of a cell, so a cell has no tail that is skipped or padded.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from forerun.base.errors import DataError
from forerun.base.lab import Lab
from forerun.loader.manifest import Cell, Manifest, load_manifest
from forerun.loader.token_bytes import bytes_of_tokens


class CellTokens:
    """The token ids of one cell, shards joined in order."""

    def __init__(self, folder: Path, cell: Cell, dtype: str) -> None:
        self.cell = cell
        self.num_tokens = cell.num_tokens
        self._folder = folder
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self.shard_starts = np.cumsum([0, *(shard.num_tokens for shard in cell.shards)])
        """Position of each shard's first token in the cell, and the cell's length."""
        self._starts = self.shard_starts.tolist()
        self._shards: list[np.ndarray | None] = [None] * len(cell.shards)

    def shard(self, index: int) -> np.ndarray:
        """The ids of one shard, mapped on first use. Raises: DataError when the file is missing or has another length."""
        mapped = self._shards[index]
        if mapped is None:
            shard = self.cell.shards[index]
            path = self._folder / shard.path
            try:
                mapped = np.asarray(np.memmap(path, dtype=self._dtype, mode="r"))  # a plain view: slices cost a third
            except (FileNotFoundError, ValueError):
                raise DataError(f"{path} is missing or empty", hint="copy the store again, then run `forerun data verify`") from None
            if len(mapped) != shard.num_tokens:
                raise DataError(
                    f"{path} holds {len(mapped)} tokens, the manifest says {shard.num_tokens}",
                    hint="copy the store again, then run `forerun data verify`",
                )
            self._shards[index] = mapped
        return mapped

    def run(self, start: int, ring: int) -> tuple[np.ndarray, int, int]:
        """The shard that holds a position, the place in it, and how many ids follow before the shard or the ring ends."""
        index = bisect_right(self._starts, start) - 1
        return self.shard(index), start - self._starts[index], min(self._starts[index + 1], ring) - start

    def read_into(self, out: np.ndarray, start: int, ring: int) -> None:
        """Fill `out` with the ids from position `start` on, wrapping at `ring` (at most the cell's length)."""
        filled, position = 0, start % ring
        while filled < len(out):
            shard, inside, room = self.run(position, ring)
            length = min(len(out) - filled, room)
            out[filled : filled + length] = shard[inside : inside + length]
            filled += length
            position = (position + length) % ring


@dataclass(frozen=True, eq=False)
class TokenStore:
    """One data set, ready to be read."""

    manifest: Manifest
    folder: Path

    @cached_property
    def cells(self) -> dict[str, CellTokens]:
        """Training cells by name."""
        return {cell.name: CellTokens(self.folder, cell, self.manifest.dtype) for cell in self.manifest.cells}

    @cached_property
    def held_out(self) -> dict[str, CellTokens]:
        """Held-out text by domain."""
        return {cell.name: CellTokens(self.folder, cell, self.manifest.dtype) for cell in self.manifest.held_out}

    @property
    def tokenizer_path(self) -> Path:
        """Hugging Face tokenizers file."""
        return self.folder / "tokenizer.json"

    @cached_property
    def token_bytes(self) -> np.ndarray:
        """UTF-8 bytes each id stands for, int32 `[vocab_size]`; 0 for special tokens such as end-of-document."""
        return bytes_of_tokens(self.tokenizer_path.read_text(encoding="utf-8"), self.manifest.vocab_size)

    def removed_spans(self, cell: Cell) -> np.ndarray:
        """First and past-the-last position in the cell of each removed document, its last token kept, int64 `[R, 2]`, sorted.

        The last token ends the document before the next one and starts that; blanking the rest hides the document.
        """
        starts = np.cumsum([0, *(shard.num_tokens for shard in cell.shards)])
        spans = [
            (starts[gone.shard] + gone.token_offset, starts[gone.shard] + gone.token_offset + gone.num_tokens - 1)
            for gone in self.manifest.removed
            if gone.cell == cell.name
        ]
        return np.array(sorted(spans), np.int64).reshape(-1, 2)


def open_store(lab: Lab, digest: str) -> TokenStore:
    """The store a manifest digest names. Raises: DataError when the manifest or the store's folder is missing or was changed."""
    manifest = load_manifest(lab, digest)
    folder = lab.store / manifest.store_digest
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist", hint="copy the store beside its manifest, or run `forerun curate run` again")
    return TokenStore(manifest, folder)
