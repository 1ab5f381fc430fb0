"""Options for the accuracy of transcendental functions."""

from __future__ import annotations

import enum


class AccuracyMode(enum.Enum):
    """HIGHEST: the most accurate implementation; DEFAULT: the fastest. mpijax has one implementation of each function.

    >>> lax.sin(jnp.array([0.0]), accuracy=lax.AccuracyMode.HIGHEST)
    Array([0.], dtype=float32)
    """

    HIGHEST = 1
    DEFAULT = 2


class Tolerance:
    """Largest accepted error, absolute, relative and in units in the last place.

    >>> lax.exp(jnp.array([0.0]), accuracy=lax.Tolerance(rtol=1e-3))
    Array([1.], dtype=float32)
    """

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0):
        if atol < 0.0 or rtol < 0.0 or ulps < 0.0:
            raise ValueError("Tolerances must be non-negative.")
        if atol == rtol == ulps == 0:
            raise ValueError("At least one of atol, rtol, or ulps must be set.")
        self.atol = atol
        self.rtol = rtol
        self.ulps = ulps

    def _key(self):
        return self.atol, self.rtol, self.ulps

    def __eq__(self, other) -> bool:
        return isinstance(other, Tolerance) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Tolerance(atol={self.atol}, rtol={self.rtol}, ulps={self.ulps})"
