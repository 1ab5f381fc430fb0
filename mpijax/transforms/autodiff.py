"""Derivatives as users call them: `grad`, `value_and_grad`, `jvp`, `vjp`, `linearize`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from mpijax.core import dtypes, tree
from mpijax.core.source import callable_name
from mpijax.core.trace import trace_to_jaxpr, typeof
from mpijax.transforms.flat import FlatFun, check_arguments, debug_info, normalize_argnums
from mpijax.transforms.jvp import jvp_flat
from mpijax.transforms.linearize import Linearized, linearize_flat
from mpijax.transforms.transpose import UndefPrimal, backward_pass, transposed
from mpijax.transforms.zeros import Zero, as_array, instantiate, scalar_of_type


def _check_differentiable(what: str, leaves: Sequence[Any], holomorphic: bool, allow_int: bool) -> None:
    for x in leaves:
        dtype = typeof(x).dtype
        if holomorphic and not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(f"{what} with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
        if dtypes.issubdtype(dtype, dtypes.extended) or (not allow_int and not dtypes.issubdtype(dtype, np.inexact)):
            raise TypeError(
                f"{what} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
                f"np.inexact), but got {dtype.name}. If you want to use Boolean- or integer-valued inputs, "
                "use vjp or set allow_int to True."
            )
        if dtypes.issubdtype(dtype, np.complexfloating) and not holomorphic:
            continue


def _check_scalar_output(what: str, out: Any, holomorphic: bool) -> None:
    try:
        aval = typeof(out)
    except TypeError:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {out}.") from None
    if aval.shape != ():
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had shape: {aval.shape}.")
    if holomorphic:
        if not dtypes.issubdtype(aval.dtype, np.complexfloating):
            raise TypeError(
                f"{what} with holomorphic=True requires outputs with complex dtype, but got {aval.dtype.name}."
            )
    elif dtypes.issubdtype(aval.dtype, np.complexfloating):
        raise TypeError(
            f"{what} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{aval.dtype.name}. For holomorphic differentiation, pass holomorphic=True. For differentiation "
            "of non-holomorphic functions involving complex outputs, use jax.vjp directly."
        )
    elif not dtypes.issubdtype(aval.dtype, np.floating):
        raise TypeError(
            f"{what} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{aval.dtype.name}. For differentiation of functions with integer outputs, use jax.vjp directly."
        )


def value_and_grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable:
    """A function that returns `fun`'s value and its gradient.

    Args:
      fun: returns a scalar, or `(scalar, aux)` with `has_aux`.
      argnums: which positional arguments to differentiate with respect to; a tuple gives a tuple of
        gradients.
      holomorphic: differentiate a complex function of complex arguments.
      allow_int: accept integer arguments; their gradients have dtype float0.

    Raises:
      TypeError: for integer arguments, or an output that is not a real scalar.
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to grad is deprecated: use shard_map, whose types reduce.")
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")

    def value_and_grad_f(*args, **kwargs):
        largest = max((argnums,) if isinstance(argnums, int) else argnums, default=-1)
        if largest >= len(args):
            raise TypeError(
                f"differentiating with respect to argnums={argnums} requires at least {largest + 1} "
                f"positional arguments to be passed by the caller, but got only {len(args)} positional "
                "arguments."
            )
        which = normalize_argnums(argnums, len(args), "grad")
        selected = args[which[0]] if isinstance(argnums, int) else tuple(args[i] for i in which)
        leaves, struct = tree.tree_flatten(selected)
        paths = [tree.keystr(p) for p, _ in tree.tree_flatten_with_path(selected)[0]] if leaves else []
        check_arguments(leaves, f"grad of {callable_name(fun)}", lambda i: paths[i])
        _check_differentiable("grad", leaves, holomorphic, allow_int)

        def partial(*flat):
            chosen = tree.tree_unflatten(struct, flat)
            full = list(args)
            for i, a in zip(which, (chosen,) if isinstance(argnums, int) else chosen, strict=True):
                full[i] = a
            return fun(*full, **kwargs)

        flat_fun = FlatFun(partial, tree.tree_structure((tuple(leaves), {})), has_aux)
        outs, linearized = linearize_flat(flat_fun, leaves)
        out = tree.tree_unflatten(flat_fun.out_tree, outs)
        _check_scalar_output("grad", out, holomorphic)
        cts = _instantiated(transposed(linearized, [scalar_of_type(1, typeof(out))]))
        grads = tree.tree_unflatten(struct, cts)
        if isinstance(argnums, int):
            result = grads
        else:
            result = tuple(grads)
        if has_aux:
            return (out, flat_fun.aux), result
        return out, result

    value_and_grad_f = wraps(fun)(value_and_grad_f)
    return value_and_grad_f


