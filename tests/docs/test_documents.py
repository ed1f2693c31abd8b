"""Documents drift unless something fails: commands in the README run, its tree is the tree, files that pages name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.cli.tour import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def matches(pattern: str, output: str) -> bool:
    """Whether the output is the documented one; a line `...` stands for any lines."""
    parts = [re.escape(part.strip("\n")) for part in re.split(r"^\.\.\.$", pattern, flags=re.MULTILINE)]
    return re.search(r"[\s\S]*".join(parts), output) is not None


@pytest.mark.parametrize("block", BLOCKS)
def test_every_console_block_of_the_readme_runs_and_prints_what_it_shows(block, tmp_path):
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block, re.MULTILINE):
        assert command.startswith("forerun ")
        arguments = command.split()[1:]
        run = subprocess.run(
            [sys.executable, "-c", "from forerun.cli.main import main; main()", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert matches(expected, run.stdout), run.stdout


def test_the_tree_in_the_readme_is_the_tree():
    shown = set(re.findall(r"^  (\w+)/ ", README, re.MULTILINE))
    there = {path.parent.name for path in (ROOT / "src" / "forerun").glob("*/__init__.py")}
    assert shown == there


def test_every_command_of_the_tour_has_its_module_and_every_module_is_listed():
    helpers = {"main", "tour", "options", "experiments", "data_atlas", "rungs", "__init__"}
    modules = {path.stem for path in (ROOT / "src/forerun/cli").glob("*.py")} - helpers
    assert {entry.module for entry in COMMANDS} == modules


def test_files_that_the_documents_name_exist():
    missing = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/tour.md"]:
        for name in re.findall(
            r"`((?:docs|src|demo|curate|ladder|registry|train|model|parallel|kernels|dashboard|watch|cli)/[\w./-]+)`",
            page.read_text(encoding="utf-8"),
        ):
            if not any((base / name).exists() for base in (ROOT, ROOT / "src/forerun")):
                missing.append(f"{page.name}: {name}")
    assert missing == []


def test_starting_a_command_imports_neither_jax_nor_arrow():
    code = "import sys; sys.argv = ['forerun', '--help']\nfrom forerun.cli.main import run\nrun(['--help'])\nassert not {'jax', 'pyarrow', 'numpy'} & set(sys.modules), 'slow import'"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    for entry in COMMANDS:
        code = f"import sys, importlib\nimportlib.import_module('forerun.cli.{entry.module}')\nassert not {{'jax', 'pyarrow', 'numba'}} & set(sys.modules)"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{entry.name}: {run.stderr[-300:]}"


def test_a_misused_command_gives_one_line_and_exit_code_2():
    for arguments in (["train"], ["plan", "--no-such-option"], ["data", "show"], ["nonsense"], ["verdict", "009"]):
        code = "from forerun.cli.main import main; main()"
        run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert run.returncode == 2, arguments
        assert run.stderr.count("\n") == 1, run.stderr


def test_the_readme_states_the_record_of_the_demo_as_it_was_measured():
    from forerun.demo.trials import record_in_words

    [shown] = re.findall(r"<!-- trials -->\n(.*?)\n<!-- /trials -->", README, re.DOTALL)
    assert " ".join(shown.split()) == record_in_words()


def test_the_reference_of_fields_is_what_the_dataclasses_say():
    made = subprocess.run([sys.executable, ROOT / "tools/config-reference", "--print"], capture_output=True, text=True, check=True).stdout
    assert made == (ROOT / "docs/reference/config.md").read_text(encoding="utf-8"), "run tools/config-reference"
    assert "|  |\n" not in made, "every field has a meaning"
