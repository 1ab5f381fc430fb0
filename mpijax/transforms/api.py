"""Exports the transformations by their public names, and defines `make_jaxpr` and `eval_shape`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.trace import named_axes
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.core.types.typeof import abstractify
from mpijax.transforms.autodiff import fwd_and_bwd, grad, value_and_grad
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.custom_vjp import custom_vjp
from mpijax.transforms.derivatives import jvp, linear_transpose, linearize, vjp
from mpijax.transforms.flat import FlatFun, argument_types, debug_info
from mpijax.transforms.jacobians import hessian, jacfwd, jacobian, jacrev
from mpijax.transforms.jit import PjitFunction, clear_caches, jit
from mpijax.transforms.ref_state import check_aliases, values_of
from mpijax.transforms.vmap import vmap

__all__ = [
    "clear_caches", "custom_jvp", "custom_vjp", "eval_shape", "fwd_and_bwd", "grad", "hessian", "jacfwd", "jacobian",
    "jacrev", "jit", "jvp", "linear_transpose", "linearize", "make_jaxpr",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip


def make_jaxpr(
    fun: Callable,
    static_argnums: int | Iterable[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function that returns the Jaxpr of `fun` for its arguments, without computing anything.

    The Jaxpr contains no mutable array references. It takes their values as arguments, and returns written values last.

    Args:
      fun: a function of pytrees of arrays.
      static_argnums: positional arguments that are passed as Python values, also when they are given by name.
      axis_env: named axes in scope, as pairs of name and size.
      return_shape: also return the result's structure, with `ShapeDtypeStruct`s as leaves.

    >>> mpijax.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0)
    { lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0:f32[] in (c,) }
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    static: Any = static_argnums
    jitted: Any = jit(fun, static_argnums=static) if static != () else None

    def make_jaxpr_f(*args, **kwargs) -> ClosedJaxpr | tuple[ClosedJaxpr, Any]:
        _, dynamic, call = ((), (args, kwargs), fun) if jitted is None else jitted._split(args, kwargs)
        leaves, in_tree = tree.tree_flatten(dynamic)
        flat_fun = FlatFun(call, in_tree)
        with named_axes(dict(axis_env or ())):
            check_aliases((), leaves, lambda: debug_info("make_jaxpr", fun, args, kwargs))
            jaxpr, consts = trace_to_jaxpr(
                flat_fun, argument_types(leaves, abstractify), debug_info("make_jaxpr", fun, args, kwargs), []
            )
        closed = ClosedJaxpr(jaxpr, values_of(consts))
        if not return_shape:
            return closed
        structure: Any = flat_fun.out_tree
        avals = closed.out_avals[: structure.num_leaves]
        return closed, tree.tree_unflatten(structure, map(ShapeDtypeStruct.of_aval, avals))

    for attribute in ("__name__", "__qualname__"):
        setattr(make_jaxpr_f, attribute, f"make_jaxpr({getattr(fun, attribute, 'function')})")
    make_jaxpr_f.__module__ = "mpijax"
    return make_jaxpr_f


def eval_shape(fun: Callable, *args, **kwargs):
    """The structure of the result, with `ShapeDtypeStruct`s as leaves, without computing anything.

    >>> mpijax.eval_shape(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4)))
    ShapeDtypeStruct(shape=(2, 4), dtype=float32)
    """
    if isinstance(fun, PjitFunction):
        return fun.eval_shape(*args, **kwargs)
    leaves, in_tree = tree.tree_flatten((args, kwargs))
    flat_fun = FlatFun(fun, in_tree)
    avals = argument_types(leaves, abstractify)
    jaxpr, _ = trace_to_jaxpr(flat_fun, avals, debug_info("eval_shape", fun, args, kwargs), [])
    structure: Any = flat_fun.out_tree
    return tree.tree_unflatten(structure, map(ShapeDtypeStruct.of_aval, jaxpr.out_avals[: structure.num_leaves]))
