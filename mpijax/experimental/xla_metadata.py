"""``mpijax.experimental.xla_metadata``: hints for XLA. mpijax accepts them and ignores them."""

from __future__ import annotations

import contextlib
from typing import Any

from mpijax import numpy as jnp
from mpijax import tree_util

__all__ = ["set_xla_metadata"]


def set_xla_metadata(x: Any = None, **metadata: Any) -> Any:
    """The arrays of the pytree `x`; without `x` a context manager, which is a decorator, too.

    Args:
      metadata: ignored, because it only concerns XLA.

    >>> from mpijax.experimental.xla_metadata import set_xla_metadata
    >>> set_xla_metadata(jnp.arange(3), breakpoint=True)
    Array([0, 1, 2], dtype=int32)
    """
    return _NoMetadata() if x is None else tree_util.tree_map(jnp.asarray, x)


class _NoMetadata(contextlib.nullcontext):
    def __call__(self, fun: Any) -> Any:
        return fun
