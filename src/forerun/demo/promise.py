"""The demo's promise in the words of `experiment.toml`."""

from __future__ import annotations

import json

from forerun.base import units
from forerun.ladder.answer import Forecast
from forerun.ladder.family import target_of
from forerun.ladder.run import LADDER_METRIC
from forerun.train.config import RunConfig


def promise_text(big: RunConfig, promised: Forecast, ladder_share: float) -> str:
    """What is promised about the big run: that the ladder's interval holds its final loss."""
    final = promised.final
    smallest = min(use.compute for use in promised.rungs)
    texts = {
        "title": "One size up: the ladder predicts a run it has not seen",
        "owner": "demo",
        "kind": "confirmatory",
        "hypothesis": f"{len(promised.rungs)} small runs of one recipe, at {units.percent(ladder_share)} of its compute, fix where a larger run ends.",
        "falsified_by": "The final loss lies outside the 90% interval.",
        "metric": LADDER_METRIC,
        "metric_definition": f"mean over held-out domains, {big.eval.num_sequences} sequences of {big.train.seq_len} tokens each, no capacity drops",
        "baseline": f"the smallest rung, {units.flops(smallest)}, ended at {max(use.end for use in promised.rungs):.4f}",
        "success": f"inside(final({LADDER_METRIC}), {final.low90:.6f}, {final.high90:.6f})",
        "valid_if": "same store, same mixture, same context length for the whole run",
        "already_seen": "the rungs; nothing of this run",
    }
    lines = [f"{name} = {json.dumps(text, ensure_ascii=False)}" for name, text in texts.items()]
    lines.append('stop = ["final(loss_nats) > 12"]')
    lines.append(f"compute_budget_flops = {target_of(big).compute:.6e}")
    lines.append(f"ladder_runs = {json.dumps([use.rung for use in promised.rungs])}")
    lines += ["", "[prediction]", f"point = {final.loss:.6f}"]
    lines += [f"{name} = {getattr(final, name):.6f}" for name in ("low50", "high50", "low90", "high90")]
    lines.append(f'forecast = "{promised.id}.json"')
    return "\n".join([*lines, ""])
