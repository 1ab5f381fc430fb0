"""Defines `custom_gradient` (value and gradient in one function) and `closure_convert` (hoists closed-over values)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.programs.jaxpr import Jaxpr, eval_jaxpr
from mpijax.core.tracing.jaxpr_trace import JitTracer, trace_to_jaxpr
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.batching import BatchTracer
from mpijax.transforms.custom_vjp import custom_vjp
from mpijax.transforms.flat import FlatFun, debug_info


class _ConvertedClosure:
    """A traced function of pytrees, without the values of its constants, which are its first arguments."""

    def __init__(self, jaxpr: Jaxpr, in_tree, out_tree):
        self.jaxpr = jaxpr
        self.in_tree = in_tree
        self.out_tree = out_tree

    def __call__(self, consts, *args):
        leaves, got = tree.tree_flatten(args)
        if got != self.in_tree:
            raise TypeError(
                "The inputs to the closure produced by closure_convert must have the same Pytree structure as the "
                f"example arguments passed when closure_convert was called. Expected {self.in_tree}, but got {got}"
            )
        return tree.tree_unflatten(self.out_tree, eval_jaxpr(self.jaxpr, consts, *leaves))


def _trace(fun: Callable, what: str, *args) -> tuple[_ConvertedClosure, list[Any]]:
    """The program of `fun` for arguments of these types, and the values that it closes over."""
    leaves, in_tree = tree.tree_flatten(args)
    flat = FlatFun(fun, tree.tree_structure((args, {})))
    jaxpr, consts = trace_to_jaxpr(flat, [typeof(x) for x in leaves], debug_info(what, fun, args, {}))
    return _ConvertedClosure(jaxpr, in_tree, flat.out_tree), consts


def custom_gradient(fun: Callable) -> custom_vjp:
    """Decorate a function that returns its value and its gradient function.

    `fun(*args) -> (value, gradient)`. `gradient(ct)` returns the cotangents of the arguments: a tuple, or the cotangent
    itself for one argument. `gradient` is traced: it may close over intermediate values, but Python control flow must
    not depend on them.

    >>> @mpijax.custom_gradient
    ... def bounded(x):
    ...     return x**2, lambda ct: jnp.clip(2 * x * ct, -1, 1)
    >>> mpijax.grad(bounded)(jnp.array([5.0])[0])
    Array(1., dtype=float32)
    """

    @custom_vjp
    def wrapped_fun(*args, **kwargs):
        value, _ = fun(*args, **kwargs)
        return value

    def fwd(*args, **kwargs):
        value, gradient = fun(*args, **kwargs)
        tangent_types = tree.tree_map(lambda x: typeof(x).to_tangent_aval(), value)
        program, consts = _trace(gradient, "custom_gradient fwd", tangent_types)
        return value, tree.Partial(program, consts)

    def bwd(gradient, ct):
        cts = gradient(ct)
        return (cts,) if tree.treedef_is_leaf(gradient.func.out_tree) else cts

    wrapped_fun.defvjp(fwd, bwd)
    return wrapped_fun


def closure_convert(fun: Callable, *example_args) -> tuple[Callable, list[Any]]:
    """Turns the values that `fun` closes over into arguments, for higher-order functions with custom derivatives.

    Returns a function of `fun`'s arguments followed by those values, and the values. Only values that may carry a
    tangent become arguments. `fun` is traced for arguments of the types of `example_args`.

    >>> def scaled(w):
    ...     f, values = mpijax.closure_convert(lambda x: w * x, 1.0)
    ...     return f(2.0, *values)
    >>> mpijax.grad(scaled)(jnp.float32(3))
    Array(2., dtype=float32)
    """
    program, consts = _trace(fun, "closure_convert", *example_args)
    hoist = [may_be_differentiated(c) for c in consts]
    hoisted = [c for c, h in zip(consts, hoist, strict=True) if h]
    kept = [None if h else c for c, h in zip(consts, hoist, strict=True)]
    count = len(hoisted)

    def converted_fun(*args_and_consts):
        split = len(args_and_consts) - count
        given = iter(args_and_consts[split:])
        values = [next(given) if h else c for c, h in zip(kept, hoist, strict=True)]
        return program(values, *args_and_consts[:split])

    return converted_fun, hoisted


def may_be_differentiated(x: Any) -> bool:
    """Whether `x` can carry a tangent, now or when the program being traced is differentiated."""
    if not isinstance(x, Tracer):
        return False
    if isinstance(x, JitTracer):
        return not x.aval.to_tangent_aval().has_no_tangent
    # All other tracers carry a tangent, except an example of a batch that carries none.
    return may_be_differentiated(x.batched) if isinstance(x, BatchTracer) else True
