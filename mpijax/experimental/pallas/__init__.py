"""``jax.experimental.pallas``: kernels over a grid of blocks, compiled for CPUs.

`pallas_call` makes a kernel an ordinary traced program: a loop over the grid that reads blocks and writes results in
place, or one loop nest over whole arrays if programs are independent. See docs/pallas.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mpijax import missing as _missing
from mpijax.core.base import config as _config
from mpijax.core.shapes.slices import Slice, ds
from mpijax.experimental.pallas.access import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    store,
    swap,
)
from mpijax.experimental.pallas.call import pallas_call
from mpijax.experimental.pallas.cost import CostEstimate, estimate_cost
from mpijax.experimental.pallas.helpers import (
    align_to,
    broadcast_to,
    cdiv,
    debug_check,
    debug_print,
    delay,
    empty,
    empty_like,
    empty_ref_like,
    loop,
    multiple_of,
    next_power_of_2,
    reciprocal,
    run_scoped,
    run_state,
    strides_from_shape,
    when,
    with_scoped,
)
from mpijax.experimental.pallas.memory import MemoryRef, MemorySpace, semaphore
from mpijax.experimental.pallas.programs import num_programs, program_id
from mpijax.experimental.pallas.semaphores import DeviceIdType, semaphore_read, semaphore_signal, semaphore_wait
from mpijax.experimental.pallas.specs import (
    BlockDim,
    Blocked,
    BlockSpec,
    BoundedSlice,
    Buffered,
    CompilerParams,
    Element,
    GridSpec,
    Indirect,
    RevisitMode,
    Squeezed,
    no_block_spec,
    squeezed,
)
from mpijax.experimental.pallas.triton import dot

ANY = MemorySpace.ANY
HOST = MemorySpace.HOST
dslice = ds
enable_debug_checks = _config.pallas_enable_debug_checks
enable_poison_buffers = _config.pallas_poison_buffers  # type: ignore[attr-defined]

_CORES = "it is for devices with several cores; use pallas_call with one grid axis for the cores"
core_map = _missing.missing("pallas.core_map", _CORES)
kernel = _missing.missing("pallas.kernel", _CORES)
get_global = _missing.missing(
    "pallas.get_global", "it is for memory that several cores share; use scratch_shapes of pallas_call"
)
select_ref = _missing.missing("pallas.select_ref", "read each reference, and choose with jnp.where or jax.lax.cond")
lower_as_mlir = _missing.missing("pallas.lower_as_mlir", "print the loop nests with jax.jit(f).lower(x).as_text()")


@contextlib.contextmanager
def pallas_export_experimental(dynamic_shapes: bool) -> Iterator[None]:
    """Context manager: inside, kernels are exported with symbolic shapes. Raises NotImplementedError for
    `dynamic_shapes`.

    >>> from mpijax.experimental import pallas as pl
    >>> with pl.pallas_export_experimental(dynamic_shapes=False):
    ...     pass
    """
    if dynamic_shapes:
        raise NotImplementedError(
            "pallas does not support symbolic sizes. Export the function for each shape, or write it in jax.numpy."
        )
    yield


def debug_checks_enabled() -> bool:
    """Whether `pl.debug_check` checks.

    >>> from mpijax.experimental import pallas as pl
    >>> with pl.enable_debug_checks(True):
    ...     pl.debug_checks_enabled()
    True
    """
    return enable_debug_checks.value


__all__ = [
    "ANY", "BlockDim", "BlockSpec", "Blocked", "BoundedSlice", "Buffered", "CompilerParams", "CostEstimate",
    "DeviceIdType", "Element", "GridSpec", "HOST", "Indirect", "MemoryRef", "MemorySpace", "RevisitMode", "Slice",
    "Squeezed", "align_to", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or",
    "atomic_xchg", "atomic_xor", "broadcast_to", "cdiv", "core_map", "debug_check", "debug_checks_enabled",
    "debug_print", "delay", "dot", "ds", "dslice", "empty", "empty_like", "empty_ref_like", "enable_debug_checks",
    "enable_poison_buffers", "estimate_cost", "get_global", "kernel", "load", "loop", "lower_as_mlir", "multiple_of",
    "next_power_of_2", "no_block_spec", "num_programs", "pallas_call", "pallas_export_experimental", "program_id",
    "reciprocal", "run_scoped", "run_state", "select_ref", "semaphore", "semaphore_read", "semaphore_signal",
    "semaphore_wait", "squeezed", "store", "strides_from_shape", "swap", "when", "with_scoped",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise _missing.error(__name__, name)
