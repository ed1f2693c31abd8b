"""The demo's report for people: what was predicted, why believe it, what happened. Every number is read from the records."""

from __future__ import annotations

from pathlib import Path

from forerun.base import units
from forerun.base.files import write_atomic
from forerun.demo.trials import record_in_words
from forerun.ladder.answer import Forecast
from forerun.ladder.family import target_of
from forerun.ladder.run import LADDER_METRIC
from forerun.model.count import num_active_params
from forerun.registry.verdict import Verdict
from forerun.train.config import RunConfig


def write_report(
    path: Path, big: RunConfig, promised: Forecast, ladder_share: float, *, quick: bool, registration: str, verdict: Verdict | None = None
) -> None:
    """`report.md` of the demo's experiment, before the run and, with a verdict, after it."""
    final, tokens = promised.final, big.train.num_steps * big.train.batch_tokens
    largest = max(use.compute for use in promised.rungs)
    predicted = (
        f"A mixture-of-experts model of {units.count(num_active_params(big.model))} active parameters, trained on {units.count(tokens)} tokens, "
        f"will end at **{final.loss:.3f} nats** per token on held-out text, with 90% probability between {final.low90:.3f} and {final.high90:.3f}. "
        f"({LADDER_METRIC}: the mean over the domains of the data map.)"
    )
    made = (
        f"The forecast saw only {len(promised.rungs)} smaller runs of the same recipe, on the same data. Together they took "
        f"{units.percent(ladder_share)} of the compute of the large run, which takes {target_of(big).compute / largest:.1f} times that of the "
        f"largest of them. It was chained into the ledger as {registration} before the first step was taken; `forerun verify` shows that "
        "nothing was changed afterwards."
    )
    tested = [each for each in promised.backtest if each.low90 <= each.outcome <= each.high90]
    believed = [record_in_words()]
    if quick:
        believed.append(
            "That record is of the demo at full size. This run used `--quick`: its rungs take few steps, so its interval is wide."
        )
    if promised.backtest:
        believed.append(
            f"Forecast in the same way from the rungs below, {len(tested)} of {len(promised.backtest)} upper rungs ended inside their interval."
        )
    if promised.seed_noise is not None:
        believed.append(
            f"Repeats of one rung with other seeds differ by {units.percent(promised.seed_noise, 2)}; the interval includes that."
        )
    parts = ["# One size up", "## What was predicted", predicted, made, "## Why believe it", *believed, "## What happened"]
    parts.append(verdict.words if verdict else "The run is not finished.")
    write_atomic(path, ("\n\n".join(parts) + "\n").encode())
