"""Softmax with SciPy's signature: the default is all axes."""

from __future__ import annotations

from typing import Any

from mpijax.nn import normalize


def softmax(x: Any, /, *, axis: Any = None) -> Any:
    """exp(x), scaled to sum to 1 over `axis` (default: all axes).

    >>> mpijax.scipy.special.softmax(jnp.array([0.0, np.log(3.0)])).round(4)
    Array([0.25, 0.75], dtype=float32)
    """
    return normalize.softmax(x, axis=axis)


def log_softmax(x: Any, /, *, axis: Any = None) -> Any:
    """log(softmax(x)) over `axis` (default: all axes).

    >>> mpijax.scipy.special.log_softmax(jnp.array([1.0, 1.0])).round(4)
    Array([-0.6931, -0.6931], dtype=float32)
    """
    return normalize.log_softmax(x, axis=axis)
