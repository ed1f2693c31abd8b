"""What every transport must compute, in NumPy float64 and plain loops: who is kept, the output, and all gradients."""

# G groups (replica x data), S senders of a group, T tokens of a sender, K top_k, E experts

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forerun.parallel.config import TransportConfig

GOLDEN, TURN = 0.6180339887498949, 0.41421356237309503


@dataclass(frozen=True)
class Problem:
    """Tokens of all devices, one device after the other, and the experts."""

    rows: np.ndarray
    expert_index: np.ndarray
    weight: np.ndarray
    valid: np.ndarray
    experts: tuple[np.ndarray, np.ndarray, np.ndarray]


def make_problem(
    num_devices: int, num_tokens: int, num_experts: int, top_k: int, *, kind: str = "plain", seed: int = 0, width: int = 8
) -> Problem:
    """`num_tokens` tokens a device. Kinds: `hot`: everyone's first choice is expert 0; `idle`: sender 0 has padding only; `full`: no padding."""
    rng = np.random.default_rng(seed)
    total = num_devices * num_tokens
    index = np.stack([rng.permutation(num_experts)[:top_k] for _ in range(total)]).astype(np.int32)
    if kind == "hot":
        others = np.stack([1 + rng.permutation(num_experts - 1)[:top_k] for _ in range(total)]) if num_experts > top_k else index
        index = np.concatenate([np.zeros((total, 1)), others[:, : top_k - 1]], 1).astype(np.int32) if num_experts > top_k else index
    valid = np.ones(total, bool) if kind == "full" else rng.random(total) > 0.2
    if kind == "idle":
        valid[:num_tokens] = False
    f = 12
    shapes = ((num_experts, width, f), (num_experts, width, f), (num_experts, f, width))
    return Problem(
        rows=rng.normal(size=(total, width)).astype(np.float32),
        expert_index=index,
        weight=rng.random((total, top_k)).astype(np.float32),
        valid=valid,
        experts=tuple((rng.normal(size=shape) * 0.4).astype(np.float32) for shape in shapes),  # type: ignore[arg-type]
    )


def kept(problem: Problem, config: TransportConfig, *, num_groups: int, shards: int, step: int) -> np.ndarray:
    """Which assignments survive, `[all tokens, K]`; groups decide apart from each other."""
    num_experts = problem.experts[0].shape[0]
    index = problem.expert_index.reshape(num_groups, shards, -1, problem.expert_index.shape[1])
    valid = problem.valid.reshape(num_groups, shards, -1)
    decide = _two_stages if config.drop_rule == "sender_receiver" else _water_filled
    keep = np.stack([decide(index[group], valid[group], num_experts, config, step) for group in range(num_groups)])
    return keep.reshape(problem.expert_index.shape)


def _water_filled(index, valid, num_experts, config, step):
    shards, num_tokens, top_k = index.shape
    keep = np.broadcast_to(valid[..., None], index.shape).copy()
    if not config.capacity_factor:
        return keep
    wanted = np.zeros((shards, num_experts), int)
    for s in range(shards):
        for t in range(num_tokens):
            for k in range(top_k):
                wanted[s, index[s, t, k]] += valid[s, t]
    num_receivers = num_experts if config.receiver == "expert" else shards
    per_receiver = num_experts // num_receivers
    limit = max(1, math.ceil(wanted.sum() * config.capacity_factor / num_receivers - 1e-4))
    given = np.zeros_like(wanted)
    for receiver in range(num_receivers):
        cells = [(s, e) for s in range(shards) for e in range(receiver * per_receiver, (receiver + 1) * per_receiver)]
        turn = step % len(cells)
        cells = cells[turn:] + cells[:turn]
        left = limit
        while left and any(given[cell] < wanted[cell] for cell in cells):
            for cell in cells:  # one level: a slot for everyone who still wants one
                if left and given[cell] < wanted[cell]:
                    given[cell] += 1
                    left -= 1
    size = 1 << max(1, (num_tokens * top_k - 1).bit_length())
    multiplier, turn = int(size * GOLDEN) | 1, int(size * TURN) | 1
    for s in range(shards):
        for e in range(num_experts):
            mine = [(t, k) for t in range(num_tokens) for k in range(top_k) if valid[s, t] and index[s, t, k] == e]
            mine.sort(key=lambda place: ((place[0] * top_k + place[1]) * multiplier + step * turn) % size)
            for t, k in mine[given[s, e] :]:
                keep[s, t, k] = False
    return keep


