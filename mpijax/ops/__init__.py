"""The operations: each module defines primitives with their rules, and the functions of `mpijax.lax`.

Rules refer to primitives of other modules by name, so all modules are loaded together.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from mpijax.ops import (  # noqa: F401
    ad_ops,
    approximate,
    binary,
    bitwise,
    callbacks,
    collectives,
    compare,
    convert,
    creation,
    cumulative,
    debug_callbacks,
    debug_nans,
    dot,
    dynamic,
    ffi_call,
    linear_solve,
    naming,
    numba_call,
    positions,
    power,
    random,
    random_gamma,
    rank_messages,
    rank_moves,
    rank_ops,
    rank_ragged,
    rank_reductions,
    reduce,
    reduce_window,
    reductions,
    select,
    sort,
    special,
    top_k,
    transcendental,
    unary,
)
from mpijax.ops.control_flow import cond, platform, scan, while_loop  # noqa: F401

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def __getattr__(name: str) -> Callable[..., Any]:
    """The functions of `jax.ops`, which lie above: sums, products and extrema by groups."""
    if name not in __all__:
        raise AttributeError(f"module 'mpijax.ops' has no attribute {name!r}")
    return getattr(importlib.import_module("mpijax.numpy.segments"), name)
