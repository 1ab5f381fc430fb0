"""Defines `check`, a condition tested at run time: a primitive that `checkify` turns into an `Error`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import numpy as jnp
from mpijax.checkify.errors import NO_ERROR, Error, FailedCheckError, JaxRuntimeError, bind_check
from mpijax.core.base.source import current_source
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.trees import tree
from mpijax.core.types.array_api import Array
from mpijax.core.types.typeof import typeof
from mpijax.ops.rules import at_front


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Fail with a message if `pred` is False.

    Outside `jit` and other staged functions it raises immediately. A staged function (`jit`, `scan`, ...) must be
    transformed by `checkify`, which returns the failure as a value.

    Args:
      pred: a bool scalar.
      msg: a format for `str.format`; `fmt_args` and `fmt_kwargs` are pytrees of arrays for it.
      debug: do nothing unless `checkify` transforms the function.

    Raises:
      JaxRuntimeError: if `pred` is False, outside `checkify`.
      TypeError: if `pred` is not a bool scalar, or an argument of the message is not an array.
      ValueError: if the check is compiled without `checkify`.

    >>> from mpijax.experimental import checkify
    >>> def root(x):
    ...     checkify.check(x >= 0, "negative: {x}", x=x)
    ...     return jnp.sqrt(x)
    >>> error, y = checkify.checkify(mpijax.jit(root))(-4.0)
    >>> error.get().split(" (")[0]
    'negative: -4.0'
    """
    name = "debug_check" if debug else "check"
    scalar = isinstance(pred, Array) and typeof(pred).shape == () and typeof(pred).dtype == np.bool_
    if not (scalar or isinstance(pred, bool)):
        raise TypeError(f"{name} takes a scalar pred as argument, got {pred}. Use jnp.all for an array of conditions.")
    for arg in tree.tree_leaves((fmt_args, fmt_kwargs)):
        if not isinstance(arg, (Array, np.ndarray)):
            raise TypeError(
                f"Formatting arguments to checkify.check need to be PyTrees of arrays, but got {arg!r} of type "
                f"{type(arg)}. Write it into the message, or convert it with jnp.asarray."
            )
    failure = FailedCheckError(current_source(), msg).with_payload(fmt_args, fmt_kwargs)
    bind_check(NO_ERROR.failing(jnp.logical_not(pred), failure), debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """A `check` inside `checkify`; does nothing elsewhere.

    >>> from mpijax.experimental import checkify
    >>> def root(x):
    ...     checkify.debug_check(x >= 0, "negative")
    ...     return jnp.sqrt(x)
    >>> root(4.0)
    Array(2., dtype=float32, weak_type=True)
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise if `error` contains a failure. Inside `checkify`, the failure becomes part of the result.

    Raises:
      JaxRuntimeError: the failure.
      ValueError: if it is compiled without `checkify`.

    >>> from mpijax.experimental import checkify
    >>> checked = checkify.checkify(lambda x: 1 / x, errors=checkify.div_checks)
    >>> error, y = checked(2.0)
    >>> checkify.check_error(error)
    """
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    bind_check(error, False)


# ---------------------------------------------------------------- the primitive


def _now(*leaves, err_tree, debug):
    failure = None if debug else tree.tree_unflatten(err_tree, leaves).get_exception()
    if failure is not None:
        raise JaxRuntimeError(str(failure)) from failure
    return []


def _in_program(*_leaves, err_tree, debug):
    if not debug:
        raise ValueError(
            "Cannot abstractly evaluate a checkify.check which was not functionalized: a check was compiled (jit, "
            "scan, ...) outside of checkify. Give the function to checkify.checkify first: "
            "err, out = jit(checkify.checkify(f))(x); err.throw()."
        )
    return []


def _batch(axis, args, dims, *, err_tree, debug):
    leaves = [at_front(x, d, axis.size) for x, d in zip(args, dims, strict=True)]
    bind_check(tree.tree_unflatten(err_tree, leaves), debug)
    return [], []


def _jvp(primals, _tangents, **params):
    return check_p.bind(*primals, **params), []


def _effects(params):
    skeleton = tree.tree_unflatten(params["err_tree"], range(params["err_tree"].num_leaves))
    return frozenset(skeleton._pred)


check_p = Primitive(
    "check",
    type_rule=lambda *_, **params: [],
    reference=_now,
    lower=Decompose(_in_program),
    jvp=_jvp,
    transpose=lambda cts, *args, **params: [None] * len(args),
    batch=_batch,
    multiple_results=True,
    effects=_effects,
    pretty=lambda eqn, names: [("debug", eqn.params["debug"])],
)
check_p.impl = _now
