"""The sizes of the demo: chosen so that rungs are past the noise and the whole fits in minutes on two cores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from forerun.curate.build_identity import BuildConfig
from forerun.curate.cluster.domains import ClusterConfig
from forerun.curate.text.pipeline import TextConfig
from forerun.curate.tokenise import TokeniseConfig
from forerun.ladder.family import Dial, family, member
from forerun.ladder.transfer import num_steps
from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.model.count import num_active_params
from forerun.optim.config import OptimConfig
from forerun.train.config import CheckpointConfig, EvalConfig, RunConfig, TrainConfig

VOCAB_SIZE = 2048
SEQ_LEN = 256
D_HEAD = 8
MUONH_LEARNING_RATE = 0.02  # measured: at width 32, 408 steps, 0.02, 0.04 and 0.08 end within 0.012 nats of each other
ADAM_LEARNING_RATE = 0.03  # measured: same runs, 0.0046 to 0.074 in factors of two end at 5.65, 5.23, 4.75, 4.45, 4.39; 0.065 there


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Everything the demo decides in advance."""

    quick: bool
    """The small corpus and the short ladder."""
    rung_widths: tuple[int, ...]
    """d_model of the rungs."""
    repeated_width: int
    """Rung that is run again with other seeds, to measure noise."""
    num_repeats: int
    """Further seeds of that rung."""
    big_width: int
    """d_model of the run that is predicted."""
    tokens_per_active_param: float
    """Of every run."""
    batch_sizes: dict[int, int]
    """Sequences per step by width."""
    num_layers: int
    """Of every run."""
    eval_sequences: int
    """Held-out sequences per domain."""
    seed: int = 0
    """Of the parameters and of the data order."""
    text: TextConfig = field(default_factory=lambda: TextConfig(held_out_fraction=0.05))
    """Text stages."""

    @property
    def build(self) -> BuildConfig:
        """Store stages, with the same held-out split."""
        return BuildConfig(
            cluster=ClusterConfig(num_domains=8, num_fine=256, floor=0.04),
            tokenise=TokeniseConfig(vocab_size=VOCAB_SIZE),
            held_out_fraction=self.text.held_out_fraction,
        )

    def base(self, manifest: str) -> RunConfig:
        """The recipe at the width of the big run: the 535B block in miniature, every part switched on."""
        width = self.big_width
        model = ModelConfig(
            vocab_size=VOCAB_SIZE,
            d_model=width,
            num_layers=self.num_layers,
            num_heads=width // D_HEAD,
            d_head=D_HEAD,
            num_kv_heads=max(1, width // D_HEAD // 4),
            num_global_kv_heads=1,
            window=SEQ_LEN // 2,
            num_experts=16,
            top_k=2,
            d_expert=width // 2,
            d_latent=width // 2,
            num_shared_experts=2,
            d_shared=width // 2,
            gated_norm_rank=4,
        )
        batch_size = self.batch_sizes[width]
        steps = num_steps(
            num_active_params=num_active_params(model),
            batch_tokens=batch_size * SEQ_LEN,
            tokens_per_active_param=self.tokens_per_active_param,
        )
        return RunConfig(
            name="demo",
            model=model,
            optim=OptimConfig(muonh_learning_rate=MUONH_LEARNING_RATE, adam_learning_rate=ADAM_LEARNING_RATE, beta2=0.98),
            data=DataConfig(manifest=manifest, seed=self.seed, epoch_cap=8.0),
            train=TrainConfig(num_steps=steps, batch_size=batch_size, seq_len=SEQ_LEN, seed=self.seed),
            eval=EvalConfig(every_fraction=0.05, num_sequences=self.eval_sequences),
            checkpoint=CheckpointConfig(every_fraction=0.1, num_rolling=1),
        )

    def _dial(self, widths: tuple[int, ...], extra_seeds: dict[int, tuple[int, ...]]) -> Dial:
        sizes = {width: size for width, size in self.batch_sizes.items() if width in widths}
        return Dial(widths=widths, tokens_per_active_param=self.tokens_per_active_param, batch_sizes=sizes, extra_seeds=extra_seeds)

    def rungs(self, manifest: str) -> list[RunConfig]:
        """The ladder, smallest first; repeats of one rung behind it. A repeat reads the data in another order too."""
        seeds = tuple(self.seed + 1000 + index for index in range(self.num_repeats))
        runs = family(self.base(manifest), self._dial(self.rung_widths, {self.repeated_width: seeds}))
        return [replace(run, data=replace(run.data, seed=run.train.seed)) for run in runs]

    def big(self, manifest: str) -> RunConfig:
        """The run that is predicted: the same recipe, one size up."""
        return member(self.base(manifest), self._dial((self.big_width,), {}), self.big_width)


FULL = DemoSettings(
    quick=False,
    rung_widths=(24, 32, 40, 48),
    repeated_width=32,
    num_repeats=2,
    big_width=80,
    tokens_per_active_param=32.0,
    batch_sizes={24: 2, 32: 2, 40: 3, 48: 4, 80: 8},  # small batches: the rungs take about as many updates as the large run
    num_layers=2,
    eval_sequences=32,
)
QUICK = DemoSettings(
    quick=True,
    rung_widths=(16, 24, 32, 40),
    repeated_width=24,
    num_repeats=1,
    big_width=64,
    tokens_per_active_param=10.0,
    batch_sizes={16: 4, 24: 4, 32: 4, 40: 4, 64: 8},
    num_layers=2,
    eval_sequences=8,
)
