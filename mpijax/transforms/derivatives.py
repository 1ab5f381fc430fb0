"""Defines derivatives as linear maps: `jvp`, `vjp`, `linearize`, `linear_transpose`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.source import callable_name, transforming
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import dead_code
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.trace import EVAL
from mpijax.core.trees import tree
from mpijax.core.types.typeof import abstractify, typeof
from mpijax.transforms.flat import FlatFun, check_arguments, debug_info
from mpijax.transforms.jvp import jvp_flat
from mpijax.transforms.linearize import Linearized, linearize_flat
from mpijax.transforms.pullback import VJP, Pullback, instantiated
from mpijax.transforms.ref_state import check_aliases, has_refs, is_ref, refuse_refs
from mpijax.transforms.transpose import UndefPrimal, backward_pass
from mpijax.transforms.zeros import as_array


def checked_callable(fun: Any) -> None:
    """Raise TypeError for an object that is not callable."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")


def jvp(fun: Callable, primals, tangents, has_aux: bool = False):
    """Value and directional derivative of `fun` at `primals` along `tangents`, which have the same structure.

    Returns `(out, tangent_out)`, or `(out, tangent_out, aux)` with `has_aux`.

    Raises:
      TypeError: if structures, shapes or dtypes of primals and tangents differ.

    >>> mpijax.jvp(jnp.square, (jnp.float32(3),), (jnp.float32(1),))
    (Array(9., dtype=float32), Array(6., dtype=float32))
    """
    checked_callable(fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must be tuples or lists; "
            f"found {type(primals).__name__} and {type(tangents).__name__}."
        )
    primal_leaves, primal_tree = tree.tree_flatten(primals)
    tangent_leaves, tangent_tree = tree.tree_flatten(tangents)
    if primal_tree != tangent_tree:
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure; primals have tree "
            f"structure {primal_tree} whereas tangents have tree structure {tangent_tree}."
        )
    refuse_refs((*primal_leaves, *tangent_leaves), "jvp")
    for p, t in zip(primal_leaves, tangent_leaves, strict=True):
        want, got = typeof(p).to_tangent_aval(), typeof(t)
        if want.form == got.form:
            continue
        if want.is_high or got.is_high:
            raise TypeError(
                f"primal and tangent arguments to jax.jvp do not match; got primal type {typeof(p)} and so expected "
                f"tangent type {want}, but got tangent type {got} instead."
            )
        if want.dtype != got.dtype:
            raise TypeError(
                "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case of "
                "int/bool primal dtype the tangent dtype must be float0.Got primal dtype "
                f"{typeof(p).dtype.name} and so expected tangent dtype "
                f"{want.dtype.name if want.dtype != dtypes.float0 else 'float0'}, but got tangent dtype "
                f"{got.dtype.name} instead."
            )
        raise ValueError(
            f"jvp called with different primal and tangent shapes;Got primal shape {want.shape} and "
            f"tangent shape as {got.shape}"
        )
    flat_fun = FlatFun(fun, tree.tree_structure((tuple(primals), {})), has_aux)
    with transforming("jvp"):
        outs, out_tangents = jvp_flat(flat_fun, primal_leaves, tangent_leaves)
    if state.trace is EVAL:
        outs, out_tangents = list(map(as_array, outs)), list(map(as_array, out_tangents))
    out = tree.tree_unflatten(flat_fun.out_tree, outs)
    out_tangent = tree.tree_unflatten(flat_fun.out_tree, instantiated(out_tangents))
    return (out, out_tangent, flat_fun.aux) if has_aux else (out, out_tangent)


