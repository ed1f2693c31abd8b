"""The whole optimizer in optax form: one state, one update, rules by the table of `groups`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from forerun.optim.config import OptimConfig
from forerun.optim.groups import Rule, row_of
from forerun.optim.muonh import ONE_DEVICE, Joiner, frobenius, norm_axes, orthogonal_directions, sphere_step
from forerun.optim.orthogonal import in_chunks, orthogonalize, orthogonalize_by_gram
from forerun.optim.paths import named_leaves
from forerun.optim.schedule import schedule

LARGEST_STACKED = 1 << 18  # assumed: 1 MiB of float32; below it a loop costs more to compile and start than a copy costs to make


class OptimState(NamedTuple):
    """Everything by leaf name; a leaf has only the entries its rule needs."""

    count: Int[Array, ""]
    """Updates made."""
    momentum: dict[str, Array]
    """First moments (MuonH: heavy-ball sum)."""
    second: dict[str, Array]
    """Second moments of the Adam kinds."""
    radius: dict[str, Array]
    """Norms to keep, of MuonH and AdamH leaves."""


class Layout(NamedTuple):
    """How the matrices that are orthogonalised lie on a mesh; see `optim/spread.py`."""

    experts: Joiner = ONE_DEVICE
    others: Joiner = ONE_DEVICE


def build(config: OptimConfig, num_steps: int, layout: Layout = Layout()) -> optax.GradientTransformation:
    """Initial state and update. `update(gradients, state, params)` gives the difference to add to the parameters.

    `recipe` muon and adamw replace the rules for comparison: `muon` orthogonalises without keeping norms, `adamw` moves every leaf by Adam.
    """
    factor_at = schedule(config.schedule, num_steps)

    def init(params: Any) -> OptimState:
        leaves = named_leaves(params)
        rules = {name: _rule(config, name) for name in leaves}
        return OptimState(
            count=jnp.zeros((), jnp.int32),
            momentum={name: jnp.zeros_like(leaf) for name, leaf in leaves.items()},
            second={name: jnp.zeros_like(leaf) for name, leaf in leaves.items() if rules[name] in ("adam", "adamh")},
            radius={
                name: frobenius(leaf, _axes(config, name, leaf))
                for name, leaf in leaves.items()
                if config.recipe == "muonh" and rules[name] in ("muonh", "adamh")
            },
        )

    def update(gradients: Any, state: OptimState, params: Any) -> tuple[Any, OptimState]:
        leaves, grads = named_leaves(params), _clipped(named_leaves(gradients), config.clip_grad_norm)
        count = state.count + 1
        rates = _rates(config, factor_at(state.count), count, 1.0 - state.count / num_steps)
        alike = _alike(config, leaves)
        change, momentum, second = dict[str, Array](), dict[str, Array](), dict[str, Array]()
        raw: dict[Kind, Array] = {}
        for kind, names in alike.items():
            gradient, before = _stacked(grads, names), _stacked(state.momentum, names)
            if kind.rule == "muonh":
                first = config.momentum * before + gradient
                raw[kind] = gradient + config.momentum * first
            else:
                first = config.beta1 * before + (1 - config.beta1) * gradient
                square = config.beta2 * _stacked(state.second, names) + (1 - config.beta2) * jnp.square(gradient)
                raw[kind] = first / rates.first_share / (jnp.sqrt(square / rates.second_share) + config.eps)
                second |= zip(names, _made(square))
            momentum |= zip(names, _made(first))
        for kind, direction in _orthogonal(raw, config, layout).items():
            names = alike[kind]
            weight = _stacked(leaves, names)
            radius = _stacked(state.radius, names) if names[0] in state.radius else None
            moved = _moved(kind, weight, direction, radius, rates)
            if kind.decay:
                moved = moved - rates.adam * kind.decay * rates.left * weight
            change |= zip(names, _made(moved - weight))
        updates = jax.tree.unflatten(jax.tree.structure(params), [change[name] for name in leaves])
        in_order = {name: momentum[name] for name in leaves}
        return updates, OptimState(count, in_order, {name: second[name] for name in state.second}, state.radius)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]  optax allows params=None, norms need them


class Kind(NamedTuple):
    """What leaves have in common that are moved together."""

    rule: Rule
    group: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    """Of a kept norm; counted from the end."""
    decay: float
    alone: str
    """The name of a leaf too large to be copied beside others."""


class Rates(NamedTuple):
    """Scalars of one step, made once: without the barrier XLA makes the schedule again inside every leaf's loop."""

    muonh: Array
    adam: Array
    first_share: Array
    """How much of a first moment has been seen, 1 - beta1^count."""
    second_share: Array
    left: Array
    """Share of the run ahead, which weight decay falls with."""


