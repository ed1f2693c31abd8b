"""A web page's bytes to its text."""

from __future__ import annotations

import re

import numpy as np
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import HTMLTree

from forerun.curate.ingest.records import IngestConfig
from forerun.curate.ingest.streams import MARKS

DECLARED_WITHIN = 4096  # source: HTML standard, 1,024 bytes; real pages declare later
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE)
_WHOLE = {
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gbk": "gb18030",
    "big5": "big5hkscs",
}  # source: what these names mean in the WHATWG Encoding Standard
MOST_DEPTH = 512  # source: Chromium's limit; finding the main content takes time quadratic in the depth, 10 minutes at 200,000
SHORT_MAIN_CONTENT = 25  # assumed: characters; below it the page's own structure misled the extraction and all its text is better


def text_of_page(data: bytes, charset: str, config: IngestConfig) -> tuple[str, bool]:
    """The page's readable text, empty when it has none, and whether invalid bytes were replaced.

    Args:
        charset: what the server said, or empty.
    """
    if not data.strip():
        return "", False
    page, repaired = string_of(data, charset)
    tree = HTMLTree.parse(page)
    text = ""
    if config.html == "main_content" and not _is_deeper(data, tree, MOST_DEPTH):
        text = extract_plain_text(tree, main_content=True, alt_texts=False, preserve_formatting=True).strip()
    if len(text) < SHORT_MAIN_CONTENT:
        whole = extract_plain_text(tree, main_content=False, alt_texts=False, preserve_formatting=True).strip()
        text = whole if len(whole) > len(text) else text
    return text.replace("\x00", ""), repaired


def _is_deeper(data: bytes, tree: HTMLTree, most: int) -> bool:
    """Whether elements are nested more than so deep. Most pages are cleared by their bytes alone, without a walk."""
    content = np.frombuffer(data, np.uint8)
    after = content[1:][content[:-1] == ord("<")]
    opened = np.cumsum((after == ord("/")) * -1 + ((after | 32) - ord("a") < 26))  # elements without an end count as open
    return bool(opened.max(initial=0) > most) and _walk_is_deeper(tree, most)


def _walk_is_deeper(tree: HTMLTree, most: int) -> bool:
    node, depth = tree.document, 0
    while node is not None:
        if node.first_child is not None:
            node, depth = node.first_child, depth + 1
            if depth > most:
                return True
            continue
        while node is not None and node.next is None:
            node, depth = node.parent, depth - 1
        node = node.next if node is not None else None
    return False


def string_of(data: bytes, charset: str) -> tuple[str, bool]:
    """The text, and whether invalid bytes were replaced: as a byte order mark says, the server, the page; else UTF-8 if it is; else as it looks.

    Statistics come last: short pages in UTF-8 look like many other encodings to them. HTML5 reads latin-1 as windows-1252. A few stray
    bytes do not turn a page into another encoding.
    """
    for mark, encoding in MARKS:
        if data.startswith(mark):
            text = data[len(mark) :].decode(encoding, "replace")
            return text, "\ufffd" in text
    declared = _DECLARED.search(data[:DECLARED_WITHIN])
    for name in (charset, declared.group(1).decode("ascii") if declared else "", "utf-8"):
        encoding = map_encoding_to_html5(name, fallback_utf8=False) if name else None
        if encoding and not (encoding.startswith("utf-16") and b"\0" not in data):  # who can read the declaration reads no UTF-16
            text, num_bad = _decoded(data, encoding)
            if not num_bad or 2 * num_bad <= _num_foreign(text):
                return text, num_bad > 0
    return bytes_to_str(data, detect_encoding(data, html5_compatible=True) or "windows-1252"), False


def _decoded(data: bytes, encoding: str) -> tuple[str, int]:
    """The text and how many places of it are invalid."""
    codec = _WHOLE.get(encoding, "utf-8-sig" if encoding == "utf-8" else encoding)
    try:
        return data.decode(codec), 0
    except UnicodeDecodeError:
        text = data.decode(codec, "replace")
        return text, text.count("\ufffd")


def _num_foreign(text: str) -> int:
    """Characters beyond ASCII, replaced ones included."""
    return len(text) - len(text.encode("ascii", "ignore"))
