"""Constants of programs: what a jitted function may close over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax.core.base.option import values
from mpijax.core.base.warn import warn_user
from mpijax.core.programs.jaxpr import ClosedJaxpr, nested_jaxprs, without_dead_code
from mpijax.core.types.typeof import typeof
from mpijax.runtime.mpi import mpi_start


def check_constants(closed: ClosedJaxpr) -> None:
    """Warn of large constants. Raise RuntimeError for a closed-over array of which other processes have shards, if the
    program reads it.

    JAX refuses it too: a constant is a part of the program, and such an array is an argument.
    """
    _warn_of_large(closed)
    if not mpi_start.started() or mpi_start.size() == 1 or _spread(closed) is None:
        return
    jaxpr, consts, _ = without_dead_code(closed.jaxpr, closed.consts)
    found = _spread(ClosedJaxpr(jaxpr, consts))
    if found is not None:
        raise RuntimeError(
            "Closing over jax.Array that spans non-addressable (non process local) devices is not allowed. Please pass "
            f"such arrays as arguments to the function. Got jax.Array: {typeof(found).str_short(False)} sharded as "
            f"{found.sharding}"
        )


def _warn_of_large(closed: ClosedJaxpr) -> None:
    limit = values.jax_captured_constants_warn_bytes
    arrays = {id(c): c for c in _constants(closed) if isinstance(c, (np.ndarray, ArrayBase)) and c.ndim}.values()
    total = sum(c.nbytes for c in arrays)
    if total >= limit >= 0 and arrays:
        largest = max(arrays, key=lambda c: c.nbytes)
        warn_user(
            f"A large amount of constants were captured during lowering ({total:,} bytes total; the largest has type "
            f"{typeof(largest).str_short(True)}). Pass large arrays as arguments: the program keeps constants alive, "
            "and is compiled again for new ones. If this is intentional, set the option "
            "jax_captured_constants_warn_bytes to -1."
        )


def _constants(closed: ClosedJaxpr) -> Iterator[Any]:
    """The constants of a Jaxpr and of those inside."""
    return (c for inner in nested_jaxprs(closed) if isinstance(inner, ClosedJaxpr) for c in inner.consts)


def _spread(closed: ClosedJaxpr) -> Any:
    """A constant, also of an inner Jaxpr, of which this process does not have the whole; None if there is none."""
    return next((c for c in _constants(closed) if isinstance(c, ArrayBase) and not c._is_whole), None)
