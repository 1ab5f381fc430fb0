"""Defines composite: a named function that stays one operation in Jaxprs, for compilers that know the name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.base.errors import UnexpectedTracerError
from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.batching import batch_jaxpr_in_place
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.flat import FlatFun, debug_info
from mpijax.transforms.ref_state import values_of


def composite(decomposition: Callable, name: str, version: int = 0) -> Callable:
    """The function `decomposition` as one operation `name` of the Jaxpr; programs compute the decomposition.

    Positional arguments are operands, keyword arguments are attributes: values and NumPy arrays known during tracing.

    Raises:
      UnexpectedTracerError: if an attribute is traced. ValueError: if it is differentiated; use `custom_jvp` or
        `custom_vjp` around it.

    >>> twice = lax.composite(lambda x: x + x, "my.twice")
    >>> twice(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """

    @functools.wraps(decomposition)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree.tree_flatten((args, {}))
        traced = [key for key, value in kwargs.items() if isinstance(value, Tracer)]
        if traced:
            raise UnexpectedTracerError(
                f"The attribute {traced[0]!r} of the composite {name!r} is a traced value. Attributes must be known "
                "while tracing. Pass traced values as positional arguments. Note: If you are passing jax arrays as "
                "attributes, use numpy arrays instead."
            )
        flat = FlatFun(functools.partial(decomposition, **kwargs), in_tree)
        info = debug_info("composite", decomposition, args, {})
        jaxpr, consts = trace_to_jaxpr(flat, [typeof(x) for x in leaves], info)
        closed, moved = hoist_tracers(jaxpr, consts, lambda c: isinstance(c, Tracer))
        moved = values_of(moved)
        attributes = tuple((key, *_hashable(value)) for key, value in kwargs.items())
        outs = composite_p.bind(
            *moved, *leaves, name=name, attributes=attributes, version=version, jaxpr=closed
        )
        return tree.tree_unflatten(flat.out_tree, outs)

    return call


def _hashable(value: Any) -> tuple[tuple[Any, ...], Any]:
    leaves, treedef = tree.tree_flatten(value)
    fixed = tuple((v.shape, v.dtype.name, v.tobytes()) if isinstance(v, np.ndarray) else v for v in leaves)
    return fixed, treedef


def _no_derivative(*_args: Any, name: str, **_: Any) -> Any:
    raise ValueError(
        "JVP rule for composite not implemented. You can use `jax.custom_jvp` to add support. See "
        f"https://docs.jax.dev/en/latest/_autosummary/jax.custom_jvp.html. The composite is {name!r}."
    )


def _batch(axis, args, dims, *, jaxpr: ClosedJaxpr, **params):
    closed, out_dims = batch_jaxpr_in_place(jaxpr, axis, tuple(dims))
    return composite_p.bind(*args, jaxpr=closed, **params), out_dims


composite_p = Primitive(
    "composite",
    type_rule=lambda *_avals, jaxpr, **_: jaxpr.out_avals,
    reference=lambda *args, jaxpr, **_: eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args),
    lower=InlineJaxpr("jaxpr"),
    jvp=lambda _primals, _tangents, **params: _no_derivative(**params),
    transpose=Unsupported("a composite has no transpose; wrap it in jax.custom_vjp"),
    batch=_batch,
    multiple_results=True,
    effects=lambda params: params["jaxpr"].effects,
    vma=lambda _avals, _params: None,
)
