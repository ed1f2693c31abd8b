"""Text from anywhere, safe to look at: control characters and bidirectional overrides are written as their numbers."""

from __future__ import annotations


def visible(text: str) -> str:
    """The text with everything invisible or deceiving as `\\uXXXX`; line ends and tabs stay."""
    return text if text.isprintable() and text.isascii() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if _harmless(ord(character)) else f"\\u{ord(character):04x}"


def _harmless(code: int) -> bool:
    if code < 32 or 127 <= code < 160:
        return code in (9, 10)
    return not (0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in (0x200E, 0x200F, 0xFEFF))
