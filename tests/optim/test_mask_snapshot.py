"""Which rule and which group every parameter of every preset has, as recorded: a change shows up as a difference to be looked at.

After a change that is meant: `python tests/optim/test_mask_snapshot.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import pytest

from forerun.model.count import leaves
from forerun.model.presets import SIBLINGS, reduced
from forerun.model.transformer import init_params
from forerun.optim.groups import assignment, row_of
from forerun.plan.presets import RUNGS, marin_rung

SNAPSHOT = Path(__file__).with_name("mask_snapshot.json")
MODELS = {run.name: run.model for run in map(marin_rung, RUNGS)} | {name: sibling.model for name, sibling in SIBLINGS.items()}


def masks() -> dict[str, dict[str, str]]:
    """By preset: the leaf, with `*` for its layer, to its rule and group."""
    return {
        name: {
            leaf.path: f"{row.rule} {row.group}"
            for leaf in leaves(model)
            if leaf.part != "router_bias"  # set by the balancing, not by the optimizer
            for row in [row_of(leaf.path.replace("/*/", "/0/"))]
        }
        for name, model in MODELS.items()
    }


def test_every_preset_moves_its_parameters_as_recorded():
    assert masks() == json.loads(SNAPSHOT.read_text())


@pytest.mark.parametrize("name", MODELS)
def test_the_recorded_leaves_are_those_the_model_makes(name):
    small = reduced(MODELS[name], d_model=32, num_layers=2, vocab_size=64, num_experts=4, window=16)
    made = assignment(jax.eval_shape(lambda: init_params(small, jax.random.key(0))))
    listed = {leaf.path for leaf in leaves(small) if leaf.part != "router_bias"}
    starred = {path.replace("layers/0/", "layers/*/").replace("layers/1/", "layers/*/") for path in made}
    assert starred == listed


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(masks(), indent=1, sort_keys=True) + "\n")
