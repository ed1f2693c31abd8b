"""Short runs give the losses they gave when they were recorded: no change of numerics goes unseen."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden_losses import RECORDED, losses_of, variants
from tiny_runs import lab_with_store

RUNS = json.loads(RECORDED.read_text())["runs"]
NAMES = [pytest.param(name, marks=() if name == "recipe" else pytest.mark.slow) for name in RUNS]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return lab_with_store(tmp_path_factory.mktemp("lab"))


@pytest.mark.parametrize("name", NAMES)
def test_a_short_run_repeats_its_recorded_losses(place, name):
    lab, manifest = place
    measured, recorded = losses_of(variants(manifest)[name], lab, name), RUNS[name]
    # Other processors and versions of jax round float32 sums in another order, and twelve steps let it grow; bfloat16 has 8 bits.
    tolerance = 3e-3 if name == "bfloat16" else 2e-4
    for metric, values in recorded.items():
        np.testing.assert_allclose(measured[metric], values, rtol=tolerance * (10 if metric == "grad_norm" else 1), err_msg=metric)
