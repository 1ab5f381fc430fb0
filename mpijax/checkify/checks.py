"""The automatic checks by primitive: NaN, division by zero, and indices out of bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax import numpy as jnp
from mpijax.checkify.errors import DivisionByZeroError, Error, NaNError, OOBError
from mpijax.core import dtypes
from mpijax.core.base.source import current_source
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof

Rule = Callable[..., tuple[Error, Any]]
# By primitive name: `(error, enabled, primitive, args, params) -> (error, results)`.
rules: dict[str, Rule] = {}

# Operations that can return NaN for operands without NaN.
_CAN_BE_NAN = frozenset("""
    acos acosh add asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt conv_general_dilated cos cosh cumlogsumexp
    cummax cummin cumprod cumsum digamma dot_general erf erf_inv erfc exp expm1 fft igamma igamma_grad_a igammac
    integer_pow lgamma linear_solve log log1p logistic mul pad pow psum reduce reduce_prod reduce_sum reduce_window
    reduce_window_sum regularized_incomplete_beta rem rng_uniform rsqrt scatter scatter-add scatter-max scatter-min
    scatter-mul sin sinh sqrt sub tan tanh
""".split())  # fmt: skip


def _is_float(x: Any) -> bool:
    return dtypes.issubdtype(typeof(x).dtype, np.inexact)


def without_nan(error: Error, enabled: frozenset, primitive, outs: Any) -> Error:
    """The error, with a failure if a result contains NaN."""
    floats = [x for x in (outs if primitive.multiple_results else [outs]) if _is_float(x)]
    if NaNError not in enabled or not floats:
        return error
    found = [jnp.any(jnp.isnan(x)) for x in floats]
    any_nan = found[0] if len(found) == 1 else jnp.any(jnp.stack(found))
    return error.failing(any_nan, NaNError(current_source(), primitive.name))


def _nan_rule(error, enabled, primitive, args, params):
    outs = primitive.bind(*args, **params)
    return without_nan(error, enabled, primitive, outs), outs


def _div_rule(error, enabled, primitive, args, params):
    if DivisionByZeroError in enabled:
        error = error.failing(jnp.any(jnp.equal(args[1], 0)), DivisionByZeroError(current_source()))
    return _nan_rule(error, enabled, primitive, args, params)


# ---------------------------------------------------------------- indices


def _out_of_bounds(error: Error, primitive, shape, indices, limits, axes) -> Error:
    """The error, with a failure for indices `(..., components)` outside [0, limits]. Component k is along `axes[k]`."""
    if not indices.size:
        return error
    # Broadcast explicitly: jax_numpy_rank_promotion may forbid implicit broadcasts.
    outside = (indices < 0) | (indices > np.broadcast_to(limits.astype(indices.dtype), indices.shape))
    first = jnp.argmax(jnp.ravel(outside))
    axis = jnp.asarray(np.asarray(axes, np.int32))[first % len(axes)]
    size = jnp.asarray(np.asarray(shape, np.int32))[axis]
    message = jnp.stack([jnp.ravel(indices)[first].astype(np.int32), axis, size])
    failure = OOBError(current_source(), primitive.name, tuple(shape)).with_payload(message)
    return error.failing(jnp.any(outside), failure)


def _bounds_rule(error, enabled, primitive, args, params):
    """Checks an operation whose slot `bounds` tells the positions it accesses."""
    out = primitive.bind(*args, **params)
    if OOBError in enabled:
        starts, limits, axes = primitive.bounds(*args, **params)
        if len(axes):
            several = isinstance(starts, (list, tuple))
            indices = jnp.stack([jnp.asarray(s) for s in starts]) if several else jnp.asarray(starts)
            limits = np.minimum(limits, np.iinfo(indices.dtype).max)
            error = _out_of_bounds(error, primitive, typeof(args[0]).shape, indices, limits, axes)
    return without_nan(error, enabled, primitive, out) if primitive.name in _CAN_BE_NAN else error, out


# ---------------------------------------------------------------- check


def _check_rule(error, enabled, primitive, args, params) -> tuple[Error, list[Any]]:
    """Adds a check's failures to the error if they are enabled."""
    new: Error = tree.tree_unflatten(params["err_tree"], args)
    for effect, pred in new._pred.items():
        if effect.kind in enabled:
            error = error.updated(effect, pred, new._code[effect], list(new._payload[effect]))
    return error.knowing(new._metadata), []


rules["div"] = _div_rule
rules["check"] = _check_rule


def rule_of(primitive) -> Rule | None:
    """The checking rule of an operation; None if it cannot fail."""
    if primitive.bounds is not None:
        return _bounds_rule
    return rules.get(primitive.name) or (_nan_rule if primitive.name in _CAN_BE_NAN else None)
