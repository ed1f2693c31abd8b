"""`forerun plan`: what a run will cost, before anything is rented."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(context_settings={"allow_extra_args": True})
def plan(
    context: typer.Context,
    experiment: Annotated[str, typer.Argument(help="experiment folder, or a config.json of a run or of a Hugging Face model")] = "",
    preset: Annotated[
        str, typer.Option(help="marin-hero, marin-d768, ..., marin-ladder, olmoe-1b-7b, mixtral-8x7b, qwen3-30b-a3b, ...")
    ] = "",
    device: Annotated[str, typer.Option(help="gb200, b200, h200, h100, tpu-v5p or cpu")] = "gb200",
    devices: Annotated[int, typer.Option(help="devices; alone, all become expert shards as far as the experts divide")] = 0,
    mesh: Annotated[str, typer.Option(help="for example data=11,expert=64; axes replica, data, expert")] = "",
    mfu: Annotated[float, typer.Option(help="utilisation the days and the energy assume")] = 0.25,
    transport: Annotated[str, typer.Option(help="local, all_gather, fixed_cells, pooled_wave or ragged")] = "",
    tokens_per_active_param: Annotated[float | None, typer.Option(help="length of the run; the published ratio is 791")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="change a field: --set model.top_k=4; repeatable")] = None,
    sweep: Annotated[list[str] | None, typer.Option(help="compare designs: --sweep num_experts=64,128 top_k=4,8")] = None,
    as_json: JsonOption = False,
    lab: LabOption = HERE,
) -> int:
    """Print parameters, FLOPs, memory, network, step bounds, days, energy and checkpoint size.

    Example: forerun plan --preset marin-hero --mesh data=11,expert=64 --device gb200
    """
    import orjson

    from forerun.plan import text
    from forerun.plan.ask import Question, run_of
    from forerun.plan.cost import plan as work_out
    from forerun.plan.devices import device_named
    from forerun.plan.sweep import parse_sweep
    from forerun.plan.sweep import sweep as designs

    row = device_named(device)
    extra = [experiment, *context.args] if "=" in experiment and sweep else context.args
    if preset == "marin-ladder":
        from forerun.ladder.marin_family import marin_ladder
        from forerun.plan.length import TOKENS_PER_ACTIVE_PARAM

        rungs = marin_ladder(TOKENS_PER_ACTIVE_PARAM if tokens_per_active_param is None else tokens_per_active_param)
        print(orjson.dumps(rungs).decode() if as_json else text.rungs_text(rungs))
        return 0
    question = Question(
        source="" if extra and extra[0] == experiment else experiment,
        preset=preset,
        mesh=mesh,
        num_devices=devices,
        transport=transport,
        tokens_per_active_param=tokens_per_active_param,
        changes=tuple(set_ or ()),
        lab=lab,
    )
    run = run_of(question)
    if sweep:
        rows = designs(run, parse_sweep([*sweep, *extra]), row, mfu)
        print(orjson.dumps(rows).decode() if as_json else text.sweep_text(rows))
        return 0
    outcome = work_out(run, row, mfu)
    print(orjson.dumps(outcome.as_json()).decode() if as_json else text.plan_text(outcome))
    return 0
