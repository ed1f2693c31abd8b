"""Documentation strings are found by a scan that agrees with the interpreter's parser on real code and depends on no interpreter."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import forerun.base
from forerun.demo.corpus.docstrings import docstrings


def of_the_parser(source: str) -> list[str]:
    nodes = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = sorted((getattr(node, "lineno", 0), ast.get_docstring(node) or "") for node in nodes)
    return [text for _, text in found if text]


@pytest.mark.parametrize("module", [inspect, ast], ids=["inspect", "ast"])
def test_every_docstring_the_parser_sees_in_the_standard_library_is_found_with_its_text(module):
    source = Path(module.__file__).read_text()
    found = {" ".join(text.split()) for _, text in docstrings(source)}
    plain = [" ".join(text.split()) for text in of_the_parser(source) if "\\" not in text and "\n" in text]
    assert plain and set(plain) <= found


def test_our_own_modules_give_their_docstrings_in_order_with_the_name_they_document():
    source = Path(forerun.base.__file__).parent.joinpath("files.py").read_text()
    wanted = [text for text in of_the_parser(source) if '"""' in source]
    assert [text for _, text in docstrings(source)][: len(wanted)] == wanted


def test_syntax_of_any_version_is_read_and_what_only_looks_like_a_docstring_is_not():
    source = "\n".join(
        [
            'print "python two"',
            "def f[T: int](x):",
            '    r"""Raw \\d text."""',
            '    value = """not a docstring',
            'standing at the margin"""',
            "    # '''a comment'''",
            '    text = \'a """ inside\'',
            "class C:",
            "    '''Of C.",
            "",
            "        indented",
            "    '''",
            '    f"""formatted {value}"""',
            '    b"""bytes"""',
        ]
    )
    assert list(docstrings(source)) == [("f", "Raw \\d text."), ("C", "Of C.\n\nindented")]
    assert list(docstrings("")) == [] and list(docstrings('"""never closed')) == []
    assert list(docstrings('"""A.\r\n\r\n  B.\r\n"""')) == [("", "A.\n\nB.")]