def vjp(fun: Callable, *primals, has_aux: bool = False, reduce_axes: Sequence[Any] = ()):
    """Value of `fun` at `primals`, and the function that maps cotangents of the result to those of the arguments.

    Returns `(out, pullback)`, or `(out, pullback, aux)` with `has_aux`; `pullback(ct)` returns a tuple of cotangents,
    one per primal. The pullback is a `VJP`: a pytree, whose leaves are the residuals. `fun` may take mutable array
    references, which it is not differentiated by: call the pullback by `with_refs`, with `DontWant()` for them.

    >>> y, pullback = mpijax.vjp(lambda x: x[0] * x[1:], jnp.array([2.0, 3.0, 4.0]))
    >>> pullback(jnp.array([1.0, 0.0]))
    (Array([3., 2., 0.], dtype=float32),)
    """
    if reduce_axes:
        raise NotImplementedError(
            "reduce_axes argument to vjp is deprecated. Use shard_map: it sums gradients over mesh axes."
        )
    checked_callable(fun)
    leaves, struct = tree.tree_flatten(primals)
    paths = [tree.keystr(p) for p, _ in tree.tree_flatten_with_path(primals)[0]]
    check_arguments(leaves, f"vjp of {callable_name(fun)}", lambda i: paths[i])
    flat_fun = FlatFun(fun, tree.tree_structure((primals, {})), has_aux)
    arrays = leaves
    if has_refs(leaves):
        check_aliases((), leaves, lambda: debug_info("vjp", fun, primals, {}))
        flat_fun = _of_arrays(fun, leaves, struct, has_aux)
        arrays = [x for x in leaves if not is_ref(x)]
    outs, linearized = linearize_flat(flat_fun, arrays)
    out = tree.tree_unflatten(flat_fun.out_tree, outs)
    refs = tuple(x.aval if is_ref(x) else None for x in leaves)
    pull = Pullback(fun, linearized, struct, flat_fun.out_tree, [typeof(o) for o in outs], refs)
    pullback = VJP.at(pull, leaves, linearized.residuals)
    return (out, pullback, flat_fun.aux) if has_aux else (out, pullback)


def _of_arrays(fun: Callable, leaves: Sequence[Any], struct: tree.PyTreeDef, has_aux: bool) -> FlatFun:
    """A function as one of its arguments that are not references, flat. It holds the references."""

    def call(*arrays):
        rest = iter(arrays)
        return fun(*tree.tree_unflatten(struct, [x if is_ref(x) else next(rest) for x in leaves]))

    count = sum(not is_ref(x) for x in leaves)
    return FlatFun(call, tree.tree_structure(((0,) * count, {})), has_aux)


class _Pushforward:
    """The derivative that `linearize` returns, without the residuals: maps tangents to tangents."""

    def __init__(self, fun: Callable, linearized: Linearized, in_tree, in_avals, out_tree):
        self.__name__ = f"linearize({callable_name(fun)})"
        self._linearized = linearized.at(())
        self._in_tree = in_tree
        self._in_avals = in_avals
        self._out_tree = out_tree

    @property
    def args(self) -> tuple:
        """JAX's name for the arguments of the partial: the Jaxpr of the derivative, a function of tangents."""
        return (self._linearized.jaxpr,)

    def __call__(self, residuals, *tangents):
        flat, got = tree.tree_flatten(tangents)
        if got != self._in_tree:
            raise TypeError(
                "linearized function called with a different tree structure than at linearization: expected "
                f"{self._in_tree}, got {got}"
            )
        for primal, t in zip(self._in_avals, flat, strict=True):
            want, have = primal.to_tangent_aval(), typeof(t)
            more = tuple(sorted(have.vma - want.vma, key=str))
            if want.form != have.form or more:
                raise ValueError(
                    "linearized function called on tangent values inconsistent with the original primal values:\n"
                    f"Got tangent aval {have} for primal aval {primal} but expected {want}."
                    f"{_vary_first(more)}"
                )
        return tree.tree_unflatten(self._out_tree, instantiated(self._linearized.at(residuals)(*flat)))


def _vary_first(axes: tuple) -> str:
    """A hint for tangents that vary over mesh axes that the primal does not vary over."""
    if not axes:
        return ""
    return (
        f"\nThis might be fixed by applying `jax.lax.pcast(..., {axes}, to='varying')` to the primal value passed to "
        "`jax.linearize`."
    )


