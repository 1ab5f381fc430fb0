"""dce_sink: values that are computed though nothing reads them."""

from __future__ import annotations

from typing import Any

from mpijax import debug
from mpijax.core import tree


def _ignore(*_values: Any) -> None:
    pass


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Compute the values of a tree, though no result depends on them: for measurements.

    `prevent_mlir_dce` makes no difference: they are kept in any case.

    >>> mpijax.jit(lambda x: (lax.dce_sink(jnp.exp(x)), x + 1)[1])(jnp.arange(3.0))
    Array([1., 2., 3.], dtype=float32)
    """
    debug.callback(_ignore, *tree.tree_leaves(val))