def _instantiated(cts: Sequence[Any]) -> list[Any]:
    return [as_array(instantiate(ct)) for ct in cts]


def grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable:
    """A function that returns `fun`'s gradient; see `value_and_grad`. With `has_aux`, `(gradient, aux)`."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @wraps(fun)
    def grad_f(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_f


def jvp(fun: Callable, primals, tangents, has_aux: bool = False):
    """Value and directional derivative of `fun` at `primals` along `tangents`, of the same structure.

    Returns `(out, tangent_out)`, or `(out, tangent_out, aux)` with `has_aux`.

    Raises:
      TypeError: when structures, shapes or dtypes of primals and tangents differ.
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must be tuples or lists; "
            f"found {type(primals).__name__} and {type(tangents).__name__}."
        )
    primal_leaves, primal_tree = tree.tree_flatten(tuple(primals))
    tangent_leaves, tangent_tree = tree.tree_flatten(tuple(tangents))
    if primal_tree != tangent_tree:
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure; primals have tree "
            f"structure {primal_tree} whereas tangents have tree structure {tangent_tree}."
        )
    for p, t in zip(primal_leaves, tangent_leaves, strict=True):
        want, got = typeof(p).to_tangent_aval(), typeof(t)
        if want.dtype != got.dtype:
            raise TypeError(
                "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case of "
                "int/bool primal dtype the tangent dtype must be float0. Got primal dtype "
                f"{typeof(p).dtype.name} and so expected tangent dtype "
                f"{want.dtype.name if want.dtype != dtypes.float0 else 'float0'}, but got tangent dtype "
                f"{got.dtype.name} instead."
            )
        if want.shape != got.shape:
            raise ValueError(
                f"jvp called with different primal and tangent shapes; Got primal shape {want.shape} and "
                f"tangent shape as {got.shape}."
            )
    flat_fun = FlatFun(fun, tree.tree_structure((tuple(primals), {})), has_aux)
    outs, out_tangents = jvp_flat(flat_fun, primal_leaves, tangent_leaves)
    out = tree.tree_unflatten(flat_fun.out_tree, outs)
    out_tangent = tree.tree_unflatten(flat_fun.out_tree, _instantiated(out_tangents))
    return (out, out_tangent, flat_fun.aux) if has_aux else (out, out_tangent)


class _Pullback:
    """The function `vjp` returns: cotangents of the results to cotangents of the arguments."""

    def __init__(self, name: str, linearized: Linearized, in_tree, out_tree, out_avals):
        self.__name__ = f"vjp({name})"
        self._linearized = linearized
        self._in_tree = in_tree
        self._out_tree = out_tree
        self._out_avals = out_avals

    def __call__(self, *cotangents):
        if len(cotangents) != 1:
            raise TypeError(
                f"The function returned by `jax.vjp` applied to {self.__name__[4:-1]} was called with "
                f"{len(cotangents)} arguments, but functions returned by `jax.vjp` must be called with a "
                "single argument corresponding to the single value returned by the function being "
                "differentiated (even if that returned value is a tuple or other container). For example, "
                f"call it with a tuple of {len(cotangents)} elements."
            )
        leaves, got = tree.tree_flatten(cotangents[0])
        if got != self._out_tree:
            raise ValueError(
                f"unexpected tree structure of argument to vjp function: got {got}, but expected to match "
                f"{self._out_tree}"
            )
        for ct, aval in zip(leaves, self._out_avals, strict=True):
            want, have = aval.to_tangent_aval(), typeof(ct)
            # Integers have no derivative: cotangents are float0; ones of the integers' own type pass for it.
            if want.dtype != have.dtype and not (want.dtype == dtypes.float0 and have.dtype == aval.dtype):
                raise ValueError(
                    "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                    f"{have.str_short(False)}, but expected {want.str_short(False)} because the "
                    f"corresponding output of the function {self.__name__[4:-1]} had JAX type "
                    f"{aval.str_short(False)}"
                )
            if want.shape != have.shape:
                raise ValueError(
                    "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                    f"{have.str_short(False)}, but expected {want.str_short(False)} because the "
                    f"corresponding output of the function {self.__name__[4:-1]} had JAX type "
                    f"{aval.str_short(False)}"
                )
        wanted = [a.to_tangent_aval() for a in self._out_avals]
        given = [Zero(a) if a.dtype == dtypes.float0 else ct for ct, a in zip(leaves, wanted, strict=True)]
        cts = _instantiated(transposed(self._linearized, given))
        return tree.tree_unflatten(self._in_tree, cts)


