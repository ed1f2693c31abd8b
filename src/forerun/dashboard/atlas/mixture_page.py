"""Mixture what-if: change the weights, see epochs, shares and what every source gives; without a script, the proportional mixture."""

from __future__ import annotations

import json
from collections.abc import Mapping

from forerun.dashboard.atlas import address, mixture
from forerun.dashboard.atlas.attributes import SourceView
from forerun.dashboard.atlas.book import NUM_QUALITIES, Book
from forerun.dashboard.atlas.overview import navigation
from forerun.dashboard.desk import Desk
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.numbers import number, terms
from forerun.dashboard.page import paragraph

INPUTS = "mixture-inputs.json"


def content(book: Book, sources: Mapping[str, SourceView], desk: Desk) -> list[Piece]:
    """The page; `atlas` fills `#what-if` and keeps the tables up to date."""
    weights = mixture.proportional(book)
    once = mixture.outcome(book, [mixture.Phase(1.0, weights)], book.num_tokens, sources)
    rows = [
        (book.title(domain), number(share, "token_share", f"{share:.2%}"), number(sum(book.grid[domain]), "num_tokens"))
        for domain, share in once.domains.items()
    ]
    quality = [(f"Q{index}", number(share, "token_share", f"{share:.2%}")) for index, share in enumerate(once.qualities)]
    return [
        paragraph(
            "Every domain and bucket counts its tokens times a factor. A cell read more than 8 times is over the cap.", class_="lead"
        ),
        navigation(book, desk),
        tag(
            "div",
            id="what-if",
            data_inputs=desk.address(address.file(book, INPUTS)),
            data_terms=terms("share_read", "exposure", "mixture_weight", "tokens_read"),
        ),
        table(["bucket", desk.term("share", "token_share")], quality, caption=f"In proportion: {NUM_QUALITIES} quality buckets"),
        table(["domain", desk.term("share", "token_share"), desk.term("tokens", "num_tokens")], rows, caption="In proportion: domains"),
        paragraph(
            "The same in the terminal: ",
            tag("code", f"forerun data mixture {book.key} --train-tokens 20000000 --set q4=2 --out mixture.json"),
        ),
    ]


def inputs(book: Book, sources: Mapping[str, SourceView]) -> bytes:
    """What the page computes with."""
    place = {cell.name: index for index, cell in enumerate(book.cells)}
    content = {
        "schema": 1,
        "name": book.name,
        "manifest": book.digest,
        "epoch_cap": mixture.EPOCH_CAP,
        "num_tokens": book.num_tokens,
        "cells": [[cell.name, cell.domain, cell.quality, cell.num_tokens] for cell in book.cells],
        "titles": {domain: book.title(domain) for domain in book.domains},
        "sources": {
            name: [[place[cell], count] for cell, (_, count) in source.by_cell.items() if cell in place] for name, source in sources.items()
        },
    }
    return json.dumps(content, separators=(",", ":")).encode()
