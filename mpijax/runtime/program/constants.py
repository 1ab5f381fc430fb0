"""Constants of programs: what a jitted function may close over."""

from __future__ import annotations

from typing import Any

from mpijax._ext.array import ArrayBase
from mpijax.core.jaxpr import ClosedJaxpr, nested_jaxprs, without_dead_code
from mpijax.core.typeof import typeof
from mpijax.runtime.mpi import mpi_start


def check_constants(closed: ClosedJaxpr) -> None:
    """Raise RuntimeError if a program reads an array that it closes over and whose shards other processes have.

    JAX refuses it too: a constant is a part of the program, and such an array is an argument.
    """
    if not mpi_start.started() or mpi_start.size() == 1 or _spread(closed) is None:
        return
    jaxpr, consts, _ = without_dead_code(closed.jaxpr, closed.consts)
    found = _spread(ClosedJaxpr(jaxpr, consts))
    if found is not None:
        raise RuntimeError(
            "Closing over jax.Array that spans non-addressable (non process local) devices is not allowed. Please pass "
            f"such arrays as arguments to the function. Got jax.Array: {typeof(found).str_short(False)} laid out as "
            f"{found.sharding}"
        )


def _spread(closed: ClosedJaxpr) -> Any:
    """A constant, also of an inner Jaxpr, of which this process does not have the whole; None if there is none."""
    consts = (c for inner in nested_jaxprs(closed) if isinstance(inner, ClosedJaxpr) for c in inner.consts)
    return next((c for c in consts if isinstance(c, ArrayBase) and not c._is_whole), None)
