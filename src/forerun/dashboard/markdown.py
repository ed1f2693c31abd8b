"""A report's Markdown as markup: headings, paragraphs, lists, quotes, code, tables, emphasis. No HTML, no images; links only inside the site.

Everything is escaped first; nothing a report says can become an element other than these.
"""

from __future__ import annotations

import re

from forerun.dashboard.html import Markup, Piece, join, tag, text

_INLINE = re.compile(r"`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\n]+)\*|\[([^\]\n]+)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(.*)")
_ROW = re.compile(r"\s*\|.*\|\s*$")


def markdown(source: str) -> list[Piece]:
    """A report as pieces of a page; headings begin at the third level, below the page's own."""
    parts: list[Piece] = []
    lines = source.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        at = _block(lines, at, parts)
    return parts


def _block(lines: list[str], at: int, parts: list[Piece]) -> int:
    """Append the block that begins at a line; returns the line after it."""
    line = lines[at]
    if not line.strip():
        return at + 1
    if line.startswith("```"):
        end = next((index for index in range(at + 1, len(lines)) if lines[index].startswith("```")), len(lines))
        parts.append(tag("pre", "\n".join(lines[at + 1 : end]), tabindex="0"))
        return end + 1
    if line.startswith("#"):
        level = len(line) - len(line.lstrip("#"))
        parts.append(tag(f"h{min(level + 2, 6)}", _inline(line.lstrip("#").strip())))
        return at + 1
    if line.startswith(">"):
        end = _while(lines, at, lambda line: line.startswith(">"))
        parts.append(tag("blockquote", _inline(" ".join(line.lstrip("> ") for line in lines[at:end]))))
        return end
    if _ITEM.match(line):
        end = _while(lines, at, lambda line: bool(_ITEM.match(line)))
        kind = "ol" if line.lstrip()[0].isdigit() else "ul"
        parts.append(tag(kind, *(tag("li", _inline(_ITEM.sub(r"\1", item))) for item in lines[at:end])))
        return end
    if _ROW.match(line):
        end = _while(lines, at, lambda line: bool(_ROW.match(line)))
        parts.append(_table(lines[at:end]))
        return end
    end = _while(lines, at, lambda line: bool(line.strip()) and not line.startswith(("#", "```", ">")) and not _ITEM.match(line))
    parts.append(tag("p", _inline(" ".join(part.strip() for part in lines[at:end]))))
    return max(end, at + 1)


def _while(lines: list[str], at: int, holds) -> int:
    end = at
    while end < len(lines) and holds(lines[end]):
        end += 1
    return end


def _table(lines: list[str]) -> Markup:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    head, body = rows[:1], rows[1:]
    parts = [tag("thead", *(tag("tr", *(tag("th", _inline(cell), scope="col") for cell in row)) for row in head))]
    parts.append(tag("tbody", *(tag("tr", *(tag("td", _inline(cell)) for cell in row)) for row in body)))
    return tag("div", tag("table", *parts), class_="scroll", tabindex="0", role="region", aria_label="Table of the report")


def _inline(source: str) -> Markup:
    parts: list[Piece] = []
    at = 0
    for match in _INLINE.finditer(source):
        parts.append(text(source[at : match.start()]))
        code, strong, emphasis, label, address = match.groups()
        if code is not None:
            parts.append(tag("code", code))
        elif strong is not None:
            parts.append(tag("strong", strong))
        elif emphasis is not None:
            parts.append(tag("em", emphasis))
        else:
            parts.append(_link(label, address))
        at = match.end()
    return join([*parts, text(source[at:])])


def _link(label: str, address: str) -> Markup:
    """A link to the web, followed only by a click; any other address is shown as text."""
    if re.match(r"https?://", address):
        return tag("a", label, href=address, rel="noopener noreferrer nofollow")
    return text(f"{label} ({address})")