def _two_stages(index, valid, num_experts, config, step):
    shards, num_tokens, top_k = index.shape
    waves, own = config.num_waves, num_experts // shards
    num_assignments = num_tokens * top_k
    pool = max(1, math.ceil(config.sender_factor * num_assignments / (shards * waves) - 1e-4))
    rows = max(1, math.ceil(config.capacity_factor * num_assignments * shards / (num_experts * waves) - 1e-4))
    row_limit = min(rows, max(1, math.ceil(valid.sum() * top_k * config.capacity_factor / (num_experts * waves) - 1e-4)))
    keep = np.zeros(index.shape, bool)
    arriving: dict[tuple[int, int], list] = {}
    for s in range(shards):
        pool_limit = min(pool, max(1, math.ceil(valid[s].sum() * top_k * config.sender_factor / (shards * waves) - 1e-4)))
        used = [0] * shards
        for t in range(num_tokens):
            for k in range(top_k):
                if not valid[s, t]:
                    continue
                expert = int(index[s, t, k])
                wave, slot = used[expert // own] % waves, used[expert // own] // waves
                used[expert // own] += 1
                if slot < pool_limit:
                    arriving.setdefault((expert, wave), []).append((slot, s, t, k))
    for queue in arriving.values():
        for _, s, t, k in sorted(queue)[:row_limit]:
            keep[s, t, k] = True
    return keep


def output_and_gradients(problem: Problem, keep: np.ndarray, cotangent: np.ndarray, *, renormalize: bool = False):
    """out, d rows, d weight, d experts of `(out * cotangent).sum()`, one assignment after the other."""
    gate, up, down = (matrix.astype(np.float64) for matrix in problem.experts)
    rows, weight = problem.rows.astype(np.float64), problem.weight.astype(np.float64)
    out, d_rows, d_scaled = np.zeros(rows.shape), np.zeros(rows.shape), np.zeros(weight.shape)
    d_experts = tuple(np.zeros(matrix.shape) for matrix in (gate, up, down))
    surviving, everything = (weight * keep).sum(1, keepdims=True), weight.sum(1, keepdims=True)
    scale = np.where(surviving > 0, everything / np.where(surviving > 0, surviving, 1), 0) if renormalize else np.ones_like(surviving)
    for t, k in zip(*np.nonzero(keep), strict=True):
        e, x, ct, w = problem.expert_index[t, k], rows[t], cotangent[t], weight[t, k] * scale[t, 0]
        a, b = x @ gate[e], x @ up[e]
        sigmoid = 1 / (1 + np.exp(-a))
        inner = a * sigmoid * b
        out[t] += w * (inner @ down[e])
        d_scaled[t, k] = (inner @ down[e]) @ ct
        d_inner = w * (down[e] @ ct)
        d_a, d_b = d_inner * b * sigmoid * (1 + a * (1 - sigmoid)), d_inner * a * sigmoid
        d_rows[t] += gate[e] @ d_a + up[e] @ d_b
        for matrix, gradient in zip(d_experts, (np.outer(x, d_a), np.outer(x, d_b), np.outer(inner, w * ct)), strict=True):
            matrix[e] += gradient
    d_weight = d_scaled.copy()
    if renormalize:  # scaled_j = w_j * everything / surviving for kept j: the sums move with every weight
        d_scaled = d_scaled * keep
        through = (d_scaled * weight).sum(1, keepdims=True)
        one_over = np.where(surviving > 0, 1 / np.where(surviving > 0, surviving, 1), 0)
        d_weight = d_scaled * scale + through * one_over - keep * through * everything * one_over**2
    return out, d_rows, d_weight, d_experts
