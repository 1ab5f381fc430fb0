"""The `out_sharding` argument of functions that make one array: in which layout they return it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable)


def laid_out(x: Any, out_sharding: Any, name: str) -> Any:
    """`x`, the result of the function `name`, in the layout that its caller asked for; None leaves it as it is."""
    if out_sharding is None:
        return x
    from mpijax.spmd.out_shardings import lay_result_out  # that layer lies above this one

    return lay_result_out(x, out_sharding, name)


def takes_out_sharding(fun: F) -> F:
    """`fun`, whose result is laid out as `out_sharding` says, which it names in its signature and need not look at."""

    @wraps(fun)
    def call(*args, out_sharding=None, **kwargs):
        return laid_out(fun(*args, **kwargs), out_sharding, fun.__name__)

    return call  # type: ignore[return-value]
