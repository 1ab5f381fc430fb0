"""The automatic checks: NaN, division by zero, and indices out of bounds, per primitive."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import numpy as jnp
from mpijax.checkify.errors import DivisionByZeroError, Error, NaNError, OOBError
from mpijax.checkify.interpreter import rules
from mpijax.core import dtypes, tree
from mpijax.core.source import current_source
from mpijax.core.trace import typeof

# Operations that can yield NaN from numbers that are none.
_NAN_PRIMITIVES = """
    acos acosh add asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt conv_general_dilated cos cosh cumlogsumexp
    cummax cummin cumprod cumsum digamma dot_general erf erf_inv erfc exp expm1 fft igamma igamma_grad_a igammac
    integer_pow lgamma linear_solve log log1p logistic mul pad pow psum reduce reduce_prod reduce_sum reduce_window
    reduce_window_sum regularized_incomplete_beta rem rng_uniform rsqrt sin sinh sqrt sub tan tanh
"""


def _is_float(x: Any) -> bool:
    return dtypes.issubdtype(typeof(x).dtype, np.inexact)


def without_nan(error: Error, enabled: frozenset, primitive, outs: Any) -> Error:
    """The error that a result with NaN is."""
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
    """The error of indices `(..., components)` below 0 or above `limits`, of which component k is along `axes[k]`."""
    if not indices.size:
        return error
    # Broadcast here: the user may have asked for ranks to differ nowhere (jax_numpy_rank_promotion).
    outside = (indices < 0) | (indices > np.broadcast_to(limits.astype(indices.dtype), indices.shape))
    first = jnp.argmax(jnp.ravel(outside))
    axis = jnp.asarray(np.asarray(axes, np.int32))[first % len(axes)]
    size = jnp.asarray(np.asarray(shape, np.int32))[axis]
    message = jnp.stack([jnp.ravel(indices)[first].astype(np.int32), axis, size])
    failure = OOBError(current_source(), primitive.name, tuple(shape)).with_payload(message)
    return error.failing(jnp.any(outside), failure)


def _starts(starts) -> Any:
    return jnp.stack([jnp.asarray(s) for s in starts])


def _dynamic_slice_rule(error, enabled, primitive, args, params):
    out = primitive.bind(*args, **params)
    shape = typeof(args[0]).shape
    if OOBError in enabled and shape:
        limits = np.array(shape) - np.array(params["slice_sizes"])
        error = _out_of_bounds(error, primitive, shape, _starts(args[1:]), limits, range(len(shape)))
    return error, out


def _dynamic_update_slice_rule(error, enabled, primitive, args, params):
    out = primitive.bind(*args, **params)
    shape = typeof(args[0]).shape
    if OOBError in enabled and shape:
        limits = np.array(shape) - np.array(typeof(args[1]).shape)
        error = _out_of_bounds(error, primitive, shape, _starts(args[2:]), limits, range(len(shape)))
    return error, out


def _gather_rule(error, enabled, primitive, args, params):
    out = primitive.bind(*args, **params)
    axes = params["dimension_numbers"].start_index_map
    if OOBError in enabled and axes:
        shape = typeof(args[0]).shape
        limits = np.array([shape[a] - params["slice_sizes"][a] for a in axes])
        error = _out_of_bounds(error, primitive, shape, jnp.asarray(args[1]), limits, axes)
    return error, out


def _scatter_rule(error, enabled, primitive, args, params):
    out = primitive.bind(*args, **params)
    numbers = params["dimension_numbers"]
    axes = numbers.scatter_dims_to_operand_dims
    if OOBError not in enabled or not axes:
        return error, out
    operand, indices, updates = args
    shape, indices = typeof(operand).shape, jnp.asarray(indices)
    window = iter(numbers.update_window_dims)
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    sizes = [1 if d in single else typeof(updates).shape[next(window)] for d in range(len(shape))]
    limits = np.minimum([shape[a] - sizes[a] for a in axes], np.iinfo(indices.dtype).max)
    error = _out_of_bounds(error, primitive, shape, indices, limits, axes)
    return without_nan(error, enabled, primitive, out), out


# ---------------------------------------------------------------- check


def _check_rule(error, enabled, primitive, args, params):
    """A check's failures become part of the error, if they are looked for."""
    new: Error = tree.tree_unflatten(params["err_tree"], args)
    for effect, pred in new._pred.items():
        if effect.kind in enabled:
            error = error.updated(effect, pred, new._code[effect], list(new._payload[effect]))
    return error.knowing(new._metadata), []


rules.update(dict.fromkeys(_NAN_PRIMITIVES.split(), _nan_rule))
rules.update(dict.fromkeys("scatter scatter-add scatter-mul scatter-min scatter-max".split(), _scatter_rule))
rules["div"] = _div_rule
rules["dynamic_slice"] = _dynamic_slice_rule
rules["dynamic_update_slice"] = _dynamic_update_slice_rule
rules["gather"] = _gather_rule
rules["check"] = _check_rule
