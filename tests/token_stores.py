"""Small stores for tests: documents whose ids tell where they come from."""

from __future__ import annotations

import hashlib
import random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from forerun.base.lab import Lab
from forerun.curate.store import StoreSpec, write_store
from forerun.loader.manifest import Manifest, Source

END_OF_DOCUMENT = 0
VOCAB_SIZE = 257


def byte_tokenizer() -> str:
    """Ids 1-256 are the bytes, 0 ends a document."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<|endoftext|>": 0} | {character: index + 1 for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str()


def spec(name: str = "tiny", **changes: object) -> StoreSpec:
    source = Source(name="made", licence="CC0", revision="1", num_documents_in=0, num_documents=0, num_tokens=0)
    fields: dict = {
        "name": name,
        "tokenizer_json": byte_tokenizer(),
        "vocab_size": VOCAB_SIZE,
        "end_of_document": END_OF_DOCUMENT,
        "sources": (source,),
    }
    return StoreSpec(**(fields | changes))


def document(name: str, tokens: list[int], domain: str = "stars", quality: int = 2, held_out: bool = False) -> dict:
    return {
        "id": hashlib.blake2b(name.encode(), digest_size=16).hexdigest(),
        "source": "made",
        "source_id": name,
        "domain": domain,
        "quality": quality,
        "held_out": held_out,
        "num_bytes": len(tokens),
        "tokens": tokens,
        "quality_score": quality / 4,
    }


def random_documents(num: int, seed: int = 0, domains: tuple[str, ...] = ("stars", "cooking"), longest: int = 60) -> list[dict]:
    rng = random.Random(seed)
    return [
        document(
            f"{seed}-{index}",
            [rng.randrange(1, VOCAB_SIZE) for _ in range(rng.randrange(1, longest))],
            domain=rng.choice(domains),
            quality=rng.randrange(5),
            held_out=rng.random() < 0.1,
        )
        for index in range(num)
    ]


def make(lab: Lab, num: int = 300, **kwargs: object) -> Manifest:
    return write_store(lab, random_documents(num, **kwargs), spec())  # type: ignore[arg-type]
