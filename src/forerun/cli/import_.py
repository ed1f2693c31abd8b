"""`forerun import hf DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def main() -> None:
    """Bring foreign weights into our model.

    Example: forerun import hf OLMoE-1B-7B --out imported
    """


@app.command(epilog="Example: forerun import hf OLMoE-1B-7B --out imported")
def hf(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="config.json and *.safetensors of OLMoE, Mixtral, Qwen3-MoE or Granite-MoE")
    ],
    out: Annotated[Path, typer.Option(help="folder for our form of the weights")] = Path("imported"),
) -> None:
    """Read Hugging Face weights and write them as a release writes ours."""
    import numpy as np

    from forerun.base.units import count
    from forerun.model.count import num_active_params, num_params
    from forerun.publish.hf_import import import_hf
    from forerun.publish.weights import write_weights

    config, params = import_hf(folder)
    write_weights(out, params, np.zeros((config.num_routed_layers, config.num_experts), np.float32), config)
    print(f"wrote {out}  num_params {count(num_params(config))}  num_active_params {count(num_active_params(config))}")
