"""Foreign metric names to the glossary's. One written-out table; what is not in it keeps its name.

Left sides are patterns over whole names; `*` stands for any text and is kept on the right. A name that matches none is tried once more in
small letters with `_` for spaces and hyphens, so that `Train Loss` is `train_loss`.
"""

from __future__ import annotations

import re
from functools import cache

TABLE: tuple[tuple[str, str, float], ...] = (
    # the public keys of marin-community/marin_moe (reference: that project's key list)
    ("train/cross_entropy_loss", "loss_nats", 1.0),
    ("train/loss", "objective", 1.0),
    ("eval_dropless/paloma/macro_loss", "eval/macro_loss_nats", 1.0),
    ("eval_dropless/paloma/macro_bpb", "eval/macro_bits_per_byte", 1.0),
    ("eval_dropless/paloma/micro_loss", "eval/micro_loss_nats", 1.0),
    ("eval_dropless/paloma/*/loss", "eval/*/loss_nats", 1.0),
    ("eval_dropless/paloma/*/bpb", "eval/*/bits_per_byte", 1.0),
    ("eval/paloma/macro_loss", "eval_with_drops/macro_loss_nats", 1.0),
    ("eval/paloma/*/loss", "eval_with_drops/*/loss_nats", 1.0),
    ("grad/norm/total", "grad_norm", 1.0),
    ("grad/norm/*", "grad_norm/*", 1.0),
    ("params/norm/total", "param_norm", 1.0),
    ("params/norm/*", "param_norm/*", 1.0),
    ("moe/drop_fraction", "drop_fraction", 1.0),
    ("train/router/routing_entropy_mean", "router_entropy_nats", 1.0),
    ("train/router/layer_*/routing_entropy", "router_entropy_nats/layer_*", 1.0),
    ("train/router/bias_max", "router_bias_max", 1.0),
    ("optim/learning_rate", "learning_rate", 1.0),
    ("optim/adam_lr", "learning_rate/adam", 1.0),
    ("throughput/mfu", "mfu", 0.01),
    ("throughput/tokens_per_second", "tokens_per_second", 1.0),
    ("throughput/duration", "step_time_s", 1.0),
    ("memory/in_use_gib", "memory_gib", 1.0),
    # names of common trainers
    ("train_cross_entropy_loss", "loss_nats", 1.0),
    ("dropless_paloma_macro_loss", "eval/macro_loss_nats", 1.0),
    ("dropless_paloma_macro_bpb", "eval/macro_bits_per_byte", 1.0),
    ("grad_norm_total", "grad_norm", 1.0),
    ("moe_drop_fraction", "drop_fraction", 1.0),
    ("train/ce_loss", "loss_nats", 1.0),
    ("train/CrossEntropyLoss", "loss_nats", 1.0),  # OLMo
    ("eval/*/CrossEntropyLoss", "eval/*/loss_nats", 1.0),
    ("optim/total_grad_norm", "grad_norm", 1.0),
    ("optim/grad/total_norm", "grad_norm", 1.0),
    ("optim/learning_rate_group0", "learning_rate", 1.0),
    ("throughput/device/tokens_per_second", "tokens_per_second", 1.0),
    ("optim/lr_(group_0)", "learning_rate", 1.0),  # OLMo-core
    ("eval/lm/*/ce_loss", "eval/*/loss_nats", 1.0),
    ("throughput/device/tps", "tokens_per_second", 1.0),
    ("throughput/device/mfu_(actual_avg)", "mfu", 0.01),
    ("loss_metrics/global_avg_loss", "loss_nats", 1.0),  # torchtitan
    ("validation_metrics/loss", "eval/macro_loss_nats", 1.0),
    ("throughput(tps)", "tokens_per_second", 1.0),
    ("mfu(%)", "mfu", 0.01),
    ("lm loss", "loss_nats", 1.0),  # Megatron-LM
    ("lm loss validation", "eval/macro_loss_nats", 1.0),
    ("grad-norm", "grad_norm", 1.0),
    ("learning-rate", "learning_rate", 1.0),
    ("iteration-time", "step_time_s", 1.0),
    ("lm_loss", "loss_nats", 1.0),  # nanotron
    ("reduced_train_loss", "loss_nats", 1.0),  # NeMo
    ("train_step_timing_in_s", "step_time_s", 1.0),
    ("learning/loss", "loss_nats", 1.0),  # MaxText
    ("learning/grad_norm", "grad_norm", 1.0),
    ("learning/param_norm", "param_norm", 1.0),
    ("learning/current_learning_rate", "learning_rate", 1.0),
    ("perf/step_time_seconds", "step_time_s", 1.0),
    ("eval/avg_loss", "eval/macro_loss_nats", 1.0),
    ("loss/train/total", "objective", 1.0),  # Composer and LLM Foundry
    ("metrics/train/languagecrossentropy", "loss_nats", 1.0),
    ("metrics/eval/languagecrossentropy", "eval/macro_loss_nats", 1.0),
    ("throughput/device/tokens_per_sec", "tokens_per_second", 1.0),
    ("throughput/device/mfu", "mfu", 1.0),
    ("train/lm_loss", "loss_nats", 1.0),  # GPT-NeoX
    ("validation/lm_loss", "eval/macro_loss_nats", 1.0),
    ("train/lr", "learning_rate", 1.0),
    ("train/mfu", "mfu", 1.0),
    ("loss", "loss_nats", 1.0),
    ("train_loss", "loss_nats", 1.0),
    ("train_loss_step", "loss_nats", 1.0),  # Lightning
    ("training_loss", "loss_nats", 1.0),
    ("train/grad_norm", "grad_norm", 1.0),
    ("gradient_norm", "grad_norm", 1.0),
    ("train/learning_rate", "learning_rate", 1.0),
    ("lr", "learning_rate", 1.0),
    ("eval/loss", "eval/macro_loss_nats", 1.0),
    ("eval_loss", "eval/macro_loss_nats", 1.0),
    ("val/loss", "eval/macro_loss_nats", 1.0),
    ("val_loss", "eval/macro_loss_nats", 1.0),
    ("validation_loss", "eval/macro_loss_nats", 1.0),
    ("validation/loss", "eval/macro_loss_nats", 1.0),
    ("valid_loss", "eval/macro_loss_nats", 1.0),
    ("system.proc.memory.rssMB", "memory_gib", 1 / 1024),
)
"""Foreign name, our name, factor on the values (a percentage becomes a fraction)."""


@cache
def our_name(foreign: str) -> tuple[str, float]:
    """Our name and the factor on the values; unknown names come back unchanged with factor 1."""
    for spelling in (foreign, foreign.strip().lower().replace(" ", "_").replace("-", "_")):
        for pattern, name, factor in _compiled():
            match = pattern.fullmatch(spelling)
            if match:
                return name.replace("*", match.group(1)) if match.groups() else name, factor
    return foreign, 1.0


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], str, float], ...]:
    return tuple((re.compile(re.escape(foreign).replace(r"\*", "(.+)")), name, factor) for foreign, name, factor in TABLE)
