"""Twenty kills at random moments of a 200-step run leave the bits of the run that was never touched."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from killed import killed_after
from test_train_loop import final_state, same_bits
from tiny_runs import lab_with_store, tiny_run

from forerun.record.reader import open_run
from forerun.train.loop import train

NUM_STEPS, NUM_KILLS = 200, 20


@pytest.mark.slow
def test_a_run_killed_at_twenty_random_moments_ends_with_the_bits_of_one_that_was_not(tmp_path):
    lab, manifest = lab_with_store(tmp_path)
    config = tiny_run(manifest, num_steps=NUM_STEPS)
    config = replace(config, checkpoint=replace(config.checkpoint, every_fraction=0.02), data=replace(config.data, epoch_cap=1000.0))
    rng = random.Random(20)
    alive = 0
    for step in sorted(rng.sample(range(1, NUM_STEPS - 5), NUM_KILLS)):
        alive += killed_after(config, lab, "killed", step, extra_s=rng.random() * 0.2)
    assert alive == NUM_KILLS, "a kill came after the end; the moments must lie inside the run"
    train(config, lab, run_id="killed", registration=None, quiet=True)
    train(config, lab, run_id="whole", registration=None, quiet=True)
    assert same_bits(final_state(lab, config, "killed").state, final_state(lab, config, "whole").state)
    losses = [open_run(lab.run(run)).series("loss_nats") for run in ("killed", "whole")]
    assert losses[0].step.tolist() == list(range(1, NUM_STEPS + 1))
    np.testing.assert_array_equal(losses[0].value, losses[1].value)
