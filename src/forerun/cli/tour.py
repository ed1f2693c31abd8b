"""The written-out list of commands, in the order a newcomer meets them, and the text of `forerun --help`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One command: its module `forerun.cli.<module>` holds a Typer `app`."""

    name: str
    module: str
    chapter: str
    summary: str


COMMANDS: tuple[Entry, ...] = (
    Entry("demo", "demo", "Start here", "the whole chain on real text, in minutes"),
    Entry("plan", "plan", "1. Know the cost", "parameters, FLOPs, memory, network and days, before renting anything"),
    Entry("simulate-routing", "simulate_routing", "1. Know the cost", "the share of assignments a capacity would drop, before a run"),
    Entry("curate", "curate", "2. Curate data", "documents to a token store, with a reason for every document dropped"),
    Entry("data", "data", "2. Curate data", "look inside a store: verify, explain a document, remove one"),
    Entry("mixture", "mixture", "2. Curate data", "weights over cells: plan them, search them with small runs"),
    Entry("ladder", "ladder", "3. Predict", "small runs of the same recipe that predict the big one"),
    Entry("forecast", "forecast", "3. Predict", "the big run's whole loss curve, with intervals; score a forecast afterwards"),
    Entry("bench", "bench", "3. Predict", "the public benchmark: how far off forecasts were, and how often their intervals held"),
    Entry("new", "new", "4. Promise", "start an experiment folder from a template"),
    Entry("register", "register", "4. Promise", "freeze an experiment and chain its promise into the ledger"),
    Entry("amend", "amend", "4. Promise", "declare a mid-course change"),
    Entry("close", "close", "4. Promise", "say how an experiment ended"),
    Entry("verdict", "verdict", "4. Promise", "kept, missed or deviated: the promise against the record"),
    Entry("verify", "verify", "4. Promise", "check the ledger to the byte"),
    Entry("replan", "replan", "4. Promise", "the arithmetic of ending a run elsewhere"),
    Entry("train", "train", "5. Train", "run a registered experiment; killed and resumed at any moment"),
    Entry("fork", "fork", "5. Train", "continue a run from a checkpoint, changed or not, and report the paired difference"),
    Entry("watch", "watch", "6. Watch", "is a run on course, and if not, why"),
    Entry("record", "record", "6. Watch", "the records of runs: list, show, import, export, query, serve the W&B endpoint"),
    Entry("replay", "replay", "6. Watch", "test the alarms: false-alarm rate and delay on planted incidents"),
    Entry("site", "site", "7. Show", "the public pages: build them as files or serve them live"),
    Entry("publish", "publish", "7. Show", "issues, pull requests, anchors, calibration, and the release of a run"),
    Entry("sample", "sample", "7. Show", "continue a text with a run's newest checkpoint"),
    Entry("import", "import_", "7. Show", "bring OLMoE, Mixtral, Qwen3-MoE or Granite-MoE weights into our model"),
    Entry("completion", "completion", "And", "a script that completes commands and options in your shell"),
)


def tour() -> str:
    """The help of the root command: the chain in order, one line a command."""
    width = max(len(entry.name) for entry in COMMANDS)
    lines = [
        "forerun: rehearse, forecast, train and watch mixture-of-experts pretraining runs in the open.",
        "",
        "Usage: forerun COMMAND [ARGS]      forerun COMMAND --help shows options and an example",
    ]
    chapter = ""
    for entry in COMMANDS:
        if entry.chapter != chapter:
            chapter = entry.chapter
            lines += ["", chapter]
        lines.append(f"  {entry.name.ljust(width)}  {entry.summary}")
    return "\n".join(lines)
