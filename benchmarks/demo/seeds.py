"""How often the demo's forecast holds: whole demo runs that differ only in their seed, each promised before it is trained.

usage: seeds.py FOLDER [--seeds 5] [--quick] [--keep]

Every seed gets a lab of its own under FOLDER; corpus and store are made once and shared. A killed measurement continues. `--keep`
writes what the demo's page says: `src/forerun/demo/data/trials.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from forerun.base.lab import Lab
from forerun.demo.run import BIG_RUN, run_demo
from forerun.demo.settings import FULL, QUICK, DemoSettings
from forerun.ladder.run import LADDER_METRIC
from forerun.record.reader import open_run

SHARED = ("corpus", "downloads", "store", "manifests", "work", "cache")
KEPT = Path(__file__).parents[2] / "src/forerun/demo/data/trials.json"


def trial(folder: Path, settings: DemoSettings) -> dict[str, float]:
    """One demo run to its end, and how its forecast fared."""
    lab, first = folder / f"seed-{settings.seed}", folder / "seed-0"
    if lab != first and not lab.exists():
        for name in SHARED:
            if (first / name).exists():
                shutil.copytree(first / name, folder / f"new-{settings.seed}" / name, copy_function=os.link)
        (folder / f"new-{settings.seed}").rename(lab)
    outcome = run_demo(Lab(lab), settings, corpus="packages", say=lambda words: print(words, file=sys.stderr, flush=True))
    [promised] = [json.loads(path.read_bytes()) for path in (lab / "ledger" / "forecasts").glob("*.json")]
    series = open_run(Lab(lab).run(BIG_RUN)).series(LADDER_METRIC)
    curve = promised["curve"]
    at = np.interp(series.step, [point["step"] for point in curve], [point["loss"] for point in curve])
    low = np.interp(series.step, [point["step"] for point in curve], [point["low90"] for point in curve])
    high = np.interp(series.step, [point["step"] for point in curve], [point["high90"] for point in curve])
    final = promised["final"]
    return {
        "seed": settings.seed,
        "forecast": final["loss"],
        "low90": final["low90"],
        "high90": final["high90"],
        "outcome": float(series.value[-1]),
        "held": bool(final["low90"] <= series.value[-1] <= final["high90"]),
        "curve_error": float(np.mean(np.abs(at / series.value - 1))),
        "curve_inside": float(np.mean((series.value >= low) & (series.value <= high))),
        "ladder_share": outcome.ladder_share,
        "minutes": sum(outcome.seconds.values()) / 60,
    }


def main() -> None:
    """Run the seeds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", action="store_true")
    chosen = parser.parse_args()
    settings = QUICK if chosen.quick else FULL
    trials = [trial(chosen.folder, replace(settings, seed=seed)) for seed in range(chosen.seeds)]
    print("seed  forecast  90% interval        outcome   error   held   curve error  curve inside")
    for each in trials:
        error = each["outcome"] / each["forecast"] - 1
        print(
            f"{each['seed']:4}  {each['forecast']:8.4f}  {each['low90']:.4f} to {each['high90']:.4f}  {each['outcome']:8.4f}  {error:+6.2%}"
            f"  {'yes' if each['held'] else 'NO':4}  {each['curve_error']:10.2%}  {each['curve_inside']:11.0%}"
        )
    errors = [abs(each["outcome"] / each["forecast"] - 1) for each in trials]
    print(f"held {sum(each['held'] for each in trials)} of {len(trials)}; mean absolute error of the end {np.mean(errors):.2%}")
    if chosen.keep:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        kept = {"schema": 1, "date": datetime.date.today().isoformat(), "commit": commit, "trials": trials}
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
