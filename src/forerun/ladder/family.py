"""One dial to a family of runs: the same recipe at several widths, equal tokens per active parameter, rates transferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from forerun.base.errors import ConfigError
from forerun.ladder.rungs import Target
from forerun.ladder.transfer import BATCH_EXPONENT, TOKENS_EXPONENT, WIDTH_EXPONENT, transferred
from forerun.model.config import ModelConfig
from forerun.model.count import fit_compute, num_active_params
from forerun.optim.config import OptimConfig
from forerun.plan.length import TOKENS_PER_ACTIVE_PARAM, num_steps
from forerun.train.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Dial:
    """What differs between the runs of a ladder; everything else is the base run's."""

    widths: tuple[int, ...]
    """d_model of each rung, rising."""
    tokens_per_active_param: float = TOKENS_PER_ACTIVE_PARAM
    """Of every rung and of the target."""
    batch_sizes: Mapping[int, int] = field(default_factory=dict)
    """Sequences per step by width; others keep the base run's."""
    num_layers: Mapping[int, int] = field(default_factory=dict)
    """Depth by width; others keep the base run's."""
    extra_seeds: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Widths run again with these seeds, so that seed noise is measured."""
    rates: str = "relative"
    """`relative` scales the base run's rates by the transfer exponents; `transfer` takes the published law's own constants."""

    def __post_init__(self) -> None:
        if not self.widths or list(self.widths) != sorted(set(self.widths)):
            raise ConfigError(f"ladder.widths must rise and not repeat, got {list(self.widths)}", hint="for example 64,96,128")
        if not self.tokens_per_active_param > 0:
            raise ConfigError(
                f"ladder.tokens_per_active_param must be positive, got {self.tokens_per_active_param}", hint="the published ladder uses 791"
            )
        if self.rates not in ("relative", "transfer"):
            raise ConfigError(
                f"ladder.rates must be relative or transfer, got {self.rates!r}", hint="relative keeps the base run's own rates"
            )
        for name in ("batch_sizes", "num_layers", "extra_seeds"):
            strange = sorted(set(getattr(self, name)) - set(self.widths))
            if strange:
                raise ConfigError(f"ladder.{name} names width {strange[0]}, which is no rung", hint=f"widths: {list(self.widths)}")


def family(base: RunConfig, dial: Dial) -> list[RunConfig]:
    """The rungs in order of width, repeats behind their rung; names are `<base>-d<width>` and `<base>-d<width>-s<seed>`.

    Raises: ConfigError for a width the recipe cannot take.
    """
    runs = []
    for width in dial.widths:
        rung = member(base, dial, width)
        runs.append(rung)
        for seed in dial.extra_seeds.get(width, ()):
            if seed == base.train.seed:
                raise ConfigError(f"ladder.extra_seeds repeats the base seed {seed} at width {width}", hint="choose another seed")
            runs.append(replace(rung, name=f"{rung.name}-s{seed}", train=replace(rung.train, seed=seed)))
    return runs


def member(base: RunConfig, dial: Dial, width: int) -> RunConfig:
    """The base recipe at one width: also how the target is made, so that it is one of the family."""
    model = widened(base.model, width)
    model = replace(model, num_layers=dial.num_layers.get(width, model.num_layers))
    batch_size = dial.batch_sizes.get(width, base.train.batch_size)
    batch_tokens = batch_size * base.train.seq_len
    steps = num_steps(
        num_active_params=num_active_params(model), batch_tokens=batch_tokens, tokens_per_active_param=dial.tokens_per_active_param
    )
    train = replace(base.train, num_steps=steps, batch_size=batch_size)
    return replace(
        base, name=f"{base.name}-d{width}", model=model, train=train, optim=_rates(base, dial, width, train.train_tokens, batch_tokens)
    )


def widened(model: ModelConfig, width: int) -> ModelConfig:
    """The model at another width: heads and every inner width in proportion, head width kept.

    Raises: ConfigError when the width does not give whole heads.
    """
    if width % model.d_head:
        raise ConfigError(f"ladder.widths must be multiples of model.d_head={model.d_head}, got {width}", hint="choose another width")
    heads = width // model.d_head

    def scaled(size: int) -> int:
        return max(2, round(size * width / model.d_model / 2) * 2)

    kv_heads = _largest_divisor(heads, model.num_kv_heads * heads / model.num_heads)
    return replace(
        model,
        d_model=width,
        num_heads=heads,
        num_kv_heads=kv_heads,
        num_global_kv_heads=_largest_divisor(kv_heads, model.num_global_kv_heads * heads / model.num_heads),
        d_expert=scaled(model.d_expert) if model.num_experts else model.d_expert,
        d_latent=width if model.d_latent == model.d_model else scaled(model.d_latent),
        d_shared=scaled(model.d_shared),
        d_dense=scaled(model.d_dense) if model.num_dense_layers else model.d_dense,
    )


def target_of(run: RunConfig) -> Target:
    """What a forecast needs to know of a run; compute is `fit_compute`, without the output head."""
    return Target(train_steps=run.train.num_steps, compute_per_step=fit_compute(run.model, run.train.seq_len, run.train.batch_tokens))


def total_compute(runs: Sequence[RunConfig]) -> float:
    """`fit_compute` of all runs together."""
    return sum(target_of(run).compute for run in runs)


def _rates(base: RunConfig, dial: Dial, width: int, train_tokens: int, batch_tokens: int) -> OptimConfig:
    if dial.rates == "transfer":
        law = transferred(d_model=width, train_tokens=train_tokens, batch_tokens=batch_tokens)
        return replace(
            base.optim,
            adam_learning_rate=law.adam_learning_rate,
            muonh_learning_rate=law.muonh_learning_rate,
            beta2=law.beta2,
            eps=law.eps,
        )
    factor = (
        (train_tokens / base.train.train_tokens) ** TOKENS_EXPONENT
        * (width / base.model.d_model) ** WIDTH_EXPONENT
        * (batch_tokens / base.train.batch_tokens) ** BATCH_EXPONENT
    )
    return replace(
        base.optim,
        adam_learning_rate=base.optim.adam_learning_rate * factor,
        muonh_learning_rate=base.optim.muonh_learning_rate * factor,
    )


def _largest_divisor(number: int, wanted: float) -> int:
    return max(divisor for divisor in range(1, number + 1) if number % divisor == 0 and divisor <= max(1.0, wanted + 1e-9))
