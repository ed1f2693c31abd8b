"""The whole optimizer in optax form: one state, one update, rules by the table of `groups`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from forerun.optim.config import OptimConfig
from forerun.optim.groups import Rule, row_of
from forerun.optim.muonh import frobenius, norm_axes, orthogonal_directions, sphere_step
from forerun.optim.paths import named_leaves
from forerun.optim.schedule import schedule


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


def build(config: OptimConfig, num_steps: int) -> optax.GradientTransformation:
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
        factor, count = factor_at(state.count), state.count + 1
        leaves, grads = named_leaves(params), named_leaves(gradients)
        grads = _clipped(grads, config.clip_grad_norm)
        rules = {name: _rule(config, name) for name in leaves}
        momentum, second, new = {}, {}, {}
        muon = [name for name in leaves if rules[name] == "muonh"]
        for name in muon:
            momentum[name] = config.momentum * state.momentum[name] + grads[name]
        directions = orthogonal_directions([grads[name] + config.momentum * momentum[name] for name in muon], config.newton_schulz_steps)
        for name, direction in zip(muon, directions):
            new[name] = _muon_moved(config, name, leaves[name], direction, state, jnp.asarray(config.muonh_learning_rate * factor))
        for name in leaves:
            if rules[name] == "muonh":
                continue
            direction, momentum[name], second[name] = _adam_direction(config, grads[name], state, name, count)
            if rules[name] == "adamh" and config.recipe == "muonh":
                eta = jnp.asarray(config.muonh_learning_rate * factor)
                new[name] = sphere_step(leaves[name], direction, state.radius[name], eta, _axes(config, name, leaves[name]))
            else:
                new[name] = leaves[name] - config.adam_learning_rate * factor * direction
        for name, leaf in leaves.items():
            decay = config.weight_decay.get(row_of(name).group, 0.0)
            if decay:
                left = 1.0 - state.count / num_steps
                new[name] = new[name] - config.adam_learning_rate * factor * decay * left * leaf
        ordered = [new[name] - leaf for name, leaf in leaves.items()]
        updates = jax.tree.unflatten(jax.tree.structure(params), ordered)
        in_order = {name: momentum[name] for name in leaves}
        return updates, OptimState(count, in_order, {name: second[name] for name in state.second}, state.radius)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]  optax allows params=None, norms need them


def _rule(config: OptimConfig, name: str) -> Rule:
    rule = row_of(name).rule
    if config.recipe == "adamw":
        return "adam"
    if config.recipe == "muon" and rule == "adamh":
        return "adam"
    return rule


def _axes(config: OptimConfig, name: str, leaf: Array) -> tuple[int, ...]:
    return norm_axes(leaf, pooled=config.expert_norm == "pooled" and row_of(name).group == "routed")


def _muon_moved(config: OptimConfig, name: str, weight: Array, direction: Array, state: OptimState, eta: Array) -> Array:
    if config.recipe == "muonh":
        return sphere_step(weight, direction, state.radius[name], eta, _axes(config, name, weight))
    rows, columns = weight.shape[-2:]
    return weight - eta * direction * max(1.0, columns / rows) ** 0.5  # Muon's factor: every update of one root mean square per output


def _adam_direction(config: OptimConfig, grad: Array, state: OptimState, name: str, count: Array) -> tuple[Array, Array, Array]:
    first = config.beta1 * state.momentum[name] + (1 - config.beta1) * grad
    second = config.beta2 * state.second[name] + (1 - config.beta2) * jnp.square(grad)
    corrected = first / (1 - config.beta1**count)
    return corrected / (jnp.sqrt(second / (1 - config.beta2**count)) + config.eps), first, second


def _clipped(grads: dict[str, Array], limit: float) -> dict[str, Array]:
    if limit == 0:
        return grads
    norm = optax.tree.norm(grads)
    scale = jnp.minimum(1.0, limit / (norm + 1e-12))
    return {name: leaf * scale for name, leaf in grads.items()}
