"""Formats numbers with units for people."""

from __future__ import annotations

_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES = (("s", 1e6), ("ms", 1e3))


def amount(nbytes: float) -> str:
    """Bytes in three digits: ``12 B``, ``3.4 kB`` or ``5.6 MB``."""
    return _scaled(nbytes, _BYTES) or f"{nbytes:.0f} B"


def duration(us: float) -> str:
    """Microseconds in three digits: ``12.3 µs``, ``4.56 ms`` or ``1.23 s``."""
    return _scaled(us, _TIMES) or f"{us:.3g} µs"


def _scaled(x: float, units: tuple[tuple[str, float], ...]) -> str:
    """x in the largest unit in which it is at least one; "" if there is none. 999.6 kB rounds to 1 MB."""
    for unit, size in units:
        if x >= 0.9995 * size:
            return f"{x / size:.3g} {unit}" if x < 999.5 * size else f"{x / size:,.0f} {unit}"
    return ""
