"""Bytes per device: weights, optimizer state, gradients, what the forward pass keeps under each choice of rematerialisation.

Floats kept per token were measured from XLA's own analysis of the compiled gradient on CPU (jax 0.12, float32), one width varied at
a time; a test holds the sum to 15% of that analysis at shapes it was not measured on. Attention is this project's own: it works
through the batch in tiles and makes each tile's scores again in the backward pass, so only one tile's exist at a time; a batch that
is one tile keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from forerun.kernels.blocks import LOGIT_BLOCK_BYTES, num_attention_tiles, query_blocks
from forerun.model import count
from forerun.plan.run import PlannedRun, Remat

FLOAT = 4  # derived: parameters, gradients and optimizer state are float32
REMATS: tuple[Remat, ...] = get_args(Remat)

# measured: floats kept per token and layer for each unit of the named width (see the module docstring)
PER_D_MODEL, PER_CONV_CHANNEL, PER_QUERY, PER_KEY_VALUE = 5.9, 1.0, 9.9, 2.9
PER_GATED_D_MODEL = 4.0  # derived: each of a layer's two gated norms keeps its gate's input and the normed rows besides
PER_SCORE, PER_SHARED, PER_GATE_RANK = 2.2, 2.85, 2.9
PER_ROUTED_ROW_D_EXPERT, PER_ROUTED_ROW_D_LATENT, PER_ROUTER_SCORE = 2.5, 1.5, 2.0
PER_D_MODEL_IN_FEED_FORWARD = 2.5  # measured: part of PER_D_MODEL that `remat = "moe"` saves
PER_D_MODEL_AROUND = 8.9  # measured: beside the layers, once: embedding, final norm, their cotangents
LOGIT_COPIES = 2.0  # measured: logits and their exponentials are alive together
SCORE_COPIES = (
    2.0  # measured: exponentials and gradient of a tile's scores; of whole numbers of copies the one that stays within 15% of XLA
)

MOMENTS = {  # derived: float32 numbers kept per parameter: momentum of Muon kinds 1, both moments of Adam kinds 2
    "muonh": {"head": 2, "embedding": 2, "router": 2, "head_gate": 2, "norm": 2, "conv": 2, "router_bias": 0},
    "muon": {"head": 2, "embedding": 2, "router": 2, "head_gate": 2, "norm": 2, "conv": 2, "router_bias": 0},
    "adamw": {"router_bias": 0},
}
DEFAULT_MOMENTS = {"muonh": 1, "muon": 1, "adamw": 2}
REPLICATED = frozenset({"norm", "head_gate", "conv", "router_bias"})  # derived: too small to be worth a gather


@dataclass(frozen=True)
class Sizes:
    """Parameters one device holds."""

    spread: float
    """Non-expert matrices, sharded over (`data`, `expert`)."""
    experts: float
    """Routed experts, sharded over `expert`."""
    replicated: float
    """Gains, gates, convolutions, biases."""

    @property
    def total(self) -> float:
        """All three."""
        return self.spread + self.experts + self.replicated


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    weights: float
    """Float32 masters."""
    compute_copy: float
    """Weights in the compute dtype: own shard, and one layer gathered; 0 in float32 on an unsharded mesh."""
    optimizer: float
    gradients: float
    activations: dict[Remat, float]
    """Kept by the forward pass, and the work space of one layer's backward pass."""
    expert_buffers: float
    """Send, receive and return buffers of one layer; 0 for the local transport, whose slots count as activations."""
    remat: Remat
    """The run's own choice."""

    @property
    def total(self) -> float:
        """With the run's own choice of rematerialisation."""
        rest = self.weights + self.compute_copy + self.optimizer + self.gradients + self.expert_buffers
        return rest + self.activations[self.remat]


def sharded_sizes(run: PlannedRun) -> Sizes:
    """Parameters per device under the mesh."""
    parts = count.params_by_part(run.model)
    replicated = float(sum(size for part, size in parts.items() if part in REPLICATED))
    experts = parts.get("routed", 0) / run.mesh.expert
    spread = (sum(parts.values()) - replicated - parts.get("routed", 0)) / (run.mesh.data * run.mesh.expert)
    return Sizes(spread=spread, experts=experts, replicated=replicated)


def optimizer_numbers(run: PlannedRun) -> dict[str, float]:
    """Float32 numbers of optimizer state for each part of the model, over all devices."""
    special, default = MOMENTS[run.recipe], DEFAULT_MOMENTS[run.recipe]
    return {part: size * special.get(part, default) for part, size in count.params_by_part(run.model).items()}


def memory(run: PlannedRun) -> Memory:
    """Where one device's bytes go."""
    sizes = sharded_sizes(run)
    state = optimizer_numbers(run)
    routed_state = state.get("routed", 0.0) / run.mesh.expert
    small_state = sum(numbers for part, numbers in state.items() if part in REPLICATED)
    spread_state = (sum(state.values()) - state.get("routed", 0.0) - small_state) / (run.mesh.data * run.mesh.expert)
    return Memory(
        weights=sizes.total * FLOAT,
        compute_copy=_compute_copy(run, sizes),
        optimizer=(routed_state + spread_state + small_state) * FLOAT,
        gradients=sizes.total * FLOAT,
        activations={remat: activation_bytes(run, remat) for remat in REMATS},
        expert_buffers=expert_buffers(run),
        remat=run.remat,
    )


