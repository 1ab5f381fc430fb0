"""Shapes with names for sizes: JAX's functions for them, which say what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

_INSTEAD = (
    "mpijax has no symbolic dimensions: an exported program is for one shape. Export it once for each shape that "
    "occurs (kernels are shared between shapes, so each costs little), or pad to the largest and pass the length."
)


def symbolic_shape(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Not available: raises NotImplementedError, which says what to do instead.

    >>> mpijax.export.symbolic_shape("a, b")
    Traceback (most recent call last):
    ...
    NotImplementedError: symbolic_shape: mpijax has no symbolic dimensions: an exported program is for one ...
    """
    raise NotImplementedError(f"symbolic_shape: {_INSTEAD}")


def symbolic_args_specs(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Not available: raises NotImplementedError, which says what to do instead.

    >>> mpijax.export.symbolic_args_specs((1,), "a")
    Traceback (most recent call last):
    ...
    NotImplementedError: symbolic_args_specs: mpijax has no symbolic dimensions: an exported program is for one ...
    """
    raise NotImplementedError(f"symbolic_args_specs: {_INSTEAD}")


class SymbolicScope:
    """Not available: raises NotImplementedError, which says what to do instead.

    >>> mpijax.export.SymbolicScope()
    Traceback (most recent call last):
    ...
    NotImplementedError: SymbolicScope: mpijax has no symbolic dimensions: an exported program is for one ...
    """

    def __init__(self, *_args: Any, **_kwargs: Any):
        raise NotImplementedError(f"SymbolicScope: {_INSTEAD}")


def is_symbolic_dim(p: Any) -> bool:
    """Whether a dimension is symbolic: none is.

    >>> mpijax.export.is_symbolic_dim(3)
    False
    """
    del p
    return False
