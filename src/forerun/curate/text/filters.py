"""Optional filters: language, personal data, licence. Each gives a reason per document and counts; none changes a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pyarrow as pa

from forerun.base.errors import ConfigError

LANGUAGE_CHARS = 5000  # assumed: enough to tell a language, and bounds the time for a long document
UNSURE_RANK = 1200  # source: resiliparse's documentation, ranks above are usually false
PERSONAL = {
    "email": re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,190}\.[A-Za-z]{2,24}\b"),
    "phone": re.compile(r"(?<![\w.])(?:\+\d{1,3}[ .-]?)?(?:\(\d{2,4}\)[ .-]?|\d{3}[ .-])\d{3,4}[ .-]\d{3,4}(?![\w.])"),
    "ip_address": re.compile(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])"),
    "card": re.compile(r"(?<!\d)(?:\d[ -]?){12,18}\d(?!\d)"),
    "iban": re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b"),
    "secret_key": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bxox[abp]-[A-Za-z0-9-]{20,}\b"
    ),
}
NOT_PERSONAL = re.compile(r"@(?:[\w-]+\.)*(?:example(?:\.(?:com|net|org))?|invalid|localhost|test)$", re.IGNORECASE)  # RFC 2606: nobody's


@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    """Which documents stay; everything is off by default."""

    languages: tuple[str, ...] = ()
    """ISO 639-1 codes to keep, such as `en`; empty keeps all and does not look."""
    keep_unsure: bool = True
    """Whether documents whose language cannot be told (code, tables) stay when `languages` is given."""
    licences: tuple[str, ...] = ()
    """Licences to keep, as patterns such as `CC-BY*`, upper or lower case; empty keeps all."""
    refused_licences: tuple[str, ...] = ()
    """Licences to drop, as patterns; wins over `licences`."""
    personal_data: tuple[str, ...] = ()
    """Kinds that are looked for: email, phone, ip_address, card, iban, secret_key."""
    max_personal_items: int = 0
    """Documents with more items of those kinds are dropped."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.personal_data) - set(PERSONAL))
        if unknown:
            raise ConfigError(f"filters.personal_data holds {unknown[0]!r}", hint=f"known: {', '.join(PERSONAL)}")
        if self.max_personal_items < 0:
            raise ConfigError(f"filters.max_personal_items must not be negative, got {self.max_personal_items}", hint="0 allows none")
        for code in self.languages:
            if not re.fullmatch(r"[a-z]{2,3}", code):
                raise ConfigError(f"filters.languages holds {code!r}", hint="give codes of two or three letters, such as en")

    @property
    def is_on(self) -> bool:
        """Whether any document could be dropped."""
        return bool(self.languages or self.licences or self.refused_licences or self.personal_data)


def judged(documents: pa.Table, config: FilterConfig) -> pa.Table:
    """One row per document: `id`, `reason` (null: stays), `language` (null: not asked or unsure), `personal_items` (found kinds counted)."""
    reasons, languages, items = [], [], []
    licences = documents["licence"].to_pylist()
    for text, licence in zip(documents["text"].to_pylist(), licences):
        language = _language(text) if config.languages else None
        found = {kind: _count(kind, text) for kind in config.personal_data}
        found = {kind: count for kind, count in found.items() if count}
        reasons.append(_reason(licence, language, found, config))
        languages.append(language)
        items.append(", ".join(f"{kind} {count}" for kind, count in found.items()) or None)
    return pa.table(
        {
            "id": documents["id"],
            "reason": pa.array(reasons, pa.string()),
            "language": pa.array(languages, pa.string()),
            "personal_items": pa.array(items, pa.string()),
        }
    )


def _reason(licence: str, language: str | None, found: dict[str, int], config: FilterConfig) -> str | None:
    if _matches(licence, config.refused_licences):
        return "licence_refused"
    if config.licences and not _matches(licence, config.licences):
        return "licence_not_listed"
    if config.languages and (language not in config.languages if language else not config.keep_unsure):
        return "language_not_listed" if language else "language_unsure"
    if sum(found.values()) > config.max_personal_items:
        return f"personal_data_{max(found, key=lambda kind: found[kind])}"
    return None


def _matches(licence: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(licence.lower(), pattern.lower()) for pattern in patterns)


def _language(text: str) -> str | None:
    from resiliparse.parse.lang import detect_fast

    language, rank = detect_fast(text[:LANGUAGE_CHARS], cutoff=UNSURE_RANK)
    return None if language == "unknown" or rank > UNSURE_RANK else language


def _count(kind: str, text: str) -> int:
    found = PERSONAL[kind].findall(text)
    if kind == "email":
        return sum(not NOT_PERSONAL.search(address) for address in found)
    if kind == "card":
        return sum(_is_card(number) for number in found)
    if kind == "iban":
        return sum(_is_iban(number) for number in found)
    if kind == "ip_address":
        return sum(not address.startswith(("0.", "10.", "127.", "192.168.", "255.")) for address in found)
    return len(found)


def _is_card(number: str) -> bool:
    """Luhn's check digit, ISO/IEC 7812-1."""
    digits = [int(digit) for digit in number if digit.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return len(set(digits)) > 1 and (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _is_iban(number: str) -> bool:
    """ISO 13616: moved to the end and read in base 36, the remainder by 97 is 1."""
    plain = number.replace(" ", "")
    return 15 <= len(plain) <= 34 and int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1
