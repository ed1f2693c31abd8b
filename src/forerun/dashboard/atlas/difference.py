"""Two texts side by side with the words marked that the other one lacks at that place.

Words that occur once in both texts are anchors; the longest run of anchors in order in both splits the texts, and each stretch
between two anchors is compared in full. So two long texts take milliseconds where a full comparison takes seconds.
Source: Bram Cohen's patience diff.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from forerun.dashboard.atlas.text import words_of
from forerun.dashboard.html import Markup, Piece, join, tag

PIECE = re.compile(r"\w+|\W+", re.UNICODE)
MOST_COMPARED = 40_000  # assumed: words of one stretch times those of the other; beyond it, words the other stretch lacks are marked


def marked(first: str, second: str) -> tuple[Markup, Markup]:
    """Both texts as markup, each with its own words in `<mark>`. White space and punctuation alone are never marked."""
    one, other = PIECE.findall(first), PIECE.findall(second)
    places = [[index for index, piece in enumerate(pieces) if _is_word(piece)] for pieces in (one, other)]
    a, b = ([pieces[index].casefold() for index in where] for pieces, where in zip((one, other), places))
    kept_a, kept_b = _common(a, b)
    return _written(one, dict(zip(places[0], kept_a))), _written(other, dict(zip(places[1], kept_b)))


def differing(first: str, second: str) -> tuple[list[str], list[str]]:
    """Words each text has and the other has nowhere, in order, each once."""
    one, other = words_of(first), words_of(second)
    mine, theirs = set(one), set(other)
    return [word for word in dict.fromkeys(one) if word not in theirs], [word for word in dict.fromkeys(other) if word not in mine]


def _common(a: list[str], b: list[str]) -> tuple[list[bool], list[bool]]:
    """Which words of each have their counterpart in the other, in order."""
    kept_a, kept_b = [False] * len(a), [False] * len(b)
    begin_a = begin_b = 0
    for at_a, at_b in [*_anchors(a, b), (len(a), len(b))]:
        mine, theirs = a[begin_a:at_a], b[begin_b:at_b]
        if len(mine) * len(theirs) <= MOST_COMPARED:
            for block in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
                for offset in range(block.size):
                    kept_a[begin_a + block.a + offset] = kept_b[begin_b + block.b + offset] = True
        else:
            known_a, known_b = set(mine), set(theirs)
            kept_a[begin_a:at_a] = [word in known_b for word in mine]
            kept_b[begin_b:at_b] = [word in known_a for word in theirs]
        if at_a < len(a):
            kept_a[at_a] = kept_b[at_b] = True
        begin_a, begin_b = at_a + 1, at_b + 1
    return kept_a, kept_b


def _anchors(a: list[str], b: list[str]) -> Iterator[tuple[int, int]]:
    """Places of words that occur once in both, as many as are in the same order in both."""
    once_a, once_b = (Counter(words) for words in (a, b))
    place_b = {word: index for index, word in enumerate(b) if once_b[word] == 1}
    pairs = [(index, place_b[word]) for index, word in enumerate(a) if once_a[word] == 1 and word in place_b]
    ends: list[int] = []
    last: list[int] = []
    before = [-1] * len(pairs)
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before[number] = last[length - 1] if length else -1
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
    chain, number = [], last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    yield from reversed(chain)


def _is_word(piece: str) -> bool:
    return piece[0].isalnum() or piece[0] == "_"


def _written(pieces: list[str], kept: dict[int, bool]) -> Markup:
    """Differing words under marks; words next to each other share one, with what stands between them."""
    out: list[Piece] = []
    plain: list[str] = []
    run: list[str] = []
    for index, piece in enumerate(pieces):
        if not kept.get(index, True):
            out.append("".join(plain))
            plain = []
            run.append(piece)
        elif run and index not in kept and not kept.get(index + 1, True):
            run.append(piece)
        else:
            if run:
                out.append(tag("mark", "".join(run)))
                run = []
            plain.append(piece)
    out.append("".join(plain))
    if run:
        out.append(tag("mark", "".join(run)))
    return join(out)
