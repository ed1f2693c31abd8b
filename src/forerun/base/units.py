"""Numbers as people read them, one way everywhere: counts, bytes, FLOPs, seconds, fractions."""

from __future__ import annotations

_COUNT = [(1e15, "Q"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")]


def count(value: float) -> str:
    """3 significant digits with k, M, B, T: 535477106688 -> '535B'."""
    rounded = float(f"{value:.3g}")  # 999,999 is 1M, not 1e+03k
    for scale, letter in _COUNT:
        if abs(rounded) >= scale:
            return f"{rounded / scale:.3g}{letter}"
    return f"{value:.3g}" if value % 1 else str(int(value))


def counted(number: int, one: str, more: str = "") -> str:
    """'1 alarm', '1,200 alarms'; `more` where the plural does not end in s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def flops(value: float) -> str:
    """Scientific with 3 digits and the unit: '2.70e+24 FLOPs' is written '2.70e24 FLOPs'."""
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)} FLOPs"


def size(num_bytes: float) -> str:
    """Binary units: 1536 -> '1.50 KiB'."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1024 or unit == "PiB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    raise AssertionError("unreachable: PiB ends the loop")


def duration(seconds: float) -> str:
    """'850 ms', '42.0 s', '3 min 20 s', '2 h 05 min', '84.0 days'."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    return f"{seconds / 86400:.1f} days"


def percent(fraction: float, digits: int = 1) -> str:
    """A fraction in 0..1 as percent: 0.4356 -> '43.6%'."""
    return f"{fraction * 100:.{digits}f}%"