def activation_bytes(run: PlannedRun, remat: Remat) -> float:
    """Kept values plus the work space beside them, for one microbatch on one device."""
    model, tokens = run.model, run.tokens_per_device
    blocks = {kind: score_blocks(run, kind) for kind in set(model.global_layers)}
    whole = {kind: sum(scores for scores, tiles in found if tiles == 1) for kind, found in blocks.items()}
    layers = [kept_floats(run, layer, whole[is_global]) for layer, is_global in enumerate(model.global_layers)]
    if remat == "block":
        kept = model.num_layers * model.d_model + max(sum(layer) for layer in layers)
    elif remat == "moe":
        kept = sum(attention for attention, _ in layers) + max(branch for _, branch in layers)
    else:
        kept = sum(sum(layer) for layer in layers)
    around = kept + PER_D_MODEL_AROUND * model.d_model
    logits = LOGIT_COPIES * min(tokens * model.vocab_size * FLOAT, max(LOGIT_BLOCK_BYTES, model.vocab_size * FLOAT))
    scores = SCORE_COPIES * max(largest_tile(run, found) for found in blocks.values()) * FLOAT
    return around * tokens * run.compute_bytes + scores + logits + model.d_model * model.vocab_size * FLOAT


def kept_floats(run: PlannedRun, layer: int, scores: int) -> tuple[float, float]:
    """Values one layer keeps per token for its backward pass: attention with both norms, and the feed-forward branch.

    Args:
        scores: of one sequence, in blocks of queries that take the whole batch at once and so keep them.
    """
    model = run.model
    is_global = model.global_layers[layer]
    num_kv = model.num_global_kv_heads if is_global else model.num_kv_heads
    conv = 2 * model.d_model + num_kv * model.d_head if model.short_conv_taps else 0
    feed_forward = PER_D_MODEL_IN_FEED_FORWARD * model.d_model
    if layer < model.num_dense_layers:
        feed_forward += PER_SHARED * model.d_dense
    else:
        rows = model.top_k * max(1.0, run.transport.capacity_factor)
        feed_forward += PER_SHARED * model.num_shared_experts * model.d_shared + PER_ROUTER_SCORE * model.num_experts
        feed_forward += rows * (PER_ROUTED_ROW_D_EXPERT * model.d_expert + PER_ROUTED_ROW_D_LATENT * model.d_latent)
    attention = (
        (PER_D_MODEL - PER_D_MODEL_IN_FEED_FORWARD) * model.d_model
        + (PER_GATED_D_MODEL * model.d_model if model.gated_norm_rank else 0)
        + PER_CONV_CHANNEL * conv
        + PER_QUERY * model.num_heads * model.d_head
        + PER_KEY_VALUE * num_kv * model.d_head
        + PER_SCORE * scores / run.seq_len
        + PER_GATE_RANK * model.gated_norm_rank
    )
    return attention, feed_forward


def largest_tile(run: PlannedRun, blocks: list[tuple[int, int]]) -> float:
    """Scores of the largest tile of a layer, among its `score_blocks` that take several."""
    sequences = run.tokens_per_device // run.seq_len
    return max((scores * sequences / tiles for scores, tiles in blocks if tiles > 1), default=0.0)


def score_blocks(run: PlannedRun, is_global: bool) -> list[tuple[int, int]]:
    """Scores of one sequence for each block of queries, and the tiles that the device's sequences are cut into there."""
    sequences = run.tokens_per_device // run.seq_len
    span = run.seq_len if is_global or not run.model.window else min(run.model.window, run.seq_len)
    blocks = [run.model.num_heads * (end - start) * (end - first) for start, end, first in query_blocks(run.seq_len, span)]
    return [(scores, num_attention_tiles(sequences, scores)) for scores in blocks]


def expert_buffers(run: PlannedRun) -> float:
    """Rows in flight for one layer: sent, received and returned, as large as the transport's fixed buffers."""
    kind, shards = run.transport.kind, run.mesh.expert
    if kind == "local" or shards == 1 or not run.model.num_experts:
        return 0.0
    row = run.model.d_latent * run.compute_bytes
    if kind == "all_gather":
        return 2.0 * shards * run.tokens_per_device * row
    rows = run.tokens_per_device * run.model.top_k
    if kind == "pooled_wave":
        return rows / run.transport.num_waves * row * (2 * run.transport.sender_factor + max(1.0, run.transport.capacity_factor))
    return 3.0 * rows * max(1.0, run.transport.capacity_factor) * row


def _compute_copy(run: PlannedRun, sizes: Sizes) -> float:
    rack = run.mesh.data * run.mesh.expert
    gathered = sizes.spread * rack / run.model.num_layers if rack > 1 else 0.0
    own = sizes.spread + sizes.experts if run.compute_dtype == "bfloat16" else 0.0
    return (own + gathered) * run.compute_bytes
