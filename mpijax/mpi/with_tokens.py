"""`mpijax.mpi` with the conventions of mpi4jax before 0.8, which ordered communication by tokens.

Operations take a `token` and return one: `(result, token)`, or only the token from `send` and `barrier`. A program
written for mpi4jax 0.3 to 0.7 runs after `import mpijax.mpi.with_tokens as mpi4jax`. Communication happens in program
order, so tokens have no effect: each is returned unchanged, and a new one is created if none is passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from mpijax import mpi
from mpijax.lax import create_token
from mpijax.mpi import has_cuda_support, has_sycl_support

__all__ = [
    "allgather", "allreduce", "alltoall", "barrier", "bcast", "experimental", "gather", "has_cuda_support",
    "has_sycl_support", "recv", "reduce", "scan", "scatter", "send", "sendrecv",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable)


def _with_token(operation: Callable[..., Any], *, gives: bool = True) -> Callable[..., Any]:
    """The operation, which takes a token, and returns it after its result if it has one."""

    @functools.wraps(operation)
    def call(*args, token=None, **kwargs):
        result = operation(*args, **kwargs)
        token = create_token() if token is None else token
        return (result, token) if gives else token

    del call.__wrapped__  # type: ignore[attr-defined]  # its signature has no token
    call.__doc__ = f"`mpijax.mpi.{operation.__name__}` that takes and returns a token."
    return call


allgather = _with_token(mpi.allgather)
allreduce = _with_token(mpi.allreduce)
alltoall = _with_token(mpi.alltoall)
barrier = _with_token(mpi.barrier, gives=False)
bcast = _with_token(mpi.bcast)
gather = _with_token(mpi.gather)
recv = _with_token(mpi.recv)
reduce = _with_token(mpi.reduce)
scan = _with_token(mpi.scan)
scatter = _with_token(mpi.scatter)
send = _with_token(mpi.send, gives=False)
sendrecv = _with_token(mpi.sendrecv)


def _auto_tokenize(fun: _F) -> _F:
    """The function itself: its communication is ordered without tokens."""
    return fun


experimental = SimpleNamespace(auto_tokenize=_auto_tokenize, notoken=mpi)
