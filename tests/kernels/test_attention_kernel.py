"""Fast attention against the plain form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from forerun.kernels.attention import attention, attention_reference
from forerun.kernels.blocks import query_blocks

SEQ_LEN = 300


def problem(span, d_head=8, dtype=jnp.float32):
    rng = np.random.default_rng(0)
    query, key, value = (jnp.asarray(rng.normal(size=(2, 2, *group, SEQ_LEN, d_head)), dtype) for group in ((3,), (), ()))
    segments = np.sort(rng.integers(0, 4, (2, SEQ_LEN)), 1)
    distance = np.arange(SEQ_LEN)[:, None] - np.arange(SEQ_LEN)
    mask = (segments[:, :, None] == segments[:, None]) & (distance >= 0) & (distance < span)
    return query, key, value, jnp.array(mask)


@pytest.mark.parametrize("span", [SEQ_LEN, 50, 1])
@pytest.mark.parametrize("score_bound", [20.0, np.inf])
def test_output_and_gradients_equal_the_plain_form(span, score_bound):
    query, key, value, mask = problem(span)
    cotangent = jnp.float32(np.random.default_rng(1).normal(size=query.shape))

    def fast(query, key, value):
        return attention(query, key, value, mask, span=span, score_bound=score_bound)

    def plain(query, key, value):
        return attention_reference(query, key, value, mask)

    np.testing.assert_allclose(jax.jit(fast)(query, key, value), plain(query, key, value), rtol=1e-4, atol=1e-5)
    one, other = (
        jax.jit(jax.grad(lambda *arrays, form=form: (form(*arrays) * cotangent).sum(), (0, 1, 2)))(query, key, value)
        for form in (fast, plain)
    )
    for left, right in zip(one, other):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=3e-5)  # sums over 300 keys in another order


def test_unbounded_scores_do_not_overflow():
    query, key, value, mask = problem(SEQ_LEN)
    out = attention(100 * query, key, value, mask, span=SEQ_LEN, score_bound=np.inf)
    np.testing.assert_allclose(out, attention_reference(100 * query, key, value, mask), rtol=1e-3, atol=1e-4)


def test_blocks_cover_every_query_once_and_every_key_it_can_reach():
    for seq_len in (1, 127, 128, 129, 1000):
        for span in (1, 60, 128, 300, 1000):
            blocks = query_blocks(seq_len, span)
            assert [start for start, _, _ in blocks] == [0, *[end for _, end, _ in blocks[:-1]]]
            assert blocks[-1][1] == seq_len
            assert all(first <= max(0, start - span + 1) for start, _, first in blocks)
    assert sum(end - first for _, end, first in query_blocks(1024, 128)) < 0.35 * sum([1024] * 8)
