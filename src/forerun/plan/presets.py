"""Planned runs by name: the published hero, its ladder, and siblings at their own sizes."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from forerun.base.errors import ConfigError
from forerun.model import count
from forerun.model.hf_config import config_of
from forerun.model.presets import SIBLINGS, marin
from forerun.parallel.config import MeshConfig, TransportConfig
from forerun.plan.length import TOKENS_PER_ACTIVE_PARAM, num_steps
from forerun.plan.run import PlannedRun

SEQ_LEN = 4096  # derived: reference model-and-training 2.1
RACK = 64  # derived: devices of one rack that hold the experts (reference 2.1)
HERO_D_MODEL = 6144  # derived: same
RUNGS: dict[int, tuple[int, int, int]] = {  # d_model -> layers, racks, sequences per step; derived: reference 2.1
    512: (6, 1, 1024),
    768: (8, 1, 1024),
    1024: (12, 2, 2048),
    1536: (16, 6, 6144),
    2048: (22, 11, 11_264),
    HERO_D_MODEL: (48, 11, 11_264),
}
LADDER_WIDTHS = (768, 1024, 1536, 2048)  # derived: the rungs the published forecast was made from
SIBLING_TOKENS = {  # derived: tokens of pretraining as published; assumed for mixtral-8x7b, which did not publish them
    "olmoe-1b-7b": 5.13e12,
    "mixtral-8x7b": 8e12,
    "qwen3-30b-a3b": 36e12,
    "deepseek-v3": 14.8e12,
    "dense-8b": 15e12,
}
SIBLING_BATCH_TOKENS = 4_194_304  # assumed: about 4M tokens per step for all of them, as plans need some step


def marin_rung(d_model: int, tokens_per_active_param: float = TOKENS_PER_ACTIVE_PARAM) -> PlannedRun:
    """One width of the published family, at its batch and mesh; steps from the ratio, rounded."""
    num_layers, racks, batch_size = RUNGS[d_model]
    model = marin(d_model, num_layers)
    return PlannedRun(
        name="marin-hero" if d_model == HERO_D_MODEL else f"marin-d{d_model}",
        model=model,
        seq_len=SEQ_LEN,
        batch_size=batch_size,
        num_steps=num_steps(
            num_active_params=count.num_active_params(model),
            batch_tokens=batch_size * SEQ_LEN,
            tokens_per_active_param=tokens_per_active_param,
        ),
        mesh=MeshConfig(replica=racks, expert=RACK),
        transport=TransportConfig(kind="pooled_wave", capacity_factor=1.15),
    )


def preset(name: str, tokens_per_active_param: float | None = None) -> PlannedRun:
    """The run of that name, at its published length or at another ratio of tokens to active parameters.

    Raises: ConfigError, with near names.
    """
    by_name = {marin_rung(d_model).name: d_model for d_model in RUNGS}
    if name in by_name:
        return marin_rung(by_name[name], TOKENS_PER_ACTIVE_PARAM if tokens_per_active_param is None else tokens_per_active_param)
    if name in SIBLINGS:
        sibling = SIBLINGS[name]
        num_active = count.num_active_params(sibling.model)
        batch_size = max(1, SIBLING_BATCH_TOKENS // sibling.seq_len)
        ratio = SIBLING_TOKENS[name] / num_active if tokens_per_active_param is None else tokens_per_active_param
        return PlannedRun(
            name=name,
            model=sibling.model,
            seq_len=sibling.seq_len,
            batch_size=batch_size,
            num_steps=num_steps(num_active_params=num_active, batch_tokens=batch_size * sibling.seq_len, tokens_per_active_param=ratio),
            recipe="adamw",
            transport=TransportConfig(kind="ragged"),
        )
    names = [*by_name, *SIBLINGS, "marin-ladder"]
    near = get_close_matches(name, names, n=1)
    raise ConfigError(f"there is no preset {name!r}", hint=f"did you mean {near[0]}?" if near else f"presets: {', '.join(names)}")


def hugging_face_run(path: Path, settings: dict[str, Any], tokens_per_active_param: float = TOKENS_PER_ACTIVE_PARAM) -> PlannedRun:
    """The model of a Hugging Face `config.json`, at an assumed batch and context: such a file does not say how long a model was trained.

    Raises: DataError naming the setting our block has no equal for.
    """
    model = config_of(settings, where=str(path))
    return PlannedRun(
        name=path.resolve().parent.name,
        model=model,
        seq_len=SEQ_LEN,
        batch_size=SIBLING_BATCH_TOKENS // SEQ_LEN,
        num_steps=num_steps(
            num_active_params=count.num_active_params(model),
            batch_tokens=SIBLING_BATCH_TOKENS,
            tokens_per_active_param=tokens_per_active_param,
        ),
        recipe="adamw",
        transport=TransportConfig(kind="ragged"),
    )


def ladder_share(run: PlannedRun) -> float | None:
    """FLOPs of the published rungs over the run's, for the published hero; None for any other run, which has no ladder here."""
    if run.name != "marin-hero":
        return None
    ratio = run.train_tokens / count.num_active_params(run.model)
    return sum(marin_rung(d_model, ratio).train_flops for d_model in LADDER_WIDTHS) / run.train_flops
