"""The products a compiled step really does, against those its config asks for: the guard against silent dense fallbacks.

XLA may replace a grouped product by one over all experts (16 times the work, no warning), keep a dead branch, or do something twice.
Products are counted in the optimised program, loops by their trip count, so nothing it does escapes.
"""

# T tokens of one forward pass on one device, D d_model

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator

from forerun.base.errors import CheckFailed
from forerun.kernels.blocks import num_attention_tiles, query_blocks
from forerun.model.count import TRAIN_OVER_FORWARD, forward_flops, leaves
from forerun.optim.groups import row_of
from forerun.optim.orthogonal import MINIMAX
from forerun.parallel.config import rows_within
from forerun.parallel.layout import rows_per_block
from forerun.train.config import RunConfig

LARGEST_RATIO = 1.10  # assumed: what XLA adds by itself is below 3% (measured, design note 0021); a dense fallback is a factor

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (\S+?)\[([\d,]*)\]\S* ([\w-]+)\((.*)$")
_TUPLE_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = \(.*?\) ([\w-]+)\((.*)$")
_CALLED = re.compile(r"(?:calls|body|to_apply|branch_computations|true_computation|false_computation)=\{?%?([\w.%, -]+)\}?")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_GEMM_CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\[([\d",]*)\]')
_OPERAND = re.compile(r"%?([\w.-]+)")


def compiled_flops(program: str) -> float:
    """FLOPs of all matrix products of an optimised HLO text, 2 per multiply-add, as often as they run.

    A loop whose trip count XLA does not know counts once.
    """
    own: defaultdict[str, float] = defaultdict(float)
    calls: dict[str, list[tuple[str, int]]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    entry = computation = ""
    for line in program.splitlines():
        begun = _COMPUTATION.match(line)
        if begun:
            computation, shapes = begun[1], {}
            entry = computation if line.startswith("ENTRY") else entry
            calls[computation] = []
            continue
        instruction = _INSTRUCTION.match(line)
        if instruction:
            name, _, dims, kind, rest = instruction.groups()
            shapes[name] = tuple(map(int, dims.split(","))) if dims else ()
            own[computation] += _product_flops(kind, shapes, name, rest)
        else:
            in_tuple = _TUPLE_INSTRUCTION.match(line)
            if not in_tuple:
                continue
            kind, rest = in_tuple.groups()
        trips = _TRIPS.search(rest) if kind == "while" else None
        for group in _CALLED.findall(rest):
            for called in re.findall(r"[\w.-]+", group):
                calls[computation].append((called, int(trips[1]) if trips else 1))
    total: dict[str, float] = {}

    def flops_of(name: str) -> float:
        if name not in total:
            total[name] = own[name] + sum(times * flops_of(called) for called, times in calls.get(name, ()))
        return total[name]

    return flops_of(entry)


def _product_flops(kind: str, shapes: dict[str, tuple[int, ...]], name: str, rest: str) -> float:
    found = _CONTRACTED.search(rest) if kind == "dot" else _GEMM_CONTRACTED.search(rest) if kind == "custom-call" else None
    operand = _OPERAND.match(rest)
    if not found or not operand or operand[1] not in shapes:
        return 0.0
    contracted = [int(dim) for dim in re.findall(r"\d+", found[1])]
    return 2.0 * math.prod(shapes[name]) * math.prod(shapes[operand[1]][dim] for dim in contracted)


def expected_flops(config: RunConfig) -> dict[str, float]:
    """FLOPs of the products of one step over all devices, by term: forward and backward as executed, and the optimizer.

    Expert slots count filled or not, attention only the keys a block of queries is multiplied with.
    """
    model, train = config.model, config.train
    terms = forward_flops(model, train.seq_len)
    tokens_per_pass = train.batch_tokens // (train.num_microbatches * config.mesh.num_devices)
    if model.num_experts:
        terms["routed"] *= _executed_rows(config, tokens_per_pass) / (tokens_per_pass * model.top_k)
    del terms["attention_local"], terms["attention_global"]
    terms["gates"] = 2.0 * model.d_model * (model.num_layers * model.num_heads if model.head_gate else 0)
    num_norms = 2 * model.num_layers + 1 + model.embedding_norm
    terms["gated_norms"] = num_norms * 4.0 * model.d_model * model.gated_norm_rank
    in_feed_forward = ("routed", "shared", "dense", "latent", "router")
    around = terms.pop("head") * TRAIN_OVER_FORWARD
    step = {}
    for name, flops in terms.items():
        again = train.remat == "block" or (train.remat == "moe" and name in in_feed_forward)
        step[name] = train.batch_tokens * flops * (TRAIN_OVER_FORWARD + again)
    step["head"] = train.batch_tokens * around
    step["attention"] = _attention_flops(config)
    if model.num_experts:  # gradients of the combine weights: each row of an expert with the gradient of its token
        step["combine"] = 2.0 * train.batch_tokens * model.top_k * model.d_latent * (model.num_layers - model.num_dense_layers)
    step["newton_schulz"] = sum(_newton_schulz_flops(config)) if config.optim.recipe != "adamw" else 0.0
    return step


def check_flops(program: str, config: RunConfig) -> float:
    """Compiled over expected FLOPs of one step.

    Raises: CheckFailed above `LARGEST_RATIO`, where every product is ours to count: experts computed where their tokens are.
    """
    expected = sum(expected_flops(config).values())
    ratio = compiled_flops(program) * config.mesh.num_devices / expected
    if config.mesh.num_devices == 1 and config.transport.kind == "local" and ratio > LARGEST_RATIO:
        raise CheckFailed(
            f"the compiled step does {ratio:.2f} times the matrix products its config asks for, at most {LARGEST_RATIO} is allowed",
            hint="XLA has put a dense product in place of a grouped one; report it with the versions of jax and jaxlib",
        )
    return ratio


def _executed_rows(config: RunConfig, tokens: int) -> int:
    """Expert rows computed in one forward pass of one device, in capacity slots or whole blocks."""
    transport, num_experts, rows = config.transport, config.model.num_experts, tokens * config.model.top_k
    if config.mesh.num_devices == 1 and transport.capacity_factor > 0 and transport.receiver == "expert":
        waves = transport.num_waves if transport.drop_rule == "sender_receiver" else 1
        return num_experts * min(rows, waves * rows_within(rows, transport.capacity_factor, num_experts * waves))
    block = rows_per_block(rows, num_experts)
    return block * (-(-rows // block) + num_experts)


def _attention_flops(config: RunConfig) -> float:
    """Products over scores; the backward pass makes the scores again when a batch takes more than one tile."""
    model, seq_len, again = config.model, config.train.seq_len, config.train.remat == "block"
    sequences = config.train.batch_size // (config.train.num_microbatches * config.mesh.num_devices)
    total = 0.0
    for is_global in model.global_layers:
        span = seq_len if is_global or not model.window else min(model.window, seq_len)
        for start, end, first in query_blocks(seq_len, span):
            scores = model.num_heads * (end - start) * (end - first)
            forward, backward = 2 * model.d_head + 1, 4 * model.d_head + 1
            remade = model.d_head if num_attention_tiles(sequences, scores) > 1 else 0
            total += 2.0 * scores * (forward * (1 + again) + backward + remade)
    return total * config.train.batch_size


def _newton_schulz_flops(config: RunConfig) -> Iterator[float]:
    """Of each kind of leaf that is orthogonalised, on its shorter side."""
    for leaf in leaves(config.model):
        if len(leaf.shape) < 2 or leaf.part == "router_bias" or row_of(leaf.path.replace("/*/", "/0/")).rule != "muonh":
            continue
        small, large = sorted(leaf.shape[-2:])
        square, wide = 2.0 * small**3, 2.0 * small * small * large
        if config.optim.orthogonalization == "quintic":
            products = config.optim.newton_schulz_steps * (2 * wide + square)
        else:
            products = 2 * wide + (4 * len(MINIMAX) - 3) * square
        yield leaf.copies * math.prod(leaf.shape[:-2]) * products
