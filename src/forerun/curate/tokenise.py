"""Text to token ids: a byte-level BPE trained on the corpus or taken as it is, encoded fast and checked against its reference.

Encoding uses gigatoken; Hugging Face tokenizers trains, checks a sample before anything is written, and takes over when the
sample differs. Special tokens are never recognised inside documents: a text that spells one is text.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forerun.base.errors import ConfigError
from forerun.curate.tokenizer_file import for_documents

END_OF_DOCUMENT = "<|endoftext|>"
CHECK_DOCUMENTS, CHECK_CHARS = 128, 1000  # assumed: gigatoken 0.10 differed on none of 82,881 documents; a wrong rule differs on nearly all
CACHE_BYTES = 2 << 30  # measured: its word cache grows by about 110 bytes a distinct word and never shrinks, so it is renewed


@dataclass(frozen=True, kw_only=True)
class TokeniseConfig:
    """Which tokenizer a store uses."""

    vocab_size: int = 8192
    """Entries of a tokenizer trained on the corpus, end-of-document included."""
    sample_bytes: int = 16 << 20
    """Text it is trained on, in document order."""
    tokenizer: str = ""
    """Path of a Hugging Face tokenizer.json to take instead of training one."""
    end_of_document: str = END_OF_DOCUMENT
    """Special token that ends every document."""

    def __post_init__(self) -> None:
        if self.vocab_size < 257:
            raise ConfigError(
                f"tokenise.vocab_size must be at least 257, got {self.vocab_size}", hint="256 bytes and the end-of-document token"
            )


def train_tokenizer(texts: Iterable[str], config: TokeniseConfig) -> str:
    """A byte-level BPE as Hugging Face tokenizers JSON; id 0 ends a document, every byte sequence can be encoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=[config.end_of_document],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_up_to(texts, config.sample_bytes), trainer)
    return tokenizer.to_str()


class Encoder:
    """Encodes columns of text with one tokenizer.

    `engine` says which implementation runs and `note` why it is not the fast one, for the manifest: both give the same ids.

    Args:
        sample: texts that the fast one is checked with.
        engine: what an earlier check decided; then nothing is checked.
    """

    def __init__(self, tokenizer_json: str, sample: Iterable[str] = (), *, engine: str = "") -> None:
        self.digest = hashlib.sha256(tokenizer_json.encode()).hexdigest()
        self._plain = for_documents(tokenizer_json)
        self._reference = None
        self._fast = None
        self._encoded_bytes = 0
        self.engine, self.note = engine or "gigatoken", ""
        reason = "" if engine else self._disagreement([text[:CHECK_CHARS] for text in itertools.islice(sample, CHECK_DOCUMENTS)])
        if reason:
            self.engine, self.note, self._fast = "tokenizers", reason, None

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> pa.LargeListArray:
        """Ids of each text, without end-of-document tokens; nulls and empty texts give empty lists."""
        column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        column = pc.fill_null(column.cast(pa.large_string()), "")
        if self.engine == "gigatoken":
            return self._encode_fast(column)
        return self._encode_reference(column)

    def _encode_fast(self, column: pa.LargeStringArray) -> pa.LargeListArray:
        import awkward as ak

        if self._fast is None or self._encoded_bytes > CACHE_BYTES:
            from gigatoken import Tokenizer

            self._fast, self._encoded_bytes = Tokenizer.from_json(self._plain), 0
        self._encoded_bytes += column.nbytes
        encoded = ak.to_layout(self._fast.encode_batch(ak.from_arrow(column))) if len(column) else None
        if encoded is None:
            return pa.array([], pa.large_list(pa.int32()))
        encoded = encoded.to_ListOffsetArray64(True)
        ids = np.asarray(encoded.content.data)[: int(encoded.offsets.data[-1])].view(np.int32)  # of uint32; no vocabulary is that large
        return pa.LargeListArray.from_arrays(pa.array(np.asarray(encoded.offsets.data)), pa.array(ids))

    def _encode_reference(self, column: pa.LargeStringArray) -> pa.LargeListArray:
        from tokenizers import Tokenizer

        if self._reference is None:
            self._reference = Tokenizer.from_str(self._plain)
        rows = [encoding.ids for encoding in self._reference.encode_batch_fast(column.to_pylist(), add_special_tokens=False)]
        return pa.array(rows, pa.large_list(pa.int32()))

    def _disagreement(self, sample: list[str]) -> str:
        """Why the fast engine cannot be used, or nothing."""
        column = pa.array(["", " a\n\nb  c\u2009d 123456 don't", *sample], pa.large_string())
        try:
            fast = self._encode_fast(column)
        except (ImportError, ValueError, RuntimeError, NotImplementedError) as error:
            return f"gigatoken cannot load this tokenizer: {str(error).partition(chr(10))[0]}"
        reference = self._encode_reference(column)
        differing = sum(a != b for a, b in zip(fast.to_pylist(), reference.to_pylist()))
        return f"gigatoken gave other ids on {differing} of {len(column)} documents checked" if differing else ""


def _up_to(texts: Iterable[str], num_bytes: int) -> Iterator[str]:
    for text in texts:
        if num_bytes <= 0:
            return
        yield text
        num_bytes -= len(text.encode())
