"""Defines `numba_call`: calls a numba kernel from a program, without Python in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import Native
from mpijax.core.rules.primitive import Primitive
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.core.types.effects import FfiEffect
from mpijax.core.types.typeof import typeof
from mpijax.ops.callbacks.host import VMAP_METHODS, batch_call, canonical_results
from mpijax.ops.callbacks.numba_kernels import NumbaCode, compiled, kinds, make_kernel


def _type_rule(*avals, kernel, result_avals, **_):
    """The declared types. Compiles the kernel now, so that a type error shows the user's line."""
    compiled(kernel, kinds(avals), kinds(result_avals))
    return list(result_avals)


def _no_derivative(*_args, kernel, **_params):
    raise ValueError(
        f"The numba kernel {kernel.where} cannot be differentiated. Define its derivative with jax.custom_jvp or "
        "jax.custom_vjp. The rules may call other kernels."
    )


def _reference(*_arrays, kernel, **_):
    raise NotImplementedError(f"the numba kernel {kernel.where} has no NumPy reference")


numba_call_p: Primitive = Primitive(
    "numba_call",
    type_rule=_type_rule,
    reference=_reference,
    lower=Native(lambda ins, outs, *, kernel, **_: NumbaCode(kernel, ins, outs)),
    jvp=_no_derivative,
    transpose=_no_derivative,
    batch=lambda *args, **params: batch_call(numba_call_p, *args, **params),
    multiple_results=True,
    effects=lambda params: frozenset({FfiEffect()} if params["has_side_effect"] else ()),
    sharding_type=types.whole,
)


def numba_call(
    kernel: Callable[..., Any],
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    check_bounds: bool = False,
) -> Callable[..., Any]:
    """A function that calls a numba kernel, in traced code and outside of it, without Python in between.

    Args:
      kernel: a function compiled by numba, of the arguments followed by the results:
        `@numba.njit` with a parameter for each argument and each result: fills the results, which are uninitialized;
        `@numba.njit` with a parameter for each argument, or `@numba.vectorize`: returns the result, or a tuple of them;
        `@numba.guvectorize`: fills the results;
        `@numba.cfunc`: takes a pointer for each argument and each result, and then, if it has more parameters, the
        number of elements of each.
        Arrays are C-contiguous; arguments must not be written. Arguments without axes are passed as numbers.
      result_shape_dtypes: a pytree of `ShapeDtypeStruct`: the arrays that the kernel fills or returns; or a function
        that returns this pytree from the types of the arguments, which are `ShapeDtypeStruct`s.
      has_side_effect: calls are neither dropped nor merged, and keep program order.
      vmap_method: what `vmap` does, as in `pure_callback`; "sequential" is a loop of calls.
      check_bounds: compile an `njit` kernel again with numba's index checks. Without them, a kernel that writes
        beyond a result, because the declared result is too small, corrupts other data.

    The kernel is compiled once for dtypes and numbers of axes, during tracing; other sizes use the same code. It runs
    without the GIL, and may be compiled with `parallel=True`. There is no derivative: wrap the call in
    `custom_jvp` or `custom_vjp`. Nothing is communicated.

    Raises:
      TypeError: during tracing, if the kernel takes another number of arguments, or does not compile for these types
        (with numba's message).
      JaxRuntimeError: when the program runs, if the kernel raises, or returns another shape than declared.
      NotImplementedError: under `vmap` without `vmap_method`. ValueError: under `grad` and `jvp`.

    >>> import numba
    >>> kernel = numba.njit(lambda x: x * x)
    >>> square = mpijax.numba_call(kernel, lambda x: x)
    >>> mpijax.jit(square)(jnp.arange(3.0))
    Array([0., 1., 4.], dtype=float32)
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be one of the allowed methods {list(VMAP_METHODS)}, but got: {vmap_method}")

    def call(*args: Any) -> Any:
        declared = result_shape_dtypes
        if callable(declared):
            declared = declared(*(ShapeDtypeStruct(a.shape, a.dtype) for a in map(typeof, args)))
        leaves, out_tree = tree.tree_flatten(declared)
        result_avals = canonical_results(leaves)
        known = make_kernel(kernel, len(args), len(result_avals), check_bounds)
        outs = numba_call_p.bind(
            *args, kernel=known, result_avals=result_avals, vmap_method=vmap_method, has_side_effect=has_side_effect
        )
        return tree.tree_unflatten(out_tree, outs)

    return call
