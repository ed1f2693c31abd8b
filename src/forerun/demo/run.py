"""The main job: eight parts in a row, each of which finds what an interrupted run left and goes on from there."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.base import units
from forerun.base.config import canonical_json, plain
from forerun.base.errors import DataError
from forerun.base.files import write_atomic, write_json
from forerun.base.lab import Lab
from forerun.base.terms import spoken
from forerun.curate.build import build_store
from forerun.curate.text.pipeline import clean
from forerun.dashboard.build import build_site
from forerun.dashboard.lab_files import Planner
from forerun.demo.corpus.evals import eval_items
from forerun.demo.corpus.gather import RECIPES, gather
from forerun.demo.promise import promise_text
from forerun.demo.report import write_report
from forerun.demo.settings import DemoSettings
from forerun.ladder.answer import Forecast
from forerun.ladder.family import target_of, total_compute
from forerun.ladder.forecast import forecast
from forerun.ladder.promise import promise_rung
from forerun.ladder.run import LADDER_METRIC, run_ladder, rungs_of
from forerun.ladder.store import keep
from forerun.loader.manifest import Manifest
from forerun.plan.page_inputs import page_inputs, plan_of, planned_of
from forerun.record.reader import open_run
from forerun.registry.changes import close
from forerun.registry.gate import closed
from forerun.registry.register import Registration, register
from forerun.registry.verdict import Verdict, judge, record_verdict
from forerun.watch.course import judge as judge_course

BIG_RUN = "demo-big"
EXPERIMENT = "001-one-size-up"
OUTCOMES = {"kept": "succeeded", "missed": "failed", "deviated": "inconclusive", "undecided": "inconclusive"}


@dataclass
class Outcome:
    """What the command prints at its end."""

    verdict: Verdict
    site: Path
    seconds: dict[str, float] = field(default_factory=dict)
    """By part, interrupted attempts included."""
    ladder_share: float = 0.0
    """Compute of all rungs over compute of the big run."""


class _Clock:
    """Seconds by part, kept in the lab so that interrupted attempts count."""

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self._path, self._say = lab.root / "demo-times.json", say
        self.seconds: dict[str, float] = json.loads(self._path.read_bytes()) if self._path.exists() else {}

    def part(self, name: str, work: Callable[[], Any]) -> Any:
        """Run one part, announced and timed."""
        self._say(f"== {name}")
        started = time.monotonic()
        try:
            return work()
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - started, 1)
            write_json(self._path, self.seconds)


def run_demo(lab: Lab, settings: DemoSettings, *, corpus: str, say: Callable[[str], None]) -> Outcome:
    """Data, ladder, forecast, promise, run, verdict, site.

    Args:
        corpus: `packages` or `debian`, both also kept clear of published test sets, or a folder of text.
        say: told, in words, what happens.
    """
    clock = _Clock(lab, say)
    files = clock.part("corpus", lambda: gather(corpus, lab, quick=settings.quick))
    manifest: Manifest = clock.part("curate", lambda: _curate(lab, settings, files, corpus in RECIPES, say))
    rungs, big = settings.rungs(manifest.digest), settings.big(manifest.digest)
    share = total_compute(rungs) / target_of(big).compute
    say(
        f"   {len(rungs)} rungs cost {units.percent(share)} of the big run's compute; the largest {units.percent(target_of(rungs[-1]).compute / target_of(big).compute)}"
    )
    clock.part("ladder", lambda: _ladder(lab, rungs))
    promised: Forecast = clock.part("forecast", lambda: _forecast(lab, rungs, big, [cell.domain for cell in manifest.held_out], say))
    registration: Registration = clock.part("register", lambda: _register(lab, big, promised, share, say))
    report = functools.partial(
        write_report, lab.experiments / EXPERIMENT / "report.md", big, promised, share, quick=settings.quick, registration=registration.id
    )
    report()
    clock.part("train", lambda: _train(lab, big, registration, promised, rungs, say))
    verdict: Verdict = clock.part("verdict", lambda: _verdict(lab, registration, say))
    report(verdict=verdict)
    site = lab.root / "site"
    clock.part("site", lambda: build_site(lab, site, Planner(plan=plan_of, planned=planned_of, inputs=page_inputs())))
    return Outcome(verdict, site, clock.seconds, share)


def _curate(lab: Lab, settings: DemoSettings, files: list, published_evals: bool, say: Callable[[str], None]) -> Manifest:
    evals = eval_items(lab.root / "downloads") if published_evals else None
    text = clean(lab, files, settings.text, evals=evals)
    manifest = build_store(lab, "demo", text.partitions, text.sources, settings.build, steps=text.steps)
    for step in text.steps:
        if step.dropped:
            say(f"   {step.name}: dropped " + ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in step.dropped.items()))
    domains: dict[str, int] = {}
    for cell in manifest.cells:
        domains[cell.domain] = domains.get(cell.domain, 0) + cell.num_tokens
    say("   domains: " + ", ".join(f"{name} {units.count(tokens)} tokens" for name, tokens in domains.items()))
    return manifest


def _ladder(lab: Lab, rungs: list) -> None:
    from forerun.train.loop import train

    run_ladder(rungs, lab, train=train, registration_of=lambda run: promise_rung(run, lab, owner="demo"))


def _forecast(lab: Lab, rungs: list, big: Any, domains: list[str], say: Callable[[str], None]) -> Forecast:
    """The forecast that is promised; one of every domain is kept beside it, for the run's page."""
    answer = forecast(rungs_of(rungs, lab), target_of(big), compute="fit_compute", eval_name=f"{LADDER_METRIC}, held-out domains, dropless")
    keep(answer, lab.root)
    for domain in domains:
        metric = f"eval/{domain}/loss_nats"
        try:
            keep(forecast(rungs_of(rungs, lab, metric), target_of(big), compute="fit_compute", eval_name=metric), lab.root)
        except DataError as error:
            say(f"   no forecast of {domain}: {error}")
    say(
        f"   the {spoken(LADDER_METRIC)} will end at {answer.final.loss:.4f}, 90% interval {answer.final.low90:.4f} to {answer.final.high90:.4f}"
    )
    return answer


