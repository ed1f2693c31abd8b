"""Two texts side by side with the words marked that the other one lacks."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from forerun.dashboard.atlas.text import words_of
from forerun.dashboard.html import Markup, Piece, join, tag

PIECE = re.compile(r"\w+|\W+", re.UNICODE)
MOST_PIECES = 6000  # assumed: word and gap pieces compared in order; longer texts are marked by what the other has nowhere


def marked(first: str, second: str) -> tuple[Markup, Markup]:
    """Both texts as markup, each with its own words in `<mark>`. White space and punctuation alone are never marked."""
    one, other = PIECE.findall(first), PIECE.findall(second)
    if max(len(one), len(other)) > MOST_PIECES:
        return _by_presence(one, other), _by_presence(other, one)
    a, b = [piece.casefold() for piece in one], [piece.casefold() for piece in other]
    kept_a, kept_b = [False] * len(a), [False] * len(b)
    for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        kept_a[block.a : block.a + block.size] = [True] * block.size
        kept_b[block.b : block.b + block.size] = [True] * block.size
    return _written(one, kept_a), _written(other, kept_b)


def _by_presence(pieces: list[str], other: list[str]) -> Markup:
    known = {piece.casefold() for piece in other}
    return _written(pieces, [piece.casefold() in known for piece in pieces])


def _written(pieces: list[str], kept: list[bool]) -> Markup:
    """Runs of differing words under one mark."""
    out: list[Piece] = []
    run: list[str] = []
    plain: list[str] = []
    for piece, same in zip(pieces, kept):
        gap = not (piece[0].isalnum() or piece[0] == "_")
        if same or (gap and not run):
            if run:
                out.append(tag("mark", "".join(run)))
                run = []
            plain.append(piece)
        else:
            if plain:
                out.append("".join(plain))
                plain = []
            run.append(piece)
    out += ["".join(plain)] if plain else []
    out += [tag("mark", "".join(run))] if run else []
    return join(out)


def differing(first: str, second: str) -> tuple[list[str], list[str]]:
    """Words each text has and the other has nowhere, in order, each once."""
    one, other = words_of(first), words_of(second)
    mine, theirs = set(one), set(other)
    return [word for word in dict.fromkeys(one) if word not in theirs], [word for word in dict.fromkeys(other) if word not in mine]
