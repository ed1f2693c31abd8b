"""What the site's plan page starts from: a run's plan, devices, presets, and every constant its own arithmetic uses.

The page computes in the reader's browser with the same formulas; the constants have their one home here in `plan` and `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from forerun.base.config import decode
from forerun.kernels import blocks
from forerun.model import count
from forerun.model.presets import SIBLINGS
from forerun.plan import cost, memory, network
from forerun.plan.devices import DEVICES, device_named
from forerun.plan.presets import LADDER_WIDTHS, RUNGS, marin_rung, preset
from forerun.plan.run import PlannedRun, planned
from forerun.train.config import RunConfig

SHOWN = "marin-hero"
"""The preset a lab without runs shows."""


def planned_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's `config.json` as the plain data of a `PlannedRun`. Raises: ConfigError when the config is not one of ours."""
    return msgspec.to_builtins(_planned(config))


def plan_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of `forerun plan` for a run's `config.json`: on `cpu` when its mesh is one device, else on the default device."""
    run = _planned(config)
    return cost.plan(run, device_named("cpu" if run.mesh.num_devices == 1 else DEVICES[0].name)).as_json()


def page_inputs() -> dict[str, Any]:
    """Devices, presets and constants as plain data; `shown` is the plan of the published hero."""
    names = [*(marin_rung(d_model).name for d_model in RUNGS), *SIBLINGS]
    return {
        "devices": {device.name: msgspec.to_builtins(device) for device in DEVICES},
        "presets": {name: msgspec.to_builtins(preset(name)) for name in names},
        "shown": cost.plan(preset(SHOWN), DEVICES[0]).as_json(),
        "hero": SHOWN,
        "ladder": [marin_rung(d_model).name for d_model in LADDER_WIDTHS],
        "mfu": cost.DEFAULT_MFU,
        "constants": _constants(),
    }


def _planned(config: Mapping[str, Any]) -> PlannedRun:
    return planned(decode(dict(config), RunConfig, where="config.json"))


def _constants() -> dict[str, Any]:
    """By the names they have where they live."""
    plain = {
        name: getattr(module, name)
        for module, names in (
            (cost, ("POWER_OVERHEAD", "ACTIVATION_PASSES")),
            (count, ("MASK_OPS_PER_SCORE", "TRAIN_OVER_FORWARD")),
            (
                memory,
                (
                    *(
                        "FLOAT",
                        "PER_D_MODEL",
                        "PER_CONV_CHANNEL",
                        "PER_QUERY",
                        "PER_KEY_VALUE",
                        "PER_GATED_D_MODEL",
                        "PER_SCORE",
                        "PER_SHARED",
                    ),
                    *(
                        "PER_GATE_RANK",
                        "PER_ROUTED_ROW_D_EXPERT",
                        "PER_ROUTED_ROW_D_LATENT",
                        "PER_ROUTER_SCORE",
                        "PER_D_MODEL_IN_FEED_FORWARD",
                    ),
                    *("PER_D_MODEL_AROUND", "LOGIT_COPIES", "SCORE_COPIES", "MOMENTS", "DEFAULT_MOMENTS"),
                ),
            ),
            (network, ("GRADIENT_BYTES", "FORWARD_AND_BACKWARD", "INDEX_BYTES", "TRANSPORTS")),
            (blocks, ("QUERY_BLOCK", "KEY_ALIGNMENT", "LOGIT_BLOCK_BYTES", "SCORE_TILE_BYTES")),
        )
        for name in names
    }
    return plain | {"REPLICATED": sorted(memory.REPLICATED), "MATRICES": sorted(count.MATRICES)}
