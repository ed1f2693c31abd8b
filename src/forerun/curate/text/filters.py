"""Optional filters: language, personal data, licence. Each gives a reason per document and counts; none changes a text."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa

from forerun.base.errors import ConfigError
from forerun.curate.quality.statistics import TYPES, content_types, text_statistics

LANGUAGE_CHARS = 5000  # assumed: enough to tell a language, and bounds the time for a long document
UNSURE_RANK = 1200  # source: resiliparse's documentation, ranks above are usually false
PERSONAL = {
    "email": re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[\w.-]{1,190}\.[A-Za-z]{2,24}\b"),
    "phone": re.compile(
        r"(?<![\w.])\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,6}(?![\w])"  # with the code of the country
        r"|(?<![\w.+-])(?<!\d )(?:\([2-9]\d\d\) ?\d{3}[ .-]|[2-9]\d\d([ .-])\d{3}\1)\d{4}(?![\w.-]| \d)"  # North America
        r"|(?<![\w.+-])(?<![0-9A-Fa-f]{2} )0[1-9]\d{0,3}[ /-]\d{2,8}(?:[ -]\d{2,4}){0,4}(?![\w.-]| [0-9A-Fa-f]{2}\b)"  # elsewhere, within the country
    ),
    "ip_address": re.compile(
        r"(?<![\w.])(?<!ersion )(?:\d{1,3}\.){3}\d{1,3}(?![\d.]|\w)|(?<![\w:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,34}(?![\w:.])"
    ),
    "card": re.compile(r"(?<![\d.-])[2-6](?:\d{12,18}|\d{3}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{3}([ -])\d{6}\2\d{4,5})(?![\d.-])"),
    "iban": re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b"),
    "secret_key": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bA[KS]IA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_\w{50,}\b"
        r"|\bxox[abp]-[A-Za-z0-9-]{20,}\b|\bsk-(?:[a-z]+-)*[A-Za-z0-9_-]{32,}|\b[sr]k_live_[A-Za-z0-9]{24,}\b|\bAIza[\w-]{35}\b"
        r"|\bhf_[A-Za-z]{34}\b|\bglpat-[\w-]{20,}|\bnpm_[A-Za-z0-9]{36}\b"
    ),
}  # source of the forms of keys: the providers' documentation; of cards: ISO/IEC 7812-1 and the groups they are printed in
NOT_PERSONAL = re.compile(
    r"@(?:[\w-]+\.)*(?:example(?:\.(?:com|net|org))?|invalid|localhost|test)$"  # RFC 2606: nobody's
    r"|^git@|^no-?reply@|\.(?:png|jpe?g|gif|svg|webp|ico|css|js|html?)$",  # remote repositories, senders, images named for two sizes
    re.IGNORECASE,
)
PRIVATE = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))  # source: RFC 1918
ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7]|35|6\d)\d{14}|3[47]\d{13}|3[0689]\d{12}"
)  # source: the issuers' published ranges
_AND = re.compile(r"\s+AND\s+|\s*[,;/]\s*")  # between licences that hold together, in SPDX and as people write it
PHONE_DIGITS = range(10, 16)  # source: E.164, 15 at most; fewer than 10 are postal codes, dates and page numbers as often


@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    """Which documents stay; everything is off by default."""

    languages: tuple[str, ...] = ()
    """ISO 639-1 codes to keep, such as `en`; empty keeps all and does not look."""
    keep_unsure: bool = True
    """Whether documents whose language cannot be told (code, tables) stay when `languages` is given."""
    licences: tuple[str, ...] = ()
    """Licences to keep, as patterns such as `CC-BY*`, upper or lower case; empty keeps all. Of `MIT OR GPL-3.0` one is enough, of
    `MIT AND GPL-3.0`, and of a list, all are needed."""
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
        if unknown := sorted(set(self.languages) - set(_known_languages()) if self.languages else []):
            raise ConfigError(
                f"filters.languages holds {unknown[0]!r}, which is not told apart", hint=f"known: {', '.join(_known_languages())}"
            )

    @property
    def is_on(self) -> bool:
        """Whether any document could be dropped."""
        return bool(self.languages or self.licences or self.refused_licences or self.personal_data)


def judged(documents: pa.Table, config: FilterConfig) -> pa.Table:
    """One row per document: `id`, `reason` (null: stays), `language` (null: not asked or unsure), `personal_items` (found kinds counted)."""
    reasons, languages, items = [], [], []
    licences = documents["licence"].to_pylist()
    types = content_types(text_statistics(documents["text"])) if config.languages else np.zeros(documents.num_rows, np.int8)
    for text, licence, content in zip(documents["text"].to_pylist(), licences, types.tolist()):
        language = _language(text) if config.languages and TYPES[content] != "code" else None
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
    if _refused(licence, config.refused_licences):
        return "licence_refused"
    if config.licences and not _allowed(licence, config.licences):
        return "licence_not_listed"
    if config.languages and (language not in config.languages if language else not config.keep_unsure):
        return "language_not_listed" if language else "language_unsure"
    if sum(found.values()) > config.max_personal_items:
        return f"personal_data_{max(found, key=lambda kind: found[kind])}"
    return None


def _matches(licence: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(licence.strip().lower(), pattern.lower()) for pattern in patterns)


def _allowed(licence: str, patterns: tuple[str, ...]) -> bool:
    """Whether the whole expression is listed, or all parts of one of its choices are."""
    return _matches(licence, patterns) or any(all(_matches(part, patterns) for part in parts) for parts in _choices(licence))


def _refused(licence: str, patterns: tuple[str, ...]) -> bool:
    """Whether every choice of the expression has a refused part."""
    return all(any(_matches(part, patterns) for part in parts) for parts in _choices(licence))


def _choices(licence: str) -> list[list[str]]:
    """Of an expression of licences, what one may choose from, and the licences that hold together in each."""
    return [_AND.split(choice.strip("() ")) for choice in re.split(r"\s+OR\s+", licence.strip("() "))]


def _known_languages() -> list[str]:
    from resiliparse.parse.lang import supported_langs

    return sorted(supported_langs())


def _language(text: str) -> str | None:
    from resiliparse.parse.lang import detect_fast

    language, rank = detect_fast(text[:LANGUAGE_CHARS], cutoff=UNSURE_RANK)
    return None if language == "unknown" or rank > UNSURE_RANK else language


def _count(kind: str, text: str) -> int:
    found = [match.group() for match in PERSONAL[kind].finditer(text)]
    check = {"email": _is_address, "phone": _is_phone, "card": _is_card, "iban": _is_iban, "ip_address": _is_host}.get(kind)
    return sum(map(check, found)) if check else len(found)


def _is_address(address: str) -> bool:
    return not NOT_PERSONAL.search(address)


def _is_phone(number: str) -> bool:
    digits = [char for char in number if char.isdigit()]
    return len(digits) in PHONE_DIGITS and 2 * digits.count("0") < len(digits)  # bytes in a dump have a zero each


def _is_host(address: str) -> bool:
    """Whether an address can be somebody's: not of a private network, this machine, a group or a mask."""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return False
    own = host.is_loopback or host.is_link_local or host.is_multicast or host.is_unspecified or address.startswith(("0.", "255."))
    return not (own or (host.version == 4 and any(host in network for network in PRIVATE)))


def _is_card(number: str) -> bool:
    """An issuer's first digits and length, and Luhn's check digit, ISO/IEC 7812-1."""
    plain = re.sub("[ -]", "", number)
    digits = [int(digit) for digit in plain]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return bool(ISSUERS.fullmatch(plain)) and (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _is_iban(number: str) -> bool:
    """ISO 13616: moved to the end and read in base 36, the remainder by 97 is 1."""
    plain = number.replace(" ", "")
    return 15 <= len(plain) <= 34 and int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1
