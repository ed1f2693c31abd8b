"""Judging pairs in a terminal: both texts with what differs, one letter an answer. Document text cannot steer the terminal."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable

from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import Book
from forerun.dashboard.atlas.decisions import Judgement, Pair, pairs, review, reviews
from forerun.dashboard.atlas.text import differing

WIDTH, MOST_LINES = 100, 24
ANSWERS: dict[str, Judgement] = {"s": "same", "d": "different", "u": "unsure"}
QUESTION = "Is the first text's content held by the second? [s]ame, [d]ifferent, [u]nsure, [q]uit: "


def go_through(lab: Lab, book: Book, *, kind: str, most: int, reviewer: str, read: Callable[[], str], show: Callable[[str], object]) -> int:
    """Show pairs this reviewer has not judged and keep the answers.

    Args:
        read: the next line of the reviewer's answers; an empty string ends the review.
    Returns: how many were judged.
    """
    known = {pair for pair, said in reviews(lab, book).items() if reviewer in said}
    waiting = [pair for pair in pairs(lab, book) if kind in ("both", pair.kind) and (pair.kind, pair.id) not in known]
    waiting.sort(key=lambda pair: hashlib.sha256(f"{reviewer} {pair.key}".encode()).hexdigest())  # every reviewer in another order
    done = 0
    for number, pair in enumerate(waiting[:most], start=1):
        show(_screen(pair, number, min(len(waiting), most)))
        while True:
            show(QUESTION)
            line = read()
            answer = line.strip().lower()[:1]
            if not line or answer == "q":
                return done
            if answer in ANSWERS:
                review(lab, book, pair, ANSWERS[answer], reviewer)
                done += 1
                break
    return done


def _screen(pair: Pair, number: int, total: int) -> str:
    row = pair.row
    first, second = row["text"] or "", row["kept_text"] or ""
    own, others = differing(first, second)
    return "\n".join(
        [
            "",
            f"--- {number} of {total}: {row['source']} {pair.id[:12]}  containment {row['containment']:.3f}  jaccard {row['jaccard']:.3f}",
            f"words only in the first: {harmless(' '.join(own)[:300]) or 'none'}",
            f"words only in the second: {harmless(' '.join(others)[:300]) or 'none'}",
            "first:",
            _block(first),
            f"second ({row['kept_source']} {str(row['kept_id'])[:12]}):",
            _block(second),
        ]
    )


def _block(text: str) -> str:
    lines = [part for line in harmless(text).splitlines() for part in (textwrap.wrap(line, WIDTH) or [""])]
    more = [f"  [... {len(lines) - MOST_LINES} more lines]"] if len(lines) > MOST_LINES else []
    return "\n".join([f"  {line}" for line in lines[:MOST_LINES]] + more)


def harmless(text: str) -> str:
    """Text without control and direction characters, which are shown by their number; line breaks and tabs stay."""
    return "".join(character if _plain(character) else f"\\u{ord(character):04x}" for character in text)


def _plain(character: str) -> bool:
    code = ord(character)
    if code < 32 or 127 <= code < 160:
        return character in "\n\t"
    return not (0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in (0x200E, 0x200F, 0xFEFF))
