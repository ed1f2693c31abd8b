"""Labs the tests share; each is made once."""

from __future__ import annotations

import pytest
from plan_twin import planner as made_planner
from small_lab import small_lab

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202eabc\x07\"'>"


@pytest.fixture(scope="session")
def planner():
    """What the command hands to the site."""
    return made_planner()


@pytest.fixture(scope="session")
def hostile_lab(tmp_path_factory):
    """A whole lab with markup, scripts and control characters in every text."""
    return small_lab(tmp_path_factory.mktemp("hostile") / "lab", HOSTILE)
