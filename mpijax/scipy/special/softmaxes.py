"""Softmax by SciPy's signature, which takes all axes unless told otherwise."""

from __future__ import annotations

from typing import Any

from mpijax.nn import normalize


def softmax(x: Any, /, *, axis: Any = None) -> Any:
    """exp(x), scaled so that it sums to 1 over `axis` (default: all)."""
    return normalize.softmax(x, axis=axis)


def log_softmax(x: Any, /, *, axis: Any = None) -> Any:
    """log(softmax(x)) over `axis` (default: all)."""
    return normalize.log_softmax(x, axis=axis)
