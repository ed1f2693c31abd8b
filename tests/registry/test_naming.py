"""What people call an experiment: its name, its number, its slug; nothing that could be two."""

import pytest

from forerun.base.errors import RegistryError
from forerun.registry.naming import named


@pytest.mark.parametrize("text", ["002-top-k", "002", "2", "top-k"])
def test_an_experiment_is_meant_by_name_number_or_slug(text):
    assert named(text, ["001-base", "002-top-k", "demo-d16", "demo-d24"], where="here") == "002-top-k"


@pytest.mark.parametrize(
    ("text", "words"),
    [("demo", "no experiment 'demo' here"), ("base", "may be 001-base or 003-base"), ("", "no experiment '' here"), ("x", "none yet")],
)
def test_a_name_that_means_none_or_several_is_refused(text, words):
    names = [] if text == "x" else ["001-base", "003-base", "demo-d16", "demo-d24"]
    with pytest.raises(RegistryError) as refused:
        named(text, names, where="here")
    assert words in str(refused.value)
