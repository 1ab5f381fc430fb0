"""``jax.experimental.jet``: Taylor series of functions, which are derivatives of higher order at polynomial cost."""

from __future__ import annotations

from functools import partial
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

jet2 = partial(jet, factorial_scaled=False)


def fact(n: Any) -> Any:
    """The factorial of n, a float.

    >>> mpijax.experimental.jet.fact(3)
    Array(6., dtype=float32, weak_type=True)
    """
    return _lax.exp(_lax.lgamma(n + 1.0))


def __getattr__(name: str) -> NoReturn:
    raise _missing.error(__name__, name)
