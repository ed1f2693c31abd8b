"""The Tab key offers commands, subcommands, options and choices, in a real shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.cli.completion import SCRIPTS, offers
from forerun.cli.tour import COMMANDS


def test_commands_subcommands_options_and_choices_are_offered():
    assert offers(["fore"]) == ["forecast"]
    assert offers([""]) == [entry.name for entry in COMMANDS]
    assert "--quick" in offers(["demo", "--"]) and offers(["demo", "--qui"]) == ["--quick"]
    assert {"plan", "run", "status"} <= set(offers(["ladder", ""]))
    assert "--json" in offers(["ladder", "status", "--"])
    assert offers(["completion", "--h"]) == ["--help"]
    assert offers(["no-such-command", ""]) == [] and offers(["demo", ""]) == []


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_answers(entry):
    assert "--help" in offers([entry.name, "--"])


def test_bash_completes_with_the_script_as_printed(tmp_path):
    script = f"""
{SCRIPTS["bash"]}
COMP_WORDS=(forerun dem); COMP_CWORD=1; _forerun; echo "${{COMPREPLY[*]}}"
COMP_WORDS=(forerun demo --se); COMP_CWORD=2; _forerun; echo "${{COMPREPLY[*]}}"
"""
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    outcome = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert outcome.stdout.split() == ["demo", "--seed"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_are_at_least_valid(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=SCRIPTS[shell], text=True, check=True, capture_output=True)