def vjp(fun: Callable, *primals, has_aux: bool = False, reduce_axes: Sequence[Any] = ()):
    """Value of `fun` at `primals` and the function that pulls cotangents back.

    Returns `(out, pullback)`, or `(out, pullback, aux)` with `has_aux`; `pullback(ct)` returns a tuple
    of cotangents, one per primal.
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to vjp is deprecated: use shard_map, whose types reduce.")
    leaves, struct = tree.tree_flatten(primals)
    paths = [tree.keystr(p) for p, _ in tree.tree_flatten_with_path(primals)[0]]
    check_arguments(leaves, f"vjp of {callable_name(fun)}", lambda i: paths[i])
    flat_fun = FlatFun(fun, tree.tree_structure((primals, {})), has_aux)
    outs, linearized = linearize_flat(flat_fun, leaves)
    out = tree.tree_unflatten(flat_fun.out_tree, outs)
    pullback = tree.Partial(
        _Pullback(callable_name(fun), linearized, struct, flat_fun.out_tree, [typeof(o) for o in outs])
    )
    return (out, pullback, flat_fun.aux) if has_aux else (out, pullback)


def linearize(fun: Callable, *primals, has_aux: bool = False):
    """Value of `fun` at `primals`, and its derivative as a function of tangents that does not run `fun`."""
    leaves, struct = tree.tree_flatten(primals)
    flat_fun = FlatFun(fun, tree.tree_structure((primals, {})), has_aux)
    outs, linearized = linearize_flat(flat_fun, leaves)
    out = tree.tree_unflatten(flat_fun.out_tree, outs)

    def f_jvp(*tangents):
        flat, got = tree.tree_flatten(tangents)
        if got != struct:
            raise TypeError(
                "linearized function called with a different tree structure than at linearization: expected "
                f"{struct}, got {got}"
            )
        for p, t in zip(leaves, flat, strict=True):
            want, have = typeof(p).to_tangent_aval(), typeof(t)
            if (want.shape, want.dtype) != (have.shape, have.dtype):
                raise ValueError(
                    "linearized function called on tangent values inconsistent with the original primal "
                    f"values: got tangent aval {have} for primal aval {typeof(p)} but expected {want}"
                )
        return tree.tree_unflatten(flat_fun.out_tree, _instantiated(linearized(*flat)))

    f_jvp = tree.Partial(f_jvp)
    return (out, f_jvp, flat_fun.aux) if has_aux else (out, f_jvp)


def linear_transpose(fun: Callable, *primals, reduce_axes: Sequence[Any] = ()) -> Callable:
    """The transpose of a linear function of arguments of the types of `primals` (arrays or `ShapeDtypeStruct`s).

    Returns a function of a cotangent of the result, which returns a tuple with one cotangent per argument.
    `fun` must be linear: it is traced, not evaluated.

    Raises:
      TypeError: for arguments that are not inexact, or a cotangent that does not fit the result.
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to transpose is deprecated: use shard_map, whose types reduce.")
    leaves, struct = tree.tree_flatten(primals)
    avals = [typeof(x) for x in leaves]
    if not all(dtypes.issubdtype(a.dtype, np.inexact) for a in avals):
        raise TypeError(
            "linear_transpose only supports [float or complex] -> [float or complex] functions, but got the argument "
            f"types {[a.str_short() for a in avals]}."
        )
    flat_fun = FlatFun(fun, tree.tree_structure((primals, {})))
    jaxpr, consts = trace_to_jaxpr(flat_fun, avals, debug_info("linear_transpose", fun, primals, {}))

    def transposed_fun(cotangent):
        cts, got = tree.tree_flatten(cotangent)
        if got != flat_fun.out_tree:
            raise TypeError(
                f"cotangent tree does not match function output, expected {flat_fun.out_tree} but got {got}"
            )
        for ct, v in zip(cts, jaxpr.outvars, strict=True):
            want, have = v.aval, typeof(ct)
            if (want.shape, want.dtype) != (have.shape, have.dtype):
                raise TypeError(
                    f"cotangent type does not match function output, expected {want.str_short()} but got "
                    f"{have.str_short()}"
                )
        outs = backward_pass(jaxpr, consts, [UndefPrimal(a) for a in avals], cts)
        return tree.tree_unflatten(struct, _instantiated(outs))

    return transposed_fun
