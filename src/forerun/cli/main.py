"""The root command. A subcommand's module is imported only when it is called, so every command starts fast."""

from __future__ import annotations

import importlib
import os
import sys
from difflib import get_close_matches

from forerun import __version__
from forerun.base.errors import PlatformError
from forerun.cli.tour import COMMANDS, tour

BAD_INPUT = 2
INTERRUPTED = 130


def main() -> None:
    """Run the command line; a `PlatformError` becomes one line on standard error and its exit code."""
    try:
        sys.exit(run(sys.argv[1:]))
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def run(arguments: list[str]) -> int:
    """Find the command, import it, hand it the rest. Returns the exit code."""
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(tour())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name == "--version":
        print(f"forerun {__version__}")
        return 0
    known = {entry.name: entry for entry in COMMANDS}
    if name not in known:
        near = get_close_matches(name, known, n=1)
        way_out = f"did you mean `forerun {near[0]}`?" if near else "`forerun --help` lists the commands"
        print(f"error: there is no command {name!r} ({way_out})", file=sys.stderr)
        return BAD_INPUT
    return _call(known[name].module, name, rest)


def _call(module: str, name: str, arguments: list[str]) -> int:
    from typer import Abort, Exit
    from typer._click.exceptions import ClickException, NoArgsIsHelpError  # Typer does not export its base error

    try:
        app = importlib.import_module(f"forerun.cli.{module}").app
        outcome = app(arguments, prog_name=f"forerun {name}", standalone_mode=False)
    except NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return BAD_INPUT
    except ClickException as error:
        print(f"error: {error.format_message()} (`forerun {name} --help` shows the options)", file=sys.stderr)
        return BAD_INPUT
    except Abort:
        raise KeyboardInterrupt from None
    except Exit as leave:
        return leave.exit_code
    return outcome if isinstance(outcome, int) else 0
