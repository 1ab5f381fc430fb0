"""``jax.experimental.jet``: Taylor series of functions, that is, higher derivatives at polynomial cost."""

from __future__ import annotations

from typing import Any, NoReturn

from mpijax import lax as _lax
from mpijax import missing as _missing
from mpijax.experimental.jet.rules import def_comp, def_deriv, deflinear, defzero
from mpijax.experimental.jet.trace import JetTrace, JetTracer, jet
from mpijax.experimental.jet.user_rules import ZeroSeries, jet_rules, zero_series

__all__ = [
    "JetTrace", "JetTracer", "ZeroSeries", "def_comp", "def_deriv", "deflinear", "defzero", "fact", "jet", "jet2",
    "jet_rules", "zero_series",
]  # fmt: skip


def jet2(fun, primals, series, **kwargs):
    """`jet` with coefficients of powers instead of derivatives: derivatives divided by factorials.

    >>> mpijax.experimental.jet.jet2(lambda x: x**3, (jnp.float32(2),), ((1.0, 0.0),))[1]
    [Array(12., dtype=float32), Array(6., dtype=float32)]
    """
    return jet(fun, primals, series, factorial_scaled=False, **kwargs)


def fact(n: Any) -> Any:
    """The factorial of n, as a float.

    >>> mpijax.experimental.jet.fact(3)
    Array(6., dtype=float32, weak_type=True)
    """
    return _lax.exp(_lax.lgamma(n + 1.0))


def __getattr__(name: str) -> NoReturn:
    raise _missing.error(__name__, name)
