"""`forerun completion SHELL`: what the Tab key offers. The scripts ask the command itself, so they never go out of date."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from forerun.cli.tour import COMMANDS

app = typer.Typer(add_completion=False, rich_markup_mode=None)

SCRIPTS = {
    "bash": """\
_forerun() {
    local IFS=$'\\n'
    COMPREPLY=( $(forerun completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) )
}
complete -o default -F _forerun forerun""",
    "zsh": """\
#compdef forerun
_forerun() {
    local -a offered
    offered=( ${(f)"$(forerun completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"} )
    if (( ${#offered} )); then compadd -- $offered; else _files; fi
}
compdef _forerun forerun""",
    "fish": "complete --command forerun --arguments '(forerun completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'",
}


@app.command(epilog='Example: eval "$(forerun completion bash)", in ~/.bashrc to keep it')
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish", "words"], typer.Argument(help="words answers one question of such a script")],
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> int:
    """Print a script that completes commands and options in your shell."""
    print("\n".join(offers(words or [""])) if shell == "words" else SCRIPTS[shell])
    return 0


def offers(words: Sequence[str]) -> list[str]:
    """What may stand in place of the last word, which may be empty or begun; nothing where only the user knows.

    Args:
        words: those behind `forerun`.
    """
    *before, begun = words
    if not before:
        return [entry.name for entry in COMMANDS if entry.name.startswith(begun)]
    modules = {entry.name: entry.module for entry in COMMANDS}
    if before[0] not in modules:
        return []
    command: Any = typer.main.get_command(importlib.import_module(f"forerun.cli.{modules[before[0]]}").app)
    for word in before[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    if begun.startswith("-"):
        return sorted(option for option in _options(command) if option.startswith(begun))
    asked = _options(command).get(before[-1])
    choices = [*getattr(asked.type, "choices", ())] if asked else [*getattr(command, "commands", {})]
    return [str(choice) for choice in choices if str(choice).startswith(begun)]


def _options(command: Any) -> dict[str, Any]:
    found = {
        name: parameter for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")
    }
    return found | {"--help": None}
