"""Checks of the types of arguments, for functions that programs build on the operations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.tracing.tracer import Tracer

__all__ = ["enforce_types"]


def enforce_types(**types: Any) -> Callable:
    """A decorator: calls raise TypeError unless each argument named here has its type, or one of several.

    A type of NumPy such as `np.integer` stands for all types of its kind, Python's too. Raises ValueError for a name
    that the function does not take.
    """
    allowed = {name: tuple(t) if isinstance(t, (tuple, list)) else (t,) for name, t in types.items()}

    def decorator(fun: Callable) -> Callable:
        signature = inspect.signature(fun)
        for name in allowed:
            if name not in signature.parameters:
                raise ValueError(
                    f'enforce_types of {fun.__name__} got unexpected argument "{name}". The signature is {signature}'
                )

        @functools.wraps(fun)
        def checked(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            for name, kinds in allowed.items():
                _check(fun.__name__, name, bound.arguments[name], kinds)
            return fun(*args, **kwargs)

        return checked

    return decorator


def _check(fun: str, name: str, value: Any, kinds: Sequence[type]) -> None:
    if any(_is_of(value, kind) for kind in kinds):
        return
    names = [kind.__qualname__ for kind in kinds]
    traced = ": an abstract tracer was passed. Mark the argument as static (static_argnums of jit)"
    raise TypeError(
        f'{fun} got unexpected type for argument "{name}" (expected: {names[0] if len(names) == 1 else names}, got: '
        f"{type(value)}){traced if isinstance(value, Tracer) else ''}."
    )


def _is_of(value: Any, kind: type) -> bool:
    return np.issubdtype(type(value), kind) if issubclass(kind, np.generic) else isinstance(value, kind)