def _rates(config: OptimConfig, factor: Any, count: Array, left: Array) -> Rates:
    made = Rates(
        jnp.asarray(config.muonh_learning_rate * factor),
        jnp.asarray(config.adam_learning_rate * factor),
        1 - config.beta1**count,
        1 - config.beta2**count,
        left,
    )
    return jax.lax.optimization_barrier(made)


def _alike(config: OptimConfig, leaves: dict[str, Array]) -> dict[Kind, list[str]]:
    """Leaves by kind: small ones of one shape share their loops, which saves compiling and starting a loop per leaf."""
    kinds: dict[Kind, list[str]] = {}
    for name, leaf in leaves.items():
        group = row_of(name).group
        alone = name if leaf.size > LARGEST_STACKED else ""
        kind = Kind(_rule(config, name), group, leaf.shape, _axes(config, name, leaf), config.weight_decay.get(group, 0.0), alone)
        kinds.setdefault(kind, []).append(name)
    return kinds


def _stacked(tree: dict[str, Array], names: list[str]) -> Array:
    return tree[names[0]][None] if len(names) == 1 else _made(jnp.stack([tree[name] for name in names]))


def _made(stack: Array) -> Array:
    """The stack as an array in memory: otherwise XLA repeats how it is made, or taken apart, in a loop per leaf."""
    return stack if stack.shape[0] == 1 else jax.lax.optimization_barrier(stack)


def orthogonalizer(config: OptimConfig) -> Callable[[Array], Array]:
    """The configured form, for a batch of matrices."""
    if config.orthogonalization == "quintic":
        return functools.partial(orthogonalize, num_steps=config.newton_schulz_steps)
    return functools.partial(orthogonalize_by_gram, precision="bfloat16" if config.orthogonalization == "gram_bfloat16" else "float32")


def _orthogonal(raw: dict[Kind, Array], config: OptimConfig, layout: Layout) -> dict[Kind, Array]:
    """Directions of the muonh kinds orthogonalised, the others as they are; experts and other matrices may lie differently on a mesh."""
    done, orthogonalized = dict(raw), orthogonalizer(config)
    muonh = [kind for kind in raw if kind.rule == "muonh"]
    parts = [(muonh, layout.others)]
    if layout.experts is not layout.others:
        parts = [([kind for kind in muonh if kind.group == "routed"], layout.experts)]
        parts += [([kind for kind in muonh if kind.group != "routed"], layout.others)]
    for kinds, joiner in parts:
        form = orthogonalized
        if joiner is ONE_DEVICE and config.orthogonalization != "quintic":
            form = functools.partial(in_chunks, orthogonalized)
        done |= zip(kinds, orthogonal_directions([raw[kind] for kind in kinds], form, joiner))
    return done


def _moved(kind: Kind, weight: Array, direction: Array, radius: Array | None, rates: Rates) -> Array:
    if radius is not None:
        return sphere_step(weight, direction, radius, rates.muonh, kind.axes)
    if kind.rule == "muonh":
        rows, columns = kind.shape[-2:]
        return (
            weight - rates.muonh * direction * max(1.0, columns / rows) ** 0.5
        )  # Muon's factor: updates of one root mean square per output
    return weight - rates.adam * direction


def _rule(config: OptimConfig, name: str) -> Rule:
    rule = row_of(name).rule
    if config.recipe == "adamw":
        return "adam"
    if config.recipe == "muon" and rule == "adamh":
        return "adam"
    return rule


def _axes(config: OptimConfig, name: str, leaf: Array) -> tuple[int, ...]:
    return norm_axes(leaf, pooled=config.expert_norm == "pooled" and row_of(name).group == "routed")


def _clipped(grads: dict[str, Array], limit: float) -> dict[str, Array]:
    if limit == 0:
        return grads
    norm = optax.tree.norm(grads)
    scale = jnp.minimum(1.0, limit / (norm + 1e-12))
    return {name: leaf * scale for name, leaf in grads.items()}
