"""Documentation strings of Python source, found by a scan of the text: the same on every interpreter, for every syntax, nothing run.

`ast` reads only the syntax of the interpreter that runs it, so the same package would give other documents on another Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<string>(?P<prefix>[rRuUbBfF]{0,2})(?P<quote>\"\"\"|''')(?P<body>(?:\\.|[^\\])*?)(?P=quote))
      | (?P<short>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<header>^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(?P<name>\w+))""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def docstrings(source: str) -> Iterator[tuple[str, str]]:
    """Name it documents (empty for the module), text, in the order of the file. Strings that stand alone on their lines count.

    Args:
        source: of one file, any line ends.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    name = ""
    for token in _TOKEN.finditer(source):
        if token["name"]:
            name = token["name"]
        elif token["string"] is not None and not set(token["prefix"].lower()) & {"b", "f"}:
            before = source[source.rfind("\n", 0, token.start()) + 1 : token.start()]
            if not before.strip():
                yield name, _dedented(token["body"])


def _dedented(body: str) -> str:
    """First line as it stands, the others without the indentation they share; blank lines at both ends gone."""
    first, *rest = (line.rstrip() for line in body.expandtabs().split("\n"))
    margin = min((len(line) - len(line.lstrip(" ")) for line in rest if line), default=0)
    return "\n".join([first.lstrip(" "), *(line[margin:] for line in rest)]).strip("\n")
