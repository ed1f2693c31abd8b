"""A web page's bytes to its text."""

from __future__ import annotations

import re

import numpy as np
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import HTMLTree

from forerun.curate.ingest.records import IngestConfig

DECLARED_WITHIN = 4096  # source: HTML standard, 1,024 bytes; real pages declare later
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE)
MOST_DEPTH = 512  # source: Chromium's limit; finding the main content takes time quadratic in the depth, 10 minutes at 200,000
SHORT_MAIN_CONTENT = 25  # assumed: characters; below it the page's own structure misled the extraction and all its text is better


def text_of_page(data: bytes, charset: str, config: IngestConfig) -> str:
    """The page's readable text; empty when it has none.

    Args:
        charset: what the server said, or empty.
    """
    if not data.strip():
        return ""
    tree = HTMLTree.parse(_string(data, charset))
    text = ""
    if config.html == "main_content" and not _is_deeper(data, tree, MOST_DEPTH):
        text = extract_plain_text(tree, main_content=True, alt_texts=False, preserve_formatting=True).strip()
    if len(text) < SHORT_MAIN_CONTENT:
        whole = extract_plain_text(tree, main_content=False, alt_texts=False, preserve_formatting=True).strip()
        text = whole if len(whole) > len(text) else text
    return text.replace("\x00", "")


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


def _string(data: bytes, charset: str) -> str:
    """Decode as the server said, else as the page says, else as UTF-8 if it is, else as it looks.

    Statistics come last: short pages in UTF-8 look like many other encodings to them. HTML5 reads latin-1 as windows-1252.
    """
    declared = _DECLARED.search(data[:DECLARED_WITHIN])
    for name in (charset, declared.group(1).decode("ascii") if declared else ""):
        encoding = map_encoding_to_html5(name, fallback_utf8=False) if name else None
        if encoding:
            return bytes_to_str(data, encoding)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return bytes_to_str(data, detect_encoding(data, html5_compatible=True) or "windows-1252")
