"""Tokens, with which programs for mpi4jax before 0.8 ordered communication: passing one raises an error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["takes_no_token"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def takes_no_token(operation: Callable[_P, _R]) -> Callable[_P, _R]:
    """The operation, which raises RuntimeError if it is passed a `token`, even None, as mpi4jax 0.9 does."""
    name = operation.__name__
    # Operations that returned only the token now return nothing.
    before, after = ("token", "") if name in ("barrier", "send") else ("result, token", "result = ")

    @functools.wraps(operation)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if "token" in kwargs:
            raise RuntimeError(
                f"{name} does not take a token: communication keeps the order of the program, as in mpi4jax since "
                f"0.8. Leave the token out, and do not unpack the result: instead of `{before} = {name}(..., "
                f"token=token)` write `{after}{name}(...)`. To run the program unchanged, set "
                "MPIJAX_AS_JAX=tokens, or import mpijax.mpi.with_tokens as mpi4jax."
            )
        return operation(*args, **kwargs)

    return checked
