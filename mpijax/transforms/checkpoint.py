"""Defines `checkpoint`: a function whose derivative recomputes intermediate values instead of keeping them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mpijax.core.base.errors import ConcretizationTypeError
from mpijax.core.base.source import callable_name, sources_of_function
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.refs import has_views, opened
from mpijax.core.tracing.trace import scope_key
from mpijax.core.trees import tree
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.flat import FlatFun, argument_types, check_arguments, debug_info, named_like, parameter_names
from mpijax.transforms.ref_state import (
    has_refs,
    may_be_kept,
    of_values,
    state_passing,
    values_in,
    values_of,
    write_all,
)
from mpijax.transforms.remat import remat_p

# Traced programs for each function, shared by all uses of the function.
_traced: weakref.WeakKeyDictionary[Callable, dict] = weakref.WeakKeyDictionary()

_NOT_GIVEN: Any = object()


def checkpoint(
    fun: Callable,
    *,
    prevent_cse: bool | Sequence[bool] = True,
    policy: Callable[..., Any] | None = None,
    static_argnums: int | tuple[int, ...] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: Any = _NOT_GIVEN,
) -> Callable:
    """A function whose derivative recomputes intermediate values instead of keeping them.

    This trades time for memory: `grad` keeps only the arguments of the call (and what the policy allows), and the
    backward pass evaluates the function again. Values and derivatives do not change. Communication that the derivative
    needs is also repeated, on all ranks.

    Args:
      fun: a function of pytrees of arrays.
      prevent_cse: prevent the compiler from reusing values of the first evaluation in the second; also a sequence with
        a flag for each argument. Not needed inside the body of a `scan`.
      policy: which values may be kept nevertheless, one of `checkpoint_policies`. It is called with a primitive, the
        types of its operands and its parameters, and returns a bool.
      static_argnums, static_argnames: arguments that are Python values known during tracing.

    Raises:
      TypeError: for an argument that is not an array, `static_argnums` that are not ints, or a `policy` that is not
        callable.
      ValueError: for `static_argnums` out of range.
      NotImplementedError: for `concrete`, which JAX removed.

    >>> f = mpijax.checkpoint(lambda x: jnp.sum(x**2))
    >>> mpijax.grad(f)(jnp.array([1.0, 2.0, 3.0]))
    Array([2., 4., 6.], dtype=float32)
    """
    if concrete is not _NOT_GIVEN:
        raise NotImplementedError(
            "checkpoint no longer has the argument `concrete`, as in JAX 0.10. If an argument decides Python control "
            "flow, name it in `static_argnums`."
        )
    if policy is not None and not callable(policy):
        raise TypeError(
            "The policy of checkpoint must be a function, such as jax.checkpoint_policies.dots_saveable. "
            f"Got {policy!r} of type {type(policy).__name__}."
        )
    nums = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    cse = tuple(prevent_cse) if isinstance(prevent_cse, Sequence) else prevent_cse
    if not isinstance(cse, (bool, tuple)):
        raise TypeError(f"prevent_cse must be a bool or a sequence of bools, got {cse!r} of type {type(cse)}.")

    def again_of(explicit: Callable) -> Callable:
        """Applies the same options to a function that takes the values of mutable array references."""
        return checkpoint(
            explicit, prevent_cse=bool(cse), policy=policy, static_argnums=nums, static_argnames=names
        )

    @named_like(fun)
    def fun_remat(*args, **kwargs):
        static = _static_positions(nums, len(args))
        dynamic = [a for i, a in enumerate(args) if i not in static]
        passed = {k: v for k, v in kwargs.items() if k not in names}
        leaves, in_tree = tree.tree_flatten((dynamic, passed))
        if has_views(leaves):
            args, kwargs = opened((args, kwargs))
            return fun_remat(*args, **kwargs)
        if has_refs(leaves):
            values, refs = values_in((args, kwargs))
            explicit = of_values(lambda args, kwargs: fun(*args, **kwargs), (args, kwargs))
            again = again_of(lambda *args, **kwargs: explicit(args, kwargs))
            out, new_values = again(*values[0], **values[1])
            write_all(refs, new_values)
            return out
        try:
            avals = tuple(argument_types(leaves))
        except TypeError:
            listed = parameter_names(fun, args, kwargs)
            check_arguments(leaves, f"checkpoint of {callable_name(fun)}", lambda i: listed[i])
            raise
        jaxpr, consts, out_tree, written = _trace(fun, args, kwargs, static, names, in_tree, avals)
        if written:
            explicit = state_passing(fun, written)
            again = again_of(lambda *args, values_of_refs, **kwargs: explicit(values_of_refs, *args, **kwargs))
            new_values, out = again(*args, values_of_refs=values_of(written), **kwargs)
            write_all(written, new_values)
            return out
        consts = values_of(consts)
        flags = cse
        if isinstance(cse, tuple):
            given = (tuple(dynamic), passed) if passed else tuple(dynamic)
            flags = (False,) * len(consts) + tuple(tree.broadcast_prefix(cse, given))
        outs = remat_p.bind(
            *consts, *leaves, jaxpr=jaxpr, prevent_cse=flags, differentiated=False, policy=policy
        )
        return tree.tree_unflatten(out_tree, outs)

    return fun_remat


def remat(
    fun: Callable,
    *,
    prevent_cse: bool | Sequence[bool] = True,
    policy: Callable[..., Any] | None = None,
    static_argnums: int | tuple[int, ...] = (),
    concrete: Any = _NOT_GIVEN,
) -> Callable:
    """Another name of `checkpoint`.

    >>> mpijax.grad(mpijax.remat(lambda x: x**3))(jnp.float32(2))
    Array(12., dtype=float32)
    """
    return checkpoint(fun, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums, concrete=concrete)


def _static_positions(nums: Any, count: int) -> frozenset[int]:
    if not isinstance(nums, tuple) or not all(type(i) is int for i in nums):
        raise TypeError(f"static_argnums of checkpoint must be an int or a tuple of ints, but got {nums!r}.")
    if not all(-count <= i < count for i in nums):
        raise ValueError(
            f"static_argnums of checkpoint must be at least -len(args) and less than len(args), but got {nums} for "
            f"{count} positional arguments."
        )
    return frozenset(i % count for i in nums)


def _trace(fun, args, kwargs, static, names, in_tree, avals) -> tuple[ClosedJaxpr, list[Any], Any, list]:
    """The Jaxpr, the closed-over values that it takes first, the structure of the result, and the written refs."""
    fixed = tuple((i, args[i]) for i in sorted(static)) + tuple((k, kwargs[k]) for k in names if k in kwargs)
    key = (in_tree, avals, fixed, len(args), *scope_key())
    try:
        known = _traced.setdefault(fun, {})
        found = known.get(key)
    except TypeError:  # the function has no weak references, or a static argument is not hashable
        known, found = None, None
    if found is None:
        written: list[Any] = []
        flat = FlatFun(_of_dynamic(fun, dict(fixed), len(args)), in_tree)
        try:
            with sources_of_function(fun):
                debug = debug_info("checkpoint / remat", fun, args, kwargs)
                jaxpr, consts = trace_to_jaxpr(flat, avals, debug, written)
        except ConcretizationTypeError as error:
            _point_to_static_arguments(error)
            raise
        closed, moved = hoist_tracers(jaxpr, consts, lambda _: True)
        found = closed, moved, flat.out_tree, written
        if known is not None and may_be_kept(moved) and not any(a.has_qdd for a in closed.in_avals):
            known[key] = found
    return found


def _of_dynamic(fun: Callable, fixed: dict[Any, Any], count: int) -> Callable:
    """`fun` as a function of its array arguments."""
    named = {k: v for k, v in fixed.items() if isinstance(k, str)}

    def call(*dynamic, **kwargs):
        it = iter(dynamic)
        return fun(*[fixed[i] if i in fixed else next(it) for i in range(count)], **named, **kwargs)

    return call


def _point_to_static_arguments(error: ConcretizationTypeError) -> None:
    """Add a hint about static arguments to an error from `checkpoint`'s own tracing."""
    message = str(error)
    if "for checkpoint" in message:
        hint = "If an argument decides Python control flow, name it in the static_argnums of checkpoint."
        error.args = (f"{message}\n{hint}",)