def linearize(fun: Callable, *primals, has_aux: bool = False):
    """Value of `fun` at `primals`, and its derivative as a function of tangents that does not run `fun` again.

    Returns `(out, f_jvp)`, or `(out, f_jvp, aux)` with `has_aux`; `f_jvp` is a pytree whose leaves are the residuals.

    >>> y, f_jvp = mpijax.linearize(jnp.square, jnp.float32(3))
    >>> y, f_jvp(jnp.float32(2))
    (Array(9., dtype=float32), Array(12., dtype=float32))
    """
    checked_callable(fun)
    leaves, struct = tree.tree_flatten(primals)
    refuse_refs(leaves, "linearize")
    flat_fun = FlatFun(fun, tree.tree_structure((primals, {})), has_aux)
    outs, linearized = linearize_flat(flat_fun, leaves, backward=False)
    out = tree.tree_unflatten(flat_fun.out_tree, outs)
    push = _Pushforward(fun, linearized, struct, [typeof(x) for x in leaves], flat_fun.out_tree)
    f_jvp = tree.Partial(push, linearized.residuals)
    return (out, f_jvp, flat_fun.aux) if has_aux else (out, f_jvp)


def linear_transpose(fun: Callable, *primals, reduce_axes: Sequence[Any] = ()) -> Callable:
    """The transpose of a linear function. `primals` (arrays or `ShapeDtypeStruct`s) give the types of its arguments.

    Returns a function that maps a cotangent of the result to a tuple of cotangents, one per argument.
    `fun` must be linear. It is traced, not evaluated.

    Raises:
      TypeError: unless arguments and results are all inexact or all integers; for a cotangent of the wrong type.

    >>> transpose = mpijax.linear_transpose(lambda x: 2 * x[:2], jnp.zeros(3))
    >>> transpose(jnp.array([1.0, 5.0]))
    (Array([ 2., 10.,  0.], dtype=float32),)
    """
    if reduce_axes:
        raise NotImplementedError(
            "reduce_axes argument to transpose is deprecated. Use shard_map: it sums gradients over mesh axes."
        )
    leaves, struct = tree.tree_flatten(primals)
    avals = [abstractify(x) for x in leaves]
    flat_fun = FlatFun(fun, tree.tree_structure((primals, {})))
    jaxpr, consts = trace_to_jaxpr(flat_fun, avals, debug_info("linear_transpose", fun, primals, {}))
    found = [a.dtype for a in (*avals, *jaxpr.out_avals) if not a.is_high]
    if not any(all(dtypes.issubdtype(d, kind) for d in found) for kind in (np.inexact, np.integer)):
        raise TypeError(
            "linear_transpose only supports [float or complex] -> [float or complex], and integer -> integer "
            f"functions, but got {[a.str_short(True) for a in avals]} -> "
            f"{[a.str_short(True) for a in jaxpr.out_avals]}."
        )
    jaxpr = dead_code(jaxpr, [True] * len(jaxpr.outvars))[0].replace(invars=jaxpr.invars)

    def transposed_fun(consts, cotangent):
        cts, got = tree.tree_flatten(cotangent)
        if got != flat_fun.out_tree:
            raise TypeError(
                f"cotangent tree does not match function output, expected {flat_fun.out_tree} but got {got}"
            )
        for ct, v in zip(cts, jaxpr.outvars, strict=True):
            want, have = v.aval, typeof(ct)
            if want.form != have.form:
                raise TypeError(
                    f"cotangent type does not match function output, expected {want.str_short(True)} but got "
                    f"{have.str_short(True)}"
                )
        with transforming("transpose"):
            outs = backward_pass(jaxpr, consts, [UndefPrimal(a) for a in avals], cts)
        return tree.tree_unflatten(struct, instantiated(outs))

    return tree.Partial(transposed_fun, consts)
