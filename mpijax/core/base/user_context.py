"""User-defined contexts: `jit` traces functions again for each of their values."""

from __future__ import annotations

import itertools
from typing import Any

from mpijax.core.base import option

_numbers = itertools.count()


class UserContext:
    """A process-wide value that a ``with`` block overrides for its thread; made by `make_user_context`."""

    def __init__(self, default: Any):
        self._option = option.object_option(f"user_context_{next(_numbers)}", default, "A context that a user made.")
        option.add_context(self._option.name)

    @property
    def value(self) -> Any:
        """The value in force in this thread."""
        return self._option.value

    def get_global(self) -> Any:
        """The process-wide value."""
        return option.global_value(self._option.name)

    def set_global(self, new_value: Any) -> None:
        """Set the process-wide value. Raises TypeError if it is not hashable."""
        hash(new_value)
        option.update(self._option.name, new_value)

    def __call__(self, new_value: Any) -> Any:
        """A context manager that sets the value inside. Raises TypeError if it is not hashable."""
        hash(new_value)
        return self._option(new_value)

    def __repr__(self) -> str:
        return f"<user context = {self.value!r}>"


def make_user_context(default_value: Any = None) -> UserContext:
    """A context whose value traced functions may read; `jit` traces and compiles them for each value.

    Values must be hashable. ``context.value`` reads it, ``with context(value):`` sets it for this thread,
    ``context.set_global(value)`` for the process.

    >>> factor = mpijax.make_user_context(1.0)
    >>> f = mpijax.jit(lambda x: factor.value * x)
    >>> with factor(3.0):
    ...     print(f(2.0))
    6.0
    >>> print(f(2.0))
    2.0
    """
    return UserContext(default_value)
