"""Defines `checkify`: evaluates a function's Jaxpr with an `Error` besides the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from mpijax.checkify.checks import rule_of
from mpijax.checkify.errors import (
    NO_ERROR,
    DivisionByZeroError,
    Error,
    ErrorCategory,
    FailedCheckError,
    NaNError,
    OOBError,
)
from mpijax.core.programs.jaxpr import Jaxpr, eval_jaxpr
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.trees import tree
from mpijax.transforms.flat import FlatFun, debug_info
from mpijax.transforms.ref_state import values_of

user_checks: frozenset[ErrorCategory] = frozenset({FailedCheckError})
nan_checks: frozenset[ErrorCategory] = frozenset({NaNError})
index_checks: frozenset[ErrorCategory] = frozenset({OOBError})
div_checks: frozenset[ErrorCategory] = frozenset({DivisionByZeroError})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


def interpret(
    jaxpr: Jaxpr, consts: Sequence[Any], enabled: frozenset, error: Error, args: Sequence[Any]
) -> tuple[Error, list[Any]]:
    """Apply a Jaxpr's operations one by one, each with its checks."""

    def apply(eqn, values):
        nonlocal error
        rule = rule_of(eqn.primitive)
        if rule is None:
            outs = eqn.primitive.bind(*values, **eqn.params)
        else:
            error, outs = rule(error, enabled, eqn.primitive, values, eqn.params)
        return outs if eqn.primitive.multiple_results else [outs]

    outs = eval_jaxpr(jaxpr, consts, *args, apply=apply)
    return error, outs


def checkify(
    fun: Callable[..., Any], errors: frozenset[ErrorCategory] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """A function that returns an `Error` and the result of `fun`, instead of failing.

    Args:
      fun: may contain `check`s.
      errors: the checks to enable, any union of

        - `user_checks`: a failed `check`,
        - `nan_checks`: an operation that returns NaN,
        - `div_checks`: a division by zero,
        - `index_checks`: an index out of bounds,

        and `float_checks`, `automatic_checks`, `all_checks`, which are unions of these.

    Returns:
      A function of the same arguments with the result `(error, out)`. `error.get()` returns the message of the first
      failure or None, `error.throw()` raises it. It can be transformed: `jit(checkify(f))`, `vmap(checkify(f))`,
      `checkify(grad(f))`.

    >>> from mpijax.experimental import checkify
    >>> error, y = checkify.checkify(lambda x, i: x[i], errors=checkify.index_checks)(jnp.arange(3), 5)
    >>> "out-of-bounds" in error.get()
    True
    """

    @wraps(fun)
    def checked(*args, **kwargs):
        flat = FlatFun(lambda: fun(*args, **kwargs), tree.tree_flatten(((), {}))[1])
        jaxpr, consts = trace_to_jaxpr(flat, (), debug_info("checkify", fun, args, kwargs))
        error, outs = interpret(jaxpr, values_of(consts), frozenset(errors), NO_ERROR, ())
        return error, tree.tree_unflatten(flat.out_tree, outs)

    return checked
