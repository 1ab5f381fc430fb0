"""Defines the gradient functions of the public API: `grad`, `value_and_grad`, `fwd_and_bwd`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.source import callable_name
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.derivatives import checked_callable, vjp
from mpijax.transforms.flat import check_arguments, normalize_argnums, transformed
from mpijax.transforms.jit import jit
from mpijax.transforms.zeros import as_array, scalar_of_type

# ---------------------------------------------------------------- arguments and their types


def as_argnums(argnums: Any) -> int | tuple[int, ...]:
    """`argnums` as an int or a tuple of ints; raises TypeError for anything else."""
    try:
        return operator.index(argnums)
    except TypeError:
        return tuple(map(operator.index, argnums))


def selected_arguments(fun: Callable, argnums: int | tuple[int, ...], args, kwargs, what: str):
    """`fun` as a function of the arguments in `argnums` only, and these arguments."""
    which = normalize_argnums(argnums, len(args), what)
    chosen = tuple(args[i] for i in which)
    leaves = tree.tree_leaves(chosen)
    paths = [tree.keystr(p) for p, _ in tree.tree_flatten_with_path(chosen)[0]] if leaves else []
    check_arguments(leaves, f"{what} of {callable_name(fun)}", lambda i: paths[i])

    def partial(*given):
        full = list(args)
        for i, a in zip(which, given, strict=True):
            full[i] = a
        return fun(*full, **kwargs)

    partial.__name__ = callable_name(fun)
    return partial, chosen


def check_reverse_input(what: str, x: Any, holomorphic: bool, allow_int: bool) -> None:
    """Raise TypeError for an argument that reverse mode cannot differentiate with respect to."""
    aval = typeof(x)
    if aval.is_high:
        return  # its type has a type of cotangents
    dtype = aval.dtype
    if holomorphic and not dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError(f"{what} with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
    if not allow_int and not dtypes.issubdtype(dtype, np.inexact):
        raise TypeError(
            f"{what} requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), but got "
            f"{dtype.name}. If you want to use Boolean- or integer-valued inputs, use vjp or set allow_int to True."
        )


def check_real_output(what: str, x: Any, holomorphic: bool) -> None:
    """Raise TypeError for a result whose dtype does not have the requested kind of derivative."""
    dtype = typeof(x).dtype
    if dtypes.issubdtype(dtype, dtypes.extended):
        raise TypeError(f"{what} with output element type {dtype.name}")
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(f"{what} with holomorphic=True requires outputs with complex dtype, but got {dtype.name}.")
    elif dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"{what} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{dtype.name}. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
            "non-holomorphic functions involving complex outputs, use jax.vjp directly."
        )
    elif not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(
            f"{what} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{dtype.name}. For differentiation of functions with integer outputs, use jax.vjp directly."
        )


def _check_scalar(out: Any) -> None:
    try:
        aval = typeof(out)
    except TypeError:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {out}.") from None
    if aval.is_high:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had type: {aval.str_short(True)}.")
    shape = aval.shape
    if shape != ():
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had shape: {shape}.")


# ---------------------------------------------------------------- gradients


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
      argnums: positional arguments to differentiate with respect to; a tuple gives a tuple of
        gradients.
      holomorphic: differentiate a complex function of complex arguments.
      allow_int: accept integer arguments; their gradients have dtype float0.

    Raises:
      TypeError: for integer arguments, or an output that is not a real scalar.

    >>> mpijax.value_and_grad(lambda x: jnp.sum(x**2))(jnp.array([1.0, 2.0]))
    (Array(5., dtype=float32), Array([2., 4.], dtype=float32))
    """
    if reduce_axes:
        raise NotImplementedError(
            "reduce_axes argument to grad is deprecated. Use shard_map: it sums gradients over mesh axes."
        )
    checked_callable(fun)
    argnums = as_argnums(argnums)

    @transformed(fun, f"Value and gradient of {{fun}} with respect to positional argument(s) {argnums}, as a pair.")
    def value_and_grad_f(*args, **kwargs):
        largest = argnums if isinstance(argnums, int) else max(argnums, default=-1)
        if largest >= len(args):
            raise TypeError(
                f"differentiating with respect to {argnums=} requires at least {largest + 1} positional arguments to "
                f"be passed by the caller, but got only {len(args)} positional arguments."
            )
        f, chosen = selected_arguments(fun, argnums, args, kwargs, "grad")
        for leaf in tree.tree_leaves(chosen):
            check_reverse_input("grad", leaf, holomorphic, allow_int)
        out, pullback, *aux = vjp(f, *chosen, has_aux=has_aux)
        _check_scalar(out)
        check_real_output("grad", out, holomorphic)
        grads = pullback(as_array(scalar_of_type(1, typeof(out))))
        grads = grads[0] if isinstance(argnums, int) else grads
        return ((out, *aux) if has_aux else out), grads

    return value_and_grad_f


def grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable:
    """A function that returns `fun`'s gradient; see `value_and_grad`. With `has_aux`, `(gradient, aux)`.

    >>> mpijax.grad(lambda x: jnp.sum(x**3))(jnp.array([1.0, 2.0]))
    Array([ 3., 12.], dtype=float32)
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @transformed(fun, f"Gradient of {{fun}} with respect to positional argument(s) {argnums}.")
    def grad_f(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_f


def fwd_and_bwd(
    fun: Callable, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable, Callable]:
    """The forward and the backward pass of `fun` as two functions, each compiled once.

    `fwd(*args)` returns `(out, residuals)`, or `(out, residuals, aux)` with `has_aux`. `bwd(residuals, ct)` returns the
    cotangents of the arguments in `argnums`.

    >>> fwd, bwd = mpijax.fwd_and_bwd(jnp.dot, argnums=(0, 1))
    >>> out, residuals = fwd(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))
    >>> bwd(residuals, jnp.array(1.0))
    (Array([3., 4.], dtype=float32), Array([1., 2.], dtype=float32))
    """
    checked_callable(fun)
    argnums = as_argnums(argnums)

    def fwd(*args):
        f, chosen = selected_arguments(fun, argnums, args, {}, "fwd_and_bwd")
        return vjp(f, *chosen, has_aux=has_aux)

    def bwd(residuals, ct):
        cts = residuals(ct)
        return cts[0] if isinstance(argnums, int) else cts

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
