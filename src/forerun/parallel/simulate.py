"""How much will be dropped, before a run: loads of experts drawn as sums over documents, then the drop rule itself. Never imports JAX.

The load of a (sender, expert) cell is a sum over the sender's documents, and tokens of one document want the same experts: its
sample size is the number of documents, not of tokens. One document's wish for an expert is Gamma with mean 1 and variance
`specialisation`, so n documents give Gamma(n / specialisation). Balancing divides each expert's load by what it was in the step
before, over all racks: with few documents that correction is noise of the same size as what it corrects. On top comes a spread of
popularity between experts that balancing leaves, the same for all senders.
"""

# D draws (each is one layer of one step), S shards of a group, E experts, L = E / S experts per shard

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from forerun.base.chart import Chart, Line
from forerun.base.errors import ConfigError
from forerun.parallel.config import MeshConfig

Rule = Literal["fixed_cells", "sender_receiver", "ragged", "water_filling_expert", "water_filling_shard"]
RULES: tuple[Rule, ...] = ("fixed_cells", "sender_receiver", "ragged", "water_filling_expert", "water_filling_shard")
FLAGS = {"shards": "--mesh expert", "groups": "--mesh replica x data", "tokens_per_shard": "--batch-tokens over the devices"}
REFERENCE_EXPERTS = 384  # derived: the model the constants below were fitted on
RAGGED_CHUNKS = 2  # derived: the original's ragged transport gives each half of a shard's experts its own capacity


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How routing behaves; the defaults are fitted, see design note 0081."""

    specialisation: float = 2.80
    """Variance over mean squared of one document's wish for one of 384 experts; proportional to the number of experts."""
    contrast: float = 0.69
    """Spread between layers: standard deviation of the logarithm of their specialisation."""
    unevenness: float = 0.067
    """Standard deviation over mean of an expert's popularity that balancing leaves, the same for all senders."""
    early_unevenness: float = 0.208
    """The same in the first few hundred steps, while routing is forming."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One setting to predict."""

    num_experts: int = 384
    top_k: int = 8
    shards: int = 64
    """Senders, and receivers, of a group."""
    groups: int = 1
    """Groups (racks x data) whose loads the balancing sees together."""
    seq_len: int = 4096
    tokens_per_shard: int = 65_536
    document_tokens: int = 1 << 20
    """Typical length of a document; longer than `seq_len`, every sequence is one document."""
    rule: Rule = "sender_receiver"
    capacity_factor: float = 1.15
    sender_factor: float = 1.15
    early: bool = False
    """In the first few hundred steps."""

    def __post_init__(self) -> None:
        for name in ("num_experts", "top_k", "shards", "groups", "seq_len", "tokens_per_shard", "document_tokens"):
            if getattr(self, name) < 1:
                flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
                raise ConfigError(f"{flag} must be at least 1, got {getattr(self, name)}", hint="raise it")
        if self.num_experts % self.shards:
            raise ConfigError(
                f"--mesh expert must divide --num-experts={self.num_experts}, got {self.shards}", hint="every shard holds equally many"
            )
        if self.top_k > self.num_experts:
            raise ConfigError(f"--top-k must be at most --num-experts={self.num_experts}, got {self.top_k}", hint="lower it")
        if self.tokens_per_shard < self.seq_len:
            raise ConfigError(
                f"{FLAGS['tokens_per_shard']} must be at least --seq-len={self.seq_len}, got {self.tokens_per_shard}",
                hint="a shard holds whole sequences: enlarge the batch or use fewer shards",
            )
        for name in ("capacity_factor", "sender_factor"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(
                    f"--{name.replace('_', '-')} must be positive and finite, got {getattr(self, name)}", hint="1.15 is usual"
                )

    @property
    def documents_per_shard(self) -> float:
        """The effective sample size of a sender's load."""
        return self.tokens_per_shard / min(self.seq_len, self.document_tokens)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is expected, over layers and steps."""

    documents_per_shard: float
    drop_fraction: float
    drop_fraction_worst: float
    """Of the worst of 48 layers, typically: the 1 - 1/48 quantile of the draws."""
    standard_error: float
    """Of the mean, from the number of draws."""
    sender_dropped: float
    """Part lost at the sender; 0 under rules that decide once."""


def predict(scenario: Scenario, behaviour: Behaviour = Behaviour(), *, num_draws: int = 400, seed: int = 0) -> Prediction:
    """Mean drop fraction over `num_draws` independent layers."""
    rng = np.random.default_rng(seed)
    draws = np.array([_dropped(_loads(scenario, behaviour, rng), scenario) for _ in range(num_draws)])
    total = draws.sum(1)
    return Prediction(
        documents_per_shard=scenario.documents_per_shard,
        drop_fraction=float(total.mean()),
        drop_fraction_worst=float(np.quantile(total, 1 - 1 / 48)),
        standard_error=float(total.std() / num_draws**0.5),
        sender_dropped=float(draws[:, 0].mean()),
    )


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """One setting's prediction, and the curve around it."""

    scenario: Scenario
    behaviour: Behaviour
    here: Prediction
    curve: tuple[Prediction, ...]
    """At equal tokens per shard: what longer contexts, or shorter documents, would do."""

    def chart(self) -> Chart:
        """The curve, with the setting marked."""
        name = f"{self.scenario.rule}, capacity factor {self.scenario.capacity_factor:g}"
        percent = f"{self.here.drop_fraction:.2%}" if self.here.drop_fraction > 1e-4 else f"{self.here.drop_fraction:.1e}"
        documents = [point.documents_per_shard for point in self.curve]
        return Chart(
            title=f"{percent} of assignments dropped at {self.here.documents_per_shard:g} documents per shard",
            x_label="documents per shard, log",
            y_label="drop fraction",
            lines=[
                Line(x=documents, y=[point.drop_fraction for point in self.curve], label=f"mean, {name}"),
                Line(x=documents, y=[point.drop_fraction_worst for point in self.curve], label="worst of 48 layers", style=1),
                Line(x=[self.here.documents_per_shard], y=[self.here.drop_fraction], label="this setting", style=2, marker="circle"),
            ],
            log_x=True,
        )

    def text(self) -> str:
        """The prediction and the curve as a table."""
        here = self.here
        head = (
            f"drop_fraction {here.drop_fraction:.3g} +- {here.standard_error:.1g}  worst layer {here.drop_fraction_worst:.3g}  "
            f"at the sender {here.sender_dropped:.3g}  documents per shard {here.documents_per_shard:g}"
        )
        lines = [head, "", f"{'documents per shard':>20} {'drop_fraction':>14} {'worst layer':>12}"]
        lines += [f"{point.documents_per_shard:20g} {point.drop_fraction:14.3g} {point.drop_fraction_worst:12.3g}" for point in self.curve]
        return "\n".join(lines)


def scenario_of(
    mesh: MeshConfig,
    *,
    num_experts: int,
    top_k: int,
    batch_tokens: int,
    seq_len: int,
    document_tokens: int,
    rule: str,
    capacity_factor: float,
    sender_factor: float,
) -> Scenario:
    """The setting of a mesh and a batch. Raises: ConfigError for an unknown rule or sizes that do not fit each other."""
    if rule not in RULES:
        raise ConfigError(f"--rule must be one of the drop rules, got {rule!r}", hint=", ".join(RULES))
    if batch_tokens % mesh.num_devices:
        raise ConfigError(
            f"--batch-tokens must be a multiple of the mesh's {mesh.num_devices} devices, got {batch_tokens}",
            hint="every device holds equally many",
        )
    return Scenario(
        num_experts=num_experts,
        top_k=top_k,
        shards=mesh.expert,
        groups=mesh.replica * mesh.data,
        seq_len=seq_len,
        tokens_per_shard=batch_tokens // mesh.num_devices,
        document_tokens=document_tokens,
        rule=rule,  # pyright: ignore[reportArgumentType]  checked above
        capacity_factor=capacity_factor,
        sender_factor=sender_factor,
    )


def forecast(scenario: Scenario, *, num_draws: int = 400, seed: int = 0) -> Forecast:
    """Predict a setting and the curve from one document per shard up to four times those it has.

    Raises: ConfigError when there is nothing to draw.
    """
    check_draws(num_draws, seed)
    behaviour, largest = Behaviour(), 4 * max(1.0, scenario.documents_per_shard)
    points, count = [], 1.0
    while count <= largest:
        length = max(1, round(scenario.tokens_per_shard / count))
        longer = replace(scenario, seq_len=length, document_tokens=length)
        points.append(predict(longer, behaviour, num_draws=num_draws, seed=seed))
        count *= 2
    here = predict(scenario, behaviour, num_draws=num_draws, seed=seed)
    return Forecast(scenario=scenario, behaviour=behaviour, here=here, curve=tuple(points))


def check_draws(num_draws: int, seed: int) -> None:
    """Raises: ConfigError when there is nothing to draw, or no generator starts there."""
    if num_draws < 1:
        raise ConfigError(f"--num-draws must be at least 1, got {num_draws}", hint="400 give two digits")
    if seed < 0:
        raise ConfigError(f"--seed must not be negative, got {seed}", hint="any whole number from 0 on")


def _loads(scenario: Scenario, behaviour: Behaviour, rng: np.random.Generator) -> np.ndarray:
    """Rows each sender has for each expert, over the mean of a cell, `[S, E]`; every sender has as many in all."""
    granularity = scenario.num_experts / REFERENCE_EXPERTS
    spread = behaviour.contrast
    specialisation = behaviour.specialisation * granularity * rng.lognormal(-(spread**2) / 2, spread)
    documents = scenario.documents_per_shard
    load = rng.gamma(documents / specialisation, specialisation / documents, (scenario.shards, scenario.num_experts))
    everywhere = documents * scenario.shards * scenario.groups
    before = rng.gamma(everywhere / specialisation, specialisation / everywhere, scenario.num_experts)
    uneven = behaviour.early_unevenness if scenario.early else behaviour.unevenness
    popularity = rng.lognormal(-(uneven**2) / 2, uneven, scenario.num_experts) / np.maximum(before, 1e-3)
    load *= popularity / popularity.mean()
    load /= np.maximum(load.mean(1, keepdims=True), 1e-12)
    mean_rows = scenario.tokens_per_shard * scenario.top_k / scenario.num_experts
    load += rng.normal(size=load.shape) * np.sqrt(load / mean_rows)  # single tokens, independent
    return np.maximum(load, 0.0)


def _dropped(load: np.ndarray, scenario: Scenario) -> tuple[float, float]:
    """Fractions lost at the sender and at the receiver by the scenario's rule."""
    shards, num_experts = load.shape
    own, everything = num_experts // shards, load.sum()
    capacity, sender_lost = scenario.capacity_factor, 0.0
    if scenario.rule == "fixed_cells":
        return 0.0, float(np.maximum(load - capacity, 0).sum() / everything)
    if scenario.rule == "sender_receiver":
        pools = load.reshape(shards, shards, own).sum(-1)
        kept = np.minimum(1.0, scenario.sender_factor * own / np.maximum(pools, 1e-12))
        sender_lost = float((pools * (1 - kept)).sum() / everything)
        load = load * np.repeat(kept, own, axis=1)
    by_expert = load.sum(0)
    parts = {"ragged": min(RAGGED_CHUNKS, own) * shards, "water_filling_shard": shards}.get(scenario.rule, num_experts)
    by_receiver = np.array([part.sum() for part in np.array_split(by_expert, parts)])
    room = capacity * shards * num_experts / parts
    return sender_lost, float(np.maximum(by_receiver - room, 0).sum() / everything)
