"""Defines dce_sink, which forces the computation of values that nothing reads."""

from __future__ import annotations

from typing import Any

from mpijax.core.rules.lowering import HostCall
from mpijax.core.rules.primitive import Primitive
from mpijax.core.trees import tree
from mpijax.core.types import effects as fx
from mpijax.transforms.zeros import Zero


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Compute the values of a pytree even if no result depends on them, for measurements.

    `prevent_mlir_dce` has no effect: the values are always kept.

    >>> mpijax.jit(lambda x: (lax.dce_sink(jnp.exp(x)), x + 1)[1])(jnp.arange(3.0))
    Array([1., 2., 3.], dtype=float32)
    """
    tree.tree_map(lambda leaf: dce_sink_p.bind(leaf, prevent_mlir_dce=prevent_mlir_dce), val)


def _ignored(*_values: Any, **_params: Any) -> list[Any]:
    return []


def _jvp(primals, tangents, **params):
    dce_sink_p.bind(*primals, **params)
    if type(tangents[0]) is not Zero:
        dce_sink_p.bind(*tangents, **params)
    return [], []


def _batch(axis, args, dims, **params):
    return dce_sink_p.bind(*args, **params), []


dce_sink_p = Primitive(
    "dce_sink",
    type_rule=lambda x, **_: [],
    reference=_ignored,
    lower=HostCall(_ignored),
    jvp=_jvp,
    transpose=lambda cts, x, **_: [None],
    batch=_batch,
    multiple_results=True,
    effects=lambda params: frozenset({fx.sink}),
)
dce_sink_p.impl = _ignored