def _register(lab: Lab, big: Any, promised: Forecast, share: float, say: Callable[[str], None]) -> Registration:
    folder = lab.experiments / EXPERIMENT
    if not (folder / "experiment.toml").exists():
        write_atomic(folder / "experiment.toml", promise_text(big, promised, share).encode())
    registration = register(lab, folder, plain(big))
    say(f"   promise {registration.id} in {lab.ledger}")
    return registration


def _train(lab: Lab, big: Any, registration: Registration, promised: Forecast, rungs: list, say: Callable[[str], None]) -> None:
    from forerun.train.loop import train

    if (lab.run(BIG_RUN) / "run.json").exists() and open_run(lab.run(BIG_RUN)).last_step >= big.train.num_steps:
        return
    band = json.loads(canonical_json(promised))
    rung_records = [open_run(lab.run(run.name)) for run in rungs]
    words = {"on_course": "on course", "off_course": "OFF COURSE", "cannot_tell": "cannot tell yet"}

    def on_eval(step: int, row: dict[str, float]) -> str:
        report = judge_course(open_run(lab.run(BIG_RUN)), band, rungs=rung_records)
        expected = promised.band_at(max(step / big.train.num_steps, promised.curve[0].fraction))
        state = words[report.state]
        say(
            f"   {step / big.train.num_steps:4.0%}  {LADDER_METRIC} {row[LADDER_METRIC]:.4f}"
            f"  forecast {expected.loss:.4f} [{expected.low90:.4f}, {expected.high90:.4f}]  {state}"
        )
        return state

    train(big, lab, run_id=BIG_RUN, registration=registration, on_eval=on_eval)


def _verdict(lab: Lab, registration: Registration, say: Callable[[str], None]) -> Verdict:
    verdict = judge(lab, registration, lab.run(BIG_RUN))
    record_verdict(lab, verdict)
    if registration.experiment not in closed(lab):
        close(lab, registration.experiment, OUTCOMES[verdict.answer], note=verdict.words)
    ended = closed(lab)
    for run in sorted(lab.experiments.glob("demo-d*")):
        if run.name not in ended:
            close(lab, run.name, "succeeded", note="rung finished")
    say(f"   {verdict.words}")
    return verdict
