"""A web page's bytes to its text."""

from __future__ import annotations

import re

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import HTMLTree

from forerun.curate.ingest.records import IngestConfig

DECLARED_WITHIN = 4096  # source: HTML standard, 1,024 bytes; real pages declare later
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE)
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
    if config.html == "main_content":
        text = extract_plain_text(tree, main_content=True, alt_texts=False, preserve_formatting=True).strip()
    if len(text) < SHORT_MAIN_CONTENT:
        whole = extract_plain_text(tree, main_content=False, alt_texts=False, preserve_formatting=True).strip()
        text = whole if len(whole) > len(text) else text
    return text.replace("\x00", "")


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
