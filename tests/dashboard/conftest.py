"""A small lab without training: a promise kept, a promise open, a run that goes on, hostile text everywhere."""

from __future__ import annotations

import pytest

from forerun.base.lab import Lab
from forerun.dashboard.lab_files import Planner
from forerun.plan.page_inputs import page_inputs, plan_of, planned_of


@pytest.fixture(scope="session")
def planner():
    return Planner(plan=plan_of, planned=planned_of, inputs=page_inputs())


@pytest.fixture
def empty_lab(tmp_path):
    return Lab(tmp_path / "empty")
