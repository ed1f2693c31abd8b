"""Real training curves of healthy runs: nine learning-rate schedules at three sizes, watched from their tenth to their end."""

import csv
import gzip
from collections import defaultdict
from importlib.resources import files

import numpy as np
import pytest

from forerun.record.run import RunInfo, Segment
from forerun.record.series import Series, TableRecord
from forerun.watch.course import judge


def curves():
    """(size, schedule) to rows of (step, learning rate, loss). Source: MultiPowerLaw, see the file's README."""
    table = defaultdict(list)
    with gzip.open(files("forerun.ladder") / "data" / "multipowerlaw_curves.csv.gz", "rt") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            table[row["size_M"], row["schedule"]].append((int(row["step"]), float(row["lr"]), float(row["loss"])))
    return {key: np.array(rows).T for key, rows in table.items()}


CURVES = curves()


def record(step, rate, loss, num_steps):
    def series(value):
        return Series(step.astype(int), value, np.full(len(step), np.nan))

    info = RunInfo(run_id="curve", created=0.0, num_steps=num_steps, segments=(Segment(run_id="curve", first_step=0, time=0.0),))
    return TableRecord(info=info, table={"loss_nats": series(loss), "learning_rate": series(rate)})


def alarms(step, rate, loss, looks):
    seen = set()
    for look in looks:
        last = max(int(look * len(step)), 1)
        report = judge(record(step[:last], rate[:last], loss[:last], int(step[-1])))
        seen |= {finding.rule for finding in report.alarms}
    return seen


@pytest.mark.parametrize("key", sorted(CURVES), ids="-".join)
def test_a_healthy_real_curve_raises_no_alarm_whatever_its_schedule(key):
    """Cosine, constant, stepwise and decayed rates; the loss follows the rate, and smooth curves are no reason for an alarm."""
    assert alarms(*CURVES[key], looks=np.arange(0.1, 1.01, 0.15)) == set()


@pytest.mark.parametrize("key", [("100", "constant_72000"), ("400", "cosine_72000"), ("25", "cosine_72000")], ids="-".join)
@pytest.mark.parametrize("factor", [1.02, 0.97])
def test_a_step_planted_on_a_real_curve_is_an_alarm(key, factor):
    step, rate, loss = CURVES[key]
    moved = np.where(np.arange(len(step)) >= int(0.6 * len(step)), loss * factor, loss)
    assert alarms(step, rate, moved, looks=[0.65]) & {"loss_shift", "loss_drift", "loss_spike"}


@pytest.mark.parametrize("seed", range(4))
def test_a_noisy_loss_that_does_not_follow_its_cosine_raises_no_alarm(seed):
    """The rate allows the loss to fall; that it stays on its course must not count as a rise, however noisy the rows."""
    step = np.arange(1, 4001)
    noise = np.random.default_rng(seed).normal(0, 0.008, len(step))  # relative, as on public runs of small batches
    rate = np.minimum(1, step / 80) * (0.1 + 0.45 * (1 + np.cos(np.pi * step / 4000)))
    loss = (2.2 + 6 * (step + 50) ** -0.35) * (1 + noise)
    assert alarms(step, rate, loss, looks=[0.5, 0.9, 1.0]) == set()
