"""`forerun simulate-routing`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import JsonOption, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun simulate-routing --mesh replica=11,expert=64 --seq-len 16384 --plot drops.svg")
def simulate_routing(
    num_experts: Annotated[int, typer.Option(help="routed experts per layer")] = 384,
    top_k: Annotated[int, typer.Option(help="experts per token")] = 8,
    mesh: Annotated[str, typer.Option(help="devices along each axis")] = "expert=64",
    batch_tokens: Annotated[int, typer.Option(help="tokens per step over all devices; 0 takes 65,536 a device")] = 0,
    seq_len: Annotated[int, typer.Option(help="context length")] = 4096,
    document_tokens: Annotated[int, typer.Option(help="typical document length; longer than the context, a sequence is one document")] = 1
    << 20,
    rule: Annotated[
        str,
        typer.Option(
            help="fixed_cells, sender_receiver (pooled waves), ragged (the original's), water_filling_expert, water_filling_shard"
        ),
    ] = "water_filling_shard",
    capacity_factor: Annotated[float, typer.Option(help="slots over the balanced load, at the receiver")] = 1.15,
    sender_factor: Annotated[float, typer.Option(help="the same at the sender; read by sender_receiver only")] = 1.15,
    num_draws: Annotated[int, typer.Option(help="layers drawn per point")] = 400,
    seed: Annotated[int, typer.Option(help="of the draws")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="write the curve of drops against documents per shard here, as SVG, with its CSV beside")
    ] = None,
    reference: Annotated[bool, typer.Option("--reference", help="predict the published measurements instead, and show both")] = False,
    as_json: JsonOption = False,
) -> None:
    """What share of assignments would be dropped, from how many documents a device holds. Constants were fitted: see --reference."""
    from forerun.base.errors import ConfigError
    from forerun.parallel import published, simulate
    from forerun.plan.run import parse_mesh

    if plot is not None and (plot.suffix != ".svg" or plot.is_dir()):
        raise ConfigError(f"--plot must name a file that ends in .svg, got {plot}", hint="its table goes beside it, ending in .csv")

    if reference:
        rows = published.compared(num_draws=num_draws, seed=seed)
        print_json(rows) if as_json else print(published.table(rows))
        return
    devices = parse_mesh(mesh)
    scenario = simulate.scenario_of(
        devices,
        num_experts=num_experts,
        top_k=top_k,
        batch_tokens=batch_tokens or 65_536 * devices.num_devices,
        seq_len=seq_len,
        document_tokens=document_tokens,
        rule=rule,
        capacity_factor=capacity_factor,
        sender_factor=sender_factor,
    )
    forecast = simulate.forecast(scenario, num_draws=num_draws, seed=seed)
    if plot is not None:
        from forerun.base.files import write_atomic

        chart = forecast.chart()
        write_atomic(plot, chart.file(footer=f"forerun simulate-routing, {num_draws} layers a point").encode())
        write_atomic(plot.with_suffix(".csv"), chart.csv().encode())
    print_json(forecast) if as_json else print(forecast.text())
