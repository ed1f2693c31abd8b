"""How kernels cut their work, as numbers that plans read too. Never imports JAX."""

from __future__ import annotations

QUERY_BLOCK = 128  # measured: see design note 0012
KEY_ALIGNMENT = 64  # assumed: four cache lines of float32, so that no product has odd widths
LOGIT_BLOCK_BYTES = 8 << 20  # measured: 4 to 16 MiB of float32 logits are equally fast on a server core; see design note 0011
SCORE_TILE_BYTES = 4 << 20  # measured: 1 to 4 MiB of float32 scores are equally fast, wide heads want 4; see design note 0012


def query_blocks(seq_len: int, span: int) -> list[tuple[int, int, int]]:
    """(start, end, first key) of each block of queries: no query of it reaches a key before the first, `span` its own included."""
    blocks = []
    for start in range(0, seq_len, QUERY_BLOCK):
        first = max(0, start - span + 1) // KEY_ALIGNMENT * KEY_ALIGNMENT
        blocks.append((start, min(start + QUERY_BLOCK, seq_len), first))
    return blocks


def num_attention_tiles(num_sequences: int, scores_per_sequence: int) -> int:
    """Fewest equal parts of a batch whose scores fit the cache; at worst one sequence each."""
    return num_equal_parts(num_sequences, num_sequences * scores_per_sequence * 4, SCORE_TILE_BYTES)


def num_equal_parts(count: int, num_bytes: int, most_bytes: int) -> int:
    """Fewest equal parts of `count` things of `num_bytes` together, none above `most_bytes`; at worst one thing each."""
    fewest = -(-num_bytes // most_bytes)
    return next((parts for parts in range(max(1, fewest), count) if count % parts == 0), count)
