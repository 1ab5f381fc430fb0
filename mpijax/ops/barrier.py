"""Defines optimization_barrier: the identity on a pytree, which the compiler does not merge with equal values."""

from __future__ import annotations

from typing import Any

from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.trees import tree
from mpijax.transforms import key_reuse
from mpijax.transforms.zeros import instantiate


def optimization_barrier(operand: Any, /) -> Any:
    """The same pytree. In a Jaxpr, every user of the result depends on all of its values.

    It does not affect the order of communication and callbacks, which is always the order of the source.

    >>> lax.optimization_barrier((jnp.arange(2), jnp.ones(1)))
    (Array([0, 1], dtype=int32), Array([1.], dtype=float32))
    """
    leaves, treedef = tree.tree_flatten(operand)
    return tree.tree_unflatten(treedef, optimization_barrier_p.bind(*leaves))


def _jvp(primals, tangents):
    return optimization_barrier_p.bind(*primals), optimization_barrier_p.bind(*map(instantiate, tangents))


optimization_barrier_p: Primitive = Primitive(
    "optimization_barrier",
    type_rule=lambda *avals: list(avals),
    reference=lambda *args: list(args),
    lower=Decompose(lambda *args: list(args)),
    jvp=_jvp,
    transpose=lambda cts, *args: optimization_barrier_p.bind(*map(instantiate, cts)),
    batch=lambda axis, args, dims: (optimization_barrier_p.bind(*args), list(dims)),
    multiple_results=True,
    vma=lambda avals, params: None,
    keys=key_reuse.each_its_own,
)
