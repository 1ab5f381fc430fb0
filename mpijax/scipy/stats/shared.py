"""Shared code of the distributions: functions that are the exponential or the logarithm of another one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mpijax import lax
from mpijax.numpy.util import as_array, promote_args_inexact

_WHAT = {
    "pdf": "The density",
    "pmf": "The probability of each value",
    "cdf": "The probability of values up to x",
    "sf": "The probability of values above x",
    "logcdf": "The logarithm of the probability of values up to x",
    "logsf": "The logarithm of the probability of values above x",
}


def args_of(name: str, *args: Any) -> list[Any]:
    """Arguments as arrays or tracers of one inexact dtype."""
    return [as_array(x) for x in promote_args_inexact(name, *args)]


def _derived(name: str, outer: Callable, inner: Callable, given: str, result: float) -> Callable:
    @functools.wraps(inner)
    def function(*args: Any, **kwargs: Any) -> Any:
        return outer(inner(*args, **kwargs))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{_WHAT[name]}. See `{inner.__name__}`.

    >>> round(float({inner.__module__}.{name}({given})), 4)
    {result}
    """
    return function


def exp_of(inner: Callable, name: str, given: str, result: float) -> Callable:
    """The function `name`, which is exp of `inner`, with the same arguments; `given` and `result` are an example."""
    return _derived(name, lax.exp, inner, given, result)


def log_of(inner: Callable, name: str, given: str, result: float) -> Callable:
    """The function `name`, which is log of `inner`, with the same arguments; `given` and `result` are an example."""
    return _derived(name, lax.log, inner, given, result)
